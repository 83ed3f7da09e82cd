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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/builds/steps/stepstest"
	"github.com/kiln-dev/kiln/pkg/pods"
)

var (
	noon     = metav1.NewTime(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	pushedAt = metav1.NewTime(noon.Add(20 * time.Second))
	endedAt  = metav1.NewTime(noon.Add(30 * time.Second))

	digestA = "sha256:" + strings.Repeat("a", 64)
	digestB = "sha256:" + strings.Repeat("b", 64)
	digestC = "sha256:" + strings.Repeat("c", 64)
	commit  = strings.Repeat("1", 40)

	message = `{"IMAGE_DIGEST":"` + digestA + `","BASE_IMAGE_ARTIFACT_INPUTS":{"uri":"oci://node","digest":"` + digestB + `"},` +
		`"DEPENDENCIES":{"tag":"deps-1","digest":"` + digestC + `","packages":""}}`
	origin = `{"uri":"https://example.com/a.git","digest":"sha1:` + commit + `"}`
	stored = strings.TrimSuffix(message, "}") + `,"SOURCE_ARTIFACT_INPUTS":{"digest":"sha1:` + commit + `","uri":"https://example.com/a.git"},` +
		`"completionTime":"2026-06-01T12:00:20Z"}`
)

// newJob returns the Job of a build, as the Job controller has seen it.
func newJob(options ...func(*batchv1.Job)) *batchv1.Job {
	job := MakeJob(stepstest.Function(), stepstest.Config(), stepstest.Build())
	job.UID, job.CreationTimestamp, job.Status.StartTime = "job-uid", noon, &noon
	for _, option := range options {
		option(job)
	}
	return job
}

func withCondition(t batchv1.JobConditionType, reason string) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: "the Job controller's message", LastTransitionTime: endedAt,
		})
	}
}

var (
	complete = withCondition(batchv1.JobComplete, "CompletionsReached")
	failed   = withCondition(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
)

func suspended(job *batchv1.Job) { job.Spec.Suspend = new(true) }

func withResults(text string) func(*batchv1.Job) {
	return func(job *batchv1.Job) { job.Annotations[serverless.BuildResultsAnnotationKey] = text }
}

// newPod returns the pod of newJob with the states of fetch, install and push, as the cache
// keeps it.
func newPod(options ...func(*corev1.Pod)) *corev1.Pod {
	job := newJob()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name + "-x", UID: "pod-uid", Labels: job.Spec.Template.Labels}}
	pod.Labels[batchv1.JobNameLabel], pod.Labels[batchv1.ControllerUidLabel] = job.Name, string(job.UID)
	pod.Status.Phase = corev1.PodPending
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: steps.Fetch}, {Name: steps.Install}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: steps.Push}}
	for _, option := range options {
		option(pod)
	}
	kept, err := pods.Slim("revision")(pod)
	if err != nil {
		panic(err)
	}
	return kept.(*corev1.Pod)
}

func setState(name string, state corev1.ContainerState) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for i := range statuses {
				if statuses[i].Name == name {
					statuses[i].State = state
				}
			}
		}
	}
}

func runs(name string) func(*corev1.Pod) {
	return setState(name, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

func waits(name, reason, message string) func(*corev1.Pod) {
	return setState(name, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func ends(name string, code int32, reason, message string) func(*corev1.Pod) {
	return setState(name, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, FinishedAt: pushedAt,
	}})
}

// pushed is the end of all containers of a build that has succeeded.
func pushed(pod *corev1.Pod) {
	ends(steps.Fetch, 0, "Completed", origin)(pod)
	ends(steps.Install, 0, "Completed", "")(pod)
	ends(steps.Push, 0, "Completed", message)(pod)
	pod.Status.Phase = corev1.PodSucceeded
}

func withPhase(phase corev1.PodPhase, reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = phase, reason, message
	}
}

func withPodCondition(t corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: t, Status: status, Reason: reason, Message: message, LastTransitionTime: pushedAt,
		})
	}
}

func deleted(pod *corev1.Pod) { pod.DeletionTimestamp = &endedAt }

