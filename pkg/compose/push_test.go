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
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
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

	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sbom"
)

// workshop has a registry with a base image, a build context and a folder for layers.
type workshop struct {
	host    string
	context string
	layers  string
	base    v1.Image
	digest  string

	// refuses is a text that the registry rejects in manifests.
	refuses string
}

// forget deletes the artifacts that refer to an image, and their index, which this
// registry keeps as a tag.
func (w *workshop) forget(t *testing.T, image string) {
	t.Helper()
	ref, err := name.NewDigest(w.host + image)
	if err != nil {
		t.Fatal(err)
	}
	referrers, err := remote.Referrers(ref)
	if err != nil {
		t.Fatal(err)
	}
	index, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range index.Manifests {
		if err := remote.Delete(ref.Context().Digest(found.Digest.String())); err != nil {
			t.Fatal(err)
		}
	}
	if err := remote.Delete(ref.Context().Tag(strings.Replace(ref.DigestStr(), ":", "-", 1))); err != nil {
		t.Fatal(err)
	}
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	w := &workshop{context: t.TempDir(), layers: t.TempDir()}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || w.refuses != "" && strings.Contains(r.URL.Path, "/manifests/") && bytes.Contains(body, []byte(w.refuses)) {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		images.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	w.host = strings.TrimPrefix(server.URL, "http://")
	base, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := base.Digest()
	if err != nil {
		t.Fatal(err)
	}
	w.base, w.digest = base, digest.String()
	writeFile(t, filepath.Join(w.layers, "base.json"), encode(t, digest))
	// The sidecar has ended.
	writeFile(t, filepath.Join(w.layers, lockFile), nil)
	writeFile(t, filepath.Join(w.layers, doneFile), nil)
	w.write(t, w.host+"/base:1", base)
	writeFile(t, filepath.Join(w.context, "handler.js"), []byte("x"))
	layout := runtimes.Layout{Files: map[string]string{"handler.js": "/function/handler.js"}, Entrypoint: []string{"node"}}
	writeFile(t, filepath.Join(w.context, "layout.json"), encode(t, layout))
	return w
}

// write pushes an image.
func (w *workshop) write(t *testing.T, image string, content v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, content); err != nil {
		t.Fatal(err)
	}
}

// refusingHost returns another registry with a base image. It serves the manifest
// and the configuration, and denies the layers.
func (w *workshop) refusingHost(t *testing.T) string {
	t.Helper()
	base, err := random.Image(1024, 1)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := base.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, digest.String()) {
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		images.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	w.write(t, host+"/base:1", base)
	return host
}

// addLayer writes a layer, as an earlier step does.
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

// addPackages writes a layer with npm's lock file, as an earlier step does.
func (w *workshop) addPackages(t *testing.T, file string) {
	t.Helper()
	layer := &bytes.Buffer{}
	compressed := gzip.NewWriter(layer)
	archive := tar.NewWriter(compressed)
	list := []byte(`{"packages": {"node_modules/ms": {"version": "2.1.3"}}}`)
	if err := archive.WriteHeader(&tar.Header{Name: "function/node_modules/.package-lock.json", Typeflag: tar.TypeReg, Size: int64(len(list))}); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Write(list); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(w.layers, file), layer.Bytes())
}

// listedPackages returns the packages in the newest list of the image, as scanners find it.
func listedPackages(t *testing.T, image name.Digest) ([]sbom.Package, error) {
	t.Helper()
	referrers, err := remote.Referrers(image, remote.WithFilter("artifactType", sbom.MediaType))
	if err != nil {
		t.Fatal(err)
	}
	index, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(index.Manifests) == 0 {
		return nil, fmt.Errorf("%s has no package list", image)
	}
	return readPackages(image.Context().Digest(index.Manifests[len(index.Manifests)-1].Digest.String()), nil)
}

