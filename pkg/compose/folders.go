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

// foldersLayers returns a layer of each folder, at its place in the image. They
// may be large: they are read each time that they are needed, and not kept.
func foldersLayers(folder string, folders map[string]string, mediaType types.MediaType) ([]v1.Layer, error) {
	var layers []v1.Layer
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		place := folders[name]
		if !path.IsAbs(place) || path.Clean(place) != place {
			return nil, fmt.Errorf("the place of %s in the image, %q, is no clean absolute path", name, place)
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

// writeTree writes an archive of a folder, with links as they are. Everybody can
// read what is in it, and only root can write; what can be executed stays so.
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
