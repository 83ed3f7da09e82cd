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
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/engine"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/gobuild"
	"github.com/kiln-dev/kiln/hack/cluster/internal/kindcluster"
	"github.com/kiln-dev/kiln/hack/cluster/internal/nodeimage"
	"github.com/kiln-dev/kiln/hack/cluster/internal/registry"
)

// lock lets only one run at a time change the cluster.
func lock(ctx context.Context, host *env.Host) (func(), error) {
	path := host.Store.Path("cluster.lock")
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if unlock, err := cache.Lock(soon, path); err == nil || ctx.Err() != nil {
		return unlock, err
	}
	host.Reporter.Printf("        another run is at work on the cluster: waiting for it to end")
	return cache.Lock(ctx, path)
}

// up makes the cluster, or repairs what there is.
func up(ctx context.Context, host *env.Host) error {
	unlock, err := lock(ctx, host)
	if err != nil {
		return err
	}
	defer unlock()

	if e := engine.Running(ctx); e != nil {
		host.Arch = e.Arch(ctx)
		if cluster := describe(host, e); healthy(ctx, e, cluster) {
			return finish(ctx, host, cluster, "is up")
		}
	}
	var e *engine.Engine
	err = host.Reporter.Part(ctx, "Docker engine", func(ctx context.Context, log io.Writer) (err error) {
		e, err = engine.Start(ctx, host.Store, log)
		return err
	})
	if err != nil {
		return err
	}
	host.Arch = e.Arch(ctx)
	cluster := describe(host, e)
	if err := build(ctx, host, e, cluster); err != nil {
		return err
	}
	return finish(ctx, host, cluster, "is ready")
}

// build makes all parts, side by side as far as they do not need each other.
func build(ctx context.Context, host *env.Host, e *engine.Engine, cluster *env.Cluster) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return startRegistry(gctx, host, e) })
	g.Go(func() error { return startNode(gctx, host, e) })
	return g.Wait()
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

// startNode makes the kind cluster's node run and become Ready.
func startNode(ctx context.Context, host *env.Host, e *engine.Engine) error {
	repaired := false
	err := host.Reporter.Part(ctx, "kind cluster", func(ctx context.Context, log io.Writer) error {
		repaired = kindcluster.New(host, e, "").Repair(ctx, log)
		return nil
	})
	if err != nil || repaired {
		return err
	}
	var kind string
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
		return err
	}
	return host.Reporter.Part(ctx, "kind cluster", func(ctx context.Context, log io.Writer) error {
		return kindcluster.New(host, e, kind).Create(ctx, image, log)
	})
}

func buildKind(ctx context.Context, host *env.Host) (path string, err error) {
	err = host.Reporter.Part(ctx, "kind", func(ctx context.Context, log io.Writer) error {
		path, err = gobuild.Build(ctx, host.Store, log, gobuild.Command{Name: "kind", Module: host.ThirdParty("kind"), First: true})
		return err
	})
	return path, err
}

// describe returns what the cluster is when it runs.
func describe(host *env.Host, e *engine.Engine) *env.Cluster {
	c := kindcluster.New(host, e, "")
	return &env.Cluster{
		Host:       *host,
		Kubeconfig: c.Kubeconfig(),
		Kubectl:    c.Kubectl(),
		Name:       kindcluster.Name,
		DockerEnv:  e.Env,
		Registry:   registry.Addresses(e),
	}
}

// healthy tells whether there is nothing to do.
func healthy(ctx context.Context, e *engine.Engine, cluster *env.Cluster) bool {
	return registry.Healthy(ctx, e) && kindcluster.New(&cluster.Host, e, "").Healthy(ctx)
}

// finish writes the files for the user and tells how to use the cluster.
func finish(ctx context.Context, host *env.Host, cluster *env.Cluster, state string) error {
	if err := writeKubeconfig(host, cluster); err != nil {
		return err
	}
	host.Reporter.Printf("\nThe kind cluster %q %s (%.1fs). To use it:\n\n  . build/cluster/env\n  kubectl get nodes\n\nor\n\n  export KUBECONFIG=%s\n  export KO_DOCKER_REPO=%s",
		cluster.Name, state, host.Reporter.Elapsed().Seconds(), host.Output("kubeconfig"), cluster.Registry.Push)
	return nil
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

// down removes everything that up has made, but for the cache.
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
	for _, dir := range []string{host.Store.Path("cluster"), host.Output("")} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("failed to remove files of the cluster: %w", err)
		}
	}
	return nil
}

// removeFrom removes what is ours from the user's engine.
func removeFrom(ctx context.Context, host *env.Host, e *engine.Engine) error {
	return host.Reporter.Part(ctx, "containers of the cluster", func(ctx context.Context, log io.Writer) error {
		if err := kindcluster.New(host, e, "").Delete(ctx, log); err != nil {
			return err
		}
		return registry.Remove(ctx, e, log)
	})
}

// status tells how the cluster is.
func status(ctx context.Context, host *env.Host) error {
	e := engine.Running(ctx)
	if e == nil {
		return fmt.Errorf("there is no cluster (%s): make cluster-up makes one", runtime.GOOS)
	}
	return nil
}
