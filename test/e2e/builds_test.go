//go:build e2e

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

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
)

// kind is a kind of object that runs builds.
type kind struct {
	builder config.Builder
	// name is the kind of the objects, and resource its name in the API.
	name, resource string
	// quota counts the objects in a ResourceQuota.
	quota corev1.ResourceName
	// reasons are the reasons of BuildReady.
	reasons builds.Reasons
	// install and push are the names of those containers in the pod.
	install, push string
}

var (
	taskRunKind = &kind{
		builder:  config.TektonBuilder,
		name:     "TaskRun",
		resource: "taskruns",
		quota:    "count/taskruns.tekton.dev",
		reasons: builds.Reasons{
			Created:    v1alpha1.ReasonTaskRunCreated,
			NotCreated: v1alpha1.ReasonTaskRunNotCreated,
			Running:    v1alpha1.ReasonTaskRunRunning,
			Succeeded:  v1alpha1.ReasonTaskRunSucceeded,
			Failed:     v1alpha1.ReasonTaskRunFailed,
			Deleted:    v1alpha1.ReasonTaskRunsDeleted,
		},
		install: "sidecar-install",
		push:    "step-push",
	}
	jobKind = &kind{
		builder:  config.JobBuilder,
		name:     "Job",
		resource: "jobs",
		quota:    "count/jobs.batch",
		reasons: builds.Reasons{
			Created:    v1alpha1.ReasonJobCreated,
			NotCreated: v1alpha1.ReasonJobNotCreated,
			Running:    v1alpha1.ReasonJobRunning,
			Succeeded:  v1alpha1.ReasonJobFinished,
			Failed:     v1alpha1.ReasonJobFailed,
			Deleted:    v1alpha1.ReasonJobsDeleted,
		},
		install: "install",
		push:    "push",
	}
	// kinds are the kinds by the values of the flag -builder.
	kinds = map[config.Builder]*kind{taskRunKind.builder: taskRunKind, jobKind.builder: jobKind}
)

// skipWithJobs skips a test of something that only Tekton has.
func skipWithJobs(t *testing.T) {
	t.Helper()
	if builder == jobKind {
		t.Skip("Jobs have nothing of that kind")
	}
}

// build is the object of a build of any kind.
type build struct {
	metav1.ObjectMeta
	kind                      *kind
	started, ended, succeeded bool
	// completed is when the build ended, or nil.
	completed *metav1.Time
	// steps are the names of the containers that fetch, install and push, and pushArgs are
	// the arguments of the last.
	steps, pushArgs []string
	// results has the JSON of each result.
	results map[string]json.RawMessage
	// status is the status of the object.
	status any
}

func hasStarted(b *build) bool { return b.started }

func hasEnded(b *build) bool { return b.ended }

func isUnended(b *build) bool { return !b.ended }

// ofTaskRun returns the build that a TaskRun runs.
func ofTaskRun(tr *pipelinev1.TaskRun) *build {
	status := tr.Status.DeepCopy()
	// Nothing reads the termination message of the sidecar.
	status.Sidecars = nil
	b := &build{
		ObjectMeta: tr.ObjectMeta,
		kind:       taskRunKind,
		started:    tr.HasStarted(),
		ended:      tr.IsDone(),
		succeeded:  tr.IsSuccessful(),
		completed:  tr.Status.CompletionTime,
		results:    map[string]json.RawMessage{},
		status:     status,
	}
	for _, sidecar := range tr.Spec.TaskSpec.Sidecars {
		b.steps = append(b.steps, sidecar.Name)
	}
	for _, step := range tr.Spec.TaskSpec.Steps {
		b.steps, b.pushArgs = append(b.steps, step.Name), step.Args
	}
	for _, result := range tr.Status.Results {
		b.results[result.Name], _ = result.Value.MarshalJSON() // A string or a map of strings has no error.
	}
	return b
}

