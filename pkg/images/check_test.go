/*
Copyright 2026 The Kiln Authors

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package images

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestCheck checks that an image is lost only if the registry itself reports that it does
// not hold it, twice.
func TestCheck(t *testing.T) {
	r := newRegistry(t)
	held := digestOf(t, r.images[0])
	unknown := `{"errors": [{"code": "MANIFEST_UNKNOWN"}]}`
	for name, tc := range map[string]struct {
		digest  string
		answers []string
		status  int
		lost    bool
		err     bool
	}{
		"held":                         {digest: held},
		"lost":                         {digest: absent, lost: true},
		"the repository is lost":       {answers: []string{`{"errors": [{"code": "NAME_UNKNOWN"}]}`}, status: http.StatusNotFound, lost: true},
		"Harbor has lost it":           {answers: []string{`{"errors": [{"code": "NOT_FOUND"}]}`}, status: http.StatusNotFound, lost: true},
		"only at the first look":       {answers: []string{unknown, "{}"}, status: http.StatusNotFound},
		"404 of a proxy":               {answers: []string{"<html>"}, status: http.StatusNotFound, err: true},
		"404 without an error":         {answers: []string{`{}`}, status: http.StatusNotFound, err: true},
		"unauthorized":                 {answers: []string{unknown}, status: http.StatusUnauthorized, err: true},
		"forbidden":                    {answers: []string{unknown}, status: http.StatusForbidden, err: true},
		"too many requests":            {answers: []string{unknown}, status: http.StatusTooManyRequests, err: true},
		"the registry is unavailable":  {answers: []string{unknown}, status: http.StatusServiceUnavailable, err: true},
		"at the second look it is bad": {answers: []string{unknown, "<html>"}, status: http.StatusNotFound, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			check := Check{Repository: r.Repository, Digest: tc.digest}
			if tc.answers != nil {
				check.Name, check.Digest = scripted(t, tc.status, tc.answers...)+"/fn", "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
			}
			got, err := NewClient(anonymous).Check(t.Context(), check, 0)
			if got.Lost != tc.lost || (err != nil) != tc.err {
				t.Errorf("Check() = %+v, %v; want lost %t, error %t", got, err, tc.lost, tc.err)
			}
		})
	}
}

// scripted returns the address of a registry that answers each GET of a manifest with the
// next text, and each HEAD with its status alone. "{}" is a manifest that it holds.
func scripted(t *testing.T, status int, answers ...string) string {
	t.Helper()
	gets := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.Contains(req.URL.Path, "/manifests/") {
			return
		}
		if req.Method == http.MethodHead {
			w.WriteHeader(status)
			return
		}
		answer := answers[min(gets, len(answers)-1)]
		gets++
		if answer == "{}" && gets > 1 {
			_, _ = w.Write([]byte("{}"))
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// TestCheckOfHeldImageIsOneRequest bounds the cost of an image that is not lost.
func TestCheckOfHeldImageIsOneRequest(t *testing.T) {
	requests := 0
	r := newRegistry(t)
	counting := http.DefaultTransport
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.URL.Path, "/manifests/") {
			requests++
		}
		req.URL.Scheme, req.URL.Host, req.RequestURI = "http", strings.Split(r.Name, "/")[0], ""
		resp, err := counting.RoundTrip(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
	}))
	t.Cleanup(server.Close)
	check := Check{Repository: r.Repository, Digest: digestOf(t, r.images[0])}
	check.Name = strings.Replace(r.Name, strings.Split(r.Name, "/")[0], strings.TrimPrefix(server.URL, "http://"), 1)
	if got, err := NewClient(anonymous).Check(t.Context(), check, 0); got.Lost || err != nil || requests != 1 {
		t.Errorf("Check() = %+v, %v after %d requests; want one", got, err, requests)
	}
	// The same after the image is deleted.
	if err := remote.Delete(repositoryOf(t, r.Name).Digest(check.Digest)); err != nil {
		t.Fatal(err)
	}
	check.Repository = r.Repository
	if got, err := NewClient(anonymous).Check(t.Context(), check, 0); !got.Lost || err != nil {
		t.Errorf("Check() of a deleted image = %+v, %v", got, err)
	}
}
