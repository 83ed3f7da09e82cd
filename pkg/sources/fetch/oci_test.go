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
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
)

const (
	artifact = "what there is"
	password = "s3cret"
)

// newRegistry starts a registry with artifacts, below /open for all, and below
// /private for those who know the password.
func newRegistry(t *testing.T) *httptest.Server {
	t.Helper()
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	mux := http.NewServeMux()
	mux.Handle("/v2/open/", store)
	mux.HandleFunc("/v2/", func(w http.ResponseWriter, r *http.Request) {
		if _, got, _ := r.BasicAuth(); got != password && r.Header.Get("Authorization") != "Bearer t0ken" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		store.ServeHTTP(w, r)
	})
	mux.HandleFunc("/v2/open/broken/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInsufficientStorage) })
	mux.HandleFunc("/v2/open/endless/manifests/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
		for range 5 << 10 {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return // It is not wanted any more.
			}
		}
	})
	mux.HandleFunc("/v2/open/damaged/manifests/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
		if _, err := io.WriteString(w, "<html>"); err != nil {
			t.Error(err)
		}
	})
	// The content differs from the digest in the manifest.
	mux.HandleFunc("/v2/open/other/blobs/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			store.ServeHTTP(w, r)
			return
		}
		if _, err := io.WriteString(w, "what there if"); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// push pushes an artifact with these layers to a registry without a password.
func push(t *testing.T, to string, layers ...string) {
	t.Helper()
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, layer := range layers {
		var err error
		if image, err = mutate.AppendLayers(image, static.NewLayer([]byte(layer), "application/zip")); err != nil {
			t.Fatal(err)
		}
	}
	ref, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithAuth(&authn.Basic{Username: "user", Password: password})); err != nil {
		t.Fatal(err)
	}
}

// pushIndex pushes an index of an artifact.
func pushIndex(t *testing.T, to string) {
	t.Helper()
	ref, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: empty.Image})
	if err := remote.WriteIndex(ref, index, remote.WithAuth(&authn.Basic{Username: "user", Password: password})); err != nil {
		t.Fatal(err)
	}
}

// dockerConfig is what docker login writes of a registry.
func dockerConfig(host, password string) string {
	auth := base64.StdEncoding.EncodeToString([]byte("user:" + password))
	return fmt.Sprintf(`{"auths": {"https://%s/v2/": {"auth": %q}}}`, host, auth)
}

