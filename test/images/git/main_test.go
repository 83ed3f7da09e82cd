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

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
	"github.com/kiln-dev/kiln/pkg/sources/sourcestest"
)

func newServer(t *testing.T) *httptest.Server {
	t.Helper()
	repository, err := newRepository(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	handler, err := newHandler(t.Context(), repository)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

func post(t *testing.T, address string) {
	t.Helper()
	answer, err := http.Post(address, "", http.NoBody)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %v", address, answer, err)
	}
	answer.Body.Close()
}

// TestFetch fetches the repository as a build does.
func TestFetch(t *testing.T) {
	server := newServer(t)
	limits := sources.Limits{Download: 1 << 20, Size: 1 << 20, Files: 100, Ratio: 100}
	want := sourcestest.Function("nodejs", "1")[1].Content
	revision := "main"
	for range 2 {
		folder := t.TempDir()
		root, err := os.OpenRoot(folder)
		if err != nil {
			t.Fatal(err)
		}
		tree := sources.NewTree(root, limits)
		commit, err := fetch.Git{URL: server.URL + "/code", Revision: revision, Folder: "functions/nodejs"}.Fetch(t.Context(), t.TempDir(), tree, limits)
		tree.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(folder, "linked", "answer.js")); err != nil || string(got) != want {
			t.Errorf("of %s there is %q, %v, want %q", revision, got, err, want)
		}
		// Fetch again by the commit.
		revision = commit
	}
}

// TestMove moves a branch to the commit of another.
func TestMove(t *testing.T) {
	server := newServer(t)
	resolve := func(branch string) string {
		commit, err := fetch.Git{URL: server.URL + "/code", Revision: branch}.Resolve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return commit
	}
	before, next := resolve("main"), resolve("next")
	post(t, server.URL+"/move/main?to=next")
	if after := resolve("main"); after != next || before == next {
		t.Errorf("main was at %s and is at %s, want %s", before, after, next)
	}
}

// TestToken checks that the private repository requires the token.
func TestToken(t *testing.T) {
	server := newServer(t)
	secret := t.TempDir()
	if err := os.WriteFile(filepath.Join(secret, fetch.TokenKey), []byte("t0ken"), 0o600); err != nil {
		t.Fatal(err)
	}
	resolve := func(credentials fetch.Credentials) error {
		_, err := fetch.Git{URL: server.URL + "/private/code", Revision: "main", Credentials: credentials}.Resolve(t.Context())
		return err
	}
	for _, credentials := range []fetch.Credentials{"", fetch.Credentials(secret)} {
		if err := resolve(credentials); sources.ExitCode(err) != sources.ExitRefused {
			t.Errorf("before the token is set, with %q: %v", credentials, err)
		}
	}
	post(t, server.URL+"/token?token=t0ken")
	if err := resolve(""); sources.ExitCode(err) != sources.ExitRefused {
		t.Errorf("without the token: %v", err)
	}
	if err := resolve(fetch.Credentials(secret)); err != nil {
		t.Errorf("with the token: %v", err)
	}
}
