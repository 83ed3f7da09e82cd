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

// Package compose makes a function's image without running anything: it puts
// layers upon a base image.
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
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/tarfile"
)

// createdBy is what the history of an image says of the layers made here.
const createdBy = "kiln"

// AddFiles returns the image with the layout's files and folders, read from the folder, and
// its configuration. The same arguments make the same image, bit for bit.
func AddFiles(image v1.Image, folder string, layout runtimes.Layout) (v1.Image, error) {
	mediaType, err := LayerMediaType(image)
	if err != nil {
		return nil, err
	}
	files, err := filesLayer(folder, layout.Files, mediaType)
	if err != nil {
		return nil, err
	}
	layers, err := foldersLayers(folder, layout.Folders, mediaType)
	if err != nil {
		return nil, err
	}
	// The runtime's files win over those of a folder.
	if image, err = Append(image, append(layers, files)...); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("failed to read image configuration: %w", err)
	}
	configured := *config.Config.DeepCopy()
	configure(&configured, layout)
	return Configure(image, configured)
}

// Configure returns the image with that configuration.
func Configure(image v1.Image, config v1.Config) (v1.Image, error) {
	image, err := mutate.Config(image, config)
	if err != nil {
		return nil, fmt.Errorf("failed to configure image: %w", err)
	}
	if image, err = mutate.CreatedAt(image, v1.Time{Time: tarfile.Epoch}); err != nil {
		return nil, fmt.Errorf("failed to configure image: %w", err)
	}
	return image, nil
}

// Describe returns the image with labels, which are annotations of its manifest as
// well where it is OCI's: Docker's has none.
func Describe(image v1.Image, labels map[string]string) (v1.Image, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("failed to read image configuration: %w", err)
	}
	described := *config.Config.DeepCopy()
	if described.Labels == nil {
		described.Labels = map[string]string{}
	}
	maps.Copy(described.Labels, labels)
	if image, err = mutate.Config(image, described); err != nil {
		return nil, fmt.Errorf("failed to configure image: %w", err)
	}
	mediaType, err := image.MediaType()
	if err != nil {
		return nil, fmt.Errorf("failed to read image: %w", err)
	}
	if mediaType != types.OCIManifestSchema1 {
		return image, nil
	}
	annotated, ok := mutate.Annotations(image, labels).(v1.Image)
	if !ok {
		return nil, errors.New("failed to annotate image")
	}
	return annotated, nil
}

// Nothing returns an image without layers, to put all of an image upon.
func Nothing(architecture string) (v1.Image, error) {
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: architecture, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return nil, fmt.Errorf("failed to make image: %w", err)
	}
	return mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
}

// LayerMediaType returns the media type of layers that go with those of the image:
// Docker's and OCI's are not mixed.
func LayerMediaType(image v1.Image) (types.MediaType, error) {
	mediaType, err := image.MediaType()
	if err != nil {
		return "", fmt.Errorf("failed to read image: %w", err)
	}
	if mediaType == types.OCIManifestSchema1 {
		return types.OCILayer, nil
	}
	return types.DockerLayer, nil
}

// Append returns the base image with the layers upon it.
func Append(base v1.Image, layers ...v1.Layer) (v1.Image, error) {
	adds := make([]mutate.Addendum, 0, len(layers))
	for _, layer := range layers {
		adds = append(adds, mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: v1.Time{Time: tarfile.Epoch}, CreatedBy: createdBy},
		})
	}
	image, err := mutate.Append(plain{base}, adds...)
	if err != nil {
		return nil, fmt.Errorf("failed to append layers: %w", err)
	}
	return image, nil
}

// plain is an image without annotations of its manifest: they tell of that image,
// and not of one that is made of it.
type plain struct{ v1.Image }

// Manifest implements v1.Image.
func (p plain) Manifest() (*v1.Manifest, error) {
	manifest, err := p.Image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	manifest.Annotations = nil
	return manifest, nil
}

// aboutImage begins the labels, and annotations, by which an image tells of itself.
const aboutImage = "org.opencontainers.image."

// configure makes the configuration of a base image that of the layout. A
// command of the base image is that of its own entrypoint, and labels about
// itself are not about what is built upon it.
func configure(config *v1.Config, layout runtimes.Layout) {
	maps.DeleteFunc(config.Labels, func(label, _ string) bool { return strings.HasPrefix(label, aboutImage) })
	config.Env = mergeEnv(config.Env, layout.Env)
	config.Entrypoint, config.Cmd = layout.Entrypoint, nil
	config.User = layout.User
	config.WorkingDir = layout.WorkingDir
}

// mergeEnv returns the base environment in its order with the variables added,
// sorted, or replaced.
func mergeEnv(base []string, added map[string]string) []string {
	merged := make([]string, 0, len(base)+len(added))
	for _, variable := range base {
		name, _, _ := strings.Cut(variable, "=")
		if _, ok := added[name]; !ok {
			merged = append(merged, variable)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(added)) {
		merged = append(merged, name+"="+added[name])
	}
	return merged
}

// filesLayer returns a layer of the files of a folder, at their places in the
// image, that everybody can read and only root can write.
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
	byPlace := make(map[string]string, len(files))
	for name, place := range files {
		if !path.IsAbs(place) || path.Clean(place) != place {
			return fmt.Errorf("the place of %s in the image, %q, is no clean absolute path", name, place)
		}
		if other, taken := byPlace[place]; taken {
			return fmt.Errorf("%s and %s have the same place in the image, %s", min(name, other), max(name, other), place)
		}
		byPlace[place] = name
	}
	archive := tar.NewWriter(to)
	made := map[string]bool{"/": true}
	for _, place := range slices.Sorted(maps.Keys(byPlace)) {
		if err := writeFolders(archive, path.Dir(place), made); err != nil {
			return err
		}
		if err := writeFile(archive, filepath.Join(folder, byPlace[place]), place); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("failed to write archive: %w", err)
	}
	return nil
}

// writeFolders adds a folder, after those that it is in, once.
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

func writeFile(archive *tar.Writer, file, place string) error {
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
