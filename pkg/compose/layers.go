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
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/pkg/sbom"
)

// maxJSON is the most bytes that are read of a JSON file. Layouts and image
// configurations are smaller.
const maxJSON = 1 << 20

// readLayers returns the layers that the sidecar made, and their packages, which are
// never nil. The sidecar runs untrusted code, which can leave anything in the folder.
func (s *PushStep) readLayers(mediaType types.MediaType) ([]v1.Layer, []sbom.Package, error) {
	packages := []sbom.Package{}
	if s.Layers == "" {
		return nil, packages, nil
	}
	folder, err := os.OpenRoot(s.Layers)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to open layers: %w", err)
	}
	files, err := fs.Glob(folder.FS(), "*.tar.gz")
	if err != nil {
		return nil, nil, fmt.Errorf("failed to list layers: %w", err)
	}
	layers := make([]v1.Layer, 0, len(files))
	for _, file := range files {
		open := func() (io.ReadCloser, error) { return openFile(folder, file) }
		found, err := scan(open)
		if err != nil {
			return nil, nil, fmt.Errorf("failed to read layer %s: %w", file, err)
		}
		packages = append(packages, found...)
		layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(mediaType))
		if err != nil {
			return nil, nil, fmt.Errorf("failed to read layer %s: %w", file, err)
		}
		layers = append(layers, layer)
	}
	return layers, packages, nil
}

// openFile opens a regular file of the folder. It follows no links.
func openFile(folder *os.Root, name string) (*os.File, error) {
	info, err := folder.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	return folder.Open(name)
}

// scan returns the packages in a layer. It fails unless the file is a compressed
// archive.
func scan(open func() (io.ReadCloser, error)) ([]sbom.Package, error) {
	file, err := open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	return sbom.Scan(tar.NewReader(content))
}

// readJSON reads a JSON file that an untrusted step may have written.
func readJSON(name string, into any) error {
	folder, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("failed to open folder: %w", err)
	}
	defer folder.Close()
	file, err := openFile(folder, filepath.Base(name))
	if err != nil {
		return fmt.Errorf("failed to read %s: %w", filepath.Base(name), err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxJSON))
	if err != nil {
		return fmt.Errorf("failed to read %s: %w", filepath.Base(name), err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("failed to read %s: %w", filepath.Base(name), err)
	}
	return nil
}

// hiddenFolders are those of the sidecar that runs Dockerfiles. Files that a Dockerfile
// writes there do not get into layers.
var hiddenFolders = []string{"/kaniko", "/ko-app"}

func isHidden(folder string) bool {
	return slices.ContainsFunc(hiddenFolders, func(h string) bool { return strings.HasPrefix(path.Clean(folder)+"/", h+"/") })
}

// checkStart returns an error if no pod could run an image with this configuration:
// pods of functions must not run as root. The build fails then, and the last image
// keeps serving.
func checkStart(config v1.Config) error {
	user, _, _ := strings.Cut(config.User, ":")
	const advice = "end the Dockerfile with a numeric user, such as USER 1000:1000"
	number, err := strconv.ParseUint(user, 10, 31)
	switch {
	case user == "", user == "root", err == nil && number == 0:
		return errors.New("the image runs as root, and functions must not: " + advice)
	case err != nil:
		return fmt.Errorf("the image runs as user %q, and Kubernetes cannot verify that this is not root: %s", user, advice)
	case len(config.Entrypoint) == 0 && len(config.Cmd) == 0:
		return errors.New("the image has no start command: add an ENTRYPOINT to the Dockerfile")
	case isHidden(config.WorkingDir):
		return fmt.Errorf("the image starts in %s, and builds keep no files of that folder: use another one, such as WORKDIR /app", config.WorkingDir)
	default:
		return nil
	}
}
