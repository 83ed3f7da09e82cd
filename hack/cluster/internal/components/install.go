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
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/progress"
)

const (
	fieldManager = "kiln-cluster"
	// record is the name of the ConfigMap in each component's namespace that records the
	// installation.
	record = "kiln-installed"

	readyTimeout = 4 * time.Minute
	// settleTimeout bounds the wait for existing components to be Ready. After it they
	// are applied again.
	settleTimeout = 90 * time.Second
	poll          = 500 * time.Millisecond
)

// installer applies manifests to a cluster.
type installer struct {
	cluster *env.Cluster
}

// Install applies the result of Build to the cluster and waits until all of it is Ready.
// It skips components that are current.
func Install(ctx context.Context, cluster *env.Cluster, built *Built) error {
	i := &installer{cluster: cluster}
	installed, err := i.installed(ctx)
	if err != nil {
		return err
	}
	var stale []manifests
	for _, m := range built.manifests {
		if installed[m.component.namespace] != m.key {
			stale = append(stale, m)
		}
	}
	if len(stale) > 0 {
		// The definitions of all components come first, because Traefik watches Serving's
		// kinds.
		err := cluster.Reporter.Part(ctx, "resource definitions", func(ctx context.Context, log io.Writer) error {
			return i.define(ctx, log, stale)
		})
		if err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return i.apply(ctx, io.Discard, []object{hostingOf(cluster.Registry)}) })
	for _, m := range built.manifests {
		g.Go(func() error {
			return cluster.Reporter.Part(ctx, m.component.name, func(ctx context.Context, log io.Writer) error {
				return i.install(ctx, log, m, installed[m.component.namespace] == m.key)
			})
		})
	}
	return g.Wait()
}

// hostingOf returns the ConfigMap of KEP-1755, which names the registry to tools outside
// the cluster.
func hostingOf(registry env.Registry) object {
	return object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "local-registry-hosting", "namespace": "kube-public"},
		"data": map[string]any{"localRegistryHosting.v1": fmt.Sprintf(
			"host: %q\nhostFromContainerRuntime: %q\nhostFromClusterNetwork: %q\n", registry.Push, registry.Nodes, registry.Pods)},
	}
}

// install applies a component unless it is current, and waits until it is Ready.
func (i *installer) install(ctx context.Context, log io.Writer, m manifests, current bool) error {
	if current && i.ready(ctx, log, m, settleTimeout) == nil {
		progress.Note(ctx, "unchanged")
		return nil
	}
	if err := i.apply(ctx, log, m.from(afterDefinitions)); err != nil {
		return err
	}
	if err := i.ready(ctx, log, m, readyTimeout); err != nil {
		return err
	}
	return i.apply(ctx, log, []object{recordOf(m)})
}

// recordOf returns the ConfigMap that records that the component is installed.
func recordOf(m manifests) object {
	return object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": record, "namespace": m.component.namespace},
		"data":     map[string]any{"key": m.key},
	}
}

// installed returns the keys of the installed components, by namespace.
func (i *installer) installed(ctx context.Context) (map[string]string, error) {
	out, err := i.kubectl("get", "configmaps", "--all-namespaces", "--field-selector=metadata.name="+record, "--output=json").Output(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to list installed components: %w", err)
	}
	var list struct{ Items []object }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, fmt.Errorf("failed to decode installed components: %w", err)
	}
	keys := make(map[string]string, len(list.Items))
	for _, o := range list.Items {
		keys[text(o, "metadata", "namespace")] = text(o, "data", "key")
	}
	return keys, nil
}

// define applies the namespaces and the resource definitions of components.
func (i *installer) define(ctx context.Context, log io.Writer, list []manifests) error {
	var objects []object
	for _, m := range list {
		objects = append(objects, m.until(afterDefinitions)...)
	}
	objects = inOrder(objects)
	if err := i.apply(ctx, log, objects); err != nil {
		return err
	}
	names := namesOf(objects, "CustomResourceDefinition")
	return i.wait(ctx, log, readyTimeout, "condition=Established", names...)
}

// ready waits until a component's Deployments are, and its webhooks answer.
func (i *installer) ready(ctx context.Context, log io.Writer, m manifests, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, d := range namesOf(m.objects, "Deployment") {
		// The condition Available may still describe the pods before the change.
		err := i.kubectl("rollout", "status", "--namespace="+m.component.namespace, d, "--timeout="+timeout.String()).Run(ctx, log)
		if err != nil {
			return fmt.Errorf("failed to wait for %s: %w", d, err)
		}
	}
	if m.component.sample == "" {
		return nil
	}
	// The request fails while the webhook cannot be reached.
	return retry(ctx, func() error {
		return i.kubectl("create", "--dry-run=server", "--filename=-").Reading(strings.NewReader(m.component.sample)).Run(ctx, log)
	})
}

// apply applies objects in their order. It tries again while it fails: a
// webhook that the objects need may be about to start.
func (i *installer) apply(ctx context.Context, log io.Writer, objects []object) error {
	if len(objects) == 0 {
		return nil // kubectl refuses to apply nothing.
	}
	stream, err := encode(objects)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return retry(ctx, func() error {
		return i.kubectl("apply", "--server-side", "--force-conflicts", "--field-manager="+fieldManager, "--filename=-").
			Reading(strings.NewReader(string(stream))).Run(ctx, log)
	})
}

func (i *installer) wait(ctx context.Context, log io.Writer, timeout time.Duration, condition string, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	args := append([]string{"wait", "--for=" + condition, "--timeout=" + timeout.String()}, names...)
	if err := i.kubectl(args...).Run(ctx, log); err != nil {
		return fmt.Errorf("failed to wait for %s: %w", condition, err)
	}
	return nil
}

func (i *installer) kubectl(args ...string) *command.Command {
	return command.New(append([]string{i.cluster.Kubectl, "--kubeconfig=" + i.cluster.Kubeconfig}, args...)...)
}

// retry calls fn until it succeeds, and returns its last error if the context
// ends before.
func retry(ctx context.Context, fn func() error) error {
	for {
		err := fn()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(poll):
		}
	}
}

// namesOf returns the objects of a kind, as kubectl wants them.
func namesOf(objects []object, kind string) []string {
	var out []string
	for _, o := range objects {
		if o.kind() == kind {
			out = append(out, strings.ToLower(kind)+"/"+o.name())
		}
	}
	return out
}
