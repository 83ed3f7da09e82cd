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
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
	"github.com/kiln-dev/kiln/hack/cluster/internal/packages"
)

// npmPackage is a package of npm's registry, pinned by the hash of its content.
type npmPackage struct {
	name, version, integrity string
}

// release is a release of Node.js with its npm.
type release struct {
	version string
	// binary holds the hash of the package with the binary, by architecture.
	binary map[string]string
	npm    npmPackage
}

var releases = []release{{
	version: "22.23.3",
	binary: map[string]string{
		"amd64": "sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==",
		"arm64": "sha512-l3DAHZreylo+p9QXDtsOrjG2JXJqVzYXnAGmIQNOUNARcMppTO2cmewVQP+36tjJnSE+dzpMNtgW+c3oiDvXtA==",
	},
	npm: npmPackage{"npm", "10.9.9",
		"sha512-1g+6jLQvaIuB4zwvHL7yrXuXcWZwDsCtBX8bbWDqbvJSSr9nPiDDWTHNgwXR27iIcTTW7v3A57hDW9RYv2W4Yg=="},
}, {
	version: "24.21.0",
	binary: map[string]string{
		"amd64": "sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==",
		"arm64": "sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g==",
	},
	npm: npmPackage{"npm", "11.21.2",
		"sha512-7HPApk+AflMUavSseL1Pm6CnYqMIHk53x+KmuhqmTDqPkjPMgxIpTPcTqsE91EKNw4gFBJV9fnXiSdGm1DXq9A=="},
}}

// npmArch holds npm's names of architectures.
var npmArch = map[string]string{"amd64": "x64", "arm64": "arm64"}

func (r release) major() string {
	major, _, _ := strings.Cut(r.version, ".")
	return major
}

// packages returns the packages of the release for an architecture.
func (r release) packages(arch string) (node, npm npmPackage, err error) {
	integrity, ok := r.binary[arch]
	if !ok {
		return node, npm, fmt.Errorf("failed to find Node.js %s for architecture %q", r.version, arch)
	}
	return npmPackage{"node-linux-" + npmArch[arch], r.version, integrity}, r.npm, nil
}

// node makes the image with a release of Node.js.
func (b *builder) node(ctx context.Context, log io.Writer, debian stored, r release) (string, error) {
	node, npm, err := r.packages(b.host.Arch)
	if err != nil {
		return "", err
	}
	key, err := cache.Key(cache.Text(recipe, debian.key, node.integrity, npm.integrity))
	if err != nil {
		return "", err
	}
	img, err := b.ensure(ctx, b.repo+"/node", key, r.major(), func() (v1.Image, error) {
		base, err := debian.pull(ctx)
		if err != nil {
			return nil, err
		}
		layer, err := b.nodeLayer(ctx, log, node, npm)
		if err != nil {
			return nil, err
		}
		file, err := base.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("failed to read image configuration: %w", err)
		}
		config := *file.Config.DeepCopy()
		config.Cmd = []string{"node"}
		config.Env = append(config.Env, "NODE_VERSION="+r.version)
		return b.assemble(config, base, layer)
	})
	return img.ref, err
}

// nodeLayer downloads the packages and lays them out as the official images do.
func (b *builder) nodeLayer(ctx context.Context, log io.Writer, node, npm npmPackage) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, p := range []struct {
		npmPackage
		place func(string) (string, bool)
	}{{node, placeNode}, {npm, placeNPM}} {
		archive, err := b.fetch(ctx, log, p.npmPackage)
		if err != nil {
			return nil, err
		}
		if err := copyEntries(w, archive, p.place); err != nil {
			return nil, fmt.Errorf("failed to unpack %s: %w", p.name, err)
		}
	}
	for _, command := range []string{"npm", "npx"} {
		link := file{path: "usr/local/bin/" + command, link: "../lib/node_modules/npm/bin/" + command + "-cli.js"}
		if err := link.write(w); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("failed to write layer: %w", err)
	}
	return newLayer(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
}

// placeNode returns the place of a file of the Node.js package in the image, if it has
// one.
func placeNode(name string) (string, bool) {
	switch name {
	case "bin/node":
		return "usr/local/bin/node", true
	case "LICENSE":
		return "usr/local/share/doc/node/LICENSE", true
	}
	return "", false
}

// placeNPM returns the place of a file of npm in the image, if it has one.
func placeNPM(name string) (string, bool) {
	for _, unused := range []string{"docs/", "man/"} {
		if strings.HasPrefix(name, unused) {
			return "", false
		}
	}
	return "usr/local/lib/node_modules/npm/" + name, true
}

// fetch returns the path of a package's archive.
func (b *builder) fetch(ctx context.Context, log io.Writer, p npmPackage) (string, error) {
	key, err := cache.Key(cache.Text(p.name, p.version, p.integrity))
	if err != nil {
		return "", err
	}
	dir, err := b.host.Store.Get(ctx, "npm-packages", key, func(dir string) error {
		if err := packages.Ensure(ctx, log, "npm"); err != nil {
			return err
		}
		return p.download(ctx, log, dir)
	})
	return filepath.Join(dir, p.archive()), err
}

// archive returns the name that npm gives the package's archive.
func (p npmPackage) archive() string { return p.name + "-" + p.version + ".tgz" }

// download fetches the package into dir with npm, which knows the user's
// registry and proxy, and checks that it is the pinned one.
func (p npmPackage) download(ctx context.Context, log io.Writer, dir string) error {
	err := command.New("npm", "pack", "--silent", "--pack-destination", dir, p.name+"@"+p.version).In(dir).Run(ctx, log)
	if err != nil {
		return fmt.Errorf("failed to download %s@%s: %w", p.name, p.version, err)
	}
	f, err := os.Open(filepath.Join(dir, p.archive()))
	if err != nil {
		return fmt.Errorf("failed to open package: %w", err)
	}
	defer f.Close()
	sum := sha512.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("failed to read package: %w", err)
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != p.integrity {
		return fmt.Errorf("failed to verify %s@%s: its hash is %s, want %s", p.name, p.version, got, p.integrity)
	}
	return nil
}

// copyEntries appends the files of a package that have a place to an archive.
func copyEntries(w *tar.Writer, archive string, place func(string) (string, bool)) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// All packages have their files in a folder "package".
		path, ok := place(strings.TrimPrefix(header.Name, "package/"))
		if !ok || header.Typeflag != tar.TypeReg {
			continue
		}
		err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: header.Mode&0o111 | 0o644, Size: header.Size})
		if err != nil {
			return err
		}
		if _, err := io.Copy(w, r); err != nil {
			return err
		}
	}
}
