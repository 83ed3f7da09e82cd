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
	"sync"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// seen is an object as it was at a time.
type seen[T metav1.Object] struct {
	at     time.Time
	object T
}

// film records each observed state of the objects of a kind.
type film[T metav1.Object] struct {
	mu     sync.Mutex
	frames []seen[T]
	last   map[types.UID]string
}

// record films the objects of a kind until ctx ends.
func record[T metav1.Object, L runtime.Object](ctx context.Context, client test.Watcher[L]) *film[T] {
	f := &film[T]{last: map[types.UID]string{}}
	endless := errors.New("the recording goes on")
	go func() {
		err := test.Until(ctx, client, metav1.ListOptions{}, func(objects []T) error {
			f.add(time.Now(), objects)
			return endless
		})
		if ctx.Err() == nil {
			fmt.Println("A recording has ended:", err)
		}
	}()
	return f
}

func (f *film[T]) add(at time.Time, objects []T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, object := range objects {
		if f.last[object.GetUID()] != object.GetResourceVersion() {
			f.last[object.GetUID()] = object.GetResourceVersion()
			f.frames = append(f.frames, seen[T]{at: at, object: object})
		}
	}
}

// first returns when an object was first seen, from a time on, for which is returns true.
func (f *film[T]) first(from time.Time, is func(T) bool) (seen[T], bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, frame := range f.frames {
		if !frame.at.Before(from) && is(frame.object) {
			return frame, true
		}
	}
	return seen[T]{}, false
}

// camera films all objects of the Functions in a namespace.
type camera struct {
	functions *film[*v1alpha1.Function]
	taskRuns  *film[*pipelinev1.TaskRun]
	jobs      *film[*batchv1.Job]
	pods      *film[*corev1.Pod]
	revisions *film[*servingv1.Revision]
}

func newCamera(ctx context.Context, clients *test.Clients, namespace string) *camera {
	return &camera{
		functions: record[*v1alpha1.Function](ctx, clients.Kiln.ServerlessV1alpha1().Functions(namespace)),
		taskRuns:  record[*pipelinev1.TaskRun](ctx, clients.Pipeline.TektonV1().TaskRuns(namespace)),
		jobs:      record[*batchv1.Job](ctx, clients.Kube.BatchV1().Jobs(namespace)),
		pods:      record[*corev1.Pod](ctx, clients.Kube.CoreV1().Pods(namespace)),
		revisions: record[*servingv1.Revision](ctx, clients.Serving.ServingV1().Revisions(namespace)),
	}
}

// marks returns the marks of the way of a Function to Ready, without those of
// its build's log, and the pod of the build, if there was one.
func (c *camera) marks(start, written, ready time.Time, fn *v1alpha1.Function) (m marks, buildPod string) {
	m = marks{start: start, written: written, ready: ready, rollout: fn.Status.Serving == string(config.KubernetesServer)}
	if built, ok := c.functions.first(start, func(f *v1alpha1.Function) bool {
		return f.Name == fn.Name && f.Status.ObservedGeneration >= fn.Generation &&
			f.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).IsTrue()
	}); ok {
		m.image = built.at
	}
	if ran, ok := c.revisions.first(start, func(r *servingv1.Revision) bool {
		return r.Name == fn.Status.LatestReadyRevisionName && r.IsReady()
	}); ok {
		m.revision = ran.at
	}
	build, ok := c.build(start, fn)
	if !ok {
		return m, ""
	}
	m.build = build.at
	pod, ok := c.pods.first(start, func(p *corev1.Pod) bool { return metav1.IsControlledBy(p, build.object) })
	if !ok {
		return m, ""
	}
	m.pod = pod.at
	return m, pod.object.Name
}

// build returns the object that builds the Function, and when it was first seen.
func (c *camera) build(start time.Time, fn *v1alpha1.Function) (seen[metav1.Object], bool) {
	if taskRun, ok := c.taskRuns.first(start, func(tr *pipelinev1.TaskRun) bool {
		return metav1.IsControlledBy(tr, fn) && tr.Status.CompletionTime == nil && tr.DeletionTimestamp == nil
	}); ok {
		return seen[metav1.Object]{at: taskRun.at, object: taskRun.object}, true
	}
	job, ok := c.jobs.first(start, func(job *batchv1.Job) bool {
		return metav1.IsControlledBy(job, fn) && job.Status.CompletionTime == nil && job.DeletionTimestamp == nil
	})
	return seen[metav1.Object]{at: job.at, object: job.object}, ok
}