// ofJob returns the build that a Job runs. Kiln keeps its results a moment before the Job
// is complete.
func ofJob(job *batchv1.Job) *build {
	b := &build{
		ObjectMeta: job.ObjectMeta,
		kind:       jobKind,
		started:    job.Status.StartTime != nil,
		completed:  job.Status.CompletionTime,
		pushArgs:   job.Spec.Template.Spec.Containers[0].Args,
		results:    map[string]json.RawMessage{},
		status:     job.Status,
	}
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobComplete:
			b.ended, b.succeeded = true, true
		case batchv1.JobFailed:
			b.ended, b.completed = true, &condition.LastTransitionTime
		}
	}
	for _, container := range slices.Concat(job.Spec.Template.Spec.InitContainers, job.Spec.Template.Spec.Containers) {
		b.steps = append(b.steps, container.Name)
	}
	text := job.Annotations[serverless.BuildResultsAnnotationKey]
	record := struct {
		CompletionTime *metav1.Time `json:"completionTime"`
	}{}
	if json.Unmarshal([]byte(text), &b.results) == nil && json.Unmarshal([]byte(text), &record) == nil {
		delete(b.results, "completionTime")
		b.ended, b.succeeded, b.completed = true, true, record.CompletionTime
	}
	return b
}

// convert returns the builds that the objects run.
func convert[T any](objects []T, of func(T) *build) (all []*build) {
	for _, object := range objects {
		all = append(all, of(object))
	}
	return all
}

