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

// Package components installs the components of the cluster's platform: Tekton, Knative
// Serving and Traefik, or metrics-server. All are built from the modules in third_party.
package components

import (
	"context"
	"io"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kiln-dev/kiln/hack/cluster/internal/baseimages"
	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/gobuild"
)

// component is a project with parts that run on the cluster.
type component struct {
	// name is the name in messages.
	name string
	// module is the folder in third_party that pins it.
	module string
	// namespace is where its Deployments run.
	namespace string
	// sources are the places of its manifests.
	sources []source
	// prepare completes an object before its images are built. It may be nil.
	prepare func(o object)
	// edit adapts an object to this cluster.
	edit func(o object, images *baseimages.Set)
	// sample is an object that its webhooks accept, or "" if it has none.
	sample string
}

// Built is what Build has made.
type Built struct {
	// Base holds the base images.
	Base *baseimages.Set
	// Ko is the path of the ko binary.
	Ko string

	manifests []manifests
}

// Download fetches the modules of everything that Build compiles, so that
// compiling does not wait for the network.
func Download(ctx context.Context, host *env.Host, log io.Writer) error {
	modules := []string{"ko"}
	for _, c := range of(host.Platform) {
		modules = append(modules, c.module)
	}
	for _, module := range modules {
		folder := host.ThirdParty(module)
		key, err := cache.Key(cache.Dir(folder))
		if err != nil {
			return err
		}
		// The empty entry records that the modules are there. The go command would take
		// seconds to check that.
		_, err = host.Store.Get(ctx, "downloads", key, func(string) error { return fetch(ctx, log, folder, tools) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Build puts into the registry all images that it does not hold yet, and
// returns the manifests that refer to them. It needs no cluster.
func Build(ctx context.Context, host *env.Host, registry env.Registry) (*Built, error) {
	components := of(host.Platform)
	built := &Built{manifests: make([]manifests, len(components))}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		built.Base, err = baseimages.Build(gctx, host, registry)
		return err
	})
	g.Go(func() error {
		return host.Reporter.Part(gctx, "ko", func(ctx context.Context, log io.Writer) (err error) {
			built.Ko, err = gobuild.Build(ctx, host.Store, log, gobuild.Command{
				Name: "ko", Module: host.ThirdParty("ko"), Package: "github.com/google/ko",
			})
			return err
		})
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}

	b := &builder{host: host, registry: registry, ko: built.Ko, base: built.Base}
	g, gctx = errgroup.WithContext(ctx)
	for i, c := range components {
		g.Go(func() error {
			return host.Reporter.Part(gctx, c.name+" images", func(ctx context.Context, log io.Writer) (err error) {
				built.manifests[i], err = b.resolve(ctx, log, c)
				return err
			})
		})
	}
	g.Go(func() error {
		return host.Reporter.Part(gctx, "Kaniko image", func(ctx context.Context, log io.Writer) error {
			return b.kaniko(ctx, log)
		})
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return built, nil
}

// atNodes returns the reference with the registry's address for nodes.
func atNodes(ref string, registry env.Registry) string {
	return strings.Replace(ref, registry.Push+"/", registry.Nodes+"/", 1)
}

// atPods returns the reference with the registry's address for pods.
func atPods(ref string, registry env.Registry) string {
	return strings.Replace(ref, registry.Push+"/", registry.Pods+"/", 1)
}