func TestArtifact(t *testing.T) {
	host := strings.TrimPrefix(newRegistry(t).URL, "http://")
	for _, repository := range []string{"/open/fn", "/private/fn", "/open/other"} {
		push(t, host+repository+":1", artifact)
	}
	push(t, host+"/open/fn:two", artifact, "x")
	push(t, host+"/open/fn:none")
	push(t, host+"/open/fn:large", strings.Repeat("x", 1<<10+1))
	pushIndex(t, host+"/open/fn:index")
	digest, err := remote.Head(must(t)(name.ParseReference(host + "/open/fn:1")))
	if err != nil {
		t.Fatal(err)
	}
	closed := httptest.NewServer(nil)
	closed.Close()

	for name, tc := range map[string]struct {
		url, sha256 string
		secret      map[string]string
		registry    map[string]string
		want        string
		code        int
	}{
		"by tag":             {url: "/open/fn:1"},
		"by digest":          {url: "/open/fn@" + digest.Digest.String()},
		"by both":            {url: "/open/fn:1@" + digest.Digest.String()},
		"with its hash":      {url: "/open/fn:1", sha256: hashOf(artifact)},
		"with another's":     {url: "/open/fn:1", sha256: hashOf("x"), want: "its sha256 is " + hashOf(artifact) + ", and not " + hashOf("x"), code: sources.ExitRefused},
		"with a password":    {url: "/private/fn:1", secret: map[string]string{"username": "user", "password": password}},
		"with a token":       {url: "/private/fn:1", secret: map[string]string{"token": "t0ken"}},
		"with Docker's":      {url: "/private/fn:1", secret: map[string]string{".dockerconfigjson": dockerConfig(host, password)}},
		"with the images'":   {url: "/private/fn:1", registry: map[string]string{"config.json": dockerConfig(host, password)}},
		"the Secret's first": {url: "/private/fn:1", secret: map[string]string{"username": "user", "password": password}, registry: map[string]string{"config.json": dockerConfig(host, "x")}},
		"not for all": {
			url: "/private/fn:1", secret: map[string]string{".dockerconfigjson": dockerConfig("registry.example.com", password)},
			want: "401 Unauthorized: check the Secret", code: sources.ExitRefused,
		},
		"wrong password": {url: "/private/fn:1", secret: map[string]string{"username": "user", "password": "x"}, want: "401 Unauthorized: check the Secret", code: sources.ExitRefused},
		"no password":    {url: "/private/fn:1", want: "401 Unauthorized: name a Secret with credentials for it in secretName", code: sources.ExitRefused},
		"bad Secret": {
			url: "/private/fn:1", secret: map[string]string{".dockerconfigjson": "x"},
			want: ".dockerconfigjson of the Secret with its credentials must be JSON", code: sources.ExitRefused,
		},
		"no such tag":    {url: "/open/fn:9", want: "its server answered 404 Not Found", code: sources.ExitRefused},
		"no such digest": {url: "/open/fn@sha256:" + hashOf("x"), want: "its server answered 404 Not Found", code: sources.ExitRefused},
		"two layers":     {url: "/open/fn:two", want: "it has 2 layers, and must have one, which is the archive", code: sources.ExitRefused},
		"no layer":       {url: "/open/fn:none", want: "it has 0 layers, and must have one", code: sources.ExitRefused},
		"an index":       {url: "/open/fn:index", want: "it is an index of artifacts, not one artifact", code: sources.ExitRefused},
		"too large":      {url: "/open/fn:large", want: "it is more than 1Ki (max-download-size in config-build)", code: sources.ExitRefused},
		"damaged":        {url: "/open/damaged:1", want: "its manifest is damaged", code: sources.ExitRefused},
		"endless":        {url: "/open/endless:1", want: "its manifest is more than 4Mi", code: sources.ExitRefused},
		"no name":        {url: "/OPEN", want: "its URL must be oci://, a registry, a repository, and a tag or a digest", code: sources.ExitRefused},
		"broken":         {url: "/open/broken:1", want: "its server answered 507 Insufficient Storage", code: sources.ExitUnreachable},
		"other content":  {url: "/open/other:1", want: "its server closed the connection after", code: sources.ExitUnreachable},
		"nobody there":   {url: strings.TrimPrefix(closed.URL, "http://") + "/code:1", want: "its server was not reached: dial tcp", code: sources.ExitUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			a := fetch.Archive{URL: "oci://" + tc.url, SHA256: tc.sha256, Insecure: []string{host}}
			if strings.HasPrefix(tc.url, "/") {
				a.URL = "oci://" + host + tc.url
			}
			if tc.secret != nil {
				a.Credentials = secret(t, tc.secret)
			}
			if tc.registry != nil {
				a.RegistryCredentials = secret(t, tc.registry)
			}
			got := &bytes.Buffer{}
			fetched, err := a.Fetch(t.Context(), got, limits)
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

// TestArtifactTrust checks that a registry is trusted by the Secret's certificates.
func TestArtifactTrust(t *testing.T) {
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(server.Close)
	ref := must(t)(name.ParseReference(strings.TrimPrefix(server.URL, "https://") + "/fn:1"))
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer([]byte(artifact), "application/zip"))
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithTransport(server.Client().Transport)); err != nil {
		t.Fatal(err)
	}
	a := fetch.Archive{URL: "oci://" + ref.Name()}
	if _, err := a.Fetch(t.Context(), &bytes.Buffer{}, limits); err == nil {
		t.Error("a registry that nobody knows is trusted")
	}
	a.Credentials = secret(t, map[string]string{"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))})
	if _, err := a.Fetch(t.Context(), &bytes.Buffer{}, limits); err != nil {
		t.Errorf("a registry that the Secret knows: %v", err)
	}
}

// must returns the reference, which is one.
func must(t *testing.T) func(name.Reference, error) name.Reference {
	return func(ref name.Reference, err error) name.Reference {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
}
