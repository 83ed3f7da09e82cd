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

package fetch_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
)

// newStore starts a fake store with one object. It requires a signature but does not
// verify it. asked has its requests.
func newStore(t *testing.T) (server *httptest.Server, asked *http.Request) {
	t.Helper()
	asked = &http.Request{}
	complain := func(w http.ResponseWriter, status int, answer string) {
		w.WriteHeader(status)
		if _, err := io.WriteString(w, answer); err != nil {
			t.Error(err)
		}
	}
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = *r
		switch {
		case strings.HasSuffix(r.URL.Path, "/private.zip") && r.Header.Get("Authorization") == "":
			complain(w, http.StatusForbidden, "<Error><Code>AccessDenied</Code><Message>Access\nDenied</Message></Error>")
		case strings.HasSuffix(r.URL.Path, ".zip"):
			complain(w, http.StatusOK, artifact)
		case strings.HasSuffix(r.URL.Path, "/large"):
			complain(w, http.StatusOK, strings.Repeat("x", 1<<10+1))
		case strings.HasSuffix(r.URL.Path, "/elsewhere"):
			w.Header().Set("Location", "http://127.0.0.1:1/")
			complain(w, http.StatusTemporaryRedirect, "<Error><Code>TemporaryRedirect</Code></Error>")
		case strings.HasSuffix(r.URL.Path, "/slow"):
			complain(w, http.StatusServiceUnavailable, "<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>")
		case strings.HasSuffix(r.URL.Path, "/page"):
			complain(w, http.StatusNotFound, "<html><Code>not a code</Code>")
		default:
			complain(w, http.StatusNotFound, "<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>")
		}
	}))
	t.Cleanup(server.Close)
	return server, asked
}

func TestObject(t *testing.T) {
	server, asked := newStore(t)
	closed := httptest.NewServer(nil)
	closed.Close()
	keys := map[string]string{"accessKeyId": "AKID", "secretAccessKey": "s3cret"}

	for name, tc := range map[string]struct {
		url, sha256 string
		store       fetch.S3Store
		secret      map[string]string
		want        string
		code        int
	}{
		"for all":          {url: "s3://code/a/b.zip"},
		"with keys":        {url: "s3://code/private.zip", secret: keys},
		"with its hash":    {url: "s3://code/a.zip", sha256: hashOf(artifact)},
		"with another's":   {url: "s3://code/a.zip", sha256: hashOf("x"), want: "its sha256 is " + hashOf(artifact), code: sources.ExitRefused},
		"without keys":     {url: "s3://code/private.zip", want: `its server answered 403 Forbidden, AccessDenied: "Access\nDenied": name a Secret`, code: sources.ExitRefused},
		"half of the keys": {url: "s3://code/private.zip", secret: map[string]string{"accessKeyId": "AKID"}, want: "must have both accessKeyId and secretAccessKey", code: sources.ExitRefused},
		"not there":        {url: "s3://code/absent", want: `404 Not Found, NoSuchKey: "The specified key does not exist."`, code: sources.ExitRefused},
		"no store":         {url: "s3://code/page", want: "its server answered 404 Not Found", code: sources.ExitRefused},
		"elsewhere":        {url: "s3://code/elsewhere", secret: keys, want: "its server answered 307 Temporary Redirect, TemporaryRedirect", code: sources.ExitRefused},
		"too busy":         {url: "s3://code/slow", want: "its server answered 503 Service Unavailable, SlowDown", code: sources.ExitUnreachable},
		"too large":        {url: "s3://code/large", want: "it is more than 1Ki (max-download-size in config-build)", code: sources.ExitRefused},
		"no key":           {url: "s3://code", want: "its URL must be s3://, a bucket, / and a key", code: sources.ExitRefused},
		"nobody there":     {url: "s3://code/a.zip", store: fetch.S3Store{Endpoint: closed.URL}, want: "its server was not reached: dial tcp", code: sources.ExitUnreachable},
		"no endpoint":      {url: "s3://code/a.zip", store: fetch.S3Store{Endpoint: "http://%"}, want: "the endpoint of its store is not a URL", code: sources.ExitRefused},
	} {
		t.Run(name, func(t *testing.T) {
			a := fetch.Archive{URL: tc.url, SHA256: tc.sha256, S3: tc.store}
			if a.S3.Endpoint == "" {
				a.S3.Endpoint = server.URL
			}
			if tc.secret != nil {
				a.Credentials = secret(t, tc.secret)
			}
			got := &bytes.Buffer{}
			fetched, err := a.Fetch(t.Context(), got, limits)
			if signed := asked.Header.Get("Authorization") != ""; tc.code == 0 && signed != (tc.secret != nil) {
				t.Errorf("the request is signed: %t", signed)
			}
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || sources.ExitCode(err) != tc.code {
					t.Errorf("Fetch() = %v, exit code %d, want %q, %d", err, sources.ExitCode(err), tc.want, tc.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := fetch.Fetched{SHA256: hashOf(artifact), Size: int64(len(artifact))}
			if diff := cmp.Diff(want, fetched); diff != "" || got.String() != artifact {
				t.Errorf("%q was written (-want, +got):\n%s", got, diff)
			}
		})
	}
}
