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

package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// workshop is a registry with a base image, and a folder with a build context.
type workshop struct {
	host    string
	context string
	layers  string
	base    v1.Image
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	w := &workshop{host: strings.TrimPrefix(server.URL, "http://"), context: t.TempDir(), layers: t.TempDir()}
	base, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	w.base = base
	ref, err := name.ParseReference(w.host + "/base:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, base); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(w.context, "handler.js"), []byte("x"))
	layout := runtimes.Layout{Files: map[string]string{"handler.js": "/function/handler.js"}, Entrypoint: []string{"node"}}
	writeFile(t, filepath.Join(w.context, "layout.json"), encode(t, layout))
	return w
}

// addLayer puts a layer where the step before would.
func (w *workshop) addLayer(t *testing.T, file string) v1.Hash {
	t.Helper()
	layer, err := random.Layer(512, "application/vnd.docker.image.rootfs.diff.tar.gzip")
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(w.layers, file), data)
	digest, err := layer.DiffID()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func (w *workshop) order() *order {
	return &order{
		base:          w.host + "/base:1",
		destination:   w.host + "/ns/fn:tag",
		insecure:      []string{w.host},
		contextFolder: w.context,
		layout:        filepath.Join(w.context, "layout.json"),
		urlFile:       filepath.Join(w.context, "url"),
		digestFile:    filepath.Join(w.context, "digest"),
	}
}

// config returns the configuration of an image in the registry.
func (w *workshop) config(t *testing.T, image string) *v1.ConfigFile {
	t.Helper()
	ref, err := name.ParseReference(w.host + image)
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	config, err := pushed.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestCarryOut(t *testing.T) {
	w := newWorkshop(t)
	// In the order of their names.
	second, first := w.addLayer(t, "0003.tar.gz"), w.addLayer(t, "0002.tar.gz")
	o := w.order()
	o.layers, o.keep = w.layers, w.host+"/ns/fn:kept"
	if err := o.carryOut(t.Context()); err != nil {
		t.Fatal(err)
	}
	baseConfig, err := w.base.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	wantKept := append(baseConfig.RootFS.DiffIDs, first, second)
	if diff := cmp.Diff(wantKept, w.config(t, "/ns/fn:kept").RootFS.DiffIDs); diff != "" {
		t.Errorf("kept layers (-want, +got):\n%s", diff)
	}
	pushed := w.config(t, "/ns/fn:tag")
	if len(pushed.RootFS.DiffIDs) != 5 || pushed.Config.Entrypoint[0] != "node" {
		t.Errorf("the image is %+v", pushed)
	}
	if url := readFile(t, o.urlFile); url != o.destination {
		t.Errorf("the result is %q, want %q", url, o.destination)
	}
	digest := readFile(t, o.digestFile)
	w.config(t, "/ns/fn@"+digest)

	// Upon what was kept, the same image comes about.
	again := w.order()
	again.base, again.destination = w.host+"/ns/fn:kept", w.host+"/ns/fn:again"
	if err := again.carryOut(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, again.digestFile); got != digest {
		t.Errorf("upon what was kept the image is %s, want %s", got, digest)
	}
}

func TestCarryOutWithConfig(t *testing.T) {
	w := newWorkshop(t)
	w.addLayer(t, "0002.tar.gz")
	made, err := mutate.Config(w.base, v1.Config{Entrypoint: []string{"own"}, User: "1000"})
	if err != nil {
		t.Fatal(err)
	}
	config, err := made.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	o := w.order()
	o.layout, o.layers, o.config = "", w.layers, filepath.Join(w.layers, "config.json")
	writeFile(t, o.config, encode(t, config))
	if err := o.carryOut(t.Context()); err != nil {
		t.Fatal(err)
	}
	pushed := w.config(t, "/ns/fn:tag")
	if diff := cmp.Diff(config.Config, pushed.Config); diff != "" {
		t.Errorf("configuration (-want, +got):\n%s", diff)
	}
	if len(pushed.RootFS.DiffIDs) != 3 {
		t.Errorf("the image has %d layers, want 3", len(pushed.RootFS.DiffIDs))
	}
}

func TestCarryOutErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*workshop, *order)
		want   string
	}{
		"no such base image": {func(w *workshop, o *order) { o.base = w.host + "/absent:1" }, "failed to pull base image"},
		"bad name":           {func(_ *workshop, o *order) { o.destination = "A B" }, "failed to parse the name of an image"},
		"no registry":        {func(_ *workshop, o *order) { o.destination = "127.0.0.1:1/ns/fn:tag" }, "failed to push image"},
		"no layout":          {func(_ *workshop, o *order) { o.layout += "x" }, "failed to read layout.jsonx"},
		"broken layer": {func(w *workshop, o *order) {
			o.layers = w.layers
			writeFile(t, filepath.Join(w.layers, "0000.tar.gz"), []byte("\x1f\x8bx"))
		}, "failed to read layer 0000.tar.gz"},
		"layer that is a file of the step's own": {func(w *workshop, o *order) {
			o.layers = w.layers
			secret := filepath.Join(t.TempDir(), "config.json")
			writeFile(t, secret, []byte(`{"auths": {}}`))
			link(t, secret, filepath.Join(w.layers, "9999.tar.gz"))
		}, "not a regular file"},
		"layer that is no layer": {func(w *workshop, o *order) {
			o.layers = w.layers
			writeFile(t, filepath.Join(w.layers, "9999.tar.gz"), []byte(`{"auths": {}}`))
		}, "failed to read layer 9999.tar.gz"},
		"configuration that is a file of the step's own": {func(w *workshop, o *order) {
			o.layers, o.layout, o.config = w.layers, "", filepath.Join(w.layers, "config.json")
			secret := filepath.Join(t.TempDir(), "config.json")
			writeFile(t, secret, []byte(`{"auths": {}}`))
			link(t, secret, o.config)
		}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkshop(t)
			o := w.order()
			tc.change(w, o)
			err := o.carryOut(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("carryOut() = %v, want %q", err, tc.want)
			}
			if _, err := os.Stat(o.digestFile); err == nil {
				t.Error("there is a result")
			}
		})
	}
}

// TestMediaTypes wants that layers of Docker's type and of OCI's are not mixed.
func TestMediaTypes(t *testing.T) {
	for manifest, layer := range map[types.MediaType]types.MediaType{
		types.DockerManifestSchema2: types.DockerLayer,
		types.OCIManifestSchema1:    types.OCILayer,
	} {
		w := newWorkshop(t)
		w.addLayer(t, "0002.tar.gz")
		ref, err := name.ParseReference(w.host + "/base:1")
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, mutate.MediaType(empty.Image, manifest)); err != nil {
			t.Fatal(err)
		}
		o := w.order()
		o.layers = w.layers
		if err := o.carryOut(t.Context()); err != nil {
			t.Fatal(err)
		}
		if ref, err = name.ParseReference(o.destination); err != nil {
			t.Fatal(err)
		}
		pushed, err := remote.Image(ref)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pushed.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range got.Layers {
			if l.MediaType != layer {
				t.Errorf("upon a base image of type %s a layer has type %s, want %s", manifest, l.MediaType, layer)
			}
		}
	}
}

func link(t *testing.T, target, file string) {
	t.Helper()
	if err := os.Symlink(target, file); err != nil {
		t.Fatal(err)
	}
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
