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
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
)

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// advertise returns a server that lists these lines; "" ends a section.
func advertise(lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		encoder := pktline.NewEncoder(w)
		for _, line := range lines {
			var err error
			if line == "" {
				err = encoder.Flush()
			} else {
				err = encoder.EncodeString(line)
			}
			if err != nil {
				return
			}
		}
	}
}

func TestResolve(t *testing.T) {
	const service = "# service=git-upload-pack\n"
	refuses := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	for name, tc := range map[string]struct {
		server   http.HandlerFunc
		revision string
		want     string
		wantErr  string
		exitCode int
	}{
		"a branch":             {advertise(service, "", commitB+" HEAD\x00symref=HEAD:refs/heads/next", commitA+" refs/heads/main\n", ""), "main", commitA, "", 0},
		"without a first line": {advertise(commitA+" refs/heads/main\n", ""), "main", commitA, "", 0},
		"a branch over a tag":  {advertise(service, "", commitB+" refs/tags/v1\x00x\n", commitA+" refs/heads/v1\n", ""), "v1", commitA, "", 0},
		"part of a name":       {advertise(service, "", commitB+" refs/heads/x/main\x00x\n", commitB+" refs/heads/main2\n", commitA+" refs/heads/main\n", ""), "main", commitA, "", 0},
		"a tag with words":     {advertise(service, "", commitB+" refs/tags/v1\x00x\n", commitA+" refs/tags/v1^{}\n", ""), "v1", commitA, "", 0},
		"nothing in it":        {advertise(service, "", strings.Repeat("0", 40)+" capabilities^{}\x00x\n", ""), "main", "", `it has no branch or tag "main"`, sources.ExitRefused},
		"on no branch":         {advertise(service, "", commitB+" refs/heads/main\x00x\n", ""), "", "", "it has no default branch: set revision", sources.ExitRefused},
		"no hash":              {advertise(service, "", "main refs/heads/main\x00x\n", ""), "main", "", `it has no branch or tag "main"`, sources.ExitRefused},
		"words of the server":  {advertise(service, "", "ERR no\x1b[2J such   thing\n"), "main", "", "its server says: no [2J such thing", sources.ExitRefused},
		"many words":           {advertise(service, "", "ERR "+strings.Repeat("é", 5000)), "main", "", "its server says: " + strings.Repeat("é", 100) + "…", sources.ExitRefused},
		"broken off":           {advertise(service, "", commitB+" refs/heads/next\x00x\n"), "main", "", "its server closed the connection", sources.ExitUnreachable},
		"nothing at all":       {advertise(), "main", "", "its server closed the connection", sources.ExitUnreachable},
		"nonsense":             {func(w http.ResponseWriter, r *http.Request) { advertise()(w, r); _, _ = io.WriteString(w, "hello") }, "main", "", "does not speak the Git protocol", sources.ExitRefused},
		"a page":               {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "main", "", "it is not a Git repository: its server answered with text/html", sources.ExitRefused},
		"an answer of 404":     {refuses(404), "main", "", "its server has no such repository", sources.ExitRefused},
		"an answer of 403":     {refuses(403), "main", "", "its server requires credentials", sources.ExitRefused},
		"an answer of 500":     {refuses(500), "main", "", "its server answered 500 Internal Server Error", sources.ExitUnreachable},
		"an answer of 418":     {refuses(418), "main", "", "its server answered 418 I'm a teapot", sources.ExitRefused},
		"elsewhere, in the open": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "ftp://example.com/", http.StatusFound)
		}, "main", "", "unsupported protocol scheme", sources.ExitUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tc.server)
			t.Cleanup(server.Close)
			got, err := fetch.Git{URL: server.URL + "/code.git", Revision: tc.revision}.Resolve(t.Context())
			if got != tc.want || sources.ExitCode(err) != tc.exitCode || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("Resolve() = %q, %v (exit code %d), want %q, %q", got, err, sources.ExitCode(err), tc.want, tc.wantErr)
			}
		})
	}
}

// TestResolveAsksOnce checks that a lookup sends one request, and stops reading once it has
// found the branch.
func TestResolveAsksOnce(t *testing.T) {
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.String()
		advertise("# service=git-upload-pack\n", "", commitA+" refs/heads/main\x00x\n")(w, r)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	if got, err := (fetch.Git{URL: server.URL + "/code/", Revision: "main"}).Resolve(t.Context()); got != commitA || err != nil {
		t.Errorf("Resolve() = %s, %v", got, err)
	}
	if got, want := <-asked, "GET /code/info/refs?service=git-upload-pack"; got != want || len(asked) > 0 {
		t.Errorf("asked for %s, and %d more, want %s", got, len(asked), want)
	}
}

// TestResolveEndless checks that neither a server that never ends nor one that says
// nothing takes memory, or time.
func TestResolveEndless(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := 0; r.Context().Err() == nil; i++ {
			advertise(fmt.Sprintf("%s refs/heads/%060000d\n", commitB, i))(w, r)
		}
	}))
	t.Cleanup(server.Close)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, err := fetch.Git{URL: server.URL, Revision: "main"}.Resolve(t.Context())
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "their list is larger than 64Mi") || sources.ExitCode(err) != sources.ExitRefused {
		t.Errorf("Resolve() = %v", err)
	}
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 32<<20 {
		t.Errorf("memory has grown by %d MiB", grown>>20)
	}

	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (fetch.Git{URL: silent.URL, Revision: "main"}).Resolve(ctx); err == nil || err.Error() != "its server has not answered in time" || sources.ExitCode(err) != sources.ExitUnreachable {
		t.Errorf("Resolve() = %v", err)
	}
}

// TestResolveBySSH checks the error of a server that has no such repository.
func TestResolveBySSH(t *testing.T) {
	r := newRepository(t)
	r.write("handler.js", "one")
	r.commit()
	key, public := newKey(t)
	address, known := r.serveSSH(public)
	credentials := secret(t, map[string]string{"ssh-privatekey": key, "known_hosts": known})
	_, err := fetch.Git{URL: "ssh://git@" + address + "/it's/nowhere", Credentials: credentials}.Resolve(t.Context())
	if err == nil || !strings.Contains(err.Error(), "its server says: fatal: ") || sources.ExitCode(err) != sources.ExitRefused {
		t.Errorf("of no repository: Resolve() = %v", err)
	}
	if _, err := (fetch.Git{URL: "ssh://git@" + address + "/code", Revision: "nowhere", Credentials: credentials}).Resolve(t.Context()); err == nil || !strings.Contains(err.Error(), `it has no branch or tag "nowhere"`) {
		t.Errorf("of no branch: Resolve() = %v", err)
	}
}
