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
)

func TestFailure(t *testing.T) {
	step := func(name string, code int32) pipelinev1.StepState {
		return pipelinev1.StepState{
			Name: name, Container: "step-" + name,
			ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
		}
	}
	for name, tc := range map[string]struct {
		reason string
		steps  []pipelinev1.StepState
		want   builds.Failure
	}{
		"installing":                       {"StepFailed", []pipelinev1.StepState{step("install", 1), step("push", 1)}, builds.Failure{Cause: builds.StepFailed, Log: "log of step-install"}},
		"pushing":                          {"StepFailed", []pipelinev1.StepState{step("install", 0), step("push", 1)}, builds.Failure{Cause: builds.StepFailed, Pushing: true, Log: "log of step-push"}},
		"installing, as earlier Tektons":   {"Failed", []pipelinev1.StepState{step("install", 1)}, builds.Failure{Cause: builds.StepFailed, Log: "log of step-install"}},
		"a node that shuts down":           {"Failed", nil, builds.Failure{Cause: builds.NotRun}},
		"a pod that could not be created":  {"PodCreationFailed", nil, builds.Failure{Cause: builds.NotRun}},
		"a pod that is not admitted":       {"PodAdmissionFailed", nil, builds.Failure{}},
		"a TaskRun that is not valid":      {"TaskRunValidationFailed", nil, builds.Failure{}},
		"out of memory while it installs":  {"StepOOM", []pipelinev1.StepState{step("install", 137), step("push", 1)}, builds.Failure{Cause: builds.OutOfMemory, Log: "log of step-install"}},
		"out of memory while it pushes":    {"StepOOM", []pipelinev1.StepState{step("install", 0), step("push", 137)}, builds.Failure{Cause: builds.OutOfMemory, Pushing: true, Log: "log of step-push"}},
		"Tekton's container out of memory": {"InitContainerOOM", nil, builds.Failure{Cause: builds.NotRun}},
		"evicted":                          {"PodEvicted", nil, builds.Failure{Cause: builds.Evicted}},
		"cancelled":                        {"TaskRunCancelled", nil, builds.Failure{Cause: builds.Cancelled}},
		"too long":                         {"TaskRunTimeout", []pipelinev1.StepState{step("install", 0)}, builds.Failure{Cause: builds.TimedOut}},
		"too long without a node":          {"TaskRunTimeout", nil, builds.Failure{Cause: builds.TimedOut, Unscheduled: true}},
		"no image":                         {"TaskRunImagePullFailed", nil, builds.Failure{Cause: builds.ImagePull}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &pipelinev1.TaskRun{}
			tr.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: corev1.ConditionFalse, Reason: tc.reason, Message: "as Tekton says"})
			tr.Status.Steps = tc.steps
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

// namedLogs are logs that contain the name of their container.
type namedLogs struct{}

func (namedLogs) Tail(_ context.Context, _, _, container string) (string, error) {
	return "log of " + container, nil
}
