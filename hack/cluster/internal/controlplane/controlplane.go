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

// Package controlplane builds the node image's etcd and Kubernetes for tests with an API
// server but without a cluster.
package controlplane

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/gobuild"
)

// Binaries are the paths of the programs.
type Binaries struct {
	// Etcd is etcd.
	Etcd string
	// Kubernetes contains all programs of Kubernetes. The first argument selects one.
	Kubernetes string
}

// Build returns the programs for this machine, and builds those that are not in the
// cache.
func Build(ctx context.Context, host *env.Host) (Binaries, error) {
	var b Binaries
	version, err := command.New("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").
		In(host.ThirdParty("kubernetes")).With("GOWORK=off").Output(ctx)
	if err != nil {
		return b, fmt.Errorf("failed to find the version of Kubernetes: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	build := func(part, name, ldflags string, path *string) {
		g.Go(func() error {
			return host.Reporter.Part(ctx, part, func(ctx context.Context, log io.Writer) (err error) {
				*path, err = gobuild.Build(ctx, host.Store, log, gobuild.Command{
					Name: name, Module: host.ThirdParty(name), LDFlags: ldflags, GOARCH: runtime.GOARCH,
				})
				return err
			})
		})
	}
	build("Kubernetes "+version, "kubernetes", gobuild.KubernetesVersion(version), &b.Kubernetes)
	build("etcd", "etcd", "", &b.Etcd)
	return b, g.Wait()
}
