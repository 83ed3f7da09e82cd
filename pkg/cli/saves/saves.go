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

// Package saves waits for changes of the files in a folder.
package saves

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// ignored are patterns of names whose changes do not count: folders with installed
// dependencies, and files in which editors keep what is not saved yet.
var ignored = []string{
	"node_modules", "packages", "__pycache__", ".git", ".venv", "venv",
	"*~", "*.swp", "*.swx", "4913", ".#*", "#*#", "*___jb_*___",
}

// IsIgnored reports whether changes of the path do not count.
func IsIgnored(path string) bool {
	return slices.ContainsFunc(ignored, func(pattern string) bool {
		matches, err := filepath.Match(pattern, filepath.Base(path))
		return err == nil && matches
	})
}

// Watcher watches a folder.
type Watcher struct {
	dir    string
	events *fsnotify.Watcher
	quiet  time.Duration
}

// Watch starts to watch a folder and those in it. Editors write a file in several steps, so
// a change counts once no other has followed for the time quiet.
func Watch(dir string, quiet time.Duration) (*Watcher, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("failed to watch files: %w", err)
	}
	w := &Watcher{dir: dir, events: events, quiet: quiet}
	if err := w.add(dir); err != nil {
		events.Close()
		return nil, fmt.Errorf("failed to watch files: %w", err)
	}
	return w, nil
}

// Close ends the watch.
func (w *Watcher) Close() error { return w.events.Close() }

// Await waits until files have changed and no more changes follow, or ctx ends. It returns
// true if the channel is closed first.
func (w *Watcher) Await(ctx context.Context, ended <-chan struct{}) bool {
	var calm <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ended:
			return true
		case event := <-w.events.Events:
			if event.Op == fsnotify.Chmod || IsIgnored(event.Name) {
				continue
			}
			if info, err := os.Stat(event.Name); err == nil && info.IsDir() && event.Has(fsnotify.Create) {
				// The folder may already be gone.
				_ = w.add(event.Name)
			}
			calm = time.After(w.quiet)
		case <-w.events.Errors:
			// Too many changes at once: events were lost, and so were new folders.
			_ = w.add(w.dir)
			calm = time.After(w.quiet)
		case <-calm:
			return false
		}
	}
}

func (w *Watcher) add(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		case path != dir && IsIgnored(path):
			return filepath.SkipDir
		}
		return w.events.Add(path)
	})
}
