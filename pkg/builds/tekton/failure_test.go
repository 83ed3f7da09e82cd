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

package tekton

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/sources"
)

func TestFailure(t *testing.T) {
	step := func(name string, code int32) pipelinev1.StepState {
		return pipelinev1.StepState{
			Name: name, Container: "step-" + name,
			ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
		}
	}
	install := func(code int32, reason string) *pipelinev1.SidecarState {
		return &pipelinev1.SidecarState{
			Name: "install", Container: "sidecar-install",
			ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}},
		}
	}
	notInstalled := []pipelinev1.StepState{step("push", sources.ExitNotInstalled)}
	running := &pipelinev1.SidecarState{Name: "install", Container: "sidecar-install"}
	for name, tc := range map[string]struct {
		reason  string
		steps   []pipelinev1.StepState
		sidecar *pipelinev1.SidecarState
		want    builds.Failure
	}{
		"installing":                          {"SidecarFailed", notInstalled, install(1, "Error"), builds.Failure{Cause: builds.StepFailed, Log: "log of sidecar-install"}},
		"installing, as earlier Tektons":      {"Failed", notInstalled, install(1, "Error"), builds.Failure{Cause: builds.StepFailed, Log: "log of sidecar-install"}},
		"installing, as earlier Kilns":        {"StepFailed", []pipelinev1.StepState{step("install", 1), step("push", 1)}, nil, builds.Failure{Cause: builds.StepFailed, Log: "log of step-install"}},
		"pushing":                             {"StepFailed", []pipelinev1.StepState{step("push", 1)}, install(0, "Completed"), builds.Failure{Cause: builds.StepFailed, Pushing: true, Log: "log of step-push"}},
		"pushing without an installation":     {"StepFailed", []pipelinev1.StepState{step("push", 1)}, nil, builds.Failure{Cause: builds.StepFailed, Pushing: true, Log: "log of step-push"}},
		"fetching":                            {"StepFailed", []pipelinev1.StepState{step("fetch", 65), step("push", 1)}, running, builds.Failure{Cause: builds.StepFailed, Fetching: 65, Log: "log of step-fetch"}},
		"a node that shuts down":              {"Failed", nil, nil, builds.Failure{Cause: builds.NotRun}},
		"a pod that could not be created":     {"PodCreationFailed", nil, nil, builds.Failure{Cause: builds.NotRun}},
		"a pod that is not admitted":          {"PodAdmissionFailed", nil, nil, builds.Failure{}},
		"a TaskRun that is not valid":         {"TaskRunValidationFailed", nil, nil, builds.Failure{}},
		"out of memory while it installs":     {"SidecarOOM", notInstalled, install(137, "OOMKilled"), builds.Failure{Cause: builds.OutOfMemory, Log: "log of sidecar-install"}},
		"out of memory, as the pod was first": {"StepFailed", notInstalled, install(137, "OOMKilled"), builds.Failure{Cause: builds.OutOfMemory, Log: "log of sidecar-install"}},
		"out of memory, as earlier Kilns":     {"StepOOM", []pipelinev1.StepState{step("install", 137), step("push", 1)}, nil, builds.Failure{Cause: builds.OutOfMemory, Log: "log of step-install"}},
		"out of memory while it pushes":       {"StepOOM", []pipelinev1.StepState{step("push", 137)}, install(0, "Completed"), builds.Failure{Cause: builds.OutOfMemory, Pushing: true, Log: "log of step-push"}},
		"Tekton's container out of memory":    {"InitContainerOOM", nil, nil, builds.Failure{Cause: builds.NotRun}},
		"a sidecar alone failed":              {"SidecarFailed", nil, install(1, "Error"), builds.Failure{Cause: builds.NotRun}},
		"evicted":                             {"PodEvicted", nil, nil, builds.Failure{Cause: builds.Evicted}},
		"cancelled":                           {"TaskRunCancelled", nil, nil, builds.Failure{Cause: builds.Cancelled}},
		"too long":                            {"TaskRunTimeout", []pipelinev1.StepState{step("fetch", 0)}, nil, builds.Failure{Cause: builds.TimedOut}},
		"too long without a node":             {"TaskRunTimeout", nil, nil, builds.Failure{Cause: builds.TimedOut, Unscheduled: true}},
		"no image":                            {"TaskRunImagePullFailed", nil, nil, builds.Failure{Cause: builds.ImagePull}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &pipelinev1.TaskRun{}
			tr.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: corev1.ConditionFalse, Reason: tc.reason, Message: "as Tekton says"})
			tr.Status.Steps = tc.steps
			if tc.sidecar != nil {
				tr.Status.Sidecars = []pipelinev1.SidecarState{*tc.sidecar}
			}
			b := &Builder{Logs: namedLogs{}, Pods: corev1listers.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))}
			got, err := b.Failure(t.Context(), RunOf(tr))
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Message = "as Tekton says"
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Failure() (-want, +got):\n%s", diff)
			}
		})
	}
}

// TestFailureBeforeSidecarEnded checks that the cause is not decided before Tekton reports
// how the sidecar ended.
func TestFailureBeforeSidecarEnded(t *testing.T) {
	tr := &pipelinev1.TaskRun{}
	tr.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: corev1.ConditionFalse, Reason: "StepFailed"})
	tr.Status.Steps = []pipelinev1.StepState{{
		Name: "push", Container: "step-push",
		ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: sources.ExitNotInstalled}},
	}}
	tr.Status.Sidecars = []pipelinev1.SidecarState{{
		Name: "install", Container: "sidecar-install", ContainerState: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	if failure, err := (&Builder{Logs: namedLogs{}}).Failure(t.Context(), RunOf(tr)); err == nil || failure.Cause != builds.StepFailed {
		t.Errorf("Failure() = %+v, %v, want an error", failure, err)
	}
}

// TestFailureByEviction checks that an eviction is the cause, also if Tekton saw the
// containers end before the pod.
func TestFailureByEviction(t *testing.T) {
	const message = `Container sidecar-install exceeded its local ephemeral storage limit "20Mi". `
	tr := &pipelinev1.TaskRun{}
	tr.Status.PodName = "p"
	tr.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: corev1.ConditionFalse, Reason: "SidecarFailed", Message: "exited with code 2"})
	tr.Status.Steps = []pipelinev1.StepState{{
		Name: "push", Container: "step-push",
		ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: sources.ExitNotInstalled}},
	}}
	tr.Status.Sidecars = []pipelinev1.SidecarState{{
		Name: "install", Container: "sidecar-install",
		ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}},
	}}
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	pod.Name = "p"
	cached := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := cached.Add(pod); err != nil {
		t.Fatal(err)
	}
	b := &Builder{Logs: namedLogs{}, Pods: corev1listers.NewPodLister(cached)}
	if failure, err := b.Failure(t.Context(), RunOf(tr)); err == nil || failure.Cause != builds.StepFailed {
		t.Errorf("Failure() of a running pod = %+v, %v, want an error", failure, err)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: message}
	got, err := b.Failure(t.Context(), RunOf(tr))
	if err != nil {
		t.Fatal(err)
	}
	want := builds.Failure{Cause: builds.Evicted, Message: message, Log: "log of sidecar-install"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Failure() (-want, +got):\n%s", diff)
	}
}

// namedLogs are logs that contain the name of their container.
type namedLogs struct{}

func (namedLogs) Tail(_ context.Context, _, _, container string) (string, error) {
	return "log of " + container, nil
}
