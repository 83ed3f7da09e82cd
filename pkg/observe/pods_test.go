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
	"testing"

	corev1 "k8s.io/api/core/v1"
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

func podWith(statuses ...corev1.ContainerStatus) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: statuses}}
}

func TestTrouble(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	last := func(t *corev1.ContainerStateTerminated) corev1.ContainerState {
		return corev1.ContainerState{Terminated: t}
	}
	tests := map[string]struct {
		status corev1.ContainerStatus
		want   string
	}{
		"being created":       {corev1.ContainerStatus{Name: "function", State: waiting("ContainerCreating", "")}, ""},
		"runs":                {corev1.ContainerStatus{Name: "function", State: running}, ""},
		"crashed once":        {crashed1, ""},
		"crashed, runs again": {corev1.ContainerStatus{Name: "function", RestartCount: 1, State: running, LastTerminationState: last(syntaxError)}, ""},
		"crashed twice":       {crashed2, "Container failed with: handler.js:1: SyntaxError"},
		"crashed, in back-off": {
			corev1.ContainerStatus{Name: "function", RestartCount: 1, State: waiting("CrashLoopBackOff", "back-off 10s"), LastTerminationState: last(syntaxError)},
			"Container failed with: handler.js:1: SyntaxError",
		},
		"in a crash loop, runs for a moment": {
			corev1.ContainerStatus{Name: "function", RestartCount: 2, State: running, LastTerminationState: last(syntaxError)},
			"Container failed with: handler.js:1: SyntaxError",
		},
		"ended well": {
			corev1.ContainerStatus{Name: "function", RestartCount: 2, State: running, LastTerminationState: last(exited(0, ""))}, "",
		},
		"without words": {
			corev1.ContainerStatus{
				Name: "function", RestartCount: 3, State: waiting("CrashLoopBackOff", ""),
				LastTerminationState: last(&corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}),
			},
			"Container failed with: OOMKilled (exit code 137)",
		},
		"a Secret is missing": {
			corev1.ContainerStatus{Name: "function", State: waiting("CreateContainerConfigError", `secret "token" not found`)},
			`CreateContainerConfigError: secret "token" not found`,
		},
		"image not pulled": {
			corev1.ContainerStatus{Name: "function", State: waiting("ImagePullBackOff", "Back-off pulling image")},
			"ImagePullBackOff: Back-off pulling image",
		},
		"image not pulled yet":   {corev1.ContainerStatus{Name: "function", State: waiting("ErrImagePull", "timeout")}, ""},
		"somebody's own sidecar": {corev1.ContainerStatus{Name: "queue-proxy", RestartCount: 9, LastTerminationState: last(syntaxError)}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := podWith(tc.status)
			if got := Trouble(p, "function"); got != tc.want {
				t.Errorf("Trouble() = %q, want %q", got, tc.want)
			}
		})
	}
}
