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

// Package tekton builds images with Tekton TaskRuns.
package tekton

import (
	"context"
	"fmt"
	"strings"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelineclientset "github.com/tektoncd/pipeline/pkg/client/clientset/versioned"
	pipelineclient "github.com/tektoncd/pipeline/pkg/client/injection/client"
	taskruninformer "github.com/tektoncd/pipeline/pkg/client/injection/informers/pipeline/v1/taskrun/filtered"
	pipelinelisters "github.com/tektoncd/pipeline/pkg/client/listers/pipeline/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"knative.dev/pkg/apis"
	kubeclient "knative.dev/pkg/client/injection/kube/client"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/slim"
)

const (
	// pending is the reason of a TaskRun whose pod has not started.
	pending = "Pending"
	// unscheduled is in the message of a TaskRun whose pod has no node.
	unscheduled = `"PodScheduled":"False"`
	// exceededQuota is the reason of a TaskRun whose pod exceeds a quota. Tekton
	// retries the pod.
	exceededQuota = "ExceededResourceQuota"
	// exceededNode is the reason of a TaskRun whose pod fits on no node, and notPulled
	// that of one whose pod lacks an image. Both wait.
	exceededNode, notPulled = "ExceededNodeResources", "PullImageFailed"
)

// API is the API of TaskRuns.
var API = pipelinev1.SchemeGroupVersion.WithResource("taskruns")

// Kind is the kind of the objects that run builds.
const Kind = "TaskRun"

// Reasons are the reasons of builds that TaskRuns run.
var Reasons = builds.Reasons{
	Created:    v1alpha1.ReasonTaskRunCreated,
	NotCreated: v1alpha1.ReasonTaskRunNotCreated,
	Running:    v1alpha1.ReasonTaskRunRunning,
	Succeeded:  v1alpha1.ReasonTaskRunSucceeded,
	Failed:     v1alpha1.ReasonTaskRunFailed,
	Deleted:    v1alpha1.ReasonTaskRunsDeleted,
}

// Builder builds images with TaskRuns.
type Builder struct {
	// Client reads and writes TaskRuns.
	Client pipelineclientset.Interface

	// TaskRuns lists the TaskRuns with Kiln's label, as Slim leaves them.
	TaskRuns pipelinelisters.TaskRunLister

	// Pods lists the Pods with Kiln's label.
	Pods corev1listers.PodLister

	// MountEvents lists the events of failed mounts.
	MountEvents corev1listers.EventLister

	// Logs reads the logs of the steps.
	Logs pods.LogReader
}

// NewBuilder returns a Builder. The context must carry an informer of TaskRuns that
// children.LabelSelector filters.
func NewBuilder(ctx context.Context, podLister corev1listers.PodLister, mountEvents corev1listers.EventLister) *Builder {
	informer := taskruninformer.Get(ctx, children.LabelSelector)
	return &Builder{
		Client:      pipelineclient.Get(ctx),
		TaskRuns:    Lister{TaskRunLister: informer.Lister(), Indexer: slim.Indexed(ctx, informer.Informer())},
		Pods:        podLister,
		MountEvents: mountEvents,
		Logs:        &pods.Background{Reader: pods.Logs{Client: kubeclient.Get(ctx)}},
	}
}

// Watch reports each TaskRun to the queue, and then calls wake with it.
func (*Builder) Watch(ctx context.Context, q *queue.Queue, wake func(any)) {
	slim.Watch(ctx, taskruninformer.Get(ctx, children.LabelSelector).Informer(), Slim, Count(q, wake))
}

// Name returns the value of the key builder in config-build.
func (*Builder) Name() config.Builder { return config.TektonBuilder }

// Kind returns the kind of the objects that run builds.
func (*Builder) Kind() string { return Kind }

// Reasons returns the reasons of builds that TaskRuns run.
func (*Builder) Reasons() builds.Reasons { return Reasons }

// List returns the Function's builds from the cache.
func (b *Builder) List(fn *v1alpha1.Function) ([]builds.Run, error) {
	taskRuns, err := b.TaskRuns.TaskRuns(fn.Namespace).List(children.SelectorOf(fn))
	if err != nil {
		return nil, fmt.Errorf("failed to list TaskRuns: %w", err)
	}
	runs := make([]builds.Run, 0, len(taskRuns))
	for _, tr := range taskRuns {
		runs = append(runs, RunOf(tr))
	}
	return runs, nil
}

// Running returns all builds of the cluster that have not ended, past the cache.
func (b *Builder) Running(ctx context.Context) ([]queue.Build, error) {
	list := func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return b.Client.TektonV1().TaskRuns(metav1.NamespaceAll).List(ctx, opts)
	}
	var running []queue.Build
	err := children.EachLive(ctx, Kind, list, func(tr *pipelinev1.TaskRun) error {
		if !stateOf(tr).Ended() {
			running = append(running, QueuedBuild(tr))
		}
		return nil
	})
	return running, err
}

