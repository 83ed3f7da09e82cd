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
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/observe"
)

// build is a Job with its pod. It is the object of a builds.Run.
type build struct {
	*batchv1.Job

	// pod is the pod of the Job, or nil.
	pod *corev1.Pod

	// refused is why the API server keeps refusing the pod, or "". A quota does not count,
	// because it may allow the pod later.
	refused string
}

func buildOf(run builds.Run) build { return run.Object.(build) }

// RunOf returns the build that the Job runs in the pod. The pod may be nil.
func RunOf(job *batchv1.Job, pod *corev1.Pod) builds.Run {
	return build{Job: job, pod: pod}.run()
}

func (b build) run() builds.Run {
	state := b.state()
	found, _ := b.record()
	run := steps.RunOf(b, state, found.Results)
	run.Ref = v1alpha1.BuildReference{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: Kind, Name: b.Name}
	run.Unfinished = state == builds.Failed && !b.isFinished()
	switch state {
	case builds.Succeeded:
		run.CompletionTime = found.CompletionTime
	case builds.Failed:
		run.CompletionTime = b.failureTime()
	}
	return run
}

// state returns the state of the build. It has Succeeded once its image is pushed, a second
// before the Job is Complete. It has Failed once the Job is Failed, and not before its pod
// has ended, or if nothing but a person or a deletion can end the Job.
func (b build) state() builds.State {
	if _, ok := b.record(); ok {
		return builds.Succeeded
	}
	switch {
	case b.is(batchv1.JobFailed):
		return builds.Failed
	case b.is(batchv1.JobComplete):
		if b.pod != nil && b.container(steps.Push).State.Terminated == nil {
			// The cache of Pods is behind that of Jobs.
			return builds.Running
		}
		return builds.Failed
	case b.obstacle() != nil:
		return builds.Failed
	default:
		return builds.Running
	}
}

// record is the value of the annotation BuildResultsAnnotationKey. With it the Job needs
// no pod.
type record struct {
	steps.Results

	// CompletionTime is when the image was pushed.
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// record returns the results of a build that has pushed its image. Nothing that the
// container Install reports counts, because it runs the author's code.
func (b build) record() (found record, ok bool) {
	if found, ok = b.stored(); ok {
		return found, true
	}
	end := b.container(steps.Push).State.Terminated
	if end == nil || end.ExitCode != 0 {
		return record{}, false
	}
	results, err := parse(end.Message)
	if err != nil || !results.IsValid() {
		return record{}, false
	}
	found = record{Results: results, CompletionTime: &end.FinishedAt}
	if fetched := b.container(steps.Fetch).State.Terminated; fetched != nil && fetched.ExitCode == 0 {
		_ = json.Unmarshal([]byte(fetched.Message), &found.Source) // Without it the source is unknown.
	}
	return found, true
}

// parse returns the results in the termination message of the push step. The kubelet cuts
// messages of more than 4 KiB.
func parse(message string) (results steps.Results, err error) {
	if err := json.Unmarshal([]byte(message), &results); err != nil {
		return results, fmt.Errorf("failed to parse its results: %w", err)
	}
	return results, nil
}

// stored returns the results in the annotation of the Job.
func (b build) stored() (found record, ok bool) {
	text := b.Annotations[serverless.BuildResultsAnnotationKey]
	if text == "" || json.Unmarshal([]byte(text), &found) != nil || !found.IsValid() {
		return record{}, false
	}
	return found, true
}

// obstacle is why an unfinished Job will not run on.
type obstacle struct {
	cause   builds.Cause
	message string
}

// obstacle returns why the Job will not run on, or nil. The same states fail a TaskRun.
func (b build) obstacle() *obstacle {
	if b.Spec.Suspend != nil && *b.Spec.Suspend {
		return &obstacle{builds.Cancelled, fmt.Sprintf("Job %s is suspended.", b.Name)}
	}
	if b.refused != "" {
		return &obstacle{builds.NotRun, fmt.Sprintf("Job %s has no pod: %s", b.Name, b.refused)}
	}
	if b.pod == nil {
		return nil
	}
	if c := observe.PodCondition(b.pod, corev1.DisruptionTarget); c.Status == corev1.ConditionTrue && c.Reason == lostNode &&
		b.pod.DeletionTimestamp != nil && b.is(batchv1.JobFailureTarget) {
		// Nobody confirms the end of a pod on a lost node, so the Job waits for that.
		return &obstacle{builds.Evicted, c.Message}
	}
	for _, status := range b.containers() {
		if waiting := status.State.Waiting; waiting != nil {
			if cause := causeOfWaiting(waiting); cause != builds.Other {
				return &obstacle{cause, fmt.Sprintf("Container %s does not start: %s: %s", status.Name, waiting.Reason, waiting.Message)}
			}
		}
	}
	return nil
}

// causeOfWaiting returns the cause of a failure for a container that will not start, and
// Other for one that may.
func causeOfWaiting(waiting *corev1.ContainerStateWaiting) builds.Cause {
	switch waiting.Reason {
	case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return builds.ImagePull
	case "CreateContainerConfigError":
		if strings.Contains(waiting.Message, "failed to create subPath directory") {
			return builds.Other
		}
		return builds.NotRun
	case "CreateContainerError":
		return builds.NotRun
	}
	return builds.Other
}

// failureTime returns when the build failed: when the Job ended, or when its last known
// change was.
func (b build) failureTime() *metav1.Time {
	for _, ended := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete} {
		if c := b.condition(ended); c.Status == corev1.ConditionTrue {
			return &c.LastTransitionTime
		}
	}
	last := b.CreationTimestamp
	for i := range b.Status.Conditions {
		last = latest(last, b.Status.Conditions[i].LastTransitionTime)
	}
	if b.pod != nil {
		for i := range b.pod.Status.Conditions {
			last = latest(last, b.pod.Status.Conditions[i].LastTransitionTime)
		}
	}
	return &last
}

func latest(a, b metav1.Time) metav1.Time {
	if a.Before(&b) {
		return b
	}
	return a
}

// isFinished reports whether the Job has ended and will not run again.
func (b build) isFinished() bool { return b.is(batchv1.JobFailed) || b.is(batchv1.JobComplete) }

func (b build) is(t batchv1.JobConditionType) bool {
	return b.condition(t).Status == corev1.ConditionTrue
}

// condition returns the condition of that type, or an empty condition.
func (b build) condition(t batchv1.JobConditionType) batchv1.JobCondition {
	i := slices.IndexFunc(b.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == t })
	if i < 0 {
		return batchv1.JobCondition{}
	}
	return b.Status.Conditions[i]
}

// containers returns the states of the containers, in the order in which they run.
func (b build) containers() []corev1.ContainerStatus {
	if b.pod == nil {
		return nil
	}
	return slices.Concat(b.pod.Status.InitContainerStatuses, b.pod.Status.ContainerStatuses)
}

// container returns the state of the container of that name, or an empty state.
func (b build) container(name string) corev1.ContainerStatus {
	for _, status := range b.containers() {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// hasStarted reports whether a container of the build has run. The kubelet also reports
// the end of containers that it has never started.
func (b build) hasStarted() bool {
	return slices.ContainsFunc(b.containers(), func(status corev1.ContainerStatus) bool {
		end := status.State.Terminated
		return status.State.Running != nil || end != nil && end.Reason != unknownEnd
	})
}
