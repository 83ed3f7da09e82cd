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

// Package cache keeps the results of slow work, by the hash of the inputs.
package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kiln-dev/kiln/hack/cluster/internal/progress"
)

const (
	// retention is how long an unused entry is kept.
	retention = 30 * 24 * time.Hour
	// lockPoll is how often a lock that another process holds is tried again.
	lockPoll = 200 * time.Millisecond

	lockSuffix = ".lock"
	tempSuffix = ".tmp"
)

// Store is a cache on disk. It may be used by several processes at once.
type Store struct {
	root string
}

// Open returns the Store of the user: $XDG_CACHE_HOME/kiln, by default ~/.cache/kiln.
func Open() (*Store, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(base) {
		// The specification says to ignore a path that is not absolute.
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("failed to find cache directory: %w", err)
		}
		base = filepath.Join(home, ".cache")
	}
	return At(filepath.Join(base, "kiln"))
}

// At returns the Store in the given directory, which it creates.
func At(root string) (*Store, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("failed to create cache directory: %w", err)
	}
	// Docker reports mounts by their real paths.
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fmt.Errorf("failed to resolve cache directory: %w", err)
	}
	return &Store{root: root}, nil
}

// Path returns a path inside the Store for state that is not an entry, such as the
// registry's storage.
func (s *Store) Path(elem ...string) string {
	return filepath.Join(append([]string{s.root}, elem...)...)
}

// Get returns the directory of the entry name with the given key. If there is none, build
// makes its content in the given directory. An entry is never incomplete, even if a
// process is killed.
func (s *Store) Get(ctx context.Context, name, key string, build func(dir string) error) (string, error) {
	dir := s.Path(name, key)
	if use(dir) {
		progress.Note(ctx, "cached")
		return dir, nil
	}
	if err := os.MkdirAll(s.Path(name), 0o755); err != nil {
		return "", fmt.Errorf("failed to create cache directory: %w", err)
	}
	unlock, err := Lock(ctx, dir+lockSuffix)
	if err != nil {
		return "", err
	}
	defer unlock()
	if use(dir) { // Made by the process that held the lock.
		return dir, nil
	}
	if err := create(dir, build); err != nil {
		return "", err
	}
	s.prune(name, key)
	return dir, nil
}

// use reports whether the entry is there, and marks it as used.
func use(dir string) bool {
	now := time.Now()
	return os.Chtimes(dir, now, now) == nil
}

// create builds an entry beside its place and then moves it there.
func create(dir string, build func(string) error) error {
	temp := dir + tempSuffix
	// A killed process left this. The lock excludes all other processes.
	if err := os.RemoveAll(temp); err != nil {
		return fmt.Errorf("failed to clear cache entry: %w", err)
	}
	if err := os.Mkdir(temp, 0o755); err != nil {
		return fmt.Errorf("failed to create cache entry: %w", err)
	}
	if err := build(temp); err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	if err := syncTree(temp); err != nil {
		return fmt.Errorf("failed to sync cache entry: %w", err)
	}
	if err := os.Rename(temp, dir); err != nil {
		return fmt.Errorf("failed to complete cache entry: %w", err)
	}
	return nil
}

// syncTree writes a tree to the disk, so that a power failure after the rename
// cannot leave an entry with empty files.
func syncTree(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() && !d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Sync()
	})
}

// prune removes entries of the same name that nobody has asked for in a long time. It
// ignores errors: the next call tries again.
func (s *Store) prune(name, keep string) {
	entries, err := os.ReadDir(s.Path(name))
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || e.Name() == keep || strings.HasSuffix(e.Name(), tempSuffix) {
			continue
		}
		if time.Since(info.ModTime()) > retention {
			os.RemoveAll(s.Path(name, e.Name()))
			os.Remove(s.Path(name, e.Name()+lockSuffix))
		}
	}
}

// Lock waits for an exclusive lock on the file at path. The kernel frees it when the
// process ends.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("failed to open lock: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("failed to lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(lockPoll):
		}
	}
}