// Get returns the build of that name, past the cache. It returns the API server's own
// error.
func (b *Builder) Get(ctx context.Context, namespace, name string) (builds.Run, error) {
	tr, err := b.Client.TektonV1().TaskRuns(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return builds.Run{}, err
	}
	return RunOf(tr), nil
}

// Start creates the TaskRun, or returns the build of the TaskRun that has its name.
// Where the origin is Created, the error is the API server's own.
func (b *Builder) Start(ctx context.Context, fn *v1alpha1.Function, spec builds.Spec) (builds.Run, children.Origin, error) {
	desired := MakeTaskRun(fn, config.FromContextOrDefaults(ctx), spec)
	tr, from, err := children.CreateOrGet(ctx, b.Client.TektonV1().TaskRuns(fn.Namespace), Kind, desired)
	if err != nil {
		return builds.Run{}, from, err
	}
	return RunOf(tr), from, nil
}

// Restore restores the metadata of the build's TaskRun where somebody has removed it.
// tag is the tag of the image that it builds.
func (b *Builder) Restore(ctx context.Context, fn *v1alpha1.Function, tag string, run builds.Run) (builds.Run, error) {
	desired := &metav1.ObjectMeta{Labels: children.BuildLabels(fn, tag)}
	tr, err := children.RestoreCached(ctx, b.Client.TektonV1().TaskRuns(fn.Namespace), Kind, taskRunOf(run), desired, fn)
	if err != nil {
		return builds.Run{}, err
	}
	return RunOf(tr), nil
}

// Delete deletes the build's TaskRun, also while it runs.
func (b *Builder) Delete(ctx context.Context, run builds.Run) error {
	tr := taskRunOf(run)
	err := b.Client.TektonV1().TaskRuns(tr.Namespace).Delete(ctx, tr.Name, children.DeleteOptions(tr))
	if err != nil && !children.IsGone(err) {
		return fmt.Errorf("failed to delete TaskRun: %w", err)
	}
	return nil
}

// Progress reports how far a build is that has not ended.
func (b *Builder) Progress(run builds.Run) (builds.Progress, error) {
	tr := taskRunOf(run)
	condition := tr.Status.GetCondition(apis.ConditionSucceeded)
	started := func(format string, args ...any) (builds.Progress, error) {
		return builds.Progress{Stage: builds.Started, Message: fmt.Sprintf("TaskRun %s "+format, append([]any{tr.Name}, args...)...)}, nil
	}
	created := builds.Progress{Stage: builds.Created, Message: fmt.Sprintf("TaskRun %s is about to run.", tr.Name)}
	switch {
	case condition == nil, condition.Reason == string(pipelinev1.TaskRunReasonStarted):
		return created, nil
	case condition.Reason == pending && strings.Contains(condition.Message, unscheduled):
		return started("waits for a node: %s", condition.Message)
	case condition.Reason == pending:
		// The pod waits for its images, or for a volume that cannot be mounted.
		trouble, err := pods.FailedMount(b.Pods, b.MountEvents, tr.Namespace, tr.Status.PodName)
		if err != nil || trouble == "" {
			return created, err
		}
		return started("waits for its pod to start: %s", trouble)
	case condition.Reason == exceededQuota:
		return builds.Progress{Stage: builds.OverQuota, Message: condition.Message}, nil
	case condition.Reason == string(pipelinev1.TaskRunReasonRunning):
		return started("runs.")
	default:
		return started("has not ended: %s: %s", condition.Reason, condition.Message)
	}
}

func taskRunOf(run builds.Run) *pipelinev1.TaskRun { return run.Object.(*pipelinev1.TaskRun) }

// QueuedBuild returns the queue's view of a TaskRun that has not ended. The TaskRun
// gives up its slot when it ends, although its pod may run a moment longer.
func QueuedBuild(tr *pipelinev1.TaskRun) queue.Build {
	b := queue.Build{
		Name:     types.NamespacedName{Namespace: tr.Namespace, Name: tr.Name},
		Function: types.NamespacedName{Namespace: tr.Namespace, Name: tr.Labels[serverless.FunctionNameLabelKey]},
		UID:      types.UID(tr.Labels[serverless.FunctionUIDLabelKey]),
	}
	switch tr.Status.GetCondition(apis.ConditionSucceeded).GetReason() {
	case pending, exceededNode, notPulled, exceededQuota:
		// A TaskRun that Tekton has not seen yet is not pending. While Tekton is down, no
		// build must make way for further ones.
		b.Pending = tr.CreationTimestamp.Time
	}
	return b
}