// kept returns the result about the kept layers.
func kept(t *testing.T, step *PushStep) (result struct{ Tag, Digest, Packages string }) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, step.KeptFile)), &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// wantPackages checks the package list of an image.
func (w *workshop) wantPackages(t *testing.T, image string, want ...string) {
	t.Helper()
	ref, err := name.NewDigest(w.host + image)
	if err != nil {
		t.Fatal(err)
	}
	packages, err := listedPackages(t, ref)
	if err != nil {
		t.Fatalf("the packages of %s: %v", image, err)
	}
	var got []string
	for _, p := range packages {
		got = append(got, p.URL)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages of %s (-want, +got):\n%s", image, diff)
	}
}

func (w *workshop) step() *PushStep {
	return &PushStep{
		Base:               w.host + "/base:1",
		Destination:        w.host + "/ns/fn:tag",
		InsecureRegistries: []string{w.host},
		ContextFolder:      w.context,
		Layout:             filepath.Join(w.context, "layout.json"),
		ImageURLFile:       filepath.Join(w.context, "url"),
		ImageDigestFile:    filepath.Join(w.context, "digest"),
		BaseImageFile:      filepath.Join(w.context, "base"),
		KeptFile:           filepath.Join(w.context, "kept"),
		Labels:             map[string]string{"serverless.kiln.dev/runtime": "nodejs24"},
		Log:                io.Discard,
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

func TestPush(t *testing.T) {
	w := newWorkshop(t)
	// Their names decide the order.
	second, first := w.addLayer(t, "0003.tar.gz"), w.addLayer(t, "0002.tar.gz")
	w.addPackages(t, "0004.tar.gz")
	step := w.step()
	log := &bytes.Buffer{}
	step.Layers, step.Keep, step.Log = w.layers, w.host+"/ns/fn:kept", log
	if err := step.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	baseConfig, err := w.base.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	wantKept := append(baseConfig.RootFS.DiffIDs, first, second)
	if diff := cmp.Diff(wantKept, w.config(t, "/ns/fn:kept").RootFS.DiffIDs[:4]); diff != "" {
		t.Errorf("kept layers (-want, +got):\n%s", diff)
	}
	pushed := w.config(t, "/ns/fn:tag")
	if len(pushed.RootFS.DiffIDs) != 6 || pushed.Config.Entrypoint[0] != "node" {
		t.Errorf("the image is %+v", pushed)
	}
	if url := readFile(t, step.ImageURLFile); url != step.Destination {
		t.Errorf("the result is %q, want %q", url, step.Destination)
	}
	digest := readFile(t, step.ImageDigestFile)
	w.config(t, "/ns/fn@"+digest)
	wantLog := "Building on base image " + step.Base + "\nPushing dependencies image " + step.Keep +
		"\nPushing image " + step.Destination + "\nPushed " + w.host + "/ns/fn@" + digest + "\n"
	if diff := cmp.Diff(wantLog, log.String()); diff != "" {
		t.Errorf("log (-want, +got):\n%s", diff)
	}
	w.wantPackages(t, "/ns/fn@"+digest, "pkg:npm/ms@2.1.3")
	result := kept(t, step)
	if result.Tag != "kept" || result.Digest != w.digestOf(t, "/ns/fn:kept") {
		t.Errorf("the result about the kept layers is %+v", result)
	}

	// A build that reuses the layers makes the same image, with the same list. It uses
	// neither what the tag names by now nor another list of the kept image.
	w.addLayer(t, "0005.tar.gz")
	forger := w.step()
	forger.Layers, forger.Keep, forger.Destination = w.layers, step.Keep, w.host+"/ns/fn:forged"
	if err := forger.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.forgeList(t, "/ns/fn@"+result.Digest)
	again := w.step()
	w.forget(t, "/ns/fn@"+digest)
	again.Base += "@" + w.digest
	again.Dependencies, again.Packages, again.Destination = w.host+"/ns/fn@"+result.Digest, result.Packages, w.host+"/ns/fn:again"
	if err := again.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, again.ImageDigestFile); got != digest {
		t.Errorf("with the kept layers the image is %s, want %s", got, digest)
	}
	w.wantPackages(t, "/ns/fn@"+digest, "pkg:npm/ms@2.1.3")
}

// digestOf returns the digest of an image in the registry.
func (w *workshop) digestOf(t *testing.T, image string) string {
	t.Helper()
	ref, err := name.ParseReference(w.host + image)
	if err != nil {
		t.Fatal(err)
	}
	found, err := remote.Head(ref)
	if err != nil {
		t.Fatal(err)
	}
	return found.Digest.String()
}

// forgeList adds a package list to an image, as everyone can who can push to the
// repository.
func (w *workshop) forgeList(t *testing.T, image string) {
	t.Helper()
	ref, err := name.NewDigest(w.host + image)
	if err != nil {
		t.Fatal(err)
	}
	found, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	forged := &pusher{log: io.Discard, base: &baseImage{}, packages: []sbom.Package{{Name: "forged", URL: "pkg:npm/forged@1.0.0"}}}
	if _, err := forged.pushPackages(t.Context(), ref.Context(), found); err != nil {
		t.Fatal(err)
	}
}

// TestPushWithoutList pushes to a registry that rejects package lists, and reuses
// layers without a list.
func TestPushWithoutList(t *testing.T) {
	w := newWorkshop(t)
	w.addPackages(t, "0000.tar.gz")
	w.refuses = "application/vnd.cyclonedx+json"
	step := w.step()
	step.Layers, step.Keep = w.layers, w.host+"/ns/fn:kept"
	if err := step.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.refuses = ""
	again := w.step()
	again.Base += "@" + w.digest
	again.Dependencies = w.host + "/ns/fn:kept"
	if err := again.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewDigest(w.host + "/ns/fn@" + readFile(t, again.ImageDigestFile))
	if err != nil {
		t.Fatal(err)
	}
	if found, err := listedPackages(t, ref); err == nil {
		t.Errorf("the packages are listed as %v, and are unknown", found)
	}
}

// madeBy writes an image configuration, as an earlier step does, and returns a step
// that uses it.
func (w *workshop) madeBy(t *testing.T, config v1.Config) *PushStep {
	t.Helper()
	step := w.step()
	step.Layout, step.Layers, step.Config = "", w.layers, filepath.Join(w.layers, "config.json")
	writeFile(t, step.Config, encode(t, v1.ConfigFile{Config: config}))
	return step
}

// TestPushWithoutBase pushes an image of layers alone. The base image that the
// untrusted step reports must not count: it could be one that only this step may
// read.
func TestPushWithoutBase(t *testing.T) {
	w := newWorkshop(t)
	first := w.addLayer(t, "0000.tar.gz")
	w.addPackages(t, "0001.tar.gz")
	step := w.madeBy(t, v1.Config{User: "1000", Entrypoint: []string{"server"}, Labels: map[string]string{"a": "b"}})
	step.Base = ""
	if err := step.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	pushed := w.config(t, "/ns/fn:tag")
	if diffs := pushed.RootFS.DiffIDs; len(diffs) != 2 || diffs[0] != first {
		t.Errorf("the layers are %v", diffs)
	}
	want := v1.Config{User: "1000", Entrypoint: []string{"server"}, Labels: map[string]string{"a": "b", "serverless.kiln.dev/runtime": "nodejs24"}}
	if diff := cmp.Diff(want, pushed.Config); diff != "" {
		t.Errorf("configuration (-want, +got):\n%s", diff)
	}
	if pushed.OS != "linux" || pushed.Architecture != runtime.GOARCH {
		t.Errorf("the image is of %s/%s", pushed.OS, pushed.Architecture)
	}
	if _, err := os.Stat(step.BaseImageFile); err == nil {
		t.Errorf("there is a base image result: %s", readFile(t, step.BaseImageFile))
	}
	digest := readFile(t, step.ImageDigestFile)
	w.wantPackages(t, "/ns/fn@"+digest, "pkg:npm/ms@2.1.3")
	if err := step.Run(t.Context()); err != nil || readFile(t, step.ImageDigestFile) != digest {
		t.Errorf("Run() = %v; the image is %s, and was %s", err, readFile(t, step.ImageDigestFile), digest)
	}
}

// TestResultsFile checks that the controller reads the results from one file, which is small
// enough for a termination message.
func TestResultsFile(t *testing.T) {
	w := newWorkshop(t)
	w.addLayer(t, "0000.tar.gz")
	step := w.step()
	step.Layers, step.Keep, step.ResultsFile = w.layers, w.host+"/ns/fn:deps-1", filepath.Join(w.context, "results")
	if err := step.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := readFile(t, step.ResultsFile)
	got := steps.Results{}
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(text) > 1024 {
		t.Fatalf("the results are %q, %v", text, err)
	}
	dependencies := kept(t, step)
	want := steps.Results{
		ImageDigest:  readFile(t, step.ImageDigestFile),
		BaseImage:    map[string]string{"uri": "oci://" + w.host + "/base", "digest": w.digest},
		Dependencies: map[string]string{"tag": "deps-1", "digest": dependencies.Digest, "packages": dependencies.Packages},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want, +got):\n%s", diff)
	}
}

