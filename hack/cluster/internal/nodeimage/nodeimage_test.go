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
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestContainerdConfig(t *testing.T) {
	config := "version = 2\n[plugins.cri]\n  # comment\n  sandbox_image = \"registry.k8s.io/pause:3.10\"\n  restrict_oom_score_adj = false\n"
	got, err := containerdConfig(config, "registry.k8s.io/pause:3.10.2")
	if err != nil {
		t.Fatalf("containerdConfig() = %v", err)
	}
	for _, want := range []string{
		"  sandbox_image = \"registry.k8s.io/pause:3.10.2\"\n", "  restrict_oom_score_adj = true\n",
		"version = 2\n", "  config_path = \"/etc/containerd/certs.d\"\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("config %q lacks %q", got, want)
		}
	}
	if _, err := containerdConfig("version = 3\n", "pause"); err == nil {
		t.Error("a configuration without the settings is no error")
	}
}

func TestBaseSpec(t *testing.T) {
	for name, hooks := range map[string]string{
		"no hooks":    `{}`,
		"other hooks": `{"hooks":{"createContainer":[{"path":"/other"}]}}`,
	} {
		spec := map[string]any{}
		if err := json.Unmarshal([]byte(hooks), &spec); err != nil {
			t.Fatal(err)
		}
		spec["process"] = map[string]any{"cwd": "/", "rlimits": []any{1}}
		in, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		out, err := baseSpec(in)
		if err != nil {
			t.Fatalf("%s: baseSpec() = %v", name, err)
		}
		text := string(out)
		if strings.Contains(text, "rlimits") || !strings.Contains(text, "/kind/bin/mount-product-files.sh") || !strings.Contains(text, `"cwd":"/"`) {
			t.Errorf("%s: baseSpec() = %s", name, text)
		}
		if strings.Contains(hooks, "/other") != strings.Contains(text, "/other") {
			t.Errorf("%s: other hooks are not kept: %s", name, text)
		}
	}
	if _, err := baseSpec([]byte("nonsense")); err == nil {
		t.Error("baseSpec() of nonsense has no error")
	}
}

func TestByShortName(t *testing.T) {
	got := byShortName([]string{"registry.k8s.io/etcd:3.6.8-0", "registry.k8s.io/coredns/coredns:v1.14.2"})
	if got["etcd"] != "registry.k8s.io/etcd:3.6.8-0" || got["coredns"] != "registry.k8s.io/coredns/coredns:v1.14.2" {
		t.Errorf("byShortName() = %v", got)
	}
}

func TestSharedLibraries(t *testing.T) {
	ldd := `/usr/sbin/nft:
	linux-vdso.so.1 (0x00007ffd)
	libnftables.so.1 => /lib/x86_64-linux-gnu/libnftables.so.1 (0x00007f)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)
	/lib64/ld-linux-x86-64.so.2 (0x00007f)
/usr/sbin/conntrack:
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)
`
	want := []string{"/lib/x86_64-linux-gnu/libnftables.so.1", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}
	if got := sharedLibraries(ldd); !slices.Equal(got, want) {
		t.Errorf("sharedLibraries() = %q, want %q", got, want)
	}
}

func TestResolve(t *testing.T) {
	a := &assembly{root: t.TempDir()}
	if err := a.write("/usr/lib/libx.so.1.2", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"/usr/lib/libx.so.1": "libx.so.1.2",
		"/usr/lib/libx.so":   "/usr/lib/libx.so.1",
		"/usr/lib/loop":      "loop",
	} {
		if err := a.link(target, name); err != nil {
			t.Fatal(err)
		}
	}
	got, err := a.resolve("/usr/lib/libx.so")
	if want := filepath.Join(a.root, "usr/lib/libx.so.1.2"); err != nil || got != want {
		t.Errorf("resolve() = %q, %v, want %q", got, err, want)
	}
	if got, err := a.resolve("/usr/lib/loop"); err == nil {
		t.Errorf("resolve() of a loop = %q, want an error", got)
	}
}

func TestArchive(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	layer := filepath.Join(dir, "layer")
	entries := []entry{{name: "usr/bin/all", source: program}, {name: "usr/bin/one", link: "all"}}
	if err := writeLayer(layer, entries); err != nil {
		t.Fatalf("writeLayer() = %v", err)
	}
	if got, want := namesIn(t, layer), []string{"tmp/", "usr/", "usr/bin/", "usr/bin/all", "usr/bin/one"}; !slices.Equal(got, want) {
		t.Errorf("layer has %q, want %q", got, want)
	}

	var out bytes.Buffer
	images := []containerImage{
		{ref: "r/a:1", layers: []string{layer}, entrypoint: []string{"all"}},
		{ref: "r/b:1", layers: []string{layer}, user: "65535"},
	}
	if err := writeArchive(&out, "amd64", images); err != nil {
		t.Fatalf("writeArchive() = %v", err)
	}
	files := filesIn(t, &out)
	if len(files) != 4 { // One layer, two configurations, the manifest.
		t.Errorf("archive has %d files, want 4: the layer is not shared", len(files))
	}
	var manifest []archiveItem
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatalf("manifest: %v", err)
	}
	for i, item := range manifest {
		if item.RepoTags[0] != images[i].ref || files[item.Layers[0]] == nil {
			t.Errorf("item %d = %+v", i, item)
		}
		var config imageConfig
		if err := json.Unmarshal(files[item.Config], &config); err != nil {
			t.Fatalf("configuration: %v", err)
		}
		if config.RootFS.DiffIDs[0]+".tar" != "sha256:"+item.Layers[0] || config.Config.User != images[i].user || len(config.History) != 1 {
			t.Errorf("configuration %d = %+v", i, config)
		}
	}
}

func namesIn(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var names []string
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

func filesIn(t *testing.T, in io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
