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

package pods

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

// TestSlimPodOfJob checks that the cache keeps how the pod of a Job and its containers
// ended, and no message of a container that runs the author's code.
func TestSlimPodOfJob(t *testing.T) {
	end := metav1.NewTime(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	ended := func(name string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Image: "image", ContainerID: "id", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "of " + name, StartedAt: end, FinishedAt: end, ContainerID: "id"},
		}}
	}
	keptEnd := func(name, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: message, FinishedAt: end},
		}}
	}
	labels := map[string]string{serverless.FunctionUIDLabelKey: "uid", batchv1.JobNameLabel: "job", batchv1.ControllerUidLabel: "job-uid"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"other": "x"}, Annotations: map[string]string{serverless.BuildEnvAnnotationKey: "x"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: PushContainer}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Evicted", Message: "full", PodIP: "10.0.0.1",
			InitContainerStatuses: []corev1.ContainerStatus{ended(FetchContainer), ended("install")},
			ContainerStatuses: []corev1.ContainerStatus{
				ended(PushContainer),
				{Name: "running", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: end}}},
				{Name: "waiting", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no"}}},
			},
		},
	}
	maps.Copy(pod.Labels, labels)
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: labels},
		Status: corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Evicted", Message: "full",
			InitContainerStatuses: []corev1.ContainerStatus{keptEnd(FetchContainer, "of fetch"), keptEnd("install", "")},
			ContainerStatuses: []corev1.ContainerStatus{
				keptEnd(PushContainer, "of push"),
				{Name: "running", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
				{Name: "waiting", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no"}}},
			},
		},
	}
	for range 2 {
		got, err := Slim("revision")(pod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Slim() (-want, +got):\n%s", diff)
		}
		pod = got.(*corev1.Pod)
	}
}
