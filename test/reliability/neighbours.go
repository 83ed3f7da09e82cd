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
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/serving/pkg/apis/autoscaling"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

const (
	// clusterBuilds and namespaceBuilds are the limits of config-build during the run, as
	// an administrator of two cores would set them.
	clusterBuilds, namespaceBuilds = 4, 2
	// alonePatience bounds the time of an edit without a neighbour.
	alonePatience = 2 * time.Minute
	// cleanupTimeout bounds the end of a run.
	cleanupTimeout = 2 * time.Minute
	// editedName is the Function that the tenant edits.
	editedName = "edited"
)

// plan configures a run.
type plan struct {
	relayImage string
	// alone is the number of edits before and after each neighbour, and edits of those beside
	// it.
	alone, edits int
	fillMiB      int
	limits       limits
	timeout      time.Duration
}

// neighbours is a run of a good tenant beside hostile ones.
type neighbours struct {
	plan
	clients    *test.Clients
	relay      *test.Relay
	namespace  string
	namespaces []string
	versions   int
	patience   time.Duration
	begin      time.Time
}

func (n *neighbours) say(format string, args ...any) {
	fmt.Printf("%6.0f s  %s\n", time.Since(n.begin).Seconds(), fmt.Sprintf(format, args...))
}

// runNeighbours runs one neighbour after the other on the cluster that KUBECONFIG names.
func runNeighbours(ctx context.Context, p plan, all []neighbour) (r *neighboursReport, err error) {
	n := &neighbours{plan: p, patience: alonePatience, begin: time.Now()}
	if n.clients, err = test.NewClients(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	restore, err := n.limitBuilds(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, restore(ctx), deleteNamespaces(ctx, n.clients, n.namespaces))
	}()
	if err := n.prepare(ctx); err != nil {
		return nil, err
	}
	r = &neighboursReport{Cores: runtime.NumCPU(), FillMiB: p.fillMiB}
	return r, n.all(ctx, all, r)
}

// all runs one neighbour after the other. The tenant edits alone before and after each,
// because the machine may get slower or faster meanwhile.
func (n *neighbours) all(ctx context.Context, all []neighbour, r *neighboursReport) error {
	alone := func() (row neighbourReport, err error) {
		if row, err = n.beside(ctx, neighbour{name: nobody}); err == nil {
			n.patience = time.Duration(n.limits.most(median(row.EditsS)) * float64(time.Second))
		}
		return row, err
	}
	before, err := alone()
	r.Rows = append(r.Rows, before)
	if err != nil {
		return fmt.Errorf("without a neighbour: %w", err)
	}
	for _, who := range all {
		row, err := n.beside(ctx, who)
		row.AloneS = before.EditsS
		r.Rows = append(r.Rows, row)
		if err != nil {
			return fmt.Errorf("beside %s: %w", who.name, err)
		}
		n.patience = alonePatience
		after, err := alone()
		r.Rows[len(r.Rows)-1].AloneS = slices.Concat(before.EditsS, after.EditsS)
		r.Rows[0].add(after)
		if err != nil {
			return fmt.Errorf("after %s: %w", who.name, err)
		}
		before = after
	}
	return nil
}

