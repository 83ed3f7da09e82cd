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
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
	"github.com/kiln-dev/kiln/pkg/sources/sourcestest"
)

// TestPush wants that what was pushed can be fetched as a build does.
func TestPush(t *testing.T) {
	server := httptest.NewServer(handler())
	t.Cleanup(server.Close)
	images := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(images.Close)
	artifact := strings.TrimPrefix(images.URL, "http://") + "/team/code"
	answer, err := http.Post(server.URL+"/push?name=nodejs-1.zip&to="+artifact+":1", "", strings.NewReader(`{"auths": {}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	digest, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", answer.Status, digest, err)
	}
	got := &bytes.Buffer{}
	archive := fetch.Archive{URL: "oci://" + artifact + "@" + string(digest)}
	if _, err := archive.Fetch(t.Context(), got, sources.Limits{Download: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), sourcestest.Functions()["nodejs-1.zip"]) {
		t.Errorf("it is another archive of %d bytes", got.Len())
	}
}

// TestGit wants that the repository can be fetched as a build does.
func TestGit(t *testing.T) {
	server := httptest.NewServer(handler())
	t.Cleanup(server.Close)
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
		commit, err := fetch.Git{URL: server.URL + "/git", Revision: revision, Folder: "functions/nodejs"}.Fetch(t.Context(), t.TempDir(), tree, limits)
		tree.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(folder, "linked", "answer.js")); err != nil || string(got) != want {
			t.Errorf("of %s there is %q, %v, want %q", revision, got, err, want)
		}
		// The same by the commit.
		revision = commit
	}
	moved, err := http.Post(server.URL+"/move/main?to=next", "", http.NoBody)
	if err != nil || moved.StatusCode != http.StatusOK {
		t.Fatalf("failed to move a branch: %v, %v", moved, err)
	}
	moved.Body.Close()
	next, err := fetch.Git{URL: server.URL + "/git", Revision: "next"}.Resolve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if main, err := (fetch.Git{URL: server.URL + "/git", Revision: "main"}).Resolve(t.Context()); err != nil || main != next || main == revision {
		t.Errorf("main is at %s, %v, want %s, which is not %s", main, err, next, revision)
	}
	if _, err := (fetch.Git{URL: server.URL + "/private/git", Revision: "main"}).Resolve(t.Context()); sources.ExitCode(err) != sources.ExitRefused {
		t.Errorf("without the token: %v", err)
	}
}
