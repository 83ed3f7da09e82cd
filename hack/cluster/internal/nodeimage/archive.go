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

package nodeimage

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// searchPath is the PATH of the images: kubeadm's manifests name their commands without a directory.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// entry is a file, or a symbolic link, in a layer.
type entry struct {
	// name is its path in the image, without a leading slash.
	name string
	// source is the file on this machine with its content.
	source string
	// link is the target of a symbolic link.
	link string
}

// containerImage is an image to put into an archive.
type containerImage struct {
	// ref is its name and tag.
	ref string
	// layers are the files of its layers.
	layers []string
	// entrypoint is the default command.
	entrypoint []string
	// user defaults to root.
	user string
}

// imageConfig is the part of an OCI image configuration that is needed.
type imageConfig struct {
	Architecture string        `json:"architecture"`
	OS           string        `json:"os"`
	Config       runConfig     `json:"config"`
	RootFS       rootFS        `json:"rootfs"`
	History      []historyItem `json:"history"`
}

type runConfig struct {
	Env        []string
	Entrypoint []string `json:",omitempty"`
	User       string   `json:",omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type historyItem struct {
	CreatedBy string `json:"created_by"`
}

// archiveItem is an image in the manifest of a docker archive.
type archiveItem struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// writeLayer writes a layer with the entries and the directories they need. It
// is the same for the same content, so that images that share it share its digest.
func writeLayer(file string, entries []entry) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("failed to create layer: %w", err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, dir := range parents(entries) {
		mode := int64(0o755)
		if dir == "tmp/" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}); err != nil {
			return fmt.Errorf("failed to write layer: %w", err)
		}
	}
	for _, e := range entries {
		if err := writeEntry(w, e); err != nil {
			return fmt.Errorf("failed to write %s to layer: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("failed to write layer: %w", err)
	}
	return f.Close()
}

// parents returns the directories of the entries, and /tmp, outermost first.
func parents(entries []entry) []string {
	seen := map[string]bool{"tmp/": true}
	for _, e := range entries {
		for dir := path.Dir(e.name); dir != "."; dir = path.Dir(dir) {
			seen[dir+"/"] = true
		}
	}
	dirs := make([]string, 0, len(seen))
	for dir := range seen {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}

func writeEntry(w *tar.Writer, e entry) error {
	if e.link != "" {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: e.name, Linkname: e.link, Mode: 0o777})
	}
	f, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Size: info.Size(), Mode: int64(info.Mode().Perm())}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// writeArchive writes the images as one docker archive, each layer once.
func writeArchive(out io.Writer, arch string, images []containerImage) error {
	w := tar.NewWriter(out)
	digests := map[string]string{} // Layer file to digest.
	var manifest []archiveItem
	for _, image := range images {
		item := archiveItem{RepoTags: []string{image.ref}}
		var diffIDs []string
		for _, layer := range image.layers {
			if digests[layer] == "" {
				digest, err := addLayer(w, layer)
				if err != nil {
					return fmt.Errorf("failed to add layer of %s: %w", image.ref, err)
				}
				digests[layer] = digest
			}
			item.Layers = append(item.Layers, digests[layer]+".tar")
			diffIDs = append(diffIDs, "sha256:"+digests[layer])
		}
		config, err := json.Marshal(image.config(arch, diffIDs))
		if err != nil {
			return fmt.Errorf("failed to encode configuration of %s: %w", image.ref, err)
		}
		sum := sha256.Sum256(config)
		item.Config = hex.EncodeToString(sum[:]) + ".json"
		if err := addFile(w, item.Config, config); err != nil {
			return fmt.Errorf("failed to add %s: %w", image.ref, err)
		}
		manifest = append(manifest, item)
	}
	list, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("failed to encode manifest: %w", err)
	}
	if err := addFile(w, "manifest.json", list); err != nil {
		return fmt.Errorf("failed to add manifest: %w", err)
	}
	return w.Close()
}

func (i containerImage) config(arch string, diffIDs []string) imageConfig {
	history := make([]historyItem, len(diffIDs))
	for n := range history {
		history[n].CreatedBy = "kiln"
	}
	return imageConfig{
		Architecture: arch,
		OS:           "linux",
		Config:       runConfig{Env: []string{searchPath}, Entrypoint: i.entrypoint, User: i.user},
		RootFS:       rootFS{Type: "layers", DiffIDs: diffIDs},
		History:      history,
	}
}

// addLayer adds a layer to an archive under its digest, which it returns.
func addLayer(w *tar.Writer, layer string) (string, error) {
	f, err := os.Open(layer)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return "", err
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: digest + ".tar", Size: size, Mode: 0o644}); err != nil {
		return "", err
	}
	_, err = io.Copy(w, f)
	return digest, err
}

func addFile(w *tar.Writer, name string, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// hostPath returns where a path of the root file system is on this machine.
func hostPath(root, name string) string {
	return filepath.Join(root, filepath.FromSlash(strings.TrimPrefix(name, "/")))
}
