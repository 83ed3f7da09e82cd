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
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/components"
	"github.com/kiln-dev/kiln/hack/cluster/internal/engine"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/gobuild"
	"github.com/kiln-dev/kiln/hack/cluster/internal/kindcluster"
	"github.com/kiln-dev/kiln/hack/cluster/internal/nodeimage"
	"github.com/kiln-dev/kiln/hack/cluster/internal/progress"
	"github.com/kiln-dev/kiln/hack/cluster/internal/registry"
)

// lock excludes other runs that change the cluster.
func lock(ctx context.Context, host *env.Host) (func(), error) {
	path := lockFile(host)
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if unlock, err := cache.Lock(soon, path); err == nil || ctx.Err() != nil {
		return unlock, err
	}
	host.Reporter.Printf("        another run is at work on the cluster: waiting for it to end")
	return cache.Lock(ctx, path)
}

// lockFile returns the file to lock. Root has one for the machine, because all caches
// share root's engine.
func lockFile(host *env.Host) string {
	const machine = "/run/lock"
	if _, err := os.Stat(machine); err == nil && os.Geteuid() == 0 {
		return filepath.Join(machine, "kiln-cluster.lock")
	}
	return host.Store.Path("cluster.lock")
}

// up makes or repairs the cluster.
func up(ctx context.Context, host *env.Host) error {
	unlock, err := lock(ctx, host)
	if err != nil {
		return err
	}
	defer unlock()

	if err := engine.Check(ctx); err != nil {
		return err
	}
	e, err := startEngine(ctx, host)
	if err != nil {
		return err
	}
	host.Arch = e.Arch(ctx)
	cluster := describe(host, e)
	var built *components.Built
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		cluster.Kind, err = startNode(gctx, host, e)
		return err
	})
	g.Go(func() (err error) {
		if err := startRegistry(gctx, host, e); err != nil {
			return err
		}
		built, err = components.Build(gctx, host, cluster.Registry)
		return err
	})
	g.Go(func() error { return download(gctx, host) })
	if err := g.Wait(); err != nil {
		return err
	}
	if err := registry.Connect(ctx, e, io.Discard); err != nil {
		return err
	}
	if err := components.Install(ctx, cluster, built); err != nil {
		return err
	}
	return finish(host, cluster, built)
}

// download fetches the components' modules while others compile.
func download(ctx context.Context, host *env.Host) error {
	return host.Reporter.Part(ctx, "download of modules", func(ctx context.Context, log io.Writer) error {
		return components.Download(ctx, host, log)
	})
}

func startEngine(ctx context.Context, host *env.Host) (e *engine.Engine, err error) {
	err = host.Reporter.Part(ctx, "Docker engine", func(ctx context.Context, log io.Writer) (err error) {
		e, err = engine.Start(ctx, host.Store, log)
		return err
	})
	return e, err
}

func startRegistry(ctx context.Context, host *env.Host, e *engine.Engine) error {
	return host.Reporter.Part(ctx, "registry", func(ctx context.Context, log io.Writer) error {
		binary, err := registry.Build(ctx, host, log)
		if err != nil {
			return err
		}
		return registry.Start(ctx, host, e, binary, log)
	})
}

// startNode starts the node of the kind cluster and waits until it is Ready. It returns
// the path of kind.
func startNode(ctx context.Context, host *env.Host, e *engine.Engine) (kind string, err error) {
	cluster := kindcluster.New(host, e)
	key, err := nodeimage.Key(host)
	if err != nil {
		return "", err
	}
	// Components cannot be removed without a trace, so each platform has a cluster of its own.
	key += "-" + string(host.Platform)
	state, err := cluster.State(ctx, key)
	if err != nil {
		return "", err
	}
	if state == kindcluster.Outdated {
		host.Reporter.Printf("        the kind cluster has other parts, or the other platform: it is created again")
	}
	if state == kindcluster.Present {
		kind, err = buildKind(ctx, host)
		if err != nil || repair(ctx, host, cluster, kind) {
			return kind, err
		}
	}
	var image kindcluster.Image
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		kind, err = buildKind(gctx, host)
		return err
	})
	g.Go(func() (err error) {
		image, err = nodeimage.Ensure(gctx, host, e)
		return err
	})
	if err := g.Wait(); err != nil {
		return "", err
	}
	return kind, host.Reporter.Part(ctx, "kind cluster", func(ctx context.Context, log io.Writer) error {
		return cluster.Create(ctx, kind, image, key, log)
	})
}

// repair restarts an existing kind cluster if needed, and reports whether it runs.
func repair(ctx context.Context, host *env.Host, cluster *kindcluster.Cluster, kind string) (repaired bool) {
	err := host.Reporter.Part(ctx, "kind cluster that is there", func(ctx context.Context, log io.Writer) error {
		if err := cluster.Repair(ctx, kind, log); err != nil {
			fmt.Fprintln(log, err)
			progress.Note(ctx, "cannot be repaired: it is created again")
			return ctx.Err()
		}
		repaired = true
		return nil
	})
	return err == nil && repaired
}

