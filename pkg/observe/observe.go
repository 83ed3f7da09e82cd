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

// Package observe says how a Function is in the two words that people write
// scripts against: one of its image, and one of the function itself. It is pure,
// and knows neither Tekton nor Serving.
package observe

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// ImageStatus says in a word how the image of a Function is.
type ImageStatus string

const (
	// ImageInProgress says that the image is being built.
	ImageInProgress ImageStatus = "in_progress"
	// ImageError says that no image could be built, and what is wrong is to be mended.
	ImageError ImageStatus = "error"
	// ImageCompleted says that the image was built, and what built it is still there
	// to be looked at.
	ImageCompleted ImageStatus = "completed"
	// ImageNotFound says that there is nothing to look at: the image was built and
	// what built it is gone, or it was reused, or there is no Function.
	ImageNotFound ImageStatus = "not_found"
	// ImagePending says that the build waits for something, such as its turn or a
	// node with room.
	ImagePending ImageStatus = "pending"
)

// FunctionStatus says in a word how a function, or one of its pods, is.
type FunctionStatus string

const (
	// FunctionRunning says that at least one pod takes requests, or would be started
	// by one.
	FunctionRunning FunctionStatus = "running"
	// FunctionWaiting says that the function is about to start: its image is being
	// built, or its pods are starting.
	FunctionWaiting FunctionStatus = "waiting"
	// FunctionTerminated says that the function has stopped: it crashes, or cannot
	// start. Where there is no log, see whether nodes can pull its image.
	FunctionTerminated FunctionStatus = "terminated"
	// FunctionNotFound says that there is no Function, or that nothing of it was ever
	// started and nothing will be before it is mended.
	FunctionNotFound FunctionStatus = "not_found"
	// FunctionPending says that no node can have the function's pods, as they are.
	FunctionPending FunctionStatus = "pending"
)

// Build is what is left of the build of a Function's newest image.
type Build struct {
	// Exists says that what runs, or ran, the build is there: in its words, the
	// object that the Function's status names.
	Exists bool

	// Pod is the pod that runs, or ran, the build; nil if there is none.
	Pod *corev1.Pod
}

// Observed is what is seen of a Function at one time.
type Observed struct {
	// Function is nil if there is none.
	Function *v1alpha1.Function

	// Build is its last build.
	Build Build

	// Pods are those that run the function, of any revision. Those of builds are not
	// among them.
	Pods []*corev1.Pod

	// Container is the name of the container of Pods that runs the function.
	Container string
}

// Image says how the image is, and in a sentence why.
func Image(o Observed) (status ImageStatus, why string) {
	fn := o.Function
	switch {
	case fn == nil:
		return ImageNotFound, "There is no Function."
	case !isCurrent(fn):
		return ImagePending, "Kiln has not looked at the newest version of the Function yet."
	}
	if configured := fn.Status.GetCondition(v1alpha1.FunctionConditionConfigurationReady); configured.IsFalse() {
		return ImageError, configured.GetMessage()
	}
	built := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady)
	switch {
	case built.IsTrue() && o.Build.Exists:
		return ImageCompleted, built.GetMessage()
	case built.IsTrue():
		return ImageNotFound, built.GetMessage()
	case waitsForConditions(built.GetReason()):
		return ImagePending, built.GetMessage()
	case built.IsFalse():
		return ImageError, built.GetMessage()
	}
	if held := holdsUp(o.Build.Pod); held != "" {
		return ImagePending, held
	}
	return ImageInProgress, built.GetMessage()
}

// waitsForConditions says whether a build that is not done for this reason waits
// for something else to happen first.
func waitsForConditions(reason string) bool {
	switch reason {
	case v1alpha1.ReasonWaitingForConfiguration, v1alpha1.ReasonWaitingForDeletion, v1alpha1.ReasonBuildQueued,
		v1alpha1.ReasonTaskRunsDeleted, v1alpha1.ReasonTaskRunNotCreated, v1alpha1.ReasonBuildRetrying, v1alpha1.ReasonQuotaExceeded:
		return true
	}
	return false
}

// holdsUp says why the pod of a build cannot start, or "".
func holdsUp(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	if why := Unscheduled(pod); why != "" {
		return why
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if waiting := status.State.Waiting; waiting != nil && isStuck(waiting.Reason) {
			return waiting.Reason + ": " + waiting.Message
		}
	}
	return ""
}

// Function says how the function is, and in a sentence why.
func Function(o Observed) (status FunctionStatus, why string) {
	if o.Function == nil {
		return FunctionNotFound, "There is no Function."
	}
	// One that runs makes the function run; the others have to tell why none does.
	worst := map[FunctionStatus]int{FunctionRunning: 4, FunctionTerminated: 3, FunctionPending: 2, FunctionWaiting: 1}
	for _, pod := range o.Pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if s, w := Pod(pod, o.Container); worst[s] > worst[status] || s == status && w != "" && (why == "" || w < why) {
			status, why = s, w
		}
	}
	running := o.Function.Status.GetCondition(v1alpha1.FunctionConditionRunning)
	switch {
	case status == "":
		return withoutPods(o.Function)
	case status == FunctionRunning && running.IsFalse():
		return status, "An earlier revision serves. " + running.GetMessage()
	default:
		return status, cmp.Or(why, running.GetMessage(), "Its pods are starting.")
	}
}

// withoutPods is Function of one that has no pods.
func withoutPods(fn *v1alpha1.Function) (FunctionStatus, string) {
	ready := fn.Status.GetCondition(v1alpha1.FunctionConditionReady)
	running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
	switch {
	case fn.Status.LatestReadyRevisionName != "" && running.IsFalse():
		return FunctionRunning, "An earlier revision serves. " + running.GetMessage()
	case running.IsTrue(), fn.Status.LatestReadyRevisionName != "":
		return FunctionRunning, "It has no pods while nobody calls it; the next request starts one."
	case running.GetReason() == v1alpha1.ReasonMinimumReplicasUnavailable:
		return FunctionPending, running.GetMessage()
	case running.IsFalse():
		return FunctionTerminated, running.GetMessage()
	case isCurrent(fn) && ready.IsFalse() && !waitsForConditions(ready.GetReason()):
		return FunctionNotFound, ready.GetMessage()
	default:
		return FunctionWaiting, cmp.Or(ready.GetMessage(), "Kiln has not looked at the Function yet.")
	}
}

// Pod says how a pod that runs a function is, and why unless it is well.
// container is the one of the function.
func Pod(pod *corev1.Pod, container string) (status FunctionStatus, why string) {
	if PodCondition(pod, corev1.PodReady).Status == corev1.ConditionTrue {
		return FunctionRunning, ""
	}
	if why := Unscheduled(pod); why != "" {
		return FunctionPending, why
	}
	if why := Trouble(pod, container); why != "" {
		return FunctionTerminated, why
	}
	switch pod.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded:
		return FunctionTerminated, cmp.Or(pod.Status.Message, pod.Status.Reason, "The pod has ended.")
	}
	return FunctionWaiting, ""
}

// isCurrent says whether the status is of the newest generation.
func isCurrent(fn *v1alpha1.Function) bool {
	return fn.Status.ObservedGeneration == fn.Generation
}
