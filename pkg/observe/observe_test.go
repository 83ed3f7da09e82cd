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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// function returns a Function with the marks in its status.
func function(marks ...func(*v1alpha1.FunctionStatus)) *v1alpha1.Function {
	fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "fn", Generation: 2}}
	fn.Status.ObservedGeneration = 2
	fn.Status.InitializeConditions()
	for _, mark := range marks {
		mark(&fn.Status)
	}
	return fn
}

func configured(fs *v1alpha1.FunctionStatus) {
	fs.MarkConfigurationReady("ConfigMapCreated", "written")
}
func built(fs *v1alpha1.FunctionStatus) {
	configured(fs)
	fs.MarkBuildReady(v1alpha1.ReasonTaskRunSucceeded, "built")
}

func builds(reason string) func(*v1alpha1.FunctionStatus) {
	return func(fs *v1alpha1.FunctionStatus) {
		configured(fs)
		fs.MarkBuildUnknown(reason, "%s", reason)
	}
}

func buildFails(reason string) func(*v1alpha1.FunctionStatus) {
	return func(fs *v1alpha1.FunctionStatus) {
		configured(fs)
		fs.MarkBuildFailed(reason, "%s", reason)
	}
}

func serves(fs *v1alpha1.FunctionStatus) {
	built(fs)
	fs.LatestReadyRevisionName = "fn-00001"
	fs.MarkRunning()
}

func ready() *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}}
}

func homeless() *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodPending,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no node has nvidia.com/gpu"},
		},
	}}
}

func starting() *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
}

func leaving(pod *corev1.Pod) *corev1.Pod {
	pod.DeletionTimestamp = &metav1.Time{}
	return pod
}

func stuck(reason string) *corev1.Pod {
	return podWith(corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"},
	}})
}

func TestImage(t *testing.T) {
	stale := function(built)
	stale.Generation++
	tests := map[string]struct {
		fn    *v1alpha1.Function
		build Build
		want  ImageStatus
		why   string
	}{
		"no Function":             {nil, Build{}, ImageNotFound, "There is no Function."},
		"not looked at yet":       {stale, Build{Exists: true}, ImagePending, "Kiln has not processed the newest version of the Function yet."},
		"not configured yet":      {function(func(fs *v1alpha1.FunctionStatus) { fs.ResetConditions() }), Build{}, ImagePending, "The build waits for ConfigurationReady."},
		"cannot be configured":    {function(func(fs *v1alpha1.FunctionStatus) { fs.MarkConfigurationFailed("RuntimeUnknown", "no such runtime") }), Build{}, ImageError, "no such runtime"},
		"registry is asked":       {function(builds(v1alpha1.ReasonCheckingRegistry)), Build{}, ImageInProgress, "CheckingRegistry"},
		"waits for its turn":      {function(builds(v1alpha1.ReasonBuildQueued)), Build{}, ImagePending, "BuildQueued"},
		"waits for earlier ones":  {function(builds(v1alpha1.ReasonTaskRunsDeleted)), Build{}, ImagePending, "TaskRunsDeleted"},
		"waits, other builder":    {function(builds("JobsDeleted")), Build{}, ImagePending, "JobsDeleted"},
		"not created, other":      {function(builds("JobNotCreated")), Build{}, ImagePending, "JobNotCreated"},
		"pod was deleted":         {function(buildFails(v1alpha1.ReasonPodDeleted)), Build{}, ImageError, "PodDeleted"},
		"waits to try again":      {function(builds(v1alpha1.ReasonBuildRetrying)), Build{Exists: true}, ImagePending, "BuildRetrying"},
		"cannot be created yet":   {function(builds(v1alpha1.ReasonTaskRunNotCreated)), Build{}, ImagePending, "TaskRunNotCreated"},
		"quota":                   {function(buildFails(v1alpha1.ReasonQuotaExceeded)), Build{Exists: true}, ImagePending, "QuotaExceeded"},
		"created":                 {function(builds(v1alpha1.ReasonTaskRunCreated)), Build{Exists: true}, ImageInProgress, "TaskRunCreated"},
		"runs":                    {function(builds(v1alpha1.ReasonTaskRunRunning)), Build{Exists: true, Pod: starting()}, ImageInProgress, "TaskRunRunning"},
		"no node":                 {function(builds(v1alpha1.ReasonTaskRunRunning)), Build{Exists: true, Pod: homeless()}, ImagePending, "no node has nvidia.com/gpu"},
		"builder is not pulled":   {function(builds(v1alpha1.ReasonTaskRunRunning)), Build{Exists: true, Pod: stuck("ImagePullBackOff")}, ImagePending, "ImagePullBackOff: why"},
		"failed":                  {function(buildFails(v1alpha1.ReasonTaskRunFailed)), Build{Exists: true}, ImageError, "TaskRunFailed"},
		"failed, and cleaned up":  {function(buildFails(v1alpha1.ReasonTaskRunFailed)), Build{}, ImageError, "TaskRunFailed"},
		"built":                   {function(built), Build{Exists: true}, ImageCompleted, "built"},
		"built, and cleaned up":   {function(built), Build{}, ImageNotFound, "built"},
		"built, but not deployed": {function(built, func(fs *v1alpha1.FunctionStatus) { fs.MarkRunningFailed("ServiceFailed", "x") }), Build{Exists: true}, ImageCompleted, "built"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, why := Image(Observed{Function: tc.fn, Build: tc.build})
			if got != tc.want || why != tc.why {
				t.Errorf("Image() = %q, %q, want %q, %q", got, why, tc.want, tc.why)
			}
		})
	}
}

