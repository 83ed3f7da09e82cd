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
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	batchv1listers "k8s.io/client-go/listers/batch/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/sources"
)

// namedLogs are logs that contain the name of their container, or fail.
type namedLogs struct{ err error }

func (l namedLogs) Tail(_ context.Context, _, _, container string) (string, error) {
	if l.err != nil {
		return "", l.err
	}
	return "log of " + container, nil
}

// newBuilder returns a Builder whose caches hold the objects. The API server holds those of
// live.
func newBuilder(t *testing.T, cached []runtime.Object, live ...runtime.Object) *Builder {
	t.Helper()
	jobs, podCache, mounts, creates := newIndexer(), newIndexer(), newIndexer(), newIndexer()
	for _, obj := range cached {
		indexer := creates
		switch object := obj.(type) {
		case *batchv1.Job:
			indexer = jobs
		case *corev1.Pod:
			indexer = podCache
		case *corev1.Event:
			if object.Reason == "FailedMount" {
				indexer = mounts
			}
		}
		if err := indexer.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	return &Builder{
		Client: fake.NewClientset(live...), Logs: namedLogs{},
		Jobs: batchv1listers.NewJobLister(jobs), Pods: corev1listers.NewPodLister(podCache),
		MountEvents: corev1listers.NewEventLister(mounts), CreateEvents: corev1listers.NewEventLister(creates),
	}
}

func newIndexer() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

func newEvent(name, reason, message string, options ...func(*corev1.Event)) *corev1.Event {
	event := &corev1.Event{Reason: reason, Message: message, Count: 2, LastTimestamp: noon}
	event.Namespace, event.Name = "default", name
	event.InvolvedObject.UID = "job-uid"
	if reason == "FailedMount" {
		event.InvolvedObject.UID = "pod-uid"
	}
	for _, option := range options {
		option(event)
	}
	return event
}

// TestFailure has a row for each row of the table of failures in docs/builds.md that the
// builder decides.
func TestFailure(t *testing.T) {
	const limit = `Pod ephemeral local storage usage exceeds the total limit of containers 84Mi. `
	podFailed := withPhase(corev1.PodFailed, "", "")
	tooLong := withPhase(corev1.PodFailed, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
	overdue := "Job " + newJob().Name + " did not finish within 10m0s."
	deadline := withCondition(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
	unknownEnds := func(pod *corev1.Pod) {
		ends(steps.Install, 137, "ContainerStatusUnknown", "")(pod)
		ends(steps.Push, 137, "ContainerStatusUnknown", "")(pod)
	}
	for name, tc := range map[string]struct {
		job   *batchv1.Job
		pod   *corev1.Pod
		event *corev1.Event
		want  builds.Failure
	}{
		"installing": {
			newJob(failed), newPod(podFailed, ends(steps.Fetch, 0, "Completed", origin), ends(steps.Install, 1, "Error", "")), nil,
			builds.Failure{Cause: builds.StepFailed, Message: "Container install exited with code 1: Error", Log: "log of install"},
		},
		"the push step finds no installation": {
			newJob(failed), newPod(podFailed, ends(steps.Install, 0, "Completed", ""), ends(steps.Push, sources.ExitNotInstalled, "Error", "")), nil,
			builds.Failure{Cause: builds.StepFailed, Message: "Container install exited with code 69: Error", Log: "log of install"},
		},
		"pushing": {
			newJob(failed), newPod(podFailed, ends(steps.Install, 0, "Completed", ""), ends(steps.Push, 1, "Error", "")), nil,
			builds.Failure{Cause: builds.StepFailed, Pushing: true, Message: "Container push exited with code 1: Error", Log: "log of push"},
		},
		"fetching": {
			newJob(failed), newPod(podFailed, ends(steps.Fetch, 65, "Error", "")), nil,
			builds.Failure{Cause: builds.StepFailed, Fetching: 65, Message: "Container fetch exited with code 65: Error", Log: "log of fetch"},
		},
		"out of memory while it fetches": {
			newJob(failed), newPod(podFailed, ends(steps.Fetch, 137, "OOMKilled", "")), nil,
			builds.Failure{Cause: builds.OutOfMemory, Fetching: 137, Message: "Container fetch exited with code 137: OOMKilled", Log: "log of fetch"},
		},
		"out of memory while it installs": {
			newJob(failed), newPod(podFailed, ends(steps.Install, 137, "OOMKilled", "")), nil,
			builds.Failure{Cause: builds.OutOfMemory, Message: "Container install exited with code 137: OOMKilled", Log: "log of install"},
		},
		"out of memory while it pushes": {
			newJob(failed), newPod(podFailed, ends(steps.Push, 137, "OOMKilled", "")), nil,
			builds.Failure{Cause: builds.OutOfMemory, Pushing: true, Message: "Container push exited with code 137: OOMKilled", Log: "log of push"},
		},
		"out of disk": {
			newJob(failed), newPod(withPhase(corev1.PodFailed, "Evicted", limit), ends(steps.Install, 137, "Error", "")), nil,
			builds.Failure{Cause: builds.Evicted, Message: limit},
		},
		"evicted by a drain": {
			newJob(failed), newPod(podFailed, ends(steps.Install, 143, "Error", ""), withPodCondition(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI", "Eviction API: evicting")), nil,
			builds.Failure{Cause: builds.Evicted, Message: "Eviction API: evicting"},
		},
		"too long": {
			newJob(failed), newPod(tooLong, ends(steps.Install, 137, "Error", "")), nil,
			builds.Failure{Cause: builds.TimedOut, Message: overdue},
		},
		"too long without a Secret": {
			newJob(failed), newPod(tooLong, unknownEnds), newEvent("e", "FailedMount", `secret "late" not found`),
			builds.Failure{
				Cause: builds.TimedOut, Unscheduled: true,
				Message: overdue + " Job " + newJob().Name + ` waits for its pod to start: FailedMount: secret "late" not found`,
			},
		},
		"too long without a node": {
			newJob(deadline), nil, nil,
			builds.Failure{Cause: builds.TimedOut, Unscheduled: true, Message: overdue},
		},
		"too long without a pod": {
			newJob(deadline), nil, newEvent("e", "FailedCreate", "exceeded quota: small"),
			builds.Failure{Cause: builds.TimedOut, Unscheduled: true, Message: overdue + " Job " + newJob().Name + " has no pod: exceeded quota: small"},
		},
		"too long, and the pod is being deleted": {
			newJob(deadline), newPod(deleted, withPodCondition(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "0/1 nodes")), nil,
			builds.Failure{Cause: builds.TimedOut, Unscheduled: true, Message: overdue + " Job " + newJob().Name + " waits for a node: 0/1 nodes"},
		},
		"the pod is gone": {
			newJob(failed), nil, nil,
			builds.Failure{Cause: builds.Deleted, Message: "Job " + newJob().Name + " has no pod."},
		},
		"the pod is gone before its digest was read": {
			newJob(complete), nil, nil,
			builds.Failure{Cause: builds.Deleted, Message: "Job " + newJob().Name + " has no pod."},
		},
		"the pod is being deleted": {
			newJob(failed), newPod(deleted, runs(steps.Push)), nil,
			builds.Failure{Cause: builds.Deleted, Message: "Pod " + newJob().Name + "-x was deleted."},
		},
		"the pod is being deleted, and its container has ended": {
			newJob(failed), newPod(deleted, ends(steps.Push, 143, "Error", "")), nil,
			builds.Failure{Cause: builds.Deleted, Pushing: true, Message: "Container push exited with code 143: Error", Log: "log of push"},
		},
		"the node rejects the pod": {
			newJob(failed), newPod(withPhase(corev1.PodFailed, "OutOfcpu", "Pod was rejected: not enough cpu")), nil,
			builds.Failure{Cause: builds.NotRun, Message: "Pod was rejected: not enough cpu"},
		},
		"the node lost the containers": {
			newJob(failed), newPod(podFailed, unknownEnds), nil,
			builds.Failure{Cause: builds.NotRun, Message: "the Job controller's message"},
		},
		"no results": {
			newJob(complete), newPod(pushed, ends(steps.Push, 0, "Completed", `{}`)), nil,
			builds.Failure{Message: "Job " + newJob().Name + " is complete but does not report its image: the result IMAGE_DIGEST is missing"},
		},
		"no image of a step": {
			newJob(), newPod(waits(steps.Push, "ImagePullBackOff", "Back-off")), nil,
			builds.Failure{Cause: builds.ImagePull, Message: "Container push does not start: ImagePullBackOff: Back-off"},
		},
		"a container that cannot be created": {
			newJob(), newPod(waits(steps.Push, "CreateContainerError", "x")), nil,
			builds.Failure{Cause: builds.NotRun, Message: "Container push does not start: CreateContainerError: x"},
		},
		"somebody cancelled the build": {
			newJob(suspended), newPod(deleted, runs(steps.Install)), nil,
			builds.Failure{Cause: builds.Cancelled, Message: "Job " + newJob().Name + " is suspended."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var cached []runtime.Object
			if tc.pod != nil {
				cached = append(cached, tc.pod)
			}
			if tc.event != nil {
				cached = append(cached, tc.event)
			}
			run := RunOf(tc.job, tc.pod)
			if run.State != builds.Failed {
				t.Fatalf("the build is in state %v", run.State)
			}
			got, err := newBuilder(t, cached).Failure(t.Context(), run)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Failure() (-want, +got):\n%s", diff)
			}
		})
	}
}

// TestFailureOfStaleCache checks that the cause is not decided while the cache of Pods is
// behind that of Jobs.
func TestFailureOfStaleCache(t *testing.T) {
	podFailed := withPhase(corev1.PodFailed, "", "")
	for name, tc := range map[string]struct {
		job          *batchv1.Job
		cached, live *corev1.Pod
		want         builds.Cause
		wantError    bool
		wantBehind   bool
	}{
		"the pod still runs":          {newJob(failed), newPod(runs(steps.Push)), nil, builds.StepFailed, true, false},
		"the pod is not cached":       {newJob(failed), nil, newPod(podFailed, ends(steps.Push, 1, "Error", "")), builds.StepFailed, false, false},
		"the pod runs, not cached":    {newJob(failed), nil, newPod(runs(steps.Push)), builds.StepFailed, true, false},
		"the image is pushed":         {newJob(complete), nil, newPod(pushed), builds.StepFailed, true, true},
		"another Job's pod is there":  {newJob(failed), nil, newPod(pushed, func(pod *corev1.Pod) { pod.Labels[batchv1.ControllerUidLabel] = "other" }), builds.Deleted, false, false},
		"an eviction comes after all": {newJob(failed), newPod(withPhase(corev1.PodFailed, "Evicted", ""), ends(steps.Push, 1, "Error", "")), nil, builds.Evicted, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var live []runtime.Object
			if tc.live != nil {
				live = append(live, tc.live)
			}
			got, err := newBuilder(t, nil, live...).Failure(t.Context(), RunOf(tc.job, tc.cached))
			if got.Cause != tc.want || (err != nil) != tc.wantError || errors.Is(err, builds.ErrBehind) != tc.wantBehind {
				t.Errorf("Failure() = %+v, %v", got, err)
			}
		})
	}
}

// TestFailureWithoutLog checks that the failure names the deletion if the log was lost with
// its pod, and that any other error is returned.
func TestFailureWithoutLog(t *testing.T) {
	run := RunOf(newJob(failed), newPod(withPhase(corev1.PodFailed, "", ""), ends(steps.Install, 1, "Error", "")))
	for want, err := range map[builds.Cause]error{
		builds.Deleted:    apierrs.NewNotFound(schema.GroupResource{Resource: "pods"}, "x"),
		builds.StepFailed: pods.ErrReading,
	} {
		b := newBuilder(t, nil)
		b.Logs = namedLogs{err: err}
		if got, gotErr := b.Failure(t.Context(), run); got.Cause != want || !errors.Is(gotErr, err) {
			t.Errorf("Failure() = %+v, %v, want cause %v", got, gotErr, want)
		}
	}
	b := newBuilder(t, nil)
	b.Client.(*fake.Clientset).PrependReactor("list", "pods", failWith(apierrs.NewGenericServerResponse(http.StatusInternalServerError, "list", schema.GroupResource{}, "", "", 0, true)))
	if got, err := b.Failure(t.Context(), RunOf(newJob(failed), nil)); err == nil || got.Cause != builds.StepFailed {
		t.Errorf("Failure() = %+v, %v, want an error", got, err)
	}
}
