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
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/tarfile"
)

func newBase(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	image, err = mutate.Config(image, v1.Config{
		Env:        []string{"PATH=/bin", "HOME=/root"},
		Cmd:        []string{"node"},
		Entrypoint: []string{"docker-entrypoint.sh"},
		Labels:     map[string]string{"from": "base", "org.opencontainers.image.title": "Base"},
		User:       "root",
	})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestAddFolders checks that a folder keeps everything except owners and times.
func TestAddFolders(t *testing.T) {
	from := folder(t, map[string]string{"server.cjs": "yy"})
	for name, content := range map[string]string{"source/handler.js": "x", "source/bin/run": "#!"} {
		if err := os.MkdirAll(filepath.Join(from, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(from, "source/bin/run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("bin/run", filepath.Join(from, "source/run")); err != nil {
		t.Fatal(err)
	}
	with := layout
	with.Files, with.Folders = map[string]string{"server.cjs": "/kiln/server.cjs"}, map[string]string{"source": "/srv/function"}
	image, err := addFiles(newBase(t), from, with)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 4 {
		t.Fatalf("the image has %d layers, want 4", len(layers))
	}
	want := []string{
		"drwxr-xr-x srv/ ", "drwxr-xr-x srv/function/ ", "drwxr-xr-x srv/function/bin/ ", "-rwxr-xr-x srv/function/bin/run #!",
		"-rw-r--r-- srv/function/handler.js x", "Lrwxrwxrwx srv/function/run ",
	}
	if diff := cmp.Diff(want, contents(t, layers[2])); diff != "" {
		t.Errorf("folder (-want, +got):\n%s", diff)
	}
	with.Folders = map[string]string{"source": "function/"}
	if _, err := addFiles(newBase(t), from, with); err == nil || !strings.Contains(err.Error(), "must be absolute and clean") {
		t.Errorf("addFiles() = %v of a bad path", err)
	}
	with.Folders = map[string]string{"absent": "/function"}
	if _, err := addFiles(newBase(t), from, with); err == nil || !strings.Contains(err.Error(), "failed to open folder") {
		t.Errorf("addFiles() = %v of a missing folder", err)
	}
}

var layout = runtimes.Layout{
	Files:      map[string]string{"handler.js": "/function/src/handler.js", "server.cjs": "/kiln/server.cjs"},
	Env:        map[string]string{"PORT": "8080", "HOME": "/tmp"},
	User:       "1000:1000",
	WorkingDir: "/function",
	Entrypoint: []string{"node", "/kiln/server.cjs"},
}

func TestAddFiles(t *testing.T) {
	base := newBase(t)
	image, err := addFiles(base, folder(t, map[string]string{"handler.js": "x", "server.cjs": "yy"}), layout)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{
		Env:        []string{"PATH=/bin", "HOME=/tmp", "PORT=8080"},
		Entrypoint: []string{"node", "/kiln/server.cjs"},
		Labels:     map[string]string{"from": "base"},
		User:       "1000:1000",
		WorkingDir: "/function",
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration (-want, +got):\n%s", diff)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 3 || len(config.History) != 3 {
		t.Fatalf("the image has %d layers and a history of %d, want 3", len(layers), len(config.History))
	}
	wantFiles := []string{
		"drwxr-xr-x function/ ", "drwxr-xr-x function/src/ ", "-rw-r--r-- function/src/handler.js x",
		"drwxr-xr-x kiln/ ", "-rw-r--r-- kiln/server.cjs yy",
	}
	if diff := cmp.Diff(wantFiles, contents(t, layers[2])); diff != "" {
		t.Errorf("files (-want, +got):\n%s", diff)
	}
}

// TestDescribe checks that an image drops the annotations of its base image.
func TestDescribe(t *testing.T) {
	labels := map[string]string{"org.opencontainers.image.base.digest": "sha256:1", "from": "kiln"}
	for mediaType, want := range map[types.MediaType]map[string]string{
		types.OCIManifestSchema1:    labels,
		types.DockerManifestSchema2: nil,
	} {
		base := mutate.Annotations(mutate.MediaType(newBase(t), mediaType), map[string]string{"org.opencontainers.image.version": "24"}).(v1.Image)
		image, err := addFiles(base, folder(t, map[string]string{"handler.js": "x", "server.cjs": "yy"}), layout)
		if err != nil {
			t.Fatal(err)
		}
		if image, err = describe(image, labels); err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(labels, config.Config.Labels); diff != "" {
			t.Errorf("labels (-want, +got):\n%s", diff)
		}
		manifest, err := image.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, manifest.Annotations, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("annotations of %s (-want, +got):\n%s", mediaType, diff)
		}
		if want := layout.WorkingDir; config.Config.WorkingDir != want {
			t.Errorf("the working directory is %s, want %s", config.Config.WorkingDir, want)
		}
	}
}

// contents lists the files of a layer. They must belong to root and date from Epoch.
func contents(t *testing.T, layer v1.Layer) (entries []string) {
	t.Helper()
	raw, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	archive := tar.NewReader(raw)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(tarfile.Epoch) {
			t.Errorf("%s is of %d:%d at %v", header.Name, header.Uid, header.Gid, header.ModTime)
		}
		entries = append(entries, header.FileInfo().Mode().String()+" "+header.Name+" "+string(content))
	}
}

// TestAddFilesIsReproducible checks that digests are equal if and only if the inputs
// are.
func TestAddFilesIsReproducible(t *testing.T) {
	base := newBase(t)
	digest := func(files map[string]string, layout runtimes.Layout) string {
		t.Helper()
		image, err := addFiles(base, folder(t, files), layout)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return digest.String()
	}
	files := map[string]string{"handler.js": "x", "server.cjs": "yy"}
	first := digest(files, layout)
	if again := digest(files, layout); again != first {
		t.Errorf("the same inputs made %s and %s", first, again)
	}
	if other := digest(map[string]string{"handler.js": "X", "server.cjs": "yy"}, layout); other == first {
		t.Error("another source made the same image")
	}
	changed := layout
	changed.User = "1001:1001"
	if other := digest(files, changed); other == first {
		t.Error("another layout made the same image")
	}
}

func TestAddFilesErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"missing":  {map[string]string{"absent.js": "/function/absent.js"}, "the build context lacks absent.js"},
		"relative": {map[string]string{"handler.js": "function/handler.js"}, "must be absolute and clean"},
		"escape":   {map[string]string{"handler.js": "/function/../../etc/passwd"}, "must be absolute and clean"},
		"twice":    {map[string]string{"handler.js": "/a", "server.cjs": "/a"}, "handler.js and server.cjs have the same path"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := addFiles(newBase(t), folder(t, map[string]string{"handler.js": "x", "server.cjs": "y"}), runtimes.Layout{Files: tc.files})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("addFiles() = %v, want %q", err, tc.want)
			}
		})
	}
}
