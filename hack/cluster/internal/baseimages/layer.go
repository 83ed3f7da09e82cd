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

package baseimages

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
)

// file is a file of a small layer, a directory if its path ends in a slash.
type file struct {
	path    string
	content []byte
	// link is the target of a symbolic link.
	link string
	mode int64
	uid  int
}

// fileSet is the content of a small layer.
type fileSet []file

// input makes the content of the files part of a key.
func (s fileSet) input() cache.Input {
	texts := make([]string, 0, 2*len(s))
	for _, f := range s {
		texts = append(texts, fmt.Sprintf("%s %s %o %d", f.path, f.link, f.mode, f.uid), string(f.content))
	}
	return cache.Text(texts...)
}

// layer returns a layer with the files.
func (s fileSet) layer() (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range s {
		if err := f.write(w); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("failed to write layer: %w", err)
	}
	return newLayer(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
}

// write appends the file to an archive. Times stay zero: the same content has
// the same digest whenever it is made.
func (f file) write(w *tar.Writer) error {
	header := &tar.Header{Name: f.path, Mode: f.mode, Uid: f.uid, Gid: f.uid, Size: int64(len(f.content))}
	switch {
	case strings.HasSuffix(f.path, "/"):
		header.Typeflag = tar.TypeDir
	case f.link != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.link, 0o777
	default:
		header.Typeflag = tar.TypeReg
	}
	if header.Mode == 0 {
		header.Mode = 0o644
	}
	if err := w.WriteHeader(header); err != nil {
		return fmt.Errorf("failed to write layer: %w", err)
	}
	if _, err := w.Write(f.content); err != nil {
		return fmt.Errorf("failed to write layer: %w", err)
	}
	return nil
}

// newLayer returns a layer of an uncompressed archive.
func newLayer(open tarball.Opener) (v1.Layer, error) {
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("failed to make layer: %w", err)
	}
	return layer, nil
}
