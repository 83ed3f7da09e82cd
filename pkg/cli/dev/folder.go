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

package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kiln-dev/kiln/pkg/cli/saves"
	"github.com/kiln-dev/kiln/pkg/sources/pack"
)

// file is what tells two versions of a file apart.
type file struct {
	size       int64
	modified   time.Time
	executable bool
}

// scan returns the files of a folder that a deployment would pack, by name, without
// installed dependencies. It skips links to folders. It returns an error if the volume of the
// pod has no room for the files.
func scan(dir string) (map[string]file, error) {
	files, total := map[string]file{}, int64(0)
	err := pack.Walk(dir, nil, func(root *os.Root, name string, entry fs.DirEntry) error {
		switch {
		case saves.IsIgnored(name) && entry.IsDir():
			return fs.SkipDir
		case saves.IsIgnored(name) || entry.IsDir():
			return nil
		}
		info, err := root.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case info.Mode().IsRegular():
			total += info.Size()
			files[name] = file{size: info.Size(), modified: info.ModTime(), executable: info.Mode()&0o111 != 0}
		}
		return nil
	})
	if err == nil && total > sourceSize {
		// Part of a MiB counts as one, so that the words do not contradict themselves.
		err = fmt.Errorf("its files have %d MiB, and the pod has room for %d MiB: list files that the code does not need in .gitignore, or in .dockerignore if there is one",
			(total+mebibyte-1)/mebibyte, sourceSize/mebibyte)
	}
	return files, err
}

// compare returns the names of the files that differ, sorted.
func compare(before, after map[string]file) (written, deleted []string) {
	for name, now := range after {
		if was, ok := before[name]; !ok || was != now {
			written = append(written, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			deleted = append(deleted, name)
		}
	}
	slices.Sort(written)
	slices.Sort(deleted)
	return written, deleted
}

// maxWrites bounds the files that are sent at the same time.
const maxWrites = 8

// sync makes the files of the pod those of the folder. It remembers what has arrived, so a
// later call completes an earlier one that failed.
func (p *pod) sync(ctx context.Context, dir string, files map[string]file) error {
	written, deleted := compare(p.sent, files)
	for _, name := range deleted {
		if err := p.launcher.remove(ctx, name); err != nil {
			return err
		}
		delete(p.sent, name)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxWrites)
	for _, name := range written {
		group.Go(func() error {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := p.launcher.write(ctx, name, data, files[name].executable); err != nil {
				return err
			}
			p.lock.Lock()
			defer p.lock.Unlock()
			p.sent[name] = files[name]
			return nil
		})
	}
	return group.Wait()
}
