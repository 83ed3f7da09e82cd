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

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelineinformers "github.com/tektoncd/pipeline/pkg/client/informers/externalversions"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"knative.dev/pkg/kmeta"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servinginformers "knative.dev/serving/pkg/client/informers/externalversions"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	informers "github.com/kiln-dev/kiln/pkg/client/informers/externalversions"
	"github.com/kiln-dev/kiln/test"
)

// pattern has the objects that Kiln created for one Function. The bare client writes
// copies of them, so both write objects of the same size.
type pattern struct {
	fn        *v1alpha1.Function
	configMap *corev1.ConfigMap
	taskRun   *pipelinev1.TaskRun
	service   *servingv1.Service
}

// patternOf returns the objects that Kiln has created for a Function.
func patternOf(ctx context.Context, c *test.Clients, key types.NamespacedName) (p pattern, err error) {
	if p.fn, err = c.Kiln.ServerlessV1alpha1().Functions(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{}); err != nil {
		return p, fmt.Errorf("failed to get Function: %w", err)
	}
	children := metav1.ListOptions{LabelSelector: serverless.FunctionNameLabelKey + "=" + key.Name}
	configMaps, err := c.Kube.CoreV1().ConfigMaps(key.Namespace).List(ctx, children)
	if err != nil {
		return p, fmt.Errorf("failed to list ConfigMaps: %w", err)
	}
	taskRuns, err := c.Pipeline.TektonV1().TaskRuns(key.Namespace).List(ctx, children)
	if err != nil {
		return p, fmt.Errorf("failed to list TaskRuns: %w", err)
	}
	services, err := c.Serving.ServingV1().Services(key.Namespace).List(ctx, children)
	if err != nil {
		return p, fmt.Errorf("failed to list Services: %w", err)
	}
	if len(configMaps.Items) != 1 || len(taskRuns.Items) != 1 || len(services.Items) != 1 {
		return p, fmt.Errorf("failed to find what Function %s is made of: there are %d ConfigMaps, %d TaskRuns and %d Services",
			key, len(configMaps.Items), len(taskRuns.Items), len(services.Items))
	}
	p.configMap, p.taskRun, p.service = &configMaps.Items[0], &taskRuns.Items[0], &services.Items[0]
	return p, nil
}

// metaFor returns the metadata of a copy for a Function.
func metaFor(fn *v1alpha1.Function, of metav1.ObjectMeta) metav1.ObjectMeta {
	labels := map[string]string{}
	for key, value := range of.Labels {
		labels[key] = value
	}
	labels[serverless.FunctionNameLabelKey], labels[serverless.FunctionUIDLabelKey] = fn.Name, string(fn.UID)
	return metav1.ObjectMeta{
		Namespace: fn.Namespace, Name: fn.Name, Labels: labels, Annotations: of.Annotations,
		OwnerReferences: []metav1.OwnerReference{*kmeta.NewControllerRef(fn)},
	}
}

// stage is the step that the bare client waits for.
type stage int

const (
	toBuild stage = iota
	toDeploy
	toRun
	running
)

// bare is the least that a controller can do. For each Function it creates a ConfigMap
// and a TaskRun, and then a Service. It writes the status before each wait and at the
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
	functions := informers.NewSharedInformerFactory(b.clients.Kiln, 0)
	taskRuns := pipelineinformers.NewSharedInformerFactory(b.clients.Pipeline, 0)
	services := servinginformers.NewSharedInformerFactory(b.clients.Serving, 0)
	fns, runs, svcs := functions.Serverless().V1alpha1().Functions(), taskRuns.Tekton().V1().TaskRuns(), services.Serving().V1().Services()

	queue := workqueue.NewTyped[cache.ObjectName]()
	context.AfterFunc(ctx, queue.ShutDown)
	wake := func(obj any) {
		if object, ok := obj.(metav1.Object); ok {
			queue.Add(cache.MetaObjectToName(object))
		}
	}
	for _, informer := range []cache.SharedIndexInformer{fns.Informer(), runs.Informer(), svcs.Informer()} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, obj any) { wake(obj) }})
		if err != nil {
			return fmt.Errorf("failed to watch: %w", err)
		}
	}
	for range workers {
		go func() {
			for {
				name, shutdown := queue.Get()
				if shutdown {
					return
				}
				fn, _ := fns.Lister().Functions(name.Namespace).Get(name.Name)
				tr, _ := runs.Lister().TaskRuns(name.Namespace).Get(name.Name)
				svc, _ := svcs.Lister().Services(name.Namespace).Get(name.Name)
				if err := b.step(ctx, name, fn, tr, svc); err != nil && ctx.Err() == nil {
					b.failed(err)
				}
				queue.Done(name)
			}
		}()
	}
	functions.Start(ctx.Done())
	taskRuns.Start(ctx.Done())
	services.Start(ctx.Done())
	functions.WaitForCacheSync(ctx.Done())
	taskRuns.WaitForCacheSync(ctx.Done())
	services.WaitForCacheSync(ctx.Done())
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
func (b *bare) step(ctx context.Context, name cache.ObjectName, fn *v1alpha1.Function, tr *pipelinev1.TaskRun, svc *servingv1.Service) error {
	p := b.of(name, fn)
	switch {
	case p == nil:
		return nil
	case p.next == toBuild:
		cm := &corev1.ConfigMap{ObjectMeta: metaFor(p.fn, b.pattern.configMap.ObjectMeta), Immutable: b.pattern.configMap.Immutable, Data: b.pattern.configMap.Data}
		if _, err := b.clients.Kube.CoreV1().ConfigMaps(name.Namespace).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("failed to create ConfigMap: %w", err)
		}
		run := &pipelinev1.TaskRun{ObjectMeta: metaFor(p.fn, b.pattern.taskRun.ObjectMeta), Spec: b.pattern.taskRun.Spec}
		if _, err := b.clients.Pipeline.TektonV1().TaskRuns(name.Namespace).Create(ctx, run, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("failed to create TaskRun: %w", err)
		}
		return b.tell(ctx, p, toDeploy)
	case p.next == toDeploy && tr != nil && tr.IsDone():
		service := &servingv1.Service{ObjectMeta: metaFor(p.fn, b.pattern.service.ObjectMeta), Spec: b.pattern.service.Spec}
		if _, err := b.clients.Serving.ServingV1().Services(name.Namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("failed to create Service: %w", err)
		}
		return b.tell(ctx, p, toRun)
	case p.next == toRun && svc != nil && svc.IsReady():
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
