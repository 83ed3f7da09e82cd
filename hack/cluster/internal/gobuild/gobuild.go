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

// Package gobuild builds commands from the pinned modules in third_party.
package gobuild

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
)

// Command is a Go command to build.
type Command struct {
	// Name is the name of the binary and of its cache entry.
	Name string
	// Module is the directory of the module, for example third_party/kind.
	Module string
	// Package is the command's package, by default the module's root.
	Package string
	// LDFlags are added to the flags that strip the binary.
	LDFlags string
	// GOOS is the operating system of the program, by default this one.
	GOOS string
	// GOARCH is the architecture of the program, by default this one.
	GOARCH string
	// First commands are compiled before others that wait.
	First bool
}

// Compiling goes into the environment of compilers. They collect garbage less often, take
// a seventh less time, and use more memory.
const Compiling = "GOGC=400"

// nothing is a template that makes go list print nothing; an empty one does not.
const nothing = `{{""}}`

// Exclusive runs fn while nothing else compiles. It is for everything that compiles much
// Go code, such as ko, and not for downloads.
func Exclusive(ctx context.Context, fn func() error) error {
	return slot.run(ctx, false, fn)
}

// Build returns the path of the command's binary, which it builds if the store
// does not have it.
func Build(ctx context.Context, store *cache.Store, log io.Writer, c Command) (string, error) {
	c = c.withDefaults()
	key, err := c.key(ctx)
	if err != nil {
		return "", err
	}
	dir, err := store.Get(ctx, c.Name, key, func(dir string) error {
		return c.build(ctx, log, filepath.Join(dir, c.Name))
	})
	if err != nil {
		return "", fmt.Errorf("failed to build %s: %w", c.Name, err)
	}
	return filepath.Join(dir, c.Name), nil
}

// Download fetches the modules of a module directory into the module cache, so
// that a build later does not wait for the network.
func Download(ctx context.Context, log io.Writer, module string) error {
	return runGo(ctx, log, module, nil, "mod", "download")
}

func (c Command) withDefaults() Command {
	if c.Package == "" {
		c.Package = "."
	}
	if c.GOOS == "" {
		c.GOOS = runtime.GOOS
	}
	if c.GOARCH == "" {
		c.GOARCH = runtime.GOARCH
	}
	c.LDFlags = strings.TrimSpace("-s -w " + c.LDFlags)
	return c
}

func (c Command) key(ctx context.Context) (string, error) {
	version, err := goVersion(ctx, c.Module)
	if err != nil {
		return "", err
	}
	return cache.Key(cache.Text(version, c.Package, c.LDFlags, c.GOOS, c.GOARCH), cache.Dir(c.Module))
}

func (c Command) build(ctx context.Context, log io.Writer, binary string) error {
	env := []string{"GOOS=" + c.GOOS, "GOARCH=" + c.GOARCH}
	// This downloads modules while another command compiles.
	if err := runGo(ctx, log, c.Module, env, "list", "-deps", "-f", nothing, c.Package); err != nil {
		return err
	}
	// Linking uses one core, so it runs outside the slot while the next command compiles.
	err := slot.run(ctx, c.First, func() error {
		return runGo(ctx, log, c.Module, append(env, Compiling), "list", "-trimpath", "-export", "-deps", "-f", nothing, c.Package)
	})
	if err != nil {
		return err
	}
	return runGo(ctx, log, c.Module, env, "build", "-trimpath", "-ldflags", c.LDFlags, "-o", binary, c.Package)
}

func goVersion(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir = module
	cmd.Env = Environ()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("failed to ask go for its version: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Environ returns the environment of the go command for third_party modules: the user's,
// without the variables that make builds differ between machines.
func Environ() []string {
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false", "CGO_ENABLED=0",
		"GOAMD64=", "GOARM64=", "GOEXPERIMENT=", "GOFIPS140=", "GODEBUG=")
}

func runGo(ctx context.Context, log io.Writer, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(Environ(), env...)
	cmd.Stdout = log
	cmd.Stderr = log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("failed to run go %s: %w", args[0], err)
	}
	return nil
}

// KubernetesVersion returns the flags of the linker that stamp a binary of Kubernetes
// with its version, v1.2.3, as Kubernetes' own build does.
func KubernetesVersion(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/client-go/pkg/version", "k8s.io/component-base/version"} {
		for _, v := range []string{"gitVersion=" + version, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean"} {
			flags = append(flags, "-X "+pkg+"."+v)
		}
	}
	return strings.Join(flags, " ")
}
