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

// Package pack packs the folder of a function for builds. Equal folders make equal bytes.
package pack

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/tarfile"
)

// Folder writes a .tar.gz of a folder, and returns the number of files. It leaves out .git
// and the files that .dockerignore names, or without that file those that Git ignores. It
// always packs the needed files at the root, if they exist.
func Folder(to io.Writer, dir string, needed ...string) (files int, err error) {
	packed := gzip.NewWriter(to)
	archive := tar.NewWriter(packed)
	err = Walk(dir, needed, func(root *os.Root, name string, entry fs.DirEntry) error {
		if !entry.IsDir() {
			files++
		}
		return write(archive, root, name, entry.Type())
	})
	if err == nil && files == 0 {
		err = errors.New("there is nothing to pack: it is empty, or all of it is ignored")
	}
	if err := errors.Join(err, archive.Close(), packed.Close()); err != nil {
		return 0, fmt.Errorf("failed to pack folder: %w", err)
	}
	return files, nil
}

// Walk calls visit with the entries of a folder that Folder packs.
func Walk(dir string, needed []string, visit func(root *os.Root, name string, entry fs.DirEntry) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("failed to open folder: %w", err)
	}
	defer root.Close()
	ignored, err := ignoredIn(dir)
	if err != nil {
		return err
	}
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		without, err := ignored.has(name, entry.IsDir())
		switch {
		case err != nil:
			return err
		case slices.Contains(needed, name):
		case without && entry.IsDir() && !ignored.mayHave(name):
			return fs.SkipDir
		case without:
			return nil
		}
		return visit(root, name, entry)
	})
}

// write writes an entry, and rejects a link that a build would reject.
func write(archive *tar.Writer, root *os.Root, name string, kind fs.FileMode) error {
	if kind == fs.ModeSymlink {
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		if err := sources.CheckLink(name, target); err != nil {
			return err
		}
	}
	return tarfile.WriteEntry(archive, root, name, name, kind)
}
