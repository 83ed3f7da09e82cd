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

// Package nodeimage finds or builds the image that kind's nodes run.
//
// If kind's own image cannot be pulled, the package builds one as kind's Dockerfile does:
// from Debian packages and the pinned modules in third_party.
package nodeimage

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/gobuild"
)

// nodePackages are the Debian packages of a node. containerd, runc and the CNI
// plugins are Debian's, everything of Kubernetes is built from source.
var nodePackages = []string{
	"ca-certificates", "conntrack", "containerd", "containernetworking-plugins", "curl", "ethtool",
	"iproute2", "iptables", "jq", "kmod", "libseccomp2", "mount", "netbase", "nftables", "procps", "runc",
	"socat", "systemd", "util-linux",
}

// suite is the Debian release of the nodes.
const suite = "bookworm"

// Build returns the path of the node image as a root file system archive, for docker
// import, and the key of its content.
func Build(ctx context.Context, host *env.Host) (file, key string, err error) {
	var root string
	var bins binaries
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return host.Reporter.Part(gctx, "node packages", func(ctx context.Context, log io.Writer) (err error) {
			root, err = buildRootFS(ctx, host.Store, log)
			return err
		})
	})
	g.Go(func() (err error) {
		bins, err = buildBinaries(gctx, host)
		return err
	})
	if err := g.Wait(); err != nil {
		return "", "", err
	}
	err = host.Reporter.Part(ctx, "node image", func(ctx context.Context, log io.Writer) (err error) {
		file, key, err = assembled(ctx, host, root, bins, log)
		return err
	})
	return file, key, err
}

// binaries are the paths of the programs built from source.
type binaries struct {
	kubernetes, etcd, coredns, pause string
}

// buildBinaries builds the programs of a node. Those that need the longest come first.
func buildBinaries(ctx context.Context, host *env.Host) (binaries, error) {
	var b binaries
	g, ctx := errgroup.WithContext(ctx)
	build := func(part, name, ldflags string, path *string) {
		g.Go(func() error {
			return host.Reporter.Part(ctx, part, func(ctx context.Context, log io.Writer) (err error) {
				*path, err = gobuild.Build(ctx, host.Store, log, gobuild.Command{
					Name: name, Module: host.ThirdParty(name), LDFlags: ldflags, GOOS: "linux", GOARCH: host.Arch, First: true,
				})
				return err
			})
		})
	}
	version, err := kubernetesVersion(ctx, host)
	if err != nil {
		return b, err
	}
	build("Kubernetes "+version, "kubernetes", gobuild.KubernetesVersion(version), &b.kubernetes)
	build("etcd", "etcd", "", &b.etcd)
	build("CoreDNS", "coredns", "", &b.coredns)
	build("pause", "pause", "", &b.pause)
	return b, g.Wait()
}

// kubernetesVersion returns the version that third_party/kubernetes pins.
func kubernetesVersion(ctx context.Context, host *env.Host) (string, error) {
	return goList(ctx, host.ThirdParty("kubernetes"), "{{.Version}}", "k8s.io/kubernetes")
}

// kindFiles returns the directory of the files of kind's own node image.
func kindFiles(ctx context.Context, host *env.Host) (string, error) {
	if err := gobuild.Download(ctx, io.Discard, host.ThirdParty("kind")); err != nil {
		return "", err
	}
	dir, err := goList(ctx, host.ThirdParty("kind"), "{{.Dir}}", "sigs.k8s.io/kind")
	return filepath.Join(dir, "images", "base", "files"), err
}

func goList(ctx context.Context, module, format, path string) (string, error) {
	return command.New("go", "list", "-m", "-f", format, path).In(module).With("GOWORK=off").Output(ctx)
}

// buildRootFS returns the path of an archive with Debian and the packages of a node.
func buildRootFS(ctx context.Context, store *cache.Store, log io.Writer) (string, error) {
	// Separate namespaces leave no mount if the command is killed.
	install := []string{
		"unshare", "--mount", "--pid", "--fork", "--kill-child",
		"mmdebstrap", "--variant=essential", "--include=" + strings.Join(nodePackages, ","),
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*", "--aptopt=Acquire::Languages none",
		suite,
	}
	key, err := cache.Key(cache.Text(install...), cache.Text(runtime.GOARCH))
	if err != nil {
		return "", err
	}
	dir, err := store.Get(ctx, "node-packages", key, func(dir string) error {
		return command.New(append(install, filepath.Join(dir, "root.tar"))...).With("TMPDIR="+dir).Run(ctx, log)
	})
	if err != nil {
		return "", fmt.Errorf("failed to install node packages: %w", err)
	}
	return filepath.Join(dir, "root.tar"), nil
}

// assembled returns the node image made of its parts, and its key.
func assembled(ctx context.Context, host *env.Host, root string, bins binaries, log io.Writer) (file, key string, err error) {
	files, err := kindFiles(ctx, host)
	if err != nil {
		return "", "", err
	}
	key, err = cache.Key(cache.Dir(files), cache.Dir(sources(host)), cache.Text(host.Arch, entryKey(root),
		entryKey(bins.kubernetes), entryKey(bins.etcd), entryKey(bins.coredns), entryKey(bins.pause)))
	if err != nil {
		return "", "", err
	}
	dir, err := host.Store.Get(ctx, "node-image", key, func(dir string) error {
		a := &assembly{arch: host.Arch, root: filepath.Join(dir, "root"), work: dir, bins: bins, kindFiles: files, log: log}
		return a.run(ctx, root, filepath.Join(dir, "node.tar"))
	})
	if err != nil {
		return "", "", fmt.Errorf("failed to assemble node image: %w", err)
	}
	return filepath.Join(dir, "node.tar"), key, nil
}

// sources returns the directory of this package. Its code is an input of the image.
func sources(host *env.Host) string {
	return filepath.Join(host.Root, "hack", "cluster", "internal", "nodeimage")
}

// Key returns the key of all inputs of the node image.
func Key(host *env.Host) (string, error) {
	inputs := []cache.Input{cache.Text(os.Getenv(imageVariable)), cache.Dir(sources(host))}
	for _, module := range []string{"kubernetes", "etcd", "coredns", "pause", "kind"} {
		inputs = append(inputs, cache.Dir(host.ThirdParty(module)))
	}
	return cache.Key(inputs...)
}

// entryKey returns the key of the cache entry that holds a file.
func entryKey(file string) string { return filepath.Base(filepath.Dir(file)) }

func output(ctx context.Context, args ...string) (string, error) {
	return command.New(args...).Output(ctx)
}
