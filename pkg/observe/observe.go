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

// Package observe summarizes a Function in two words for scripts: the status of its image
// and the status of the running function. It depends on no builder and no server.
package observe

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// ImageStatus is the status of the image of a Function.
type ImageStatus string

const (
	// ImageInProgress means that the image is being built.
	ImageInProgress ImageStatus = "in_progress"
	// ImageError means that the build failed, and somebody must fix the cause.
	ImageError ImageStatus = "error"
	// ImageCompleted means that the image was built, and the object of the build exists.
	ImageCompleted ImageStatus = "completed"
	// ImageNotFound means that there is no build to inspect: it was deleted, its image was
	// reused, or the Function does not exist.
	ImageNotFound ImageStatus = "not_found"
	// ImagePending means that the build waits, for example in the queue or for a node.
	ImagePending ImageStatus = "pending"
)

// FunctionStatus is the status of a function, or of one of its pods.
type FunctionStatus string

const (
	// FunctionRunning means that a pod serves requests, or that a request would start one.
	FunctionRunning FunctionStatus = "running"
	// FunctionWaiting means that the image is being built, or that pods are starting.
	FunctionWaiting FunctionStatus = "waiting"
	// FunctionTerminated means that the function crashes or cannot start. Without a log,
	// check that nodes can pull its image.
	FunctionTerminated FunctionStatus = "terminated"
	// FunctionNotFound means that the Function does not exist, or that it never started
	// and must be fixed first.
	FunctionNotFound FunctionStatus = "not_found"
	// FunctionPending means that no node accepts the pods.
	FunctionPending FunctionStatus = "pending"
)

// Build is the build of a Function's newest image.
type Build struct {
	// Exists reports whether the object that status.build.ref names exists.
	Exists bool

	// Pod is the pod of the build, or nil.
	Pod *corev1.Pod
}

// Observed is a Function with its build and pods.
type Observed struct {
	// Function is nil if it does not exist.
	Function *v1alpha1.Function

	// Build is the last build of the Function.
	Build Build

	// Pods run the function, in any revision.
	Pods []*corev1.Pod

	// Container is the name of the function's container in Pods.
	Container string
}

// Image returns the status of the image, and a sentence that explains it.
func Image(o Observed) (status ImageStatus, why string) {
	fn := o.Function
	switch {
	case fn == nil:
		return ImageNotFound, "There is no Function."
	case !isCurrent(fn):
		return ImagePending, "Kiln has not processed the newest version of the Function yet."
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
	case isWaiting(built.GetReason()):
		return ImagePending, built.GetMessage()
	case built.IsFalse():
		return ImageError, built.GetMessage()
	}
	if reason := blockedBy(o.Build.Pod); reason != "" {
		return ImagePending, reason
	}
	return ImageInProgress, built.GetMessage()
}

func isWaiting(reason string) bool {
	switch reason {
	case v1alpha1.ReasonWaitingForConfiguration, v1alpha1.ReasonWaitingForDeletion, v1alpha1.ReasonBuildQueued,
		v1alpha1.ReasonBuildRetrying, v1alpha1.ReasonQuotaExceeded:
		return true
	}
	// Each builder puts its kind in front: see builds.Reasons.
	return strings.HasSuffix(reason, "NotCreated") || strings.HasSuffix(reason, "sDeleted")
}

func blockedBy(pod *corev1.Pod) string {
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

// Function returns the status of the function, and a sentence that explains it.
func Function(o Observed) (status FunctionStatus, why string) {
	if o.Function == nil {
		return FunctionNotFound, "There is no Function."
	}
	// One running pod is enough. Otherwise the worst pod explains why none runs.
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
	case isCurrent(fn) && ready.IsFalse() && !isWaiting(ready.GetReason()):
		return FunctionNotFound, ready.GetMessage()
	default:
		return FunctionWaiting, cmp.Or(ready.GetMessage(), "Kiln has not processed the Function yet.")
	}
}

// Pod returns the status of a pod of a function, and why it does not run. container is the
// name of the function's container.
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

func isCurrent(fn *v1alpha1.Function) bool {
	return fn.Status.ObservedGeneration == fn.Generation
}
