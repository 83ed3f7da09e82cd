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

package cli

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func TestBuildStatus(t *testing.T) {
	w := newWorld(t, newFunction("fn", built), taskRun())
	w.want(`
Image    completed: TaskRun fn-1 built it.
Name     registry.example/fn@sha256:01
Build    version 2, reason SourceChanged, attempt 1
Ended    4m ago, after 60s
TaskRun  fn-1

Next: kubectl fn build-logs fn
`, "build-status", "fn")
	w.want("completed fn-1", "build-status", "fn", "-o", "jsonpath={.image} {.build.ref.name}")

	w = newWorld(t, newFunction("fn", buildFailed))
	w.want(`
Image    error: Correct it.
Build    version 2, reason SourceChanged, attempt 1
Started  5m ago
TaskRun  fn-1

Failed: TaskRunFailed
  Correct it.

Next: kubectl fn build-logs fn
`, "build-status", "fn")
	newWorld(t, newFunction("fn", built)).want("not_found", "build-status", "fn", "-o", "jsonpath={.image}")
}

func TestBuildLogs(t *testing.T) {
	newWorld(t, newFunction("fn", built), taskRun(), buildPod()).want("fake logs", "build-logs", "fn")

	w := newWorld(t, newFunction("fn", buildFailed), taskRun())
	w.want("npm error\n", "build-logs", "fn")
	if got, want := w.errOut.String(), "The pod of the build is gone. These are the last lines of its log:\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	newWorld(t, newFunction("fn", built)).wantError("the pod of the build is gone, and the build installed no dependencies", "kubectl fn rebuild fn", "build-logs", "fn")
	newWorld(t, newFunction("fn")).wantError("has not been built yet", "kubectl fn status fn", "build-logs", "fn")
}

func TestBuildLogsFollow(t *testing.T) {
	w := newWorld(t, newFunction("fn", builds), taskRun(), buildPod())
	w.onWatch(func() { w.update("fn", built) })
	w.want("fake logs", "build-logs", "--follow", "fn")

	w = newWorld(t, newFunction("fn", builds), taskRun(), buildPod())
	w.onWatch(func() { w.update("fn", buildFailed) })
	w.wantError("the build failed: Correct it.", "kubectl fn status fn", "build-logs", "--follow", "fn")
	if got := w.out.String(); got != "fake logs" {
		t.Errorf("it prints %q, want the log", got)
	}
}

// unknownBuilds is a build of a kind that this version of the CLI does not know.
func unknownBuilds(fs *v1alpha1.FunctionStatus) {
	builds(fs)
	fs.Build.Ref = &v1alpha1.BuildReference{APIVersion: "example.com/v1", Kind: "Oven", Name: "fn-1"}
}

// jobBuilds is a build that a Job runs.
func jobBuilds(fs *v1alpha1.FunctionStatus) {
	builds(fs)
	fs.Build.Ref = &v1alpha1.BuildReference{APIVersion: "batch/v1", Kind: "Job", Name: "fn-job"}
}

// buildStates are builds in each of their states, as build-status prints them.
var buildStates = map[string]struct {
	objects []runtime.Object
	want    string
}{
	"never built": {
		objects: []runtime.Object{newFunction("fn")},
		want: `
Image    in_progress: 

The Function has not been built yet.
`,
	},
	"queued": {
		objects: []runtime.Object{newFunction("fn", builds, func(fs *v1alpha1.FunctionStatus) {
			fs.Build.Ref, fs.Build.StartTime, fs.Build.Attempts = nil, nil, 0
			fs.Build.QueuedTime = &metav1.MicroTime{Time: noon.Add(-30 * time.Second)}
			fs.MarkBuildUnknown(v1alpha1.ReasonBuildQueued, "Two builds are ahead.")
		})},
		want: `
Image    pending: Two builds are ahead.
Build    version 2, reason SourceChanged, attempt 1
Queued   30s ago

Next: kubectl fn build-logs fn
`,
	},
	"running": {
		objects: []runtime.Object{newFunction("fn", builds), taskRun()},
		want: `
Image    in_progress: TaskRun fn-1 runs.
Build    version 2, reason SourceChanged, attempt 1
Started  5m ago
TaskRun  fn-1

Next: kubectl fn build-logs fn
`,
	},
	"of an unknown reason and a later attempt": {
		objects: []runtime.Object{newFunction("fn", builds, func(fs *v1alpha1.FunctionStatus) {
			fs.Build.Reason, fs.Build.Attempts = "", 3
		})},
		want: `
Image    in_progress: TaskRun fn-1 runs.
Build    version 2, reason unknown, attempt 3
Started  5m ago
TaskRun  fn-1

Next: kubectl fn build-logs fn
`,
	},
	"run by a Job": {
		objects: []runtime.Object{newFunction("fn", jobBuilds)},
		want: `
Image    in_progress: TaskRun fn-1 runs.
Build    version 2, reason SourceChanged, attempt 1
Started  5m ago
Job      fn-job

Next: kubectl fn build-logs fn
`,
	},
	"failed with several lines": {
		objects: []runtime.Object{newFunction("fn", buildFailed, func(fs *v1alpha1.FunctionStatus) {
			fs.Build.CompletionTime = new(ago(time.Minute))
			fs.Build.Failure.Message = "Correct it:\nnpm error\n"
			fs.MarkBuildFailed(v1alpha1.ReasonTaskRunFailed, "Correct it:\nnpm error")
		})},
		want: `
Image    error: Correct it:
         npm error
Build    version 2, reason SourceChanged, attempt 1
Ended    60s ago, after 4m
TaskRun  fn-1

Failed: TaskRunFailed
  Correct it:
  npm error

Next: kubectl fn build-logs fn
`,
	},
	"no node has room": {
		objects: []runtime.Object{newFunction("fn", builds), taskRun(), func() *corev1.Pod {
			p := buildPod()
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available.",
			}}}
			return p
		}()},
		want: `
Image    pending: 0/1 nodes are available.
Build    version 2, reason SourceChanged, attempt 1
Started  5m ago
TaskRun  fn-1

Next: kubectl fn build-logs fn
`,
	},
}

