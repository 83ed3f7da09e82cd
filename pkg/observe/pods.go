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

package observe

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Trouble returns why the container of that name does not start in the pod, or "". A
// server may report that only at its progress deadline.
func Trouble(pod *corev1.Pod, container string) string {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.Name != container {
			continue
		}
		if waiting := status.State.Waiting; waiting != nil && isStuck(waiting.Reason) {
			return fmt.Sprintf("%s: %s", waiting.Reason, waiting.Message)
		}
		if crash := crashOf(status); crash != nil {
			return "Container failed with: " + describe(crash)
		}
	}
	return ""
}

// isStuck reports whether somebody must act before the container can start.
func isStuck(reason string) bool {
	switch reason {
	case "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return true
	}
	return false
}

// crashOf returns the last crash of a container, or nil if it crashed less than twice. A
// first crash may be an accident. A running container can be in a crash loop too.
func crashOf(status *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	now, last := status.State.Terminated, status.LastTerminationState.Terminated
	switch {
	case last == nil || last.ExitCode == 0:
		return nil
	case now != nil && now.ExitCode != 0:
		return now
	case status.State.Waiting != nil || status.RestartCount > 1:
		return last
	default:
		return nil
	}
}

func describe(crash *corev1.ContainerStateTerminated) string {
	if crash.Message != "" {
		return crash.Message
	}
	return fmt.Sprintf("%s (exit code %d)", crash.Reason, crash.ExitCode)
}

// Unscheduled returns why no node accepts the pod, or "".
func Unscheduled(pod *corev1.Pod) string {
	if c := PodCondition(pod, corev1.PodScheduled); c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		return cmp.Or(c.Message, c.Reason)
	}
	return ""
}

// PodCondition returns the condition of that type, or an empty condition.
func PodCondition(pod *corev1.Pod, t corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return corev1.PodCondition{}
}
