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
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
)

var limits = sources.Limits{Download: 1 << 10}

// secret returns a folder as a Secret is mounted.
func secret(t *testing.T, keys map[string]string) fetch.Credentials {
	t.Helper()
	folder := t.TempDir()
	for key, value := range keys {
		if err := os.WriteFile(filepath.Join(folder, key), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fetch.Credentials(folder)
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// serve answers with a text at /archive, and requires credentials at /basic and /token.
func serve(t *testing.T, archive string) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/archive", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("it got credentials that nobody has given")
		}
		if r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("it was asked for %s", r.Header.Get("Accept-Encoding"))
		}
		if _, err := w.Write([]byte(archive)); err != nil {
			t.Error(err)
		}
	})
	want := func(authorization string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != authorization {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if _, err := w.Write([]byte(archive)); err != nil {
				t.Error(err)
			}
		}
	}
	mux.HandleFunc("/basic", want("Basic dXNlcjpwYXNz")) // user:pass
	mux.HandleFunc("/token", want("Bearer t0ken"))
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code := map[string]int{"404": 404, "403": 403, "410": 410, "429": 429, "500": 500, "503": 503}[r.PathValue("code")]
		w.WriteHeader(code)
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		if _, err := w.Write([]byte("half")); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/around", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/around", http.StatusFound) })
	mux.HandleFunc("/unsized", func(w http.ResponseWriter, _ *http.Request) {
		for range 100 {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return // It is not wanted any more.
			}
			if flusher, ok := w.(http.Flusher); ok {
				flusher.Flush()
			}
		}
	})
	return mux
}

