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

package saves

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
)

func TestIsIgnored(t *testing.T) {
	for path, want := range map[string]bool{
		"/fn/node_modules": true, "/fn/lib/__pycache__": true, "/fn/.git": true, "/fn/handler.js": false, "/fn/node_modules.txt": false, "/node_modules/fn": false,
		"/fn/.handler.js.swp": true, "/fn/handler.js~": true, "/fn/4913": true, "/fn/.#handler.py": true, "/fn/a.swf": false, "/fn/#1": false,
	} {
		if got := IsIgnored(path); got != want {
			t.Errorf("IsIgnored(%s) = %v, want %v", path, got, want)
		}
	}
}

func TestWatch(t *testing.T) {
	// A function whose own folder has an ignored name is still watched.
	dir := filepath.Join(t.TempDir(), "packages")
	for _, folder := range []string{"lib/deep", "node_modules/ms", ".git/objects"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	watcher, err := Watch(dir, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	got := watcher.events.WatchList()
	slices.Sort(got)
	if diff := cmp.Diff([]string{dir, filepath.Join(dir, "lib"), filepath.Join(dir, "lib", "deep")}, got); diff != "" {
		t.Errorf("watched folders (-want +got):\n%s", diff)
	}
	if err := watcher.add(filepath.Join(dir, "absent")); err != nil {
		t.Errorf("a folder that is gone: %v", err)
	}
}

func TestAwait(t *testing.T) {
	watching := func(t *testing.T) (*Watcher, string) {
		t.Helper()
		dir := t.TempDir()
		watcher, err := Watch(dir, 50*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { watcher.Close() })
		return watcher, dir
	}
	t.Run("events are lost", func(t *testing.T) {
		watcher, dir := watching(t)
		if err := watcher.events.Remove(dir); err != nil {
			t.Fatal(err)
		}
		lost := filepath.Join(dir, "lost")
		if err := os.Mkdir(lost, 0o700); err != nil {
			t.Fatal(err)
		}
		go func() { watcher.events.Errors <- fsnotify.ErrEventOverflow }()
		if watcher.Await(t.Context(), nil) {
			t.Error("the wait ended for another reason")
		}
		if !slices.Contains(watcher.events.WatchList(), lost) {
			t.Error("a folder whose event was lost is not watched")
		}
	})
	t.Run("a file changes", func(t *testing.T) {
		watcher, dir := watching(t)
		if err := os.WriteFile(filepath.Join(dir, "handler.js"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if watcher.Await(t.Context(), nil) {
			t.Error("Await() = true, but no server ended")
		}
	})
	t.Run("a file of a new folder changes", func(t *testing.T) {
		watcher, dir := watching(t)
		folder := filepath.Join(dir, "lib")
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		watcher.Await(t.Context(), nil)
		if !slices.Contains(watcher.events.WatchList(), folder) {
			t.Errorf("it watches %q, not the new folder", watcher.events.WatchList())
		}
	})
	t.Run("the server ends", func(t *testing.T) {
		watcher, _ := watching(t)
		ended := make(chan struct{})
		close(ended)
		if !watcher.Await(t.Context(), ended) {
			t.Error("Await() = false, but the server ended")
		}
	})
	t.Run("ignored files change until the user interrupts", func(t *testing.T) {
		watcher, dir := watching(t)
		if err := os.Mkdir(filepath.Join(dir, "__pycache__"), 0o700); err != nil {
			t.Fatal(err)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		if watcher.Await(ctx, nil) {
			t.Error("Await() = true after an interrupt")
		}
		if slices.Contains(watcher.events.WatchList(), filepath.Join(dir, "__pycache__")) {
			t.Error("it watches an ignored folder")
		}
	})
}