// limitBuilds sets the limits of builds. The returned function restores them.
func (n *neighbours) limitBuilds(ctx context.Context) (restore func(context.Context) error, err error) {
	configMaps := n.clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace)
	before, err := configMaps.Get(ctx, config.BuildConfigName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to get ConfigMap: %w", err)
	}
	set := func(ctx context.Context, data map[string]any) error {
		patch, err := json.Marshal(map[string]any{"data": data})
		if err != nil {
			return err
		}
		return patiently(ctx, func() error {
			_, err := configMaps.Patch(ctx, config.BuildConfigName, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	}
	limits := map[string]any{
		"max-concurrent-builds": strconv.Itoa(clusterBuilds), "max-concurrent-builds-per-namespace": strconv.Itoa(namespaceBuilds),
		// Quotas share the cores of nodes, and this test has none. A full node would hide Kiln's part.
		"cpu-request": "10m",
	}
	old := map[string]any{}
	for key := range limits {
		if value, ok := before.Data[key]; ok {
			old[key] = value
		} else {
			old[key] = nil
		}
	}
	if err := set(ctx, limits); err != nil {
		return nil, fmt.Errorf("failed to set the limits of builds: %w", err)
	}
	return func(ctx context.Context) error {
		if err := set(ctx, old); err != nil {
			return fmt.Errorf("failed to restore the limits of builds: %w", err)
		}
		return nil
	}, nil
}

// prepare creates the tenant's Functions and waits until they are Ready.
func (n *neighbours) prepare(ctx context.Context) (err error) {
	for range 2 {
		name, err := createNamespace(ctx, n.clients, "kiln-neighbours-")
		if err != nil {
			return err
		}
		n.namespaces = append(n.namespaces, name)
	}
	n.namespace = n.namespaces[0]
	n.say("a tenant with a Function to edit and one that is called, in namespace %s", n.namespace)
	if n.relay, err = test.StartRelay(ctx, n.clients, n.namespaces[1], n.relayImage); err != nil {
		return err
	}
	edited := newFunction(n.namespace, editedName, 0)
	// Each edit leaves a revision whose pod stays for this long.
	edited.Spec.Annotations = map[string]string{autoscaling.WindowAnnotationKey: autoscaling.WindowMin.String()}
	for _, fn := range []*v1alpha1.Function{newCalled(n.namespace), edited} {
		if _, err := n.clients.Kiln.ServerlessV1alpha1().Functions(n.namespace).Create(ctx, fn, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("failed to create Function: %w", err)
		}
	}
	for _, name := range []string{calledName, editedName} {
		if err := n.untilReady(ctx, name, alonePatience); err != nil {
			test.Dump(ctx, n.clients, n.namespace, os.Stderr)
			return err
		}
	}
	return knative{}.serveBare(ctx, n.clients, n.namespace)
}

// untilReady waits until a Function is Ready in its current generation.
func (n *neighbours) untilReady(ctx context.Context, name string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return patiently(ctx, func() error {
		_, err := test.WaitForFunction(ctx, n.clients, n.namespace, name, test.Healed)
		return err
	})
}

// beside edits the tenant's Function while a neighbour acts.
func (n *neighbours) beside(ctx context.Context, who neighbour) (r neighbourReport, err error) {
	r.Neighbour = who.name
	h := newHostile(ctx, n.clients, n.relayImage, n.fillMiB)
	defer func() {
		n.namespaces = append(n.namespaces, h.namespaces...)
		if left := h.end(ctx); left != nil {
			n.say("%s: it has left something: %v", who.name, left)
		}
		if err == nil {
			// A starved edit must not count for the next neighbour.
			err = n.untilReady(ctx, editedName, recoveryTimeout)
		}
	}()
	before, err := n.pods(ctx)
	if err != nil {
		return r, err
	}
	probes, err := probe(ctx, n.relay, n.namespace)
	if err != nil {
		return r, err
	}
	edits := n.alone
	if who.begin != nil {
		edits = n.edits
		if err := who.begin(ctx, h); err != nil {
			n.dump(ctx, h)
			return r, fmt.Errorf("the neighbour cannot act: %w", err)
		}
		n.say("%s: it has begun, with these builds: %s", who.name, h.builds(ctx))
	}
	if err := n.editAll(ctx, edits, &r, h); err != nil {
		return r, err
	}
	r.Made, r.Refused, r.Builds = int(h.made.Load()), int(h.refused.Load()), h.builds(ctx)
	after, err := n.pods(ctx)
	if err != nil {
		return r, err
	}
	r.Ended = ended(before, after)
	if r.traffic, err = probes.read(ctx); err != nil {
		return r, err
	}
	n.say("%s", &r)
	return r, nil
}

// editAll edits the tenant's Function again and again, each time after the last edit is
// Ready. It stops if that takes too long.
func (n *neighbours) editAll(ctx context.Context, edits int, r *neighbourReport, h *hostile) error {
	for range edits {
		took, err := n.edit(ctx, r)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.EditsS = append(r.EditsS, took.Seconds())
		if err != nil {
			r.Starved = err.Error()
			n.say("%s: not Ready after %.1f s: %v", r.Neighbour, took.Seconds(), err)
			n.dump(ctx, h)
			return nil
		}
		n.say("%s: Ready after %.1f s", r.Neighbour, took.Seconds())
	}
	return nil
}

// edit edits the tenant's Function once and waits until it is Ready.
func (n *neighbours) edit(ctx context.Context, r *neighbourReport) (took time.Duration, err error) {
	n.versions++
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, n.patience)
	defer cancel()
	patch := fmt.Appendf(nil, `{"spec":{"source":%q}}`, newFunction(n.namespace, editedName, n.versions).Spec.Source)
	var refusedFor time.Duration
	err = patiently(ctx, func() error {
		_, err := n.clients.Kiln.ServerlessV1alpha1().Functions(n.namespace).Patch(ctx, editedName, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			r.RefusedEdits++
			refusedFor = time.Since(begin)
		}
		return err
	})
	r.RefusedS = max(r.RefusedS, refusedFor.Seconds())
	if err == nil {
		err = n.untilReady(ctx, editedName, n.patience)
	}
	return time.Since(begin), err
}

// dump prints the tenant's namespace and the builds of the neighbour.
func (n *neighbours) dump(ctx context.Context, h *hostile) {
	test.Dump(ctx, n.clients, n.namespace, os.Stderr)
	fmt.Fprintf(os.Stderr, "Builds of the neighbour, by reason: %s\n", h.builds(ctx))
}

// pods returns the pods of Kiln.
func (n *neighbours) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := n.clients.Kube.CoreV1().Pods(test.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=kiln"})
	if err != nil {
		return nil, fmt.Errorf("failed to list pods: %w", err)
	}
	return list.Items, nil
}

// createNamespace creates a namespace and returns its name.
func createNamespace(ctx context.Context, clients *test.Clients, prefix string) (string, error) {
	made, err := clients.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("failed to create namespace: %w", err)
	}
	return made.Name, nil
}

// deleteNamespaces deletes namespaces that may no longer exist.
func deleteNamespaces(ctx context.Context, clients *test.Clients, names []string) (err error) {
	for _, name := range names {
		err = errors.Join(err, patiently(ctx, func() error {
			err := clients.Kube.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
			if apierrs.IsNotFound(err) || apierrs.IsConflict(err) {
				return nil // A namespace that is being deleted is a conflict.
			}
			return err
		}))
	}
	return err
}