func TestFunction(t *testing.T) {
	fails := func(fs *v1alpha1.FunctionStatus) { fs.MarkRunningFailed("ServiceFailed", "it crashes") }
	replaced := function(serves, buildFails(v1alpha1.ReasonTaskRunFailed))
	tests := map[string]struct {
		fn   *v1alpha1.Function
		pods []*corev1.Pod
		want FunctionStatus
		why  string
	}{
		"no Function":                {nil, nil, FunctionNotFound, "There is no Function."},
		"just created":               {&v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Generation: 1}}, nil, FunctionWaiting, "Kiln has not processed the Function yet."},
		"is being built":             {function(builds(v1alpha1.ReasonTaskRunRunning)), nil, FunctionWaiting, "TaskRunRunning"},
		"build waits for a quota":    {function(buildFails(v1alpha1.ReasonQuotaExceeded)), nil, FunctionWaiting, "QuotaExceeded"},
		"was never built":            {function(buildFails(v1alpha1.ReasonTaskRunFailed)), nil, FunctionNotFound, "TaskRunFailed"},
		"is built again":             {function(serves, builds(v1alpha1.ReasonTaskRunRunning)), []*corev1.Pod{ready()}, FunctionRunning, "The service waits for BuildReady; revision fn-00001 serves."},
		"newer one was not built":    {replaced, []*corev1.Pod{ready()}, FunctionRunning, "The service waits for BuildReady; revision fn-00001 serves."},
		"the same, scaled to zero":   {replaced, nil, FunctionRunning, "It has no pods while nobody calls it; the next request starts one."},
		"serves":                     {function(serves), []*corev1.Pod{ready()}, FunctionRunning, "Revision fn-00001 serves."},
		"scaled to zero":             {function(serves), nil, FunctionRunning, "It has no pods while nobody calls it; the next request starts one."},
		"scales to zero":             {function(serves), []*corev1.Pod{leaving(ready())}, FunctionRunning, "It has no pods while nobody calls it; the next request starts one."},
		"one of two":                 {function(serves), []*corev1.Pod{homeless(), ready()}, FunctionRunning, "Revision fn-00001 serves."},
		"starts":                     {function(built), []*corev1.Pod{starting(), starting()}, FunctionWaiting, "Its pods are starting."},
		"crashed once":               {function(built), []*corev1.Pod{podWith(crashed1)}, FunctionWaiting, "Its pods are starting."},
		"crash loop":                 {function(built), []*corev1.Pod{podWith(crashed2)}, FunctionTerminated, "Container failed with: handler.js:1: SyntaxError"},
		"crash loop, and no node":    {function(built), []*corev1.Pod{homeless(), podWith(crashed2)}, FunctionTerminated, "Container failed with: handler.js:1: SyntaxError"},
		"image cannot be pulled":     {function(built), []*corev1.Pod{stuck("ImagePullBackOff")}, FunctionTerminated, "ImagePullBackOff: why"},
		"evicted":                    {function(built), []*corev1.Pod{{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}}}, FunctionTerminated, "Evicted"},
		"no node":                    {function(built), []*corev1.Pod{homeless(), starting()}, FunctionPending, "no node has nvidia.com/gpu"},
		"has crashed, pods are gone": {function(built, fails), nil, FunctionTerminated, "it crashes"},
		"newer one has crashed":      {function(serves, fails), nil, FunctionRunning, "An earlier revision serves. it crashes"},
		"newer one crashes":          {function(serves, fails), []*corev1.Pod{podWith(crashed2), ready()}, FunctionRunning, "An earlier revision serves. it crashes"},
		"pods may not be created": {
			function(built, func(fs *v1alpha1.FunctionStatus) {
				fs.MarkRunningUnknown(v1alpha1.ReasonMinimumReplicasUnavailable, "0 of 1 replicas")
			}), nil, FunctionPending, "0 of 1 replicas",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, why := Function(Observed{Function: tc.fn, Pods: tc.pods, Container: "function"})
			if got != tc.want || why != tc.why {
				t.Errorf("Function() = %q, %q, want %q, %q", got, why, tc.want, tc.why)
			}
		})
	}
}

// The explanation must not depend on the order of the pods.
func TestFunctionIgnoresOrder(t *testing.T) {
	one, other := homeless(), homeless()
	other.Status.Conditions[0].Message = "another reason"
	for _, pods := range [][]*corev1.Pod{{one, other}, {other, one}} {
		if _, why := Function(Observed{Function: function(built), Pods: pods}); why != "another reason" {
			t.Errorf("Function() says %q, want %q", why, "another reason")
		}
	}
}
