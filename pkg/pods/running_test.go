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
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func podOf(statuses ...corev1.ContainerStatus) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: statuses}}
}

func TestRunningSince(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	runs := func(name string, age time.Duration) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-age))}}}
	}
	ready := podOf(runs("function", time.Hour))
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	first, second := podOf(runs("queue-proxy", time.Minute), runs("function", time.Hour)), podOf(runs("function", time.Second))
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want time.Time
	}{
		"no pod":        {nil, time.Time{}},
		"a ready one":   {[]*corev1.Pod{ready}, time.Time{}},
		"not started":   {[]*corev1.Pod{podOf(corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}})}, time.Time{}},
		"not all of it": {[]*corev1.Pod{podOf(runs("function", time.Hour), corev1.ContainerStatus{Name: "queue-proxy"})}, time.Time{}},
		"the eldest":    {[]*corev1.Pod{ready, second, first}, now.Add(-time.Minute)},
		"in any order":  {[]*corev1.Pod{first, second, ready}, now.Add(-time.Minute)},
	} {
		if got := StateOf(tc.pods, nil).RunningSince; !got.Equal(tc.want) {
			t.Errorf("%s: is running since %v, want %v", name, got, tc.want)
		}
	}
}

func TestCannotPull(t *testing.T) {
	waits := func(container, reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	}
	leaving := podOf(waits("function", "ImagePullBackOff"))
	leaving.DeletionTimestamp = new(metav1.Now())
	for name, tc := range map[string]struct {
		obj  any
		want bool
	}{
		"the image cannot be pulled": {podOf(waits("queue-proxy", "PodInitializing"), waits("function", "ImagePullBackOff")), true},
		"the first attempt failed":   {podOf(waits("function", "ErrImagePull")), false},
		"the pod starts":             {podOf(waits("function", "ContainerCreating")), false},
		"the image of Serving":       {podOf(waits("queue-proxy", "ImagePullBackOff"), waits("function", "ContainerCreating")), false},
		"the function runs":          {podOf(corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}), false},
		"the pod of a build":         {podOf(waits("step-build", "ImagePullBackOff")), false},
		"no container yet":           {podOf(), false},
		"the pod is being deleted":   {leaving, false},
		"a deleted pod":              {cache.DeletedFinalStateUnknown{Obj: podOf(waits("function", "ImagePullBackOff"))}, false},
	} {
		if got := CannotPull(tc.obj); got != tc.want {
			t.Errorf("%s: CannotPull() = %v, want %v", name, got, tc.want)
		}
	}
}
