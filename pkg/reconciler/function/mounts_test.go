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
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mountFailed returns the event of a pod whose folder of a Secret cannot be made.
func mountFailed(pod *corev1.Pod, count int32) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: pod.Name + ".1", Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{Name: pod.Name, UID: pod.UID},
		Reason:         "FailedMount",
		Message:        `MountVolume.SetUp failed for volume "secret-0" : secret "late" not found`,
		Count:          count,
	}
}

func TestMountTroubleOf(t *testing.T) {
	creating := corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	started := corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	sidecar := corev1.ContainerStatus{Name: "queue-proxy", State: creating.State}
	other := pod(running1, "greeter-00001", creating)
	other.UID = "other"
	unrelated := mountFailed(pod(running1, "greeter-00001"), 9)
	unrelated.Reason = "Unhealthy"
	const words = `FailedMount: MountVolume.SetUp failed for volume "secret-0" : secret "late" not found`

	tests := map[string]struct {
		status corev1.ContainerStatus
		event  *corev1.Event
		want   string
	}{
		"again and again":     {creating, mountFailed(pod(running1, "greeter-00001"), 2), words},
		"once":                {creating, mountFailed(pod(running1, "greeter-00001"), 1), ""},
		"the pod has started": {started, mountFailed(pod(running1, "greeter-00001"), 9), ""},
		"of another pod":      {creating, mountFailed(other, 9), ""},
		"something else":      {creating, unrelated, ""},
		"no status yet":       {sidecar, mountFailed(pod(running1, "greeter-00001"), 9), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := pod(running1, "greeter-00001", tc.status)
			if got := stateOfPods([]*corev1.Pod{p}, []*corev1.Event{tc.event}).trouble; got != tc.want {
				t.Errorf("trouble = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWithoutSource(t *testing.T) {
	want := mountFailed(pod(running1, "greeter-00001"), 2)
	full := want.DeepCopy()
	full.Source.Component, full.ReportingController = "kubelet", "kubelet"
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	full.InvolvedObject.Namespace = "default"
	got, err := withoutSource(full)
	if err != nil {
		t.Fatal("withoutSource() =", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("withoutSource() (-want, +got):\n%s", diff)
	}
	other := &corev1.ConfigMap{}
	if got, err := withoutSource(other); err != nil || got != other {
		t.Errorf("withoutSource(ConfigMap) = %v, %v", got, err)
	}
}