// seenBuilds returns all builds of either kind that were ever created, oldest first.
func (e *env) seenBuilds() []*build {
	e.Helper()
	jobs, err := e.jobs.Seen()
	if err != nil {
		e.Fatal(err)
	}
	var taskRuns []*pipelinev1.TaskRun
	if hasTekton {
		if taskRuns, err = e.taskRuns.Seen(); err != nil {
			e.Fatal(err)
		}
	}
	seen := slices.Concat(convert(taskRuns, ofTaskRun), convert(jobs, ofJob))
	slices.SortStableFunc(seen, func(a, b *build) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return seen
}

// wantBuilds checks the exact number of builds that were ever created, and that the chosen
// builder has created them. It returns them.
func (e *env) wantBuilds(want int) []*build {
	e.Helper()
	seen := e.seenBuilds()
	var names []string
	for _, b := range seen {
		names = append(names, b.kind.name+" "+b.Name)
		if b.kind != builder {
			e.Errorf("%s %s was created, want only objects of kind %s", b.kind.name, b.Name, builder.name)
		}
	}
	if len(seen) != want {
		e.Fatalf("%d builds were created, %v; want %d", len(seen), names, want)
	}
	return seen
}

// wantApart checks that all builds have ended and that no two of them ran at once.
func (e *env) wantApart(all []*build) {
	e.Helper()
	for i, a := range all {
		if a.completed == nil {
			e.Errorf("%s %s has no completion time", a.kind.name, a.Name)
		}
		for _, b := range all[i+1:] {
			// Timestamps in Kubernetes have whole seconds.
			if a.CreationTimestamp.Before(b.completed) && b.CreationTimestamp.Before(a.completed) {
				e.Errorf("%s %s and %s %s ran at the same time", a.kind.name, a.Name, b.kind.name, b.Name)
			}
		}
	}
}

// liveBuilds returns the builds of that kind that exist now.
func (e *env) liveBuilds(k *kind, opts metav1.ListOptions) (all []*build) {
	e.Helper()
	if k == taskRunKind {
		list, err := clients.Pipeline.TektonV1().TaskRuns(e.namespace).List(e.ctx, opts)
		if err != nil {
			e.Fatal(err)
		}
		for i := range list.Items {
			all = append(all, ofTaskRun(&list.Items[i]))
		}
		return all
	}
	list, err := clients.Kube.BatchV1().Jobs(e.namespace).List(e.ctx, opts)
	if err != nil {
		e.Fatal(err)
	}
	for i := range list.Items {
		all = append(all, ofJob(&list.Items[i]))
	}
	return all
}

// onlyBuild returns the only build that exists now.
func (e *env) onlyBuild() *build {
	e.Helper()
	live := e.liveBuilds(builder, metav1.ListOptions{})
	if len(live) != 1 {
		e.Fatalf("there are %d builds with the kind %s, want 1", len(live), builder.name)
	}
	return live[0]
}

// buildOf returns the last build of a Function.
func (e *env) buildOf(fn *v1alpha1.Function) *build {
	e.Helper()
	live := e.liveBuilds(builder, metav1.ListOptions{})
	i := slices.IndexFunc(live, func(b *build) bool { return b.Name == fn.Status.Build.BuildName() })
	if i < 0 {
		e.Fatalf("there is no %s %s", builder.name, fn.Status.Build.BuildName())
	}
	return live[i]
}

// untilBuilds waits until check returns nil for the builds of the chosen builder.
func (e *env) untilBuilds(check func([]*build) error) {
	e.Helper()
	e.untilBuildsOf(builder, check)
}

// untilBuildsOf waits until check returns nil for the builds of that kind.
func (e *env) untilBuildsOf(k *kind, check func([]*build) error) {
	e.Helper()
	if k == taskRunKind {
		untilObjects(e, clients.Pipeline.TektonV1().TaskRuns(e.namespace), func(found []*pipelinev1.TaskRun) error {
			return check(convert(found, ofTaskRun))
		})
		return
	}
	untilObjects(e, clients.Kube.BatchV1().Jobs(e.namespace), func(found []*batchv1.Job) error {
		return check(convert(found, ofJob))
	})
}

// untilBuild waits for a build of the Function for which check returns true. A nil check
// accepts any.
func (e *env) untilBuild(fn *v1alpha1.Function, check func(*build) bool) *build {
	e.Helper()
	return e.untilBuildOf(builder, fn, check)
}

// untilBuildOf is untilBuild for builds of that kind.
func (e *env) untilBuildOf(k *kind, fn *v1alpha1.Function, check func(*build) bool) (b *build) {
	e.Helper()
	e.untilBuildsOf(k, func(found []*build) error {
		for _, b = range found {
			if ownedBy(b, fn) && (check == nil || check(b)) {
				return nil
			}
		}
		return fmt.Errorf("none of %d builds with the kind %s is the expected build of Function %s", len(found), k.name, fn.Name)
	})
	return b
}

// editBuild changes the metadata of a build's object.
func (e *env) editBuild(b *build, change func(metav1.Object)) {
	e.Helper()
	if b.kind == taskRunKind {
		edit(e, clients.Pipeline.TektonV1().TaskRuns(e.namespace), b.Name, func(tr *pipelinev1.TaskRun) { change(tr) })
		return
	}
	edit(e, clients.Kube.BatchV1().Jobs(e.namespace), b.Name, func(job *batchv1.Job) { change(job) })
}

// cancel cancels a build as a user does.
func (e *env) cancel(b *build) {
	e.Helper()
	if b.kind == taskRunKind {
		edit(e, clients.Pipeline.TektonV1().TaskRuns(e.namespace), b.Name, func(tr *pipelinev1.TaskRun) {
			tr.Spec.Status = pipelinev1.TaskRunSpecStatusCancelled
		})
		return
	}
	edit(e, clients.Kube.BatchV1().Jobs(e.namespace), b.Name, func(job *batchv1.Job) { job.Spec.Suspend = new(true) })
}

// deleteBuild deletes a build's object. The API would leave the pod of a Job otherwise.
func (e *env) deleteBuild(b *build) {
	e.Helper()
	background := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	var err error
	if b.kind == taskRunKind {
		err = clients.Pipeline.TektonV1().TaskRuns(e.namespace).Delete(e.ctx, b.Name, background)
	} else {
		err = clients.Kube.BatchV1().Jobs(e.namespace).Delete(e.ctx, b.Name, background)
	}
	if err != nil {
		e.Fatal(err)
	}
}

// podOfBuild returns the pod of a build.
func (e *env) podOfBuild(b *build) *corev1.Pod {
	e.Helper()
	pods, err := clients.Kube.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	for i := range pods.Items {
		if metav1.IsControlledBy(&pods.Items[i], b) {
			return &pods.Items[i]
		}
	}
	e.Fatalf("there is no pod of %s %s", b.kind.name, b.Name)
	return nil
}
