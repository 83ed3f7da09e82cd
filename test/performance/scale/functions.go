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
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	informers "github.com/kiln-dev/kiln/pkg/client/informers/externalversions"
	"github.com/kiln-dev/kiln/test"
)

// writers is the number of concurrent writes of Functions.
const writers = 8

// newFunction returns a Function. Each version has a different source.
func newFunction(namespace, name string, version int) *v1alpha1.Function {
	return &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.FunctionSpec{Runtime: "nodejs24", Source: sourceOf(namespace, name, version)},
	}
}

func sourceOf(namespace, name string, version int) string {
	return fmt.Sprintf("// %s/%s\nmodule.exports = {\n  main: (event) => `hello ${event.data?.name ?? 'world'}, this is version %d`,\n};\n", namespace, name, version)
}

// keysOf returns the names of n Functions, over namespaces in turn.
func keysOf(n int, namespaces ...string) []types.NamespacedName {
	keys := make([]types.NamespacedName, 0, n)
	for i := range n {
		keys = append(keys, types.NamespacedName{Namespace: namespaces[i%len(namespaces)], Name: fmt.Sprintf("fn-%05d", i)})
	}
	return keys
}

// each calls do for all keys, some at a time.
func each(ctx context.Context, keys []types.NamespacedName, do func(context.Context, types.NamespacedName) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, key := range keys {
		g.Go(func() error { return do(ctx, key) })
	}
	return g.Wait()
}

// createOne creates a Function.
func (w *world) createOne(ctx context.Context, key types.NamespacedName) error {
	_, err := w.Admin.Kiln.ServerlessV1alpha1().Functions(key.Namespace).Create(ctx, newFunction(key.Namespace, key.Name, 1), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create Function: %w", err)
	}
	return nil
}

// edit patches the source of a Function.
func (w *world) edit(ctx context.Context, key types.NamespacedName, version int) error {
	patch := fmt.Appendf(nil, `{"spec":{"source":%q}}`, sourceOf(key.Namespace, key.Name, version))
	_, err := w.Admin.Kiln.ServerlessV1alpha1().Functions(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("failed to edit Function: %w", err)
	}
	return nil
}

// tracker knows which Functions are Ready, and since when.
type tracker struct {
	mu      sync.Mutex
	ready   map[types.NamespacedName]readiness
	changed chan struct{}
}

// readiness is the generation of a Function that is Ready, and when that was seen.
type readiness struct {
	generation int64
	at         time.Time
}

// track watches all Functions until ctx ends. It returns when it has the first list.
func track(ctx context.Context, c *test.Clients) (*tracker, error) {
	t := &tracker{ready: map[types.NamespacedName]readiness{}, changed: make(chan struct{}, 1)}
	factory := informers.NewSharedInformerFactory(c.Kiln, 0)
	informer := factory.Serverless().V1alpha1().Functions().Informer()
	// The sources may take a gigabyte, and nothing here needs them.
	err := informer.SetTransform(func(obj any) (any, error) {
		if fn, ok := obj.(*v1alpha1.Function); ok {
			fn.Spec = v1alpha1.FunctionSpec{}
		}
		return obj, nil
	})
	if err != nil {
		return nil, fmt.Errorf("failed to watch Functions: %w", err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    t.see,
		UpdateFunc: func(_, obj any) { t.see(obj) },
	})
	if err != nil {
		return nil, fmt.Errorf("failed to watch Functions: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return t, nil
}

func (t *tracker) see(obj any) {
	fn, ok := obj.(*v1alpha1.Function)
	if !ok || !fn.IsReady() || fn.Status.ObservedGeneration != fn.Generation {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := types.NamespacedName{Namespace: fn.Namespace, Name: fn.Name}
	if t.ready[key].generation >= fn.Generation {
		return
	}
	t.ready[key] = readiness{generation: fn.Generation, at: time.Now()}
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// readyAt returns when a generation of a Function, or a later one, was Ready.
func (t *tracker) readyAt(key types.NamespacedName, generation int64) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.ready[key]
	return r.at, r.generation >= generation
}

// await waits until that generation of all Functions is Ready. It prints the progress, and
// fails when no Function has become Ready for patience.
func (t *tracker) await(ctx context.Context, keys []types.NamespacedName, generation int64, patience time.Duration, say func(ready int)) error {
	begin := time.Now()
	progress := time.NewTicker(sayEvery)
	defer progress.Stop()
	stuck := time.NewTimer(patience)
	defer stuck.Stop()
	done, ready := 0, 0
	for {
		for done < len(keys) {
			if _, ok := t.readyAt(keys[done], generation); !ok {
				break
			}
			done++
		}
		if done == len(keys) {
			return nil
		}
		select {
		case <-t.changed:
		case <-progress.C:
			before := ready
			ready = t.count(keys, generation)
			say(ready)
			if ready > before {
				stuck.Reset(patience)
			}
		case <-stuck.C:
			return fmt.Errorf("failed to wait until Functions are Ready: %d of %d are after %v, and %s is not",
				t.count(keys, generation), len(keys), time.Since(begin).Round(time.Second), keys[done])
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// count returns how many are Ready.
func (t *tracker) count(keys []types.NamespacedName, generation int64) (n int) {
	for _, key := range keys {
		if _, ok := t.readyAt(key, generation); ok {
			n++
		}
	}
	return n
}
