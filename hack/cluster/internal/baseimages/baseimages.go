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

// Package baseimages makes the images that others are built on, from Debian's
// and npm's packages, and puts them into the cluster's registry.
package baseimages

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sync/errgroup"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
)

// repository is the path in the registry that all base images share.
const repository = "kiln-base"

// recipe is part of every key. It changes when images must be made again although no
// other input has changed.
const recipe = "1"

// Set holds references of the base images by digest, at the address that the
// host uses.
type Set struct {
	// Static is the base of Go binaries: CA certificates, /tmp and a nonroot user.
	Static string
	// Debian is a Debian userland with a shell.
	Debian string
	// Node holds Debian with Node.js, by major version.
	Node map[string]string
	// Python is Debian with Python 3.13, pip and the packages of Kiln's wrapper.
	Python string
}

// builder makes base images for one cluster.
type builder struct {
	host *env.Host
	repo string
	// trusted is the host's bundle of CA certificates.
	trusted []byte
}

// Build makes the base images that the registry does not hold yet.
func Build(ctx context.Context, host *env.Host, registry env.Registry) (*Set, error) {
	trusted, err := hostBundle(os.Getenv)
	if err != nil {
		return nil, err
	}
	b := &builder{host: host, repo: registry.Push + "/" + repository, trusted: trusted}
	set := &Set{Node: make(map[string]string, len(releases))}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return b.part(ctx, "static base image", func(ctx context.Context, _ io.Writer) (err error) {
			set.Static, err = b.static(ctx)
			return err
		})
	})
	g.Go(func() error {
		return b.part(ctx, "Node base images", func(ctx context.Context, log io.Writer) error {
			return b.userland(ctx, log, set)
		})
	})
	g.Go(func() error {
		return b.part(ctx, "Python base image", func(ctx context.Context, log io.Writer) (err error) {
			set.Python, err = b.python(ctx, log)
			return err
		})
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return set, nil
}

func (b *builder) part(ctx context.Context, name string, fn func(context.Context, io.Writer) error) error {
	return b.host.Reporter.Part(ctx, name, fn)
}

// userland makes the Debian image and the Node.js images on top of it.
func (b *builder) userland(ctx context.Context, log io.Writer, set *Set) error {
	debian, err := b.debian(ctx, log, nodeUserland, "debian", nodeUserland.suite, "bash")
	if err != nil {
		return err
	}
	set.Debian = debian.ref
	for _, r := range releases {
		ref, err := b.node(ctx, log, debian, r)
		if err != nil {
			return err
		}
		set.Node[r.major()] = ref
	}
	return nil
}

// static makes the base of images that hold nothing but a Go binary.
func (b *builder) static(ctx context.Context) (string, error) {
	files := staticFiles(b.trusted)
	key, err := cache.Key(cache.Text(recipe, "static", b.host.Arch), files.input())
	if err != nil {
		return "", err
	}
	img, err := b.ensure(ctx, b.repo+"/static", key, "latest", func() (v1.Image, error) {
		layer, err := files.layer()
		if err != nil {
			return nil, err
		}
		return b.assemble(v1.Config{
			User:       "65532:65532",
			WorkingDir: "/home/nonroot",
			Env:        []string{"PATH=" + searchPath, "SSL_CERT_FILE=" + systemBundle},
		}, nil, layer)
	})
	return img.ref, err
}

// staticFiles returns the content of the static base image.
func staticFiles(trusted []byte) fileSet {
	return fileSet{
		{path: "etc/passwd", content: []byte("root:x:0:0:root:/root:/sbin/nologin\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n" +
			"nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n")},
		{path: "etc/group", content: []byte("root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n")},
		// Without it Go's resolver asks DNS before it reads /etc/hosts.
		{path: "etc/nsswitch.conf", content: []byte("hosts: files dns\n")},
		{path: strings.TrimPrefix(systemBundle, "/"), content: trusted},
		{path: "root/", mode: 0o700},
		{path: "tmp/", mode: 0o1777},
		{path: "home/nonroot/", mode: 0o700, uid: 65532},
	}
}

// assemble puts layers on a base, by default on nothing.
func (b *builder) assemble(config v1.Config, base v1.Image, layers ...v1.Layer) (v1.Image, error) {
	if base == nil {
		base = emptyImage()
	}
	img, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return nil, fmt.Errorf("failed to append layers: %w", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("failed to read image configuration: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", b.host.Arch, config
	img, err = mutate.ConfigFile(img, file)
	if err != nil {
		return nil, fmt.Errorf("failed to configure image: %w", err)
	}
	return img, nil
}
