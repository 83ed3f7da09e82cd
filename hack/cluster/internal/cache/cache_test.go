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

package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func testStore(t *testing.T) *Store {
	t.Helper()
	s, err := At(filepath.Join(t.TempDir(), "kiln"))
	if err != nil {
		t.Fatalf("At() = %v", err)
	}
	return s
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGetBuildsOnce(t *testing.T) {
	s := testStore(t)
	var builds atomic.Int32
	build := func(dir string) error {
		builds.Add(1)
		time.Sleep(20 * time.Millisecond)
		return os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o644)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			dir, err := s.Get(t.Context(), "thing", "key", build)
			if err != nil {
				t.Errorf("Get() = %v", err)
			}
			if data, err := os.ReadFile(filepath.Join(dir, "file")); string(data) != "content" {
				t.Errorf("entry has %q, %v", data, err)
			}
		})
	}
	wg.Wait()
	if got := builds.Load(); got != 1 {
		t.Errorf("built %d times, want 1", got)
	}
}

func TestGetFailedBuildLeavesNothing(t *testing.T) {
	s := testStore(t)
	cause := errors.New("broken")
	_, err := s.Get(t.Context(), "thing", "key", func(dir string) error {
		write(t, filepath.Join(dir, "half"), "")
		return cause
	})
	if !errors.Is(err, cause) {
		t.Errorf("Get() = %v, want %v", err, cause)
	}
	for _, suffix := range []string{"", tempSuffix} {
		if _, err := os.Stat(s.Path("thing", "key"+suffix)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("entry%s is there after a failed build: %v", suffix, err)
		}
	}
}

// A process that is killed leaves its directory, and the kernel frees its lock.
func TestGetAfterKill(t *testing.T) {
	s := testStore(t)
	write(t, s.Path("thing", "key"+tempSuffix, "half"), "")
	dir, err := s.Get(t.Context(), "thing", "key", func(string) error { return nil })
	if err != nil {
		t.Fatalf("Get() = %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "half")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("entry has what the killed process left: %v", err)
	}
}

func TestGetPrunesOldEntries(t *testing.T) {
	s := testStore(t)
	for _, key := range []string{"old", "recent"} {
		if _, err := s.Get(t.Context(), "thing", key, func(string) error { return nil }); err != nil {
			t.Fatalf("Get() = %v", err)
		}
	}
	past := time.Now().Add(-retention - time.Hour)
	if err := os.Chtimes(s.Path("thing", "old"), past, past); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "thing", "new", func(string) error { return nil }); err != nil {
		t.Fatalf("Get() = %v", err)
	}
	if _, err := os.Stat(s.Path("thing", "old")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("old entry is still there: %v", err)
	}
	if _, err := os.Stat(s.Path("thing", "recent")); err != nil {
		t.Errorf("recent entry: %v", err)
	}
}

func TestLockExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatalf("Lock() = %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Lock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second Lock() = %v, want %v", err, context.DeadlineExceeded)
	}
	unlock()
	unlock, err = Lock(t.Context(), path)
	if err != nil {
		t.Fatalf("Lock() after unlock = %v", err)
	}
	unlock()
}

func TestOpen(t *testing.T) {
	base := t.TempDir()
	t.Setenv("HOME", filepath.Join(base, "home"))
	tests := map[string]string{
		filepath.Join(base, "xdg"): filepath.Join(base, "xdg", "kiln"),
		"":                         filepath.Join(base, "home", ".cache", "kiln"),
		"relative":                 filepath.Join(base, "home", ".cache", "kiln"),
	}
	for xdg, want := range tests {
		t.Setenv("XDG_CACHE_HOME", xdg)
		s, err := Open()
		if err != nil {
			t.Fatalf("Open() = %v", err)
		}
		if got := s.Path(); got != want {
			t.Errorf("XDG_CACHE_HOME=%q: store is in %q, want %q", xdg, got, want)
		}
	}
}
