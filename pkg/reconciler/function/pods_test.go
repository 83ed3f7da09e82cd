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

package function

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func exited(code int32, message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message}
}

var (
	syntaxError = exited(1, "handler.js:1: SyntaxError")

	// crashed1 has crashed once, and crashed2 twice.
	crashed1 = corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{Terminated: syntaxError}}
	crashed2 = corev1.ContainerStatus{
		Name: "function", RestartCount: 1,
		State:                corev1.ContainerState{Terminated: syntaxError},
		LastTerminationState: corev1.ContainerState{Terminated: syntaxError},
	}
)

func pod(fn *v1alpha1.Function, revision string, statuses ...corev1.ContainerStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: revision + "-deployment", Namespace: namespace,
			Labels: map[string]string{
				serverless.FunctionNameLabelKey: fn.Name,
				serverless.FunctionUIDLabelKey:  string(fn.UID),
				"serving.knative.dev/revision":  revision,
			},
		},
		Status: corev1.PodStatus{ContainerStatuses: statuses},
	}
}

// mountFailed returns the event of a volume that the pod could not mount that often.
func mountFailed(pod *corev1.Pod, count int32) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: pod.Name + ".1", Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{Name: pod.Name, UID: pod.UID},
		Reason:         "FailedMount",
		Message:        `MountVolume.SetUp failed for volume "secret-0" : secret "late" not found`,
		Count:          count,
	}
}