// TestCheckStart rejects images that no pod could run.
func TestCheckStart(t *testing.T) {
	start := []string{"server"}
	for name, tc := range map[string]struct {
		config v1.Config
		want   string
	}{
		"by number":                   {v1.Config{User: "1000", Cmd: start}, ""},
		"and group":                   {v1.Config{User: "65532:0", Entrypoint: start}, ""},
		"no user":                     {v1.Config{Entrypoint: start}, "the image runs as root, and functions must not: end the Dockerfile with a numeric user, such as USER 1000:1000"},
		"root":                        {v1.Config{User: "root:1000", Entrypoint: start}, "the image runs as root"},
		"root, by number":             {v1.Config{User: "00:1000", Entrypoint: start}, "the image runs as root"},
		"by name":                     {v1.Config{User: "node", Entrypoint: start}, `the image runs as user "node", and Kubernetes cannot verify that this is not root: end the Dockerfile with a numeric user`},
		"below root":                  {v1.Config{User: "-1", Entrypoint: start}, `the image runs as user "-1"`},
		"beyond a number":             {v1.Config{User: "2147483648", Entrypoint: start}, `the image runs as user "2147483648"`},
		"in the builder's":            {v1.Config{User: "1000", Entrypoint: start, WorkingDir: "/kaniko/app"}, "the image starts in /kaniko/app, and builds keep no files of that folder"},
		"in the builder's, not clean": {v1.Config{User: "1000", Entrypoint: start, WorkingDir: "//kaniko"}, "the image starts in //kaniko, and builds keep no files of that folder"},
		"like the builder's":          {v1.Config{User: "1000", Entrypoint: start, WorkingDir: "/kanikos"}, ""},
		"nothing to run":              {v1.Config{User: "1000"}, "the image has no start command: add an ENTRYPOINT"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkshop(t)
			err := w.madeBy(t, tc.config).Run(t.Context())
			if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("Run() = %v, want %q", err, tc.want)
			}
		})
	}
}

