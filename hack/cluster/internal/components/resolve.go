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

package components

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"

	"github.com/kiln-dev/kiln/hack/cluster/internal/baseimages"
	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/gobuild"
	"github.com/kiln-dev/kiln/hack/cluster/internal/progress"
)

// recipe is part of every key. It changes when manifests must be made again although no
// other input has changed.
const recipe = "2"

// source is the place of manifests.
type source struct {
	// module is the module that contains them, by default the component's own folder.
	module string
	// dirs are the directories in the module.
	dirs []string
	// deep includes subdirectories.
	deep bool
}

// manifests are the objects of a component, in the order in which they are
// applied and with the images by digest.
type manifests struct {
	component component
	objects   []object
	// key is the hash of the objects.
	key string
}

// from returns the objects of a stage and those after it.
func (m manifests) from(first int) []object {
	return slices.DeleteFunc(slices.Clone(m.objects), func(o object) bool { return stage(o) < first })
}

// until returns the objects before a stage.
func (m manifests) until(end int) []object {
	return slices.DeleteFunc(slices.Clone(m.objects), func(o object) bool { return stage(o) >= end })
}

// builder builds the images of components.
type builder struct {
	host     *env.Host
	registry env.Registry
	ko       string
	base     *baseimages.Set
}

// resolve returns the manifests of a component as they suit this cluster, and
// makes its images unless the registry holds all of them.
func (b *builder) resolve(ctx context.Context, log io.Writer, c component) (manifests, error) {
	folder := b.host.ThirdParty(c.module)
	raw, err := c.read(ctx, folder)
	if err != nil {
		return manifests{}, err
	}
	key, err := cache.Key(
		cache.Text(recipe, b.host.Arch, b.ko, b.registry.Push, b.base.Static, string(raw)),
		cache.Dir(folder))
	if err != nil {
		return manifests{}, err
	}
	resolved, err := b.cached(ctx, log, key, func() (string, error) { return b.build(ctx, log, c, raw) })
	if err != nil {
		return manifests{}, err
	}
	return b.adapt(c, resolved)
}

// adapt makes resolved manifests suit this cluster. It runs after the build of the
// images, so its changes cause no build.
func (b *builder) adapt(c component, resolved []byte) (manifests, error) {
	objects, err := decode(resolved)
	if err != nil {
		return manifests{}, err
	}
	objects = slices.DeleteFunc(objects, unwanted)
	images := &baseimages.Set{Debian: atNodes(b.base.Debian, b.registry)}
	for _, o := range objects {
		slim(o)
		c.edit(o, images)
	}
	objects = inOrder(objects)
	final, err := encode(objects)
	if err != nil {
		return manifests{}, err
	}
	key, err := cache.Key(cache.Text(string(final)))
	return manifests{component: c, objects: objects, key: key}, err
}

// cached returns the resolved manifests from the cache. It makes them again if the
// registry has lost an image.
func (b *builder) cached(ctx context.Context, log io.Writer, key string, build func() (string, error)) ([]byte, error) {
	for attempt := 0; ; attempt++ {
		dir, err := b.host.Store.Get(ctx, "manifests", key, func(dir string) error {
			progress.Note(ctx, "")
			resolved, err := build()
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "resolved.yaml"), []byte(resolved), 0o644)
		})
		if err != nil {
			return nil, err
		}
		resolved, err := os.ReadFile(filepath.Join(dir, "resolved.yaml"))
		if err != nil {
			return nil, fmt.Errorf("failed to read manifests: %w", err)
		}
		err = b.held(ctx, resolved)
		if err == nil || attempt > 0 {
			return resolved, err
		}
		fmt.Fprintln(log, err)
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("failed to drop manifests: %w", err)
		}
	}
}

// read returns the manifests of a component as their project has them.
func (c component) read(ctx context.Context, folder string) ([]byte, error) {
	var out []object
	for _, s := range c.sources {
		objects, err := s.read(ctx, folder)
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	if c.prepare != nil {
		for _, o := range out {
			c.prepare(o)
		}
	}
	return encode(out)
}

// read returns the objects in the source, in the order of their files.
func (s source) read(ctx context.Context, folder string) ([]object, error) {
	root := folder
	if s.module != "" {
		dir, err := moduleDir(ctx, folder, s.module)
		if err != nil {
			return nil, err
		}
		root = dir
	}
	var out []object
	for _, dir := range s.dirs {
		objects, err := readDir(filepath.Join(root, filepath.FromSlash(dir)), s.deep)
		if err != nil {
			return nil, fmt.Errorf("failed to read manifests: %w", err)
		}
		if len(objects) == 0 {
			return nil, fmt.Errorf("failed to find manifests in %s of %s", dir, root)
		}
		out = append(out, objects...)
	}
	return out, nil
}

// readDir returns the objects in the YAML files of a directory.
func readDir(root string, deep bool) (out []object, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && !deep:
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".yaml":
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		objects, err := decode(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, objects...)
		return nil
	})
	// It is for kustomize and not for the cluster.
	return slices.DeleteFunc(out, func(o object) bool { return o.kind() == "Kustomization" }), err
}

