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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
)

func TestProgress(t *testing.T) {
	const quota = `Error creating: pods "x" is forbidden: exceeded quota: small`
	name := newJob().Name
	unseen := newJob()
	unseen.Status.StartTime = nil
	creating := newPod(waits(steps.Fetch, "PodInitializing", ""), waits(steps.Push, "PodInitializing", ""))
	later := func(event *corev1.Event) { event.LastTimestamp = metav1.NewTime(noon.Add(time.Minute)) }
	another := func(event *corev1.Event) { event.InvolvedObject.UID = "other" }
	for title, tc := range map[string]struct {
		job    *batchv1.Job
		pod    *corev1.Pod
		events []*corev1.Event
		want   builds.Progress
	}{
		"unseen":                     {unseen, nil, nil, builds.Progress{Stage: builds.Created, Message: "Job " + name + " is about to run."}},
		"no pod yet":                 {newJob(), nil, nil, builds.Progress{Stage: builds.Created, Message: "Job " + name + " is about to run."}},
		"over quota":                 {newJob(), nil, []*corev1.Event{newEvent("a", "FailedCreate", quota)}, builds.Progress{Stage: builds.OverQuota, Message: quota}},
		"over quota last":            {newJob(), nil, []*corev1.Event{newEvent("a", "FailedCreate", quota, later), newEvent("b", "FailedCreate", "x")}, builds.Progress{Stage: builds.OverQuota, Message: quota}},
		"over quota at first":        {newJob(), nil, []*corev1.Event{newEvent("b", "FailedCreate", quota), newEvent("a", "FailedCreate", "x", later)}, builds.Progress{Stage: builds.Started, Message: "Job " + name + " has no pod: x"}},
		"another Job is over quota":  {newJob(), nil, []*corev1.Event{newEvent("a", "FailedCreate", quota, another)}, builds.Progress{Stage: builds.Created, Message: "Job " + name + " is about to run."}},
		"over quota before its pod":  {newJob(), creating, []*corev1.Event{newEvent("a", "FailedCreate", quota)}, builds.Progress{Stage: builds.Created, Message: "Job " + name + " is about to run."}},
		"no node":                    {newJob(), newPod(withPodCondition(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "0/1 nodes")), nil, builds.Progress{Stage: builds.Started, Message: "Job " + name + " waits for a node: 0/1 nodes"}},
		"no Secret":                  {newJob(), creating, []*corev1.Event{newEvent("a", "FailedMount", "no secret")}, builds.Progress{Stage: builds.Started, Message: "Job " + name + " waits for its pod to start: FailedMount: no secret"}},
		"no image at the first pull": {newJob(), newPod(waits(steps.Push, "ErrImagePull", "x")), nil, builds.Progress{Stage: builds.Started, Message: "Job " + name + " waits for its pod to start: ErrImagePull: x"}},
		"it starts":                  {newJob(), creating, nil, builds.Progress{Stage: builds.Created, Message: "Job " + name + " is about to run."}},
		"it fetches":                 {newJob(), newPod(runs(steps.Fetch)), nil, builds.Progress{Stage: builds.Started, Message: "Job " + name + " runs."}},
		"between two containers":     {newJob(), newPod(ends(steps.Fetch, 0, "Completed", origin), waits(steps.Install, "PodInitializing", "")), nil, builds.Progress{Stage: builds.Started, Message: "Job " + name + " runs."}},
		"it ends":                    {newJob(withCondition(batchv1.JobFailureTarget, "BackoffLimitExceeded")), newPod(runs(steps.Push)), nil, builds.Progress{Stage: builds.Started, Message: "Job " + name + " has not ended: BackoffLimitExceeded: the Job controller's message"}},
	} {
		t.Run(title, func(t *testing.T) {
			var cached []runtime.Object
			if tc.pod != nil {
				cached = append(cached, tc.pod)
			}
			for _, event := range tc.events {
				cached = append(cached, event)
			}
			run := RunOf(tc.job, tc.pod)
			if run.State != builds.Running {
				t.Fatalf("the build is in state %v", run.State)
			}
			got, err := newBuilder(t, cached).Progress(run)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Progress() (-want, +got):\n%s", diff)
			}
		})
	}
}

// TestQueuedBuild checks which builds are pending.
func TestQueuedBuild(t *testing.T) {
	unseen := newJob()
	unseen.Status.StartTime = nil
	for name, tc := range map[string]struct {
		job  *batchv1.Job
		pod  *corev1.Pod
		want metav1.Time
	}{
		"its controller has not seen it": {unseen, nil, metav1.Time{}},
		"a quota forbids the pod":        {newJob(), nil, noon},
		"a node is absent":               {newJob(), newPod(), noon},
		"a volume is absent":             {newJob(), newPod(waits(steps.Push, "ContainerCreating", "")), noon},
		"an image is absent":             {newJob(), newPod(waits(steps.Fetch, "ErrImagePull", "")), noon},
		"it runs":                        {newJob(), newPod(runs(steps.Fetch)), metav1.Time{}},
		"it has run":                     {newJob(), newPod(ends(steps.Fetch, 0, "Completed", ""), waits(steps.Push, "PodInitializing", "")), metav1.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			want := queue.Build{
				Name:     types.NamespacedName{Namespace: "default", Name: tc.job.Name},
				Function: types.NamespacedName{Namespace: "default", Name: "greeter"},
				UID:      "uid", Pending: tc.want.Time,
			}
			if diff := cmp.Diff(want, QueuedBuild(RunOf(tc.job, tc.pod))); diff != "" {
				t.Errorf("QueuedBuild() (-want, +got):\n%s", diff)
			}
		})
	}
}