// TestBase checks how images name their base image.
func TestBase(t *testing.T) {
	for name, tc := range map[string]struct {
		// DIGEST is replaced by the digest of the base image.
		base, wantName string
		layers         bool
	}{
		"by tag":            {base: "/base:1", wantName: "/base:1"},
		"by tag, of layers": {base: "/base:1", layers: true, wantName: "/base:1"},
		"by tag and digest": {base: "/base:1@DIGEST", wantName: "/base:1"},
		"by digest":         {base: "/base@DIGEST", wantName: "/base@DIGEST"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkshop(t)
			step := w.step()
			step.Base = w.host + strings.ReplaceAll(tc.base, "DIGEST", w.digest)
			if tc.layers {
				w.addLayer(t, "0000.tar.gz")
				step.Layers = w.layers
			}
			if err := step.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{
				"org.opencontainers.image.base.name":   w.host + strings.ReplaceAll(tc.wantName, "DIGEST", w.digest),
				"org.opencontainers.image.base.digest": w.digest,
				"serverless.kiln.dev/runtime":          "nodejs24",
			}
			config := w.config(t, "/ns/fn:tag")
			if diff := cmp.Diff(want, config.Config.Labels); diff != "" {
				t.Errorf("labels (-want, +got):\n%s", diff)
			}
			baseConfig, err := w.base.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(baseConfig.RootFS.DiffIDs, config.RootFS.DiffIDs[:2]); diff != "" {
				t.Errorf("base layers (-want, +got):\n%s", diff)
			}
			wantResult := `{"digest":"` + w.digest + `","uri":"oci://` + w.host + `/base"}`
			if got := readFile(t, step.BaseImageFile); got != wantResult {
				t.Errorf("the result is %s, want %s", got, wantResult)
			}
		})
	}
}