func TestBuildStatusOfEachState(t *testing.T) {
	for name, tc := range buildStates {
		t.Run(name, func(t *testing.T) { newWorld(t, tc.objects...).want(tc.want, "build-status", "fn") })
	}
}

func TestBuildStatusForPrograms(t *testing.T) {
	w := newWorld(t, newFunction("fn", built), taskRun())
	got, err := w.run("build-status", "fn", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		metav1.TypeMeta `json:",inline"`
		buildReport     `json:",inline"`
	}
	if err := json.Unmarshal([]byte(got), &r); err != nil {
		t.Fatal(err)
	}
	if got, want := r.TypeMeta, (metav1.TypeMeta{APIVersion: "serverless.kiln.dev/v1alpha1", Kind: "BuildStatus"}); got != want {
		t.Errorf("type is %v, want %v", got, want)
	}
	want := buildReport{
		Name: "fn", Namespace: namespace, Image: "completed", ImageMessage: "TaskRun fn-1 built it.",
		ImageName: "registry.example/fn@sha256:01", Build: newFunction("fn", built).Status.Build,
	}
	if diff := cmp.Diff(want, r.buildReport, cmpopts.EquateApproxTime(0)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestBuildLogsOfEachState(t *testing.T) {
	const gone = "The pod of the build is gone. These are the last lines of its log:\n"
	keeps := func(fs *v1alpha1.FunctionStatus) { fs.Build.Log = "added 3 packages\n\n" }
	twoSteps := taskRun()
	twoSteps.Spec.TaskSpec.Steps = []pipelinev1.Step{{Name: "install"}, {Name: "push"}}
	bothBegan, oneBegan := buildPod(), buildPod()
	bothBegan.Status.ContainerStatuses = append(bothBegan.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: "step-install", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
	})
	oneBegan.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "step-install", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{Name: "step-push", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}},
	}
	noSpec, noPod := taskRun(), taskRun()
	noSpec.Spec.TaskSpec = nil
	noPod.Status.PodName = ""
	tests := map[string]struct {
		objects         []runtime.Object
		want, wantWords string
	}{
		"two steps":                {[]runtime.Object{newFunction("fn", built), twoSteps, bothBegan}, "fake logsfake logs", ""},
		"second step waits":        {[]runtime.Object{newFunction("fn", builds), twoSteps, oneBegan}, "fake logs", ""},
		"pod is gone":              {[]runtime.Object{newFunction("fn", built, keeps), taskRun()}, "added 3 packages\n", gone},
		"TaskRun is gone":          {[]runtime.Object{newFunction("fn", built, keeps)}, "added 3 packages\n", gone},
		"TaskRun without a spec":   {[]runtime.Object{newFunction("fn", built, keeps), noSpec, buildPod()}, "added 3 packages\n", gone},
		"TaskRun without a pod":    {[]runtime.Object{newFunction("fn", built, keeps), noPod}, "added 3 packages\n", gone},
		"object of another kind":   {[]runtime.Object{newFunction("fn", built, unknownBuilds, keeps)}, "added 3 packages\n", gone},
		"failure, with its log":    {[]runtime.Object{newFunction("fn", buildFailed, keeps)}, "npm error\n", gone},
		"failure, without its log": {[]runtime.Object{newFunction("fn", buildFailed, func(fs *v1alpha1.FunctionStatus) { fs.Build.Failure.Log = "" })}, "Correct it.\n", gone},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			w.want(tc.want, "build-logs", "fn")
			if diff := cmp.Diff(tc.wantWords, w.errOut.String()); diff != "" {
				t.Errorf("standard error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildLogsErrors(t *testing.T) {
	reused := newFunction("fn", built, func(fs *v1alpha1.FunctionStatus) { fs.Build.Ref = nil })
	newWorld(t, reused).wantError("there is no log: no build ran, because the registry already had the image", "kubectl fn rebuild fn", "build-logs", "fn")

	w := newWorld(t, newFunction("fn", built), taskRun(), buildPod())
	w.logs(func(url.Values) (int, string) { return http.StatusInternalServerError, "disk is full" })
	w.wantError("failed to read the log of pod fn-1-pod: ", "the command with --help", "build-logs", "fn")

	w = newWorld(t, newFunction("fn", buildFailed), taskRun(), buildPod())
	w.logs(func(url.Values) (int, string) { return http.StatusNotFound, "pod fn-1-pod not found" })
	w.want("npm error\n", "build-logs", "fn")

	w = newWorld(t, newFunction("fn", built))
	w.tekton.PrependReactor("get", "taskruns", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrs.NewForbidden(pipelinev1.Resource("taskruns"), "fn-1", errors.New("no"))
	})
	for _, command := range []string{"build-logs", "build-status", "status"} {
		w.wantError("failed to get TaskRun fn-1: ", askAdministrator, command, "fn")
	}
}

// The command reads each container of the build's pod with the right options.
func TestBuildLogOptions(t *testing.T) {
	w := newWorld(t, newFunction("fn", built), taskRun(), buildPod())
	w.want("fake logs", "build-logs", "fn")
	if diff := cmp.Diff([]corev1.PodLogOptions{{Container: "step-push"}}, w.logOptions()); diff != "" {
		t.Errorf("options of the log (-want +got):\n%s", diff)
	}

	w = newWorld(t, newFunction("fn", builds), taskRun(), buildPod())
	w.onWatch(func() { w.update("fn", built) })
	w.want("fake logs", "build-logs", "-f", "fn")
	if diff := cmp.Diff([]corev1.PodLogOptions{{Container: "step-push", Follow: true}}, w.logOptions()); diff != "" {
		t.Errorf("options of the followed log (-want +got):\n%s", diff)
	}
}

func TestBuildLogsFollowWithoutRunningBuild(t *testing.T) {
	invalid := func(fs *v1alpha1.FunctionStatus) {
		fs.MarkConfigurationFailed(v1alpha1.ReasonRuntimeUnknown, "There is no runtime cobol.")
	}
	tests := map[string]struct {
		fn        *v1alpha1.Function
		wantOut   string
		wantWords string
		wantErr   string
	}{
		"built": {
			fn: newFunction("fn", built), wantWords: deploying,
		},
		"built, and its log is kept": {
			fn:      newFunction("fn", serves, func(fs *v1alpha1.FunctionStatus) { fs.Build.Log = "added 3 packages" }),
			wantOut: "added 3 packages\n",
			wantWords: running +
				"The pod of the build is gone. These are the last lines of its log:\n",
		},
		"failed": {
			fn: newFunction("fn", buildFailed), wantOut: "npm error\n", wantErr: "the build failed: Correct it.",
			wantWords: "Failed: Correct it.\nThe pod of the build is gone. These are the last lines of its log:\n",
		},
		"invalid": {
			fn: newFunction("fn", invalid), wantErr: "the build failed: There is no runtime cobol.",
			wantWords: "Failed: There is no runtime cobol.\n",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.fn)
			if tc.wantErr == "" {
				w.want(tc.wantOut, "build-logs", "--follow", "fn")
			} else {
				w.wantError(tc.wantErr, "kubectl fn status fn", "build-logs", "--follow", "fn")
			}
			if diff := cmp.Diff(tc.wantOut, w.out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantWords, w.errOut.String()); diff != "" {
				t.Errorf("standard error (-want +got):\n%s", diff)
			}
		})
	}
}