func buildKind(ctx context.Context, host *env.Host) (path string, err error) {
	err = host.Reporter.Part(ctx, "kind", func(ctx context.Context, log io.Writer) error {
		path, err = gobuild.Build(ctx, host.Store, log, gobuild.Command{Name: "kind", Module: host.ThirdParty("kind"), First: true})
		return err
	})
	return path, err
}

// describe returns the description of the running cluster.
func describe(host *env.Host, e *engine.Engine) *env.Cluster {
	c := kindcluster.New(host, e)
	return &env.Cluster{
		Host:       *host,
		Kubeconfig: c.Kubeconfig(),
		Kubectl:    c.Kubectl(),
		Name:       kindcluster.Name,
		Registry:   registry.Addresses(e),
	}
}

// finish writes the files for the user and prints how to use the cluster.
func finish(host *env.Host, cluster *env.Cluster, built *components.Built) error {
	if err := writeKubeconfig(host, cluster); err != nil {
		return err
	}
	if err := components.WriteFiles(cluster, built); err != nil {
		return err
	}
	host.Reporter.Printf("\nThe kind cluster %q is ready, after %s. To use it:\n", cluster.Name, host.Reporter.Elapsed().Round(time.Second/10))
	tellUse(host, cluster)
	return nil
}

// tellUse prints how to use the cluster.
func tellUse(host *env.Host, cluster *env.Cluster) {
	host.Reporter.Printf("  . build/cluster/env\n\nwhich is\n\n  export KUBECONFIG=%s\n  export KO_DOCKER_REPO=%s\n\nand what else ko needs. make cluster-down removes it.",
		host.Output("kubeconfig"), cluster.Registry.Push+"/kiln")
}

func writeKubeconfig(host *env.Host, cluster *env.Cluster) error {
	data, err := os.ReadFile(cluster.Kubeconfig)
	if err != nil {
		return fmt.Errorf("failed to read kubeconfig: %w", err)
	}
	if err := os.MkdirAll(host.Output(""), 0o755); err != nil {
		return fmt.Errorf("failed to create output directory: %w", err)
	}
	if err := os.WriteFile(host.Output("kubeconfig"), data, 0o600); err != nil {
		return fmt.Errorf("failed to write kubeconfig: %w", err)
	}
	return nil
}

// down removes everything that up has made, except the cache.
func down(ctx context.Context, host *env.Host) error {
	unlock, err := lock(ctx, host)
	if err != nil {
		return err
	}
	defer unlock()
	if e := engine.Running(ctx); e != nil && !e.Own {
		if err := removeFrom(ctx, host, e); err != nil {
			return err
		}
	}
	err = host.Reporter.Part(ctx, "removal of the cluster", func(ctx context.Context, log io.Writer) error {
		return engine.Stop(ctx, host.Store, log)
	})
	if err != nil {
		return err
	}
	for _, path := range []string{host.Store.Path("cluster"), host.Store.Path("cluster-network"), host.Output("")} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("failed to remove files of the cluster: %w", err)
		}
	}
	return nil
}

// removeFrom removes our containers from the user's engine.
func removeFrom(ctx context.Context, host *env.Host, e *engine.Engine) error {
	return host.Reporter.Part(ctx, "containers of the cluster", func(ctx context.Context, log io.Writer) error {
		// The registry goes first, so kind's network is empty without the node.
		if err := registry.Stop(ctx, host, e, log); err != nil {
			return err
		}
		return kindcluster.New(host, e).Delete(ctx, log)
	})
}

// status prints the state of the cluster.
func status(ctx context.Context, host *env.Host) error {
	e := engine.Running(ctx)
	if e == nil {
		return errors.New("there is no cluster: make cluster-up makes one")
	}
	host.Arch = e.Arch(ctx)
	cluster := describe(host, e)
	kind := kindcluster.New(host, e)
	if state, err := kind.State(ctx, ""); err != nil || state == kindcluster.Absent {
		return errors.Join(err, errors.New("there is no cluster: make cluster-up makes one"))
	}
	parts := []struct {
		name string
		ok   bool
	}{
		{"Docker engine", e.Whole(ctx)},
		{"registry", registry.Healthy(ctx, e)},
		{"node", kind.Healthy(ctx)},
	}
	var failed []string
	for _, p := range parts {
		state := "ok"
		if !p.ok {
			state = "not ok"
			failed = append(failed, p.name)
		}
		host.Reporter.Printf("%-14s %s", p.name, state)
	}
	if len(failed) > 0 {
		return fmt.Errorf("not healthy: %s; make cluster-up repairs it", strings.Join(failed, ", "))
	}
	host.Reporter.Printf("")
	tellUse(host, cluster)
	return nil
}