func TestPushWithConfig(t *testing.T) {
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
	step := w.step()
	step.Layout, step.Layers, step.Config = "", w.layers, filepath.Join(w.layers, "config.json")
	writeFile(t, step.Config, encode(t, config))
	if err := step.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	pushed := w.config(t, "/ns/fn:tag")
	config.Config.Labels = pushed.Config.Labels
	if diff := cmp.Diff(config.Config, pushed.Config); diff != "" {
		t.Errorf("configuration (-want, +got):\n%s", diff)
	}
	if len(pushed.RootFS.DiffIDs) != 3 {
		t.Errorf("the image has %d layers, want 3", len(pushed.RootFS.DiffIDs))
	}
}

func TestPushErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*workshop, *PushStep)
		want   string
	}{
		"no such base image": {func(w *workshop, step *PushStep) { step.Base = w.host + "/absent:1" }, "failed to pull base image"},
		"missing dependencies image": {
			func(w *workshop, step *PushStep) { step.Dependencies = w.host + "/ns/fn:vanished" }, "failed to pull dependencies image",
		},
		"base image of another architecture": {func(w *workshop, step *PushStep) {
			image, err := mutate.ConfigFile(w.base, &v1.ConfigFile{Architecture: "s390x"})
			if err != nil {
				t.Fatal(err)
			}
			step.Base = w.host + "/base:s390x"
			w.write(t, step.Base, image)
		}, "it is of architecture s390x"},
		"base image whose layers are refused": {func(w *workshop, step *PushStep) {
			host := w.refusingHost(t)
			step.Base, step.InsecureRegistries = host+"/base:1", append(step.InsecureRegistries, host)
		}, "failed to pull base image"},
		"dependencies image that cannot be pushed": {func(w *workshop, step *PushStep) {
			w.addLayer(t, "0002.tar.gz")
			step.Layers, step.Keep = w.layers, "127.0.0.1:1/ns/fn:kept"
		}, "failed to push dependencies image"},
		"bad name":    {func(_ *workshop, step *PushStep) { step.Destination = "A B" }, "failed to parse the name of an image"},
		"no registry": {func(_ *workshop, step *PushStep) { step.Destination = "127.0.0.1:1/ns/fn:tag" }, "failed to push image"},
		"no layout":   {func(_ *workshop, step *PushStep) { step.Layout += "x" }, "failed to read layout.jsonx"},
	} {
		t.Run(name, func(t *testing.T) { checkPushError(t, tc.change, tc.want) })
	}
}

