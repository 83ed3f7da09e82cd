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

package sources

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// File is an archive on disk.
type File interface {
	io.Reader
	io.ReaderAt
}

// Unpack unpacks a .zip or .tar.gz archive of that size into the empty folder. The first
// bytes of the archive determine its format. If it returns a RefusedError, the content of the
// folder is undefined.
func Unpack(archive File, size int64, root *os.Root, limits Limits) error {
	tree := NewTree(root, limits)
	defer tree.Close()
	tree.packedIn(size)
	start := make([]byte, 512)
	n, err := archive.ReadAt(start, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("failed to read archive: %w", err)
	}
	switch start = start[:n]; {
	case bytes.HasPrefix(start, []byte("PK\x03\x04")), bytes.HasPrefix(start, []byte("PK\x05\x06")):
		err = unzip(archive, size, tree)
	case bytes.HasPrefix(start, []byte("\x1f\x8b")):
		err = untar(archive, tree)
	case n == 0:
		return Refuse("it is empty, not a .zip or .tar.gz")
	default:
		return Refuse("it is not a .zip or .tar.gz: its first bytes are those of %s", http.DetectContentType(start))
	}
	return broken(err)
}

func broken(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*RefusedError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*WriteError](err); ok {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return Refuse("it is truncated")
	}
	return Refuse("it is damaged: %w", err)
}

// The directory at the end of a .zip is read into memory. These bound its size for each
// allowed file.
const (
	directoryEntry = 512
	directoryFloor = 1 << 20
)

func unzip(archive File, size int64, tree *Tree) error {
	directory := &budgetReader{ReaderAt: archive, left: tree.limits.Files*directoryEntry + directoryFloor}
	reader, err := zip.NewReader(directory, size)
	if directory.left < 0 || err == nil && int64(len(reader.File)) > tree.limits.Files {
		return tooMany(tree.limits)
	}
	if errors.Is(err, zip.ErrFormat) {
		return Refuse("it is truncated or damaged: it begins as a .zip and has no directory at its end")
	}
	if err != nil {
		return err
	}
	directory.open = true
	for _, entry := range reader.File {
		if err := unzipEntry(entry, tree); err != nil {
			return err
		}
	}
	return nil
}

// budgetReader limits how much is read until it is opened.
type budgetReader struct {
	io.ReaderAt
	left int64
	open bool
}

var errBudget = errors.New("too much is read")

func (b *budgetReader) ReadAt(p []byte, offset int64) (int, error) {
	if b.open {
		return b.ReaderAt.ReadAt(p, offset)
	}
	if b.left < 0 {
		return 0, errBudget
	}
	n, err := b.ReaderAt.ReadAt(p, offset)
	if b.left -= int64(n); b.left < 0 {
		return 0, errBudget
	}
	return n, err
}

func unzipEntry(entry *zip.File, tree *Tree) error {
	const encrypted = 1
	if entry.Flags&encrypted != 0 {
		return Refuse("file %q in it is encrypted", entry.Name)
	}
	mode := entry.Mode()
	if strings.HasSuffix(entry.Name, "/") {
		return tree.Folder(entry.Name)
	}
	if kind := mode.Type(); kind != 0 && kind != fs.ModeSymlink {
		return Refuse("%q in it is not a file, folder or link", entry.Name)
	}
	content, err := entry.Open()
	if errors.Is(err, zip.ErrAlgorithm) {
		return Refuse("file %q in it is compressed by the unsupported method %d: use deflate", entry.Name, entry.Method)
	}
	if err != nil {
		return err
	}
	defer content.Close()
	if mode.Type() == 0 {
		return tree.File(entry.Name, mode&0o111 != 0, content)
	}
	target, err := ReadTarget(content)
	if err != nil {
		return err
	}
	return tree.Symlink(entry.Name, target)
}

// tarOverhead bounds the bytes of a .tar for each file, besides its content.
const tarOverhead = 4 << 10

func untar(archive io.Reader, tree *Tree) error {
	content, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	// The reader also counts the bytes between the files.
	all := &countReader{Reader: content, left: tree.budget + tree.limits.Files*tarOverhead, why: tree.why}
	reader := tar.NewReader(all)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = untarEntry(header, reader, tree)
		}
		if errors.Is(err, tar.ErrHeader) {
			return Refuse("it is damaged, or it is a .gz without a .tar in it")
		}
		if err != nil {
			return err
		}
	}
	// The checksum is at the end.
	_, err = io.Copy(io.Discard, all)
	return err
}

type countReader struct {
	io.Reader
	left int64
	why  func() error
}

func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, c.why()
	}
	return n, err
}

func untarEntry(header *tar.Header, content io.Reader, tree *Tree) error {
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return tree.File(header.Name, header.Mode&0o111 != 0, content)
	case tar.TypeDir:
		return tree.Folder(header.Name)
	case tar.TypeSymlink:
		return tree.Symlink(header.Name, header.Linkname)
	case tar.TypeLink:
		return tree.Link(header.Name, header.Linkname)
	case tar.TypeXGlobalHeader:
		return nil // git archive tells the commit in one.
	default:
		return Refuse("%q in it is not a file, folder or link", header.Name)
	}
}

// InWords formats a number of bytes, such as 256Mi.
func InWords(bytes int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if bytes >= unit.size && bytes%unit.size == 0 {
			return strconv.FormatInt(bytes/unit.size, 10) + unit.name
		}
	}
	return strconv.FormatInt(bytes, 10) + " bytes"
}
