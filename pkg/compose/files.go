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

package compose

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/pkg/tarfile"
)

// filesLayer returns a layer with files of a folder. files maps their names to
// their paths in the image. All users can read them, and only root can write them.
func filesLayer(folder string, files map[string]string, mediaType types.MediaType) (v1.Layer, error) {
	archive := &bytes.Buffer{}
	if err := writeArchive(archive, folder, files); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithCompressedCaching, tarball.WithMediaType(mediaType))
	if err != nil {
		return nil, fmt.Errorf("failed to make layer: %w", err)
	}
	return layer, nil
}

func writeArchive(to io.Writer, folder string, files map[string]string) error {
	byPath := make(map[string]string, len(files))
	for name, place := range files {
		if err := checkPlace(name, place); err != nil {
			return err
		}
		if other, taken := byPath[place]; taken {
			return fmt.Errorf("%s and %s have the same path in the image, %s", min(name, other), max(name, other), place)
		}
		byPath[place] = name
	}
	archive := tar.NewWriter(to)
	made := map[string]bool{"/": true}
	for _, place := range slices.Sorted(maps.Keys(byPath)) {
		if err := writeFolders(archive, path.Dir(place), made); err != nil {
			return err
		}
		if err := addFile(archive, filepath.Join(folder, byPath[place]), place); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("failed to write archive: %w", err)
	}
	return nil
}

func checkPlace(name, place string) error {
	if !path.IsAbs(place) || path.Clean(place) != place {
		return fmt.Errorf("the path of %s in the image must be absolute and clean: it is %q", name, place)
	}
	return nil
}

func writeFolders(archive *tar.Writer, folder string, made map[string]bool) error {
	if made[folder] {
		return nil
	}
	if err := writeFolders(archive, path.Dir(folder), made); err != nil {
		return err
	}
	made[folder] = true
	if err := archive.WriteHeader(tarfile.Header(folder+"/", tar.TypeDir, 0o755, 0)); err != nil {
		return fmt.Errorf("failed to write archive: %w", err)
	}
	return nil
}

func addFile(archive *tar.Writer, file, place string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the build context lacks %s", filepath.Base(file))
		}
		return fmt.Errorf("failed to read build context: %w", err)
	}
	if err := archive.WriteHeader(tarfile.Header(place, tar.TypeReg, 0o644, int64(len(content)))); err != nil {
		return fmt.Errorf("failed to write archive: %w", err)
	}
	if _, err := archive.Write(content); err != nil {
		return fmt.Errorf("failed to write archive: %w", err)
	}
	return nil
}

// foldersLayers returns one layer for each folder. folders maps their names to
// their paths in the image. Folders may be large: layers read them on each use and
// keep nothing in memory.
func foldersLayers(folder string, folders map[string]string, mediaType types.MediaType) ([]v1.Layer, error) {
	var layers []v1.Layer
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		place := folders[name]
		if err := checkPlace(name, place); err != nil {
			return nil, err
		}
		open := func() (io.ReadCloser, error) {
			from, to := io.Pipe()
			go func() { to.CloseWithError(writeTree(to, filepath.Join(folder, name), place)) }()
			return from, nil
		}
		layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(mediaType))
		if err != nil {
			return nil, fmt.Errorf("failed to make layer: %w", err)
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

// writeTree writes an archive of a folder, and keeps links as they are. All users
// can read its files, and only root can write them. Executable files stay so.
func writeTree(to io.Writer, folder, place string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("failed to open folder: %w", err)
	}
	defer root.Close()
	archive := tar.NewWriter(to)
	if err := writeFolders(archive, path.Dir(place), map[string]bool{"/": true}); err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return tarfile.WriteEntry(archive, root, name, path.Join(place, name), entry.Type())
	})
	if err != nil {
		return fmt.Errorf("failed to write archive: %w", err)
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("failed to write archive: %w", err)
	}
	return nil
}