// TestPushChecksLayers checks the files of the sidecar, which is untrusted.
func TestPushChecksLayers(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*workshop, *PushStep)
		want   string
	}{
		"broken layer": {func(w *workshop, step *PushStep) {
			step.Layers = w.layers
			writeFile(t, filepath.Join(w.layers, "0000.tar.gz"), []byte("\x1f\x8bx"))
		}, "failed to read layer 0000.tar.gz"},
		"layer that is a file of the step's own": {func(w *workshop, step *PushStep) {
			step.Layers = w.layers
			secret := filepath.Join(t.TempDir(), "config.json")
			writeFile(t, secret, []byte(`{"auths": {}}`))
			link(t, secret, filepath.Join(w.layers, "9999.tar.gz"))
		}, "not a regular file"},
		"layers on another base image": {func(w *workshop, step *PushStep) {
			step.Layers = w.layers
			writeFile(t, filepath.Join(w.layers, "base.json"), []byte(`"sha256:`+strings.Repeat("a", 64)+`"`))
		}, "it moved during the build"},
		"sidecar that failed": {func(w *workshop, step *PushStep) {
			step.Layers = w.layers
			if err := os.Remove(filepath.Join(w.layers, doneFile)); err != nil {
				t.Fatal(err)
			}
		}, ErrNotInstalled.Error()},
		"lock that is a link": {func(w *workshop, step *PushStep) {
			step.Layers = w.layers
			if err := os.Remove(filepath.Join(w.layers, lockFile)); err != nil {
				t.Fatal(err)
			}
			link(t, filepath.Join(w.layers, doneFile), filepath.Join(w.layers, lockFile))
		}, "not a regular file"},
		"layer that is not an archive": {func(w *workshop, step *PushStep) {
			step.Layers = w.layers
			writeFile(t, filepath.Join(w.layers, "9999.tar.gz"), []byte(`{"auths": {}}`))
		}, "failed to read layer 9999.tar.gz"},
		"configuration that is a file of the step's own": {func(w *workshop, step *PushStep) {
			step.Layers, step.Layout, step.Config = w.layers, "", filepath.Join(w.layers, "config.json")
			secret := filepath.Join(t.TempDir(), "config.json")
			writeFile(t, secret, []byte(`{"auths": {}}`))
			link(t, secret, step.Config)
		}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) { checkPushError(t, tc.change, tc.want) })
	}
}

// checkPushError checks that a changed step fails with that error and writes no result.
func checkPushError(t *testing.T, change func(*workshop, *PushStep), want string) {
	t.Helper()
	w := newWorkshop(t)
	step := w.step()
	change(w, step)
	err := step.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Run() = %v, want %q", err, want)
	}
	if err != nil && strings.Contains(want, "failed to pull") && strings.Contains(err.Error(), "failed to push") {
		t.Errorf("Run() = %v: it reports a failed push", err)
	}
	if _, err := os.Stat(step.ImageDigestFile); err == nil {
		t.Error("there is a result")
	}
}

// TestMediaTypes checks that an image has layers of either Docker's types or OCI's.
func TestMediaTypes(t *testing.T) {
	for manifest, layer := range map[types.MediaType]types.MediaType{
		types.DockerManifestSchema2: types.DockerLayer,
		types.OCIManifestSchema1:    types.OCILayer,
	} {
		w := newWorkshop(t)
		w.addLayer(t, "0002.tar.gz")
		base := mutate.MediaType(empty.Image, manifest)
		w.write(t, w.host+"/base:1", base)
		digest, err := base.Digest()
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(w.layers, "base.json"), encode(t, digest))
		// The sidecar has ended.
		writeFile(t, filepath.Join(w.layers, lockFile), nil)
		writeFile(t, filepath.Join(w.layers, doneFile), nil)
		step := w.step()
		step.Layers = w.layers
		if err := step.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(step.Destination)
		if err != nil {
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
				t.Errorf("on a base image of type %s a layer has type %s, want %s", manifest, l.MediaType, layer)
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