// moduleDir returns where the module cache has the version of a module that a
// folder of third_party pins.
func moduleDir(ctx context.Context, folder, module string) (string, error) {
	out, err := command.New("go", "mod", "download", "-json", module).In(folder).With(gobuild.Environ()...).Output(ctx)
	if err != nil {
		return "", fmt.Errorf("failed to download %s: %w", module, err)
	}
	var m struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &m); err != nil || m.Dir == "" {
		return "", fmt.Errorf("failed to find %s in the module cache: %w", module, err)
	}
	return m.Dir, nil
}

// build builds the images that the manifests name, pushes them and returns the
// manifests with their digests.
func (b *builder) build(ctx context.Context, log io.Writer, c component, raw []byte) (string, error) {
	folder := b.host.ThirdParty(c.module)
	if err := b.compile(ctx, log, folder, tools); err != nil {
		return "", err
	}
	return b.runKo(ctx, command.New("--base-import-paths", "--ldflags=-s -w").In(folder).
		With("KO_DOCKER_REPO="+b.registry.Push+"/"+c.module), raw)
}

// kaniko builds Kiln's Kaniko image exactly as the installation of Kiln does, so the
// installation reuses it.
func (b *builder) kaniko(ctx context.Context, log io.Writer) error {
	folder := b.host.ThirdParty("kaniko")
	key, err := cache.Key(
		cache.Text(recipe, b.host.Arch, b.ko, b.registry.Push, b.base.Static),
		cache.File(filepath.Join(b.host.Root, ".ko.yaml")),
		cache.Dir(folder))
	if err != nil {
		return err
	}
	_, err = b.cached(ctx, log, key, func() (string, error) {
		if err := b.compile(ctx, log, folder, "."); err != nil {
			return "", err
		}
		return b.runKo(ctx, command.New().In(b.host.Root).With(kilnEnv(b.host, b.registry)...), []byte("image: "+kanikoPath+"\n"))
	})
	return err
}

// tools are the commands that a go.mod names as such.
const tools = "tool"

// fetch downloads the modules that packages need.
func fetch(ctx context.Context, log io.Writer, folder, packages string) error {
	if err := list(folder, packages).Run(ctx, log); err != nil {
		return fmt.Errorf("failed to download modules: %w", err)
	}
	return nil
}

// compile compiles packages. While ko links them and pushes, others can compile.
func (b *builder) compile(ctx context.Context, log io.Writer, folder, packages string) error {
	if err := fetch(ctx, log, folder, packages); err != nil {
		return err
	}
	err := gobuild.Exclusive(ctx, func() error {
		return list(folder, packages, "-trimpath", "-export").With("GOOS=linux", "GOARCH="+b.host.Arch, gobuild.Compiling).Run(ctx, log)
	})
	if err != nil {
		return fmt.Errorf("failed to compile: %w", err)
	}
	return nil
}

// list lists packages and what they depend on.
func list(folder, packages string, flags ...string) *command.Command {
	args := append([]string{"go", "list", "-deps", "-f", `{{""}}`}, flags...)
	return command.New(append(args, packages)...).In(folder).With(gobuild.Environ()...)
}

// runKo resolves references to Go packages in manifests. The command has the arguments
// that differ between calls.
func (b *builder) runKo(ctx context.Context, c *command.Command, manifests []byte) (string, error) {
	c.Args = append([]string{b.ko, "resolve", "--sbom=none", "--platform=linux/" + b.host.Arch, "--filename=-"}, c.Args...)
	out, err := c.With(gobuild.Environ()...).With("KO_DEFAULTBASEIMAGE=" + b.base.Static).
		Reading(bytes.NewReader(manifests)).Output(ctx)
	if err != nil {
		return "", fmt.Errorf("failed to build images: %w", err)
	}
	return out, nil
}

// reference matches the references by digest in manifests.
var reference = regexp.MustCompile(`[\w.:/-]+@sha256:[0-9a-f]{64}`)

// references returns the images of our registry that manifests refer to.
func references(manifests []byte, registry string) []string {
	var out []string
	for _, ref := range reference.FindAll(manifests, -1) {
		if bytes.HasPrefix(ref, []byte(registry+"/")) {
			out = append(out, string(ref))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// held returns an error if the registry lacks an image of the manifests.
func (b *builder) held(ctx context.Context, manifests []byte) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, ref := range references(manifests, b.registry.Push) {
		g.Go(func() error {
			digest, err := name.NewDigest(ref, name.Insecure)
			if err != nil {
				return fmt.Errorf("failed to parse image reference: %w", err)
			}
			if _, err := remote.Head(digest, remote.WithContext(ctx)); err != nil {
				return fmt.Errorf("failed to find image %s: %w", ref, err)
			}
			return nil
		})
	}
	return g.Wait()
}
