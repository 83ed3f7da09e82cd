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

package job

import (
	"context"
	"maps"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	batchv1listers "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	jobinformer "knative.dev/pkg/client/injection/kube/informers/batch/v1/job/filtered"
	podinformer "knative.dev/pkg/client/injection/kube/informers/core/v1/pod/filtered"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/kmeta"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// Lister is a lister of Jobs that uses the index by Function.
type Lister struct {
	batchv1listers.JobLister
	Indexer cache.Indexer
}

// Jobs implements batchv1listers.JobLister.
func (l Lister) Jobs(namespace string) batchv1listers.JobNamespaceLister {
	return slim.Namespace[*batchv1.Job]{NamespaceLister: l.JobLister.Jobs(namespace), Indexer: l.Indexer, Name: namespace}
}

// Slim is a transform that keeps of a Job its state and its results.
func Slim(obj any) (any, error) {
	job, ok := obj.(*batchv1.Job)
	if !ok {
		return obj, nil
	}
	maps.DeleteFunc(job.Annotations, func(key, _ string) bool { return !steps.IsKept(key) })
	slim.ShareMeta(&job.ObjectMeta)
	job.Spec = batchv1.JobSpec{Suspend: job.Spec.Suspend, ActiveDeadlineSeconds: job.Spec.ActiveDeadlineSeconds}
	if job.Spec.Suspend != nil && !*job.Spec.Suspend {
		job.Spec.Suspend = nil
	}
	job.Status = batchv1.JobStatus{StartTime: job.Status.StartTime, Conditions: job.Status.Conditions}
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		slim.Share(&c.Type)
		slim.Share(&c.Status)
		slim.Share(&c.Reason, &c.Message)
		c.LastProbeTime = metav1.Time{}
	}
	return job, nil
}

// runOf returns the build that the Job runs, with the pod that the cache shows.
func (b *Builder) runOf(job *batchv1.Job) (builds.Run, error) {
	of := labels.Set{batchv1.ControllerUidLabel: string(job.UID)}
	if owner := metav1.GetControllerOfNoCopy(job); owner != nil {
		// The index by Function finds it.
		of[serverless.FunctionUIDLabelKey] = string(owner.UID)
	}
	found, err := b.Pods.Pods(job.Namespace).List(labels.SelectorFromSet(of))
	if err != nil {
		return builds.Run{}, err
	}
	var pod *corev1.Pod
	for _, other := range found {
		if pod == nil || other.Name < pod.Name {
			pod = other
		}
	}
	refused := ""
	if pod == nil && !(build{Job: job}).isFinished() {
		if refused, err = b.refusal(job); err != nil {
			return builds.Run{}, err
		}
	}
	return build{Job: job, pod: pod, refused: refused}.run(), nil
}

// QueuedBuild returns the queue's view of a build that has not ended. It gives up its slot
// when it ends, although its pod may run a moment longer.
func QueuedBuild(run builds.Run) queue.Build {
	of := buildOf(run)
	b := queue.Build{
		Name:     types.NamespacedName{Namespace: of.Namespace, Name: of.Name},
		Function: types.NamespacedName{Namespace: of.Namespace, Name: of.Labels[serverless.FunctionNameLabelKey]},
		UID:      types.UID(of.Labels[serverless.FunctionUIDLabelKey]),
	}
	if of.Status.StartTime != nil && !of.hasStarted() {
		// A Job that its controller has not seen yet is not pending. While that is down, no
		// build must make way for further ones.
		b.Pending = of.CreationTimestamp.Time
	}
	return b
}

// Watch reports each Job to the queue, and then calls wake with it. It does so for each
// change of a Job, of its pod, and of the events about its pod's creation.
func (b *Builder) Watch(ctx context.Context, q *queue.Queue, wake func(any)) {
	h := NewHandlers(b, q, wake)
	slim.Watch(ctx, jobinformer.Get(ctx, children.LabelSelector).Informer(), Slim, controller.HandleAll(h.OnJob))
	slim.Watch(ctx, createEvents(ctx), pods.SlimEvent, controller.HandleAll(h.OnEvent))
	if _, err := podinformer.Get(ctx, children.LabelSelector).Informer().AddEventHandler(controller.HandleAll(h.OnPod)); err != nil {
		logging.FromContext(ctx).Panicw("Failed to watch an informer", "error", err)
	}
}

// Handlers handle the changes of builds.
type Handlers struct {
	builder *Builder
	queue   *queue.Queue
	wake    func(any)

	// mu orders the reports to the queue. The informers of Jobs and Pods run side by side,
	// so without it the last report could be of an older state.
	mu sync.Mutex
}

// NewHandlers returns Handlers that report to the queue, and then call wake with the Job.
func NewHandlers(b *Builder, q *queue.Queue, wake func(any)) *Handlers {
	return &Handlers{builder: b, queue: q, wake: wake}
}

// OnJob handles a change of a Job. The queue is first: a Function that wakes at the end of
// a build must find its slot free.
func (h *Handlers) OnJob(obj any) {
	job, err := kmeta.DeletionHandlingAccessor(obj)
	if err != nil {
		return
	}
	h.report(types.NamespacedName{Namespace: job.GetNamespace(), Name: job.GetName()})
	h.wake(obj)
}

// OnPod handles a change of the pod of a Job.
func (h *Handlers) OnPod(obj any) {
	pod, err := kmeta.DeletionHandlingAccessor(obj)
	if err != nil || pod.GetLabels()[batchv1.JobNameLabel] == "" {
		return
	}
	h.onChild(pod.GetNamespace(), pod.GetLabels()[batchv1.JobNameLabel], types.UID(pod.GetLabels()[batchv1.ControllerUidLabel]))
}

// OnEvent handles an event about a Job.
func (h *Handlers) OnEvent(obj any) {
	if event, ok := obj.(*corev1.Event); ok {
		h.onChild(event.Namespace, event.InvolvedObject.Name, event.InvolvedObject.UID)
	}
}

// onChild handles a change of an object that belongs to the Job. An earlier Job of that
// name may have left it.
func (h *Handlers) onChild(namespace, name string, uid types.UID) {
	if job, err := h.builder.Jobs.Jobs(namespace).Get(name); err == nil && job.UID == uid {
		h.OnJob(job)
	}
}

// report reports to the queue whether the build of that name runs.
func (h *Handlers) report(name types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if job, err := h.builder.Jobs.Jobs(name.Namespace).Get(name.Name); err == nil {
		if run, err := h.builder.runOf(job); err == nil && !run.State.Ended() {
			h.queue.See(QueuedBuild(run))
			return
		}
	}
	h.queue.End(name)
}
