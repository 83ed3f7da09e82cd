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

// Package job builds images with Kubernetes Jobs.
package job

import (
	"context"
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	batchv1listers "k8s.io/client-go/listers/batch/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	jobinformer "knative.dev/pkg/client/injection/kube/informers/batch/v1/job/filtered"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// Kind is the kind of the objects that run builds.
const Kind = "Job"

// Reasons are the reasons of builds that Jobs run.
var Reasons = builds.Reasons{
	Created:    v1alpha1.ReasonJobCreated,
	NotCreated: v1alpha1.ReasonJobNotCreated,
	Running:    v1alpha1.ReasonJobRunning,
	Succeeded:  v1alpha1.ReasonJobFinished,
	Failed:     v1alpha1.ReasonJobFailed,
	Deleted:    v1alpha1.ReasonJobsDeleted,
}

// Builder builds images with Jobs.
type Builder struct {
	// Client reads and writes Jobs, and reads Pods that are not cached.
	Client kubernetes.Interface

	// Jobs lists the Jobs with Kiln's label, as Slim leaves them.
	Jobs batchv1listers.JobLister

	// Pods lists the Pods with Kiln's label.
	Pods corev1listers.PodLister

	// MountEvents lists the events of failed mounts, and CreateEvents those of Jobs whose
	// pods could not be created.
	MountEvents, CreateEvents corev1listers.EventLister

	// Logs reads the logs of the containers.
	Logs pods.LogReader
}

// NewBuilder returns a Builder. The context must carry an informer of Jobs that
// children.LabelSelector filters.
func NewBuilder(ctx context.Context, podLister corev1listers.PodLister, mountEvents corev1listers.EventLister) *Builder {
	informer := jobinformer.Get(ctx, children.LabelSelector)
	return &Builder{
		Client:       kubeclient.Get(ctx),
		Jobs:         Lister{JobLister: informer.Lister(), Indexer: slim.Indexed(ctx, informer.Informer())},
		Pods:         podLister,
		MountEvents:  mountEvents,
		CreateEvents: corev1listers.NewEventLister(createEvents(ctx).GetIndexer()),
		Logs:         &pods.Background{Reader: pods.Logs{Client: kubeclient.Get(ctx)}},
	}
}

// Name returns the value of the key builder in config-build.
func (*Builder) Name() config.Builder { return config.JobBuilder }

// Kind returns the kind of the objects that run builds.
func (*Builder) Kind() string { return Kind }

// Reasons returns the reasons of builds that Jobs run.
func (*Builder) Reasons() builds.Reasons { return Reasons }

// List returns the Function's builds from the cache.
func (b *Builder) List(fn *v1alpha1.Function) ([]builds.Run, error) {
	jobs, err := b.Jobs.Jobs(fn.Namespace).List(children.SelectorOf(fn))
	if err != nil {
		return nil, fmt.Errorf("failed to list Jobs: %w", err)
	}
	runs := make([]builds.Run, 0, len(jobs))
	for _, job := range jobs {
		run, err := b.runOf(job)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// Running returns all builds of the cluster that have not ended, past the caches.
func (b *Builder) Running(ctx context.Context) ([]queue.Build, error) {
	list := func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return b.Client.BatchV1().Jobs(metav1.NamespaceAll).List(ctx, opts)
	}
	var running []queue.Build
	err := children.EachLive(ctx, Kind, list, func(job *batchv1.Job) error {
		run, err := b.runOf(job)
		if err == nil && !run.State.Ended() && !QueuedBuild(run).Pending.IsZero() {
			run, err = b.withLivePod(ctx, run)
		}
		if err == nil && !run.State.Ended() {
			running = append(running, QueuedBuild(run))
		}
		return err
	})
	return running, err
}

// withLivePod returns the build with its pod past the cache. The queue must not take a build
// that runs for a pending one.
func (b *Builder) withLivePod(ctx context.Context, run builds.Run) (builds.Run, error) {
	of := buildOf(run)
	pod, err := b.livePod(ctx, of)
	if err != nil || pod == nil {
		return run, err
	}
	return RunOf(of.Job, pod), nil
}

// Get returns the build of that name, past the cache of Jobs. It returns the API server's
// own error.
func (b *Builder) Get(ctx context.Context, namespace, name string) (builds.Run, error) {
	job, err := b.Client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return builds.Run{}, err
	}
	return b.runOf(job)
}

// Start creates the Job, or returns the build of the Job that has its name. Where the
// origin is Created, the error is the API server's own.
func (b *Builder) Start(ctx context.Context, fn *v1alpha1.Function, spec builds.Spec) (builds.Run, children.Origin, error) {
	desired := MakeJob(fn, config.FromContextOrDefaults(ctx), spec)
	job, from, err := children.CreateOrGet(ctx, b.Client.BatchV1().Jobs(fn.Namespace), Kind, desired)
	if err != nil {
		return builds.Run{}, from, err
	}
	run, err := b.runOf(job)
	return run, from, err
}

// Restore restores the metadata of the build's Job where somebody has removed it, and
// stores the results of a build that has Succeeded. tag is the tag of the image that it
// builds.
func (b *Builder) Restore(ctx context.Context, fn *v1alpha1.Function, tag string, run builds.Run) (builds.Run, error) {
	of := buildOf(run)
	meta := map[string]any{}
	if children.RestoreMeta(of.DeepCopy(), &metav1.ObjectMeta{Labels: children.BuildLabels(fn, tag)}, fn) {
		meta["labels"] = children.BuildLabels(fn, tag)
		meta["ownerReferences"] = []metav1.OwnerReference{*kmeta.NewControllerRef(fn)}
	}
	if found, ok := of.record(); ok {
		if _, ok := of.stored(); !ok {
			text, err := json.Marshal(found)
			if err != nil {
				return run, fmt.Errorf("failed to encode results: %w", err)
			}
			meta["annotations"] = map[string]string{serverless.BuildResultsAnnotationKey: string(text)}
		}
	}
	if len(meta) == 0 {
		return run, nil
	}
	// The API server rejects the patch of another Job of that name as invalid.
	meta["uid"] = of.UID
	patch, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return run, fmt.Errorf("failed to encode patch: %w", err)
	}
	job, err := b.Client.BatchV1().Jobs(of.Namespace).Patch(ctx, of.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	switch {
	case children.IsGone(err), apierrs.IsInvalid(err):
		// The cache is stale. The watch will wake the Function.
		return run, nil
	case err != nil:
		return run, fmt.Errorf("failed to patch Job: %w", err)
	}
	return RunOf(job, of.pod), nil
}

// Delete deletes the build's Job and its pod, also while it runs.
func (b *Builder) Delete(ctx context.Context, run builds.Run) error {
	job := buildOf(run).Job
	err := b.Client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, children.DeleteOptions(job))
	if err != nil && !children.IsGone(err) {
		return fmt.Errorf("failed to delete Job: %w", err)
	}
	return nil
}

// InstallLog returns the end of the log of the installation of dependencies, or "" if
// the build has none.
func (b *Builder) InstallLog(ctx context.Context, run builds.Run) (string, error) {
	of := buildOf(run)
	if of.container(steps.Install).Name == "" {
		return "", nil
	}
	return b.Logs.Tail(ctx, of.Namespace, of.pod.Name, steps.Install)
}