// A quota that rejects the build's pod is not the end of the build.
func TestBuildLogsFollowOverQuota(t *testing.T) {
	w := newWorld(t, newFunction("fn", func(fs *v1alpha1.FunctionStatus) {
		builds(fs)
		fs.MarkBuildFailed(v1alpha1.ReasonQuotaExceeded, "The quota allows no more pods.")
	}))
	w.onWatch(func() { w.update("fn", serves) })
	w.want("", "build-logs", "--follow", "fn")
	if want := "Failed: The quota allows no more pods.\n" + running; w.errOut.String() != want {
		t.Errorf("it prints %q, want %q", w.errOut, want)
	}
}

func TestHasBegun(t *testing.T) {
	state := func(name string, state corev1.ContainerState) *corev1.Pod {
		p := buildPod()
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: name, State: state}}}
		return p
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	failed := buildPod()
	failed.Status = corev1.PodStatus{Phase: corev1.PodFailed}
	tests := map[string]struct {
		pod  *corev1.Pod
		name string
		wait bool
		want bool
	}{
		"running":                {pod: state("c", runs), name: "fn-1-pod", want: true},
		"terminated":             {pod: state("c", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}), name: "fn-1-pod", want: true},
		"waiting":                {pod: state("c", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}), name: "fn-1-pod"},
		"another container":      {pod: state("d", runs), name: "fn-1-pod"},
		"no pod yet":             {pod: state("c", runs)},
		"another pod":            {pod: state("c", runs), name: "gone"},
		"no wait for a gone pod": {pod: state("c", runs), name: "gone", wait: true},
		"no wait after the end":  {pod: failed, name: "fn-1-pod", wait: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.pod)
			got, err := w.clients.hasBegun(t.Context(), namespace, tc.name, "c", tc.wait)
			if err != nil || got != tc.want {
				t.Errorf("hasBegun() = %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}