func TestArchive(t *testing.T) {
	const archive = "what there is"
	server := httptest.NewServer(serve(t, archive))
	t.Cleanup(server.Close)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// By another name, it is another server.
		http.Redirect(w, r, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)+"/archive", http.StatusFound)
	}))
	t.Cleanup(elsewhere.Close)
	closed := httptest.NewServer(nil)
	closed.Close()

	for name, tc := range map[string]struct {
		url, sha256 string
		secret      map[string]string
		want        string
		code        int
	}{
		"as it is":                  {url: "/archive"},
		"with its hash":             {url: "/archive", sha256: hashOf(archive)},
		"with another's":            {url: "/archive", sha256: hashOf("x"), want: "its sha256 is " + hashOf(archive) + ", and not " + hashOf("x"), code: sources.ExitRefused},
		"with a password":           {url: "/basic", secret: map[string]string{"username": "user", "password": "pass\n"}},
		"with a wrong password":     {url: "/basic", secret: map[string]string{"username": "user", "password": "x"}, want: "check the Secret", code: sources.ExitRefused},
		"without a password":        {url: "/basic", want: "its server answered 401 Unauthorized: name a Secret", code: sources.ExitRefused},
		"with a token":              {url: "/token", secret: map[string]string{"token": "t0ken\r\n", "username": "ignored"}},
		"credentials stay":          {url: elsewhere.URL + "/", secret: map[string]string{"token": "t0ken"}},
		"no certificate":            {url: "/archive", secret: map[string]string{"ca.crt": "x"}, want: "ca.crt of the Secret with its credentials has no certificate", code: sources.ExitRefused},
		"not there":                 {url: "/status/404", want: "its server answered 404 Not Found", code: sources.ExitRefused},
		"forbidden":                 {url: "/status/403", want: "403 Forbidden", code: sources.ExitRefused},
		"gone":                      {url: "/status/410", want: "410 Gone", code: sources.ExitRefused},
		"too many":                  {url: "/status/429", want: "429 Too Many Requests", code: sources.ExitUnreachable},
		"broken":                    {url: "/status/500", want: "500 Internal Server Error", code: sources.ExitUnreachable},
		"overloaded":                {url: "/status/503", want: "503 Service Unavailable", code: sources.ExitUnreachable},
		"broken off":                {url: "/cut", want: "its server closed the connection after 4 bytes: unexpected EOF", code: sources.ExitUnreachable},
		"in circles":                {url: "/around", want: "its server redirects more than 10 times", code: sources.ExitRefused},
		"too large, and says so":    {url: "/large", want: "it is more than 1Ki (max-download-size in config-build)", code: sources.ExitRefused},
		"too large, and never ends": {url: "/unsized", want: "it is more than 1Ki", code: sources.ExitRefused},
		"nobody there":              {url: closed.URL + "/archive?signature=secret", want: "its server was not reached: dial tcp", code: sources.ExitUnreachable},
		"no such host":              {url: "http://no.such.host.invalid/a", want: "its server was not reached: ", code: sources.ExitUnreachable},
		"no https":                  {url: strings.Replace(server.URL, "http", "https", 1) + "/archive", want: "its server cannot be trusted", code: sources.ExitRefused},
	} {
		t.Run(name, func(t *testing.T) {
			a := fetch.Archive{URL: tc.url, SHA256: tc.sha256}
			if strings.HasPrefix(tc.url, "/") {
				a.URL = server.URL + tc.url
			}
			if tc.url == "/large" {
				large := httptest.NewServer(serve(t, strings.Repeat("x", 1<<10+1)))
				t.Cleanup(large.Close)
				a.URL = large.URL + "/archive"
			}
			if tc.secret != nil {
				a.Credentials = secret(t, tc.secret)
			}
			got := &bytes.Buffer{}
			fetched, err := a.Fetch(t.Context(), got, limits)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || sources.ExitCode(err) != tc.code {
					t.Errorf("Fetch() = %v, exit code %d, want %q, %d", err, sources.ExitCode(err), tc.want, tc.code)
				}
				if err != nil && strings.Contains(err.Error(), "secret=") {
					t.Errorf("Fetch() = %v: it tells the signature", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := fetch.Fetched{SHA256: hashOf(archive), Size: int64(len(archive))}
			if diff := cmp.Diff(want, fetched); diff != "" || got.String() != archive {
				t.Errorf("%q was written (-want, +got):\n%s", got, diff)
			}
		})
	}
}

func TestTrust(t *testing.T) {
	server := httptest.NewTLSServer(serve(t, "x"))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	a := fetch.Archive{URL: server.URL + "/archive"}
	if _, err := a.Fetch(t.Context(), &bytes.Buffer{}, limits); sources.ExitCode(err) != sources.ExitRefused {
		t.Errorf("a server that nobody knows: %v", err)
	}
	a.Credentials = secret(t, map[string]string{"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))})
	if _, err := a.Fetch(t.Context(), &bytes.Buffer{}, limits); err != nil {
		t.Errorf("a server that the Secret knows: %v", err)
	}
	plain := httptest.NewServer(serve(t, "x"))
	t.Cleanup(plain.Close)
	server.Config.Handler = http.RedirectHandler(plain.URL+"/archive", http.StatusFound)
	if _, err := a.Fetch(t.Context(), &bytes.Buffer{}, limits); err == nil || !strings.Contains(err.Error(), "its server redirects from https to http") {
		t.Errorf("a redirection into the open: %v", err)
	}
}

// TestRedirectToOthers checks that another server learns nothing of the one that
// redirects to it, even if that is another port of the same host.
func TestRedirectToOthers(t *testing.T) {
	var got http.Header
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		_, _ = w.Write([]byte("x"))
	}))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") == "":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/first":
			http.Redirect(w, r, "/second", http.StatusFound)
		default:
			http.Redirect(w, r, other.URL+"/archive", http.StatusFound)
		}
	}))
	t.Cleanup(server.Close)
	a := fetch.Archive{URL: server.URL + "/first?signature=secret", Credentials: secret(t, map[string]string{"username": "a", "password": "b"})}
	if _, err := a.Fetch(t.Context(), &bytes.Buffer{}, limits); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Authorization", "Referer"} {
		if got.Get(name) != "" {
			t.Errorf("another server is told %s: %s", name, got.Get(name))
		}
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestDiskFull checks that nobody else is blamed for the disk.
func TestDiskFull(t *testing.T) {
	server := httptest.NewServer(serve(t, "x"))
	t.Cleanup(server.Close)
	_, err := fetch.Archive{URL: server.URL + "/archive"}.Fetch(t.Context(), full{}, limits)
	if sources.ExitCode(err) != 1 {
		t.Errorf("Fetch() = %v, exit code %d", err, sources.ExitCode(err))
	}
}

func TestName(t *testing.T) {
	for address, want := range map[string]string{
		"https://example.com/a/b.zip":                    "https://example.com/a/b.zip",
		"https://user:pass@example.com:8443/a?sig=abc#x": "https://example.com:8443/a",
		"https://example.com/%zz":                        "at its URL",
	} {
		if got := fetch.Name(address); got != want {
			t.Errorf("Name(%q) = %q, want %q", address, got, want)
		}
	}
}
