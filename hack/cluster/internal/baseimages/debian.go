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
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
	"github.com/kiln-dev/kiln/hack/cluster/internal/packages"
)

// userland is a release of Debian with packages.
type userland struct {
	// suite is Debian's name of the release.
	suite string
	// include are the packages besides Debian's essential ones.
	include string
	// public is the equivalent image for hosts without Debian's tools.
	public string
	// hooks are the last commands, with the folder in "$1".
	hooks []string
}

// nodeUserland is Debian with what Node.js needs.
var nodeUserland = userland{suite: "bookworm", include: "ca-certificates,libatomic1,libstdc++6", public: "debian:bookworm-slim"}

const (
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// extraBundle has the certificates that only the host trusts.
	extraBundle = "/usr/local/share/ca-certificates/host.crt"

	archiveFile = "rootfs.tar"
)

// debian makes the image with Debian's userland, as a tag of the repository.
func (b *builder) debian(ctx context.Context, log io.Writer, u userland, repository, tag, command string) (stored, error) {
	key, err := cache.Key(cache.Text(recipe, runtime.GOOS, b.host.Arch), cache.Text(u.rootfsArgs(b.host.Arch)...), cache.Text(string(b.trusted)))
	if err != nil {
		return stored{}, err
	}
	return b.ensure(ctx, b.repo+"/"+repository, key, tag, func() (v1.Image, error) {
		base, own, err := b.userlandImage(ctx, log, u)
		if err != nil {
			return nil, err
		}
		config := v1.Config{Cmd: []string{command}, Env: []string{"PATH=" + searchPath}}
		var layers []v1.Layer
		if extra := difference(b.trusted, own); len(extra) > 0 {
			layer, err := trustLayer(own, extra)
			if err != nil {
				return nil, err
			}
			layers = append(layers, layer)
			config.Env = append(config.Env, "NODE_EXTRA_CA_CERTS="+extraBundle)
		}
		return b.assemble(config, base, layers...)
	})
}

// userlandImage returns an image with Debian's userland, and its CA certificates. Without
// Debian's tools, it pulls a public image with the user's Docker.
func (b *builder) userlandImage(ctx context.Context, log io.Writer, u userland) (v1.Image, []byte, error) {
	if runtime.GOOS != "linux" {
		img, err := b.publicImage(ctx, u.public)
		return img, nil, err
	}
	archive, err := b.rootfs(ctx, log, u)
	if err != nil {
		return nil, nil, err
	}
	own, err := bundleOf(archive)
	if err != nil {
		return nil, nil, err
	}
	layer, err := newLayer(func() (io.ReadCloser, error) { return os.Open(archive) })
	if err != nil {
		return nil, nil, err
	}
	img, err := b.assemble(v1.Config{}, nil, layer)
	return img, own, err
}

// publicImage returns an image from Docker Hub, which may lack CA certificates.
func (b *builder) publicImage(ctx context.Context, image string) (v1.Image, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("failed to name image: %w", err)
	}
	img, err := remote.Image(ref, remote.WithContext(ctx), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: b.host.Arch}))
	if err != nil {
		return nil, fmt.Errorf("failed to pull image %s: %w", ref, err)
	}
	return img, nil
}

// trustLayer adds certificates to the system's bundle, and in a separate file for
// Node.js, which has its own bundle.
func trustLayer(own, extra []byte) (v1.Layer, error) {
	return fileSet{
		{path: strings.TrimPrefix(systemBundle, "/"), content: append(slices.Clip(own), extra...)},
		{path: strings.TrimPrefix(extraBundle, "/"), content: extra},
	}.layer()
}

// rootfs returns the path of an archive with Debian's userland.
func (b *builder) rootfs(ctx context.Context, log io.Writer, u userland) (string, error) {
	args := u.rootfsArgs(b.host.Arch)
	key, err := cache.Key(cache.Text(recipe), cache.Text(args...))
	if err != nil {
		return "", err
	}
	dir, err := b.host.Store.Get(ctx, "base-rootfs", key, func(dir string) error {
		if err := packages.Ensure(ctx, log, "mmdebstrap"); err != nil {
			return err
		}
		args := append([]string{"mmdebstrap"}, args...)
		// It clamps the times of files, so that the archive depends on the packages only.
		cmd := command.New(append(args, filepath.Join(dir, archiveFile))...).With("SOURCE_DATE_EPOCH=0")
		if os.Geteuid() == 0 {
			// The cache removes this directory if the command is killed. The default
			// directory may be closed to the user IDs of the command.
			cmd = cmd.With("TMPDIR=" + dir)
		}
		return cmd.Run(ctx, log)
	})
	return filepath.Join(dir, archiveFile), err
}

// rootfsArgs returns the arguments of mmdebstrap, without the target.
func (u userland) rootfsArgs(arch string) []string {
	args := []string{
		"--variant=essential",
		"--architectures=" + arch,
		// Without it, apt chooses usrmerge, which needs all of Perl.
		"--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
		"--include=" + u.include,
		// Containers get their own /dev.
		"--skip=output/dev",
		// The official Node.js images have this user.
		`--customize-hook=echo node:x:1000: >> "$1/etc/group"`,
		`--customize-hook=echo node:x:1000:1000::/home/node:/bin/bash >> "$1/etc/passwd"`,
		`--customize-hook=install -d -o 1000 -g 1000 "$1/home/node"`,
	}
	for _, hook := range u.hooks {
		args = append(args, "--customize-hook="+hook)
	}
	for _, dir := range []string{"doc", "info", "locale", "man"} {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+dir+"/*")
	}
	return append(args, "--dpkgopt=path-include=/usr/share/doc/*/copyright", u.suite)
}

// bundleOf returns the CA certificates in an archive of a root file system.
func bundleOf(archive string) ([]byte, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("failed to open rootfs: %w", err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("failed to find %s in rootfs", systemBundle)
		}
		if err != nil {
			return nil, fmt.Errorf("failed to read rootfs: %w", err)
		}
		if path.Clean("/"+header.Name) == systemBundle {
			return io.ReadAll(r)
		}
	}
}
