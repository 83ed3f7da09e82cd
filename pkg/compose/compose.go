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

// Package compose has the first and the last step of a build. Neither runs code of the
// function.
package compose

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/tarfile"
)

const createdBy = "kiln"

// addFiles returns the image with the files and folders of the layout, read from
// the folder, and with its configuration. Equal arguments make equal digests.
func addFiles(image v1.Image, folder string, layout runtimes.Layout) (v1.Image, error) {
	mediaType, err := layerMediaType(image)
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
	// The files come last: they replace those of folders.
	if image, err = appendLayers(image, append(layers, files)...); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("failed to read image configuration: %w", err)
	}
	configured := *config.Config.DeepCopy()
	applyLayout(&configured, layout)
	return configure(image, configured)
}

func configure(image v1.Image, config v1.Config) (v1.Image, error) {
	image, err := mutate.Config(image, config)
	if err != nil {
		return nil, fmt.Errorf("failed to configure image: %w", err)
	}
	if image, err = mutate.CreatedAt(image, v1.Time{Time: tarfile.Epoch}); err != nil {
		return nil, fmt.Errorf("failed to configure image: %w", err)
	}
	return image, nil
}

// describe returns the image with labels. An OCI manifest gets them as annotations,
// too. A Docker manifest cannot have annotations.
func describe(image v1.Image, labels map[string]string) (v1.Image, error) {
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

func scratch(architecture string) (v1.Image, error) {
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: architecture, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return nil, fmt.Errorf("failed to make image: %w", err)
	}
	return mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
}

// layerMediaType returns the media type for new layers of the image. An image has
// either Docker's media types or OCI's.
func layerMediaType(image v1.Image) (types.MediaType, error) {
	mediaType, err := image.MediaType()
	if err != nil {
		return "", fmt.Errorf("failed to read image: %w", err)
	}
	if mediaType == types.OCIManifestSchema1 {
		return types.OCILayer, nil
	}
	return types.DockerLayer, nil
}

func appendLayers(base v1.Image, layers ...v1.Layer) (v1.Image, error) {
	adds := make([]mutate.Addendum, 0, len(layers))
	for _, layer := range layers {
		adds = append(adds, mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: v1.Time{Time: tarfile.Epoch}, CreatedBy: createdBy},
		})
	}
	image, err := mutate.Append(unannotated{base}, adds...)
	if err != nil {
		return nil, fmt.Errorf("failed to append layers: %w", err)
	}
	return image, nil
}

// unannotated is an image without the annotations of its manifest. Those of a base
// image do not apply to images that are built on it.
type unannotated struct{ v1.Image }

// Manifest implements v1.Image.
func (u unannotated) Manifest() (*v1.Manifest, error) {
	manifest, err := u.Image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	manifest.Annotations = nil
	return manifest, nil
}

// imageLabelPrefix is the prefix of OCI's labels, which describe one image.
const imageLabelPrefix = "org.opencontainers.image."

// applyLayout changes the configuration of a base image to that of the layout. It drops
// the old command, and the labels that describe the base image.
func applyLayout(config *v1.Config, layout runtimes.Layout) {
	maps.DeleteFunc(config.Labels, func(label, _ string) bool { return strings.HasPrefix(label, imageLabelPrefix) })
	config.Env = mergeEnv(config.Env, layout.Env)
	config.Entrypoint, config.Cmd = layout.Entrypoint, nil
	config.User = layout.User
	config.WorkingDir = layout.WorkingDir
}

// mergeEnv returns the base environment in its order, without the variables that
// are replaced, followed by the added ones, sorted.
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
