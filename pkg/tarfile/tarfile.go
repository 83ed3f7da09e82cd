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

// Package tarfile writes folders into tar archives. Equal files make equal bytes.
package tarfile

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Epoch is the modification time of every entry.
var Epoch = time.Unix(0, 0).UTC()

// Header returns a header without an owner and with the time Epoch. place is a path in
// the archive. It may begin with a slash.
func Header(place string, kind byte, mode, size int64) *tar.Header {
	return &tar.Header{
		Typeflag: kind,
		Name:     strings.TrimPrefix(place, "/"),
		Mode:     mode,
		Size:     size,
		ModTime:  Epoch,
		Format:   tar.FormatPAX,
	}
}

// WriteEntry writes the entry name of the folder root to place in the archive. All users
// can read it, and only its owner can write it.
func WriteEntry(archive *tar.Writer, root *os.Root, name, place string, kind fs.FileMode) error {
	switch kind {
	case fs.ModeDir:
		return archive.WriteHeader(Header(place+"/", tar.TypeDir, 0o755, 0))
	case fs.ModeSymlink:
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		link := Header(place, tar.TypeSymlink, 0o777, 0)
		link.Linkname = target
		return archive.WriteHeader(link)
	case 0:
		return writeFile(archive, root, name, place)
	default:
		return fmt.Errorf("%s is not a file, folder or link", name)
	}
}

func writeFile(archive *tar.Writer, root *os.Root, name, place string) error {
	file, err := root.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	if err := archive.WriteHeader(Header(place, tar.TypeReg, mode, info.Size())); err != nil {
		return err
	}
	if _, err = io.Copy(archive, file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
