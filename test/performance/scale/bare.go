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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	informers "github.com/kiln-dev/kiln/pkg/client/informers/externalversions"
	"github.com/kiln-dev/kiln/test"
)

// stage is the step that the bare client waits for.
type stage int

const (
	toBuild stage = iota
	toDeploy
	toRun
	running
)

// bare is the least that a controller can do. For each Function it creates a ConfigMap
// and what builds, and then what serves. It writes the status before each wait and at the
// end. It never reads, compares, asks a registry, or handles a failure.
type bare struct {
	clients *test.Clients
	pattern pattern
	failed  func(error)

	mu    sync.Mutex
	known map[cache.ObjectName]*progress
}

// progress is the last written Function and its next step. Only one worker at a time uses
// it.
type progress struct {
	fn   *v1alpha1.Function
	next stage
}

// run starts the workers, and returns when they watch.
func (b *bare) run(ctx context.Context, workers int) error {
	b.known = map[cache.ObjectName]*progress{}
	queue := workqueue.NewTyped[cache.ObjectName]()
	context.AfterFunc(ctx, queue.ShutDown)
	watch := func(informer cache.SharedIndexInformer) error {
		wake := func(obj any) {
			if object, ok := obj.(metav1.Object); ok {
				queue.Add(cache.MetaObjectToName(object))
			}
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, obj any) { wake(obj) }})
		if err != nil {
			return fmt.Errorf("failed to watch: %w", err)
		}
		return nil
	}
	functions := informers.NewSharedInformerFactory(b.clients.Kiln, 0)
	fns := functions.Serverless().V1alpha1().Functions()
	if err := watch(fns.Informer()); err != nil {
		return err
	}
	if err := b.pattern.objects.watch(ctx, b.clients, watch); err != nil {
		return err
	}
	functions.Start(ctx.Done())
	functions.WaitForCacheSync(ctx.Done())
	for range workers {
		go func() {
			for {
				name, shutdown := queue.Get()
				if shutdown {
					return
				}
				fn, _ := fns.Lister().Functions(name.Namespace).Get(name.Name)
				if err := b.step(ctx, name, fn); err != nil && ctx.Err() == nil {
					b.failed(err)
				}
				queue.Done(name)
			}
		}()
	}
	return nil
}

// of returns the progress of a Function, or nil if the Function is not the bare client's.
func (b *bare) of(name cache.ObjectName, fn *v1alpha1.Function) *progress {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.known[name]
	if p == nil && fn != nil && fn.UID != b.pattern.fn.UID {
		p = &progress{fn: fn.DeepCopy()}
		b.known[name] = p
	}
	return p
}

// step takes the next step, if its condition holds.
func (b *bare) step(ctx context.Context, name cache.ObjectName, fn *v1alpha1.Function) error {
	p, objects := b.of(name, fn), b.pattern.objects
	switch {
	case p == nil:
		return nil
	case p.next == toBuild:
		cm := &corev1.ConfigMap{ObjectMeta: metaFor(p.fn, b.pattern.configMap.ObjectMeta), Immutable: b.pattern.configMap.Immutable, Data: b.pattern.configMap.Data}
		if _, err := b.clients.Kube.CoreV1().ConfigMaps(name.Namespace).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("failed to create ConfigMap: %w", err)
		}
		if err := objects.build(ctx, b.clients, p.fn); err != nil {
			return err
		}
		return b.tell(ctx, p, toDeploy)
	case p.next == toDeploy && objects.isBuilt(name):
		if err := objects.serve(ctx, b.clients, p.fn); err != nil {
			return err
		}
		return b.tell(ctx, p, toRun)
	case p.next == toRun && objects.isServed(name):
		return b.tell(ctx, p, running)
	}
	return nil
}

// tell writes the status, which has the size of Kiln's final status, and is Ready only at
// the end.
func (b *bare) tell(ctx context.Context, p *progress, next stage) error {
	updated := p.fn.DeepCopy()
	updated.Status = *b.pattern.fn.Status.DeepCopy()
	updated.Status.ObservedGeneration = p.fn.Generation
	if next != running {
		updated.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "stage %d", next)
	}
	updated.Status.UpdatePhase()
	updated, err := b.clients.Kiln.ServerlessV1alpha1().Functions(updated.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("failed to update status: %w", err)
	}
	p.fn, p.next = updated, next
	return nil
}
