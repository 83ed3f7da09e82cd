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

package baseimages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
)

func newBuilder(t *testing.T) *builder {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return &builder{
		host:    &env.Host{Arch: "arm64"},
		repo:    strings.TrimPrefix(server.URL, "http://") + "/" + repository,
		trusted: certificate("host"),
	}
}

// certificate returns a PEM block that stands for a certificate.
func certificate(name string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name)})
}

func TestStatic(t *testing.T) {
	b := newBuilder(t)
	ref, err := b.static(t.Context())
	if err != nil {
		t.Fatal("static() =", err)
	}
	digest, err := name.NewDigest(ref)
	if err != nil {
		t.Fatal("NewDigest() =", err)
	}
	img, err := remote.Image(digest)
	if err != nil {
		t.Fatal("Image() =", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal("ConfigFile() =", err)
	}
	if file.Architecture != "arm64" || file.OS != "linux" || file.Config.User != "65532:65532" {
		t.Errorf("config = %s/%s, user %s", file.OS, file.Architecture, file.Config.User)
	}
	files := content(t, img)
	if got := files["etc/ssl/certs/ca-certificates.crt"]; got != string(b.trusted) {
		t.Errorf("bundle = %q, want %q", got, b.trusted)
	}
	if _, ok := files["tmp/"]; !ok {
		t.Error("there is no /tmp")
	}
	again, err := b.static(t.Context())
	if err != nil || again != ref {
		t.Errorf("second static() = %s, %v; want %s", again, err, ref)
	}
}

func TestEnsure(t *testing.T) {
	b := newBuilder(t)
	builds := 0
	build := func() (v1.Image, error) {
		builds++
		return b.assemble(v1.Config{}, nil)
	}
	for _, key := range []string{"a", "a", "b", "a"} {
		if _, err := b.ensure(t.Context(), b.repo+"/image", key, "latest", build); err != nil {
			t.Fatal("ensure() =", err)
		}
	}
	if builds != 2 {
		t.Errorf("builds = %d, want 2: one for each key", builds)
	}
}

func TestHostBundle(t *testing.T) {
	dir := t.TempDir()
	bundle, extra := filepath.Join(dir, "bundle.pem"), filepath.Join(dir, "extra.pem")
	write(t, bundle, certificate("one"))
	write(t, extra, slices.Concat(certificate("one"), certificate("two")))

	vars := map[string]string{"SSL_CERT_FILE": bundle, "NODE_EXTRA_CA_CERTS": extra}
	got, err := hostBundle(func(key string) string { return vars[key] })
	if err != nil {
		t.Fatal("hostBundle() =", err)
	}
	if diff := cmp.Diff(string(certificate("one"))+string(certificate("two")), string(got)); diff != "" {
		t.Error("hostBundle() (-want, +got):", diff)
	}
}

func TestDifference(t *testing.T) {
	a, b, c := certificate("a"), certificate("b"), certificate("c")
	for _, tt := range []struct {
		name      string
		got, want []byte
	}{
		{"equal", difference(slices.Concat(a, b), slices.Concat(b, a)), nil},
		{"one more", difference(slices.Concat(a, b, c, c), slices.Concat(a, b)), c},
		{"not certificates", difference([]byte("# nothing"), nil), nil},
	} {
		if !bytes.Equal(tt.got, tt.want) {
			t.Errorf("%s: difference() = %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

func TestBundleOf(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "rootfs.tar")
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	entry := file{path: "./etc/ssl/certs/ca-certificates.crt", content: certificate("debian")}
	if err := entry.write(w); err != nil {
		t.Fatal("write() =", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal("Close() =", err)
	}
	write(t, archive, buf.Bytes())
	got, err := bundleOf(archive)
	if err != nil || !bytes.Equal(got, certificate("debian")) {
		t.Errorf("bundleOf() = %q, %v", got, err)
	}
}

func TestCopyEntries(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "package.tgz")
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	w := tar.NewWriter(zw)
	for _, f := range []file{
		{path: "package/bin/node", content: []byte("binary"), mode: 0o755},
		{path: "package/include/node/node.h", content: []byte("header")},
		{path: "package/LICENSE", content: []byte("licence"), mode: 0o600},
	} {
		if err := f.write(w); err != nil {
			t.Fatal("write() =", err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal("Close() =", err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal("Close() =", err)
	}
	write(t, archive, buf.Bytes())

	var out bytes.Buffer
	ow := tar.NewWriter(&out)
	if err := copyEntries(ow, archive, placeNode); err != nil {
		t.Fatal("copyEntries() =", err)
	}
	if err := ow.Close(); err != nil {
		t.Fatal("Close() =", err)
	}
	modes := map[string]int64{}
	for r := tar.NewReader(&out); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal("Next() =", err)
		}
		modes[header.Name] = header.Mode
	}
	want := map[string]int64{"usr/local/bin/node": 0o755, "usr/local/share/doc/node/LICENSE": 0o644}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Error("modes (-want, +got):", diff)
	}
}

func TestPlaceNPM(t *testing.T) {
	for name, want := range map[string]string{
		"bin/npm-cli.js":  "usr/local/lib/node_modules/npm/bin/npm-cli.js",
		"docs/index.html": "",
		"man/man1/npm.1":  "",
	} {
		if got, ok := placeNPM(name); got != want || ok != (want != "") {
			t.Errorf("placeNPM(%s) = %q, %t, want %q", name, got, ok, want)
		}
	}
}

func TestReleases(t *testing.T) {
	for _, r := range releases {
		if got := slices.Sorted(maps.Keys(r.binary)); !slices.Equal(got, []string{"amd64", "arm64"}) {
			t.Errorf("Node.js %s has architectures %v", r.version, got)
		}
		if _, _, err := r.packages("s390x"); err == nil {
			t.Errorf("packages(s390x) of Node.js %s succeeded", r.version)
		}
	}
}

func TestDownloadChecksIntegrity(t *testing.T) {
	dir := t.TempDir()
	// Stands for npm: it delivers something else than what is pinned.
	write(t, filepath.Join(dir, "npm"), []byte("#!/bin/sh\necho other > evil-1.0.0.tgz\n"))
	if err := os.Chmod(filepath.Join(dir, "npm"), 0o755); err != nil {
		t.Fatal("Chmod() =", err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	p := npmPackage{"evil", "1.0.0", "sha512-pinned"}
	if err := p.download(context.Background(), io.Discard, dir); err == nil || !strings.Contains(err.Error(), "verify") {
		t.Errorf("download() = %v, want an error about the hash", err)
	}
}

// content returns the files of an image's layers.
func content(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal("Layers() =", err)
	}
	files := map[string]string{}
	for _, layer := range layers {
		rc, err := layer.Uncompressed()
		if err != nil {
			t.Fatal("Uncompressed() =", err)
		}
		defer rc.Close()
		for r := tar.NewReader(rc); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal("Next() =", err)
			}
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal("ReadAll() =", err)
			}
			files[header.Name] = string(data)
		}
	}
	return files
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal("WriteFile() =", err)
	}
}