func TestRunOf(t *testing.T) {
	succeeded := builds.Run{
		State: builds.Succeeded, CompletionTime: &pushedAt, Digest: digestA, BaseDigest: digestB,
		Installed: v1alpha1.DependencyImage{Tag: "deps-1", Digest: digestC},
		Source:    builds.SourceDigest{Algorithm: "sha1", Value: commit},
	}
	running := builds.Run{State: builds.Running}
	lost := builds.Run{State: builds.Failed, CompletionTime: &endedAt}
	stuck := builds.Run{State: builds.Failed, Unfinished: true, CompletionTime: &pushedAt}
	ready := withPodCondition(corev1.PodReady, corev1.ConditionFalse, "", "")
	forged := `{"IMAGE_DIGEST":"` + digestB + `"}`
	for name, tc := range map[string]struct {
		job  *batchv1.Job
		pod  *corev1.Pod
		want builds.Run
	}{
		"new":                                {newJob(), nil, running},
		"it installs":                        {newJob(), newPod(ends(steps.Fetch, 0, "Completed", origin), runs(steps.Install)), running},
		"pushed":                             {newJob(), newPod(pushed), succeeded},
		"pushed, and complete":               {newJob(complete), newPod(pushed), succeeded},
		"without its pod":                    {newJob(complete, withResults(stored)), nil, succeeded},
		"the stored results count":           {newJob(complete, withResults(stored)), newPod(pushed, ends(steps.Push, 0, "Completed", forged)), succeeded},
		"stored results that are broken":     {newJob(complete, withResults("{")), newPod(pushed), succeeded},
		"pushed before the deadline":         {newJob(failed), newPod(pushed), succeeded},
		"install reports an image":           {newJob(), newPod(ends(steps.Install, 0, "Completed", forged), runs(steps.Push)), running},
		"install reports a source":           {newJob(), newPod(pushed, ends(steps.Install, 0, "Completed", `{"digest":"sha1:2"}`)), succeeded},
		"a failed push reports an image":     {newJob(), newPod(ends(steps.Push, 1, "Error", message)), running},
		"complete, and the pod is behind":    {newJob(complete), newPod(runs(steps.Push)), running},
		"complete without a pod":             {newJob(complete), nil, lost},
		"complete without results":           {newJob(complete), newPod(pushed, ends(steps.Push, 0, "Completed", "")), lost},
		"results that were cut":              {newJob(complete), newPod(pushed, ends(steps.Push, 0, "Completed", message[:len(message)-1])), lost},
		"no digest":                          {newJob(complete), newPod(pushed, ends(steps.Push, 0, "Completed", `{"IMAGE_DIGEST":"latest"}`)), lost},
		"failed":                             {newJob(failed), newPod(ends(steps.Push, 1, "Error", "")), lost},
		"failed without a pod":               {newJob(failed), nil, lost},
		"its pod still ends":                 {newJob(withCondition(batchv1.JobFailureTarget, "BackoffLimitExceeded")), newPod(deleted, runs(steps.Push)), running},
		"a node that drains":                 {newJob(withCondition(batchv1.JobFailureTarget, "BackoffLimitExceeded")), newPod(deleted, withPodCondition(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI", "")), running},
		"a container that starts":            {newJob(), newPod(waits(steps.Push, "PodInitializing", "")), running},
		"a first failed pull":                {newJob(), newPod(waits(steps.Push, "ErrImagePull", "x")), running},
		"a subPath that comes":               {newJob(), newPod(waits(steps.Push, "CreateContainerConfigError", "failed to create subPath directory for volumeMount")), running},
		"no image":                           {newJob(), newPod(ready, waits(steps.Push, "ImagePullBackOff", "x")), stuck},
		"no image of an init container":      {newJob(), newPod(ready, waits(steps.Install, "ErrImageNeverPull", "x")), stuck},
		"an image that is no name":           {newJob(), newPod(ready, waits(steps.Fetch, "InvalidImageName", "x")), stuck},
		"a container that cannot be created": {newJob(), newPod(ready, waits(steps.Push, "CreateContainerConfigError", "x")), stuck},
		"a runtime that fails":               {newJob(), newPod(ready, waits(steps.Push, "CreateContainerError", "x")), stuck},
		"suspended":                          {newJob(suspended), nil, builds.Run{State: builds.Failed, Unfinished: true, CompletionTime: &noon}},
		"suspended once it had pushed":       {newJob(suspended), newPod(pushed), succeeded},
		"suspended once it had failed":       {newJob(suspended, failed), nil, lost},
		"a lost node": {
			newJob(withCondition(batchv1.JobFailureTarget, "BackoffLimitExceeded")),
			newPod(deleted, runs(steps.Push), withPodCondition(corev1.DisruptionTarget, corev1.ConditionTrue, "DeletionByTaintManager", "")),
			builds.Run{State: builds.Failed, Unfinished: true, CompletionTime: &endedAt},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.Request = builds.Request{Tag: stepstest.Tag, Fingerprint: "source=1", Generation: 3}
			tc.want.Ref = v1alpha1.BuildReference{APIVersion: "batch/v1", Kind: "Job", Name: tc.job.Name}
			tc.want.Reason, tc.want.Attempt, tc.want.StartTime = builds.ReasonSourceChanged, 1, &noon
			for range 2 {
				got := RunOf(tc.job, tc.pod)
				got.Object = nil
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("RunOf() (-want, +got):\n%s", diff)
				}
				// The cache keeps everything that counts.
				kept, err := Slim(tc.job)
				if err != nil {
					t.Fatal(err)
				}
				tc.job = kept.(*batchv1.Job)
			}
		})
	}
}
