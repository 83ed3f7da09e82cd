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
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func TestBuildOf(t *testing.T) {
	done := taskRun()
	done.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: corev1.ConditionTrue})
	done.Spec.TaskSpec.Steps = []pipelinev1.Step{{Name: "fetch"}, {Name: "push"}}
	done.Spec.TaskSpec.Sidecars = []pipelinev1.Sidecar{{Name: "install"}}
	tests := map[string]struct {
		fn      *v1alpha1.Function
		taskRun *pipelinev1.TaskRun
		want    *buildObject
	}{
		"no build":     {fn: newFunction("fn"), taskRun: taskRun()},
		"no object":    {fn: newFunction("fn", builds, func(fs *v1alpha1.FunctionStatus) { fs.Build.Ref = nil }), taskRun: taskRun()},
		"unknown kind": {fn: newFunction("fn", unknownBuilds), taskRun: taskRun()},
		"gone": {fn: newFunction("fn", builds, func(fs *v1alpha1.FunctionStatus) {
			fs.Build.Ref.Name = "gone"
		}), taskRun: taskRun()},
		"running": {
			fn: newFunction("fn", builds), taskRun: taskRun(),
			want: &buildObject{namespace: namespace, pod: "fn-1-pod", containers: []string{"step-push"}},
		},
		"ended": {
			fn: newFunction("fn", built), taskRun: done,
			want: &buildObject{namespace: namespace, pod: "fn-1-pod", containers: []string{"step-fetch", "sidecar-install", "step-push"}, ended: true},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := newWorld(t, tc.taskRun).clients.buildOf(t.Context(), tc.fn)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(buildObject{})); diff != "" {
				t.Errorf("buildOf() (-want +got):\n%s", diff)
			}
		})
	}
}

// job returns the Job fn-job, with an init container, as its spec and status say.
func job(status batchv1.JobStatus) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "fn-job", Namespace: namespace, UID: "uid-of-job"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "install"}}, Containers: []corev1.Container{{Name: "push"}},
		}}},
		Status: status,
	}
}

// jobPod returns the pod of that Job, which has ended.
func jobPod() *corev1.Pod {
	p := buildPod()
	p.Name = "fn-job-pod"
	p.Labels[batchv1.ControllerUidLabel] = "uid-of-job"
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "install", State: ended}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "push", State: ended}}
	return p
}

func ended(condition batchv1.JobConditionType) batchv1.JobStatus {
	return batchv1.JobStatus{Succeeded: 1, Conditions: []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue}}}
}

func TestBuildOfJob(t *testing.T) {
	suspended := job(batchv1.JobStatus{})
	suspended.Spec.Suspend = new(true)
	names := []string{"install", "push"}
	for name, tc := range map[string]struct {
		objects []runtime.Object
		want    *buildObject
	}{
		"gone":       {objects: []runtime.Object{jobPod()}},
		"no pod yet": {[]runtime.Object{job(batchv1.JobStatus{})}, &buildObject{namespace: namespace, containers: names}},
		"running": {[]runtime.Object{job(batchv1.JobStatus{Active: 1}), jobPod()},
			&buildObject{namespace: namespace, pod: "fn-job-pod", containers: names}},
		"complete": {[]runtime.Object{job(ended(batchv1.JobComplete)), jobPod()},
			&buildObject{namespace: namespace, pod: "fn-job-pod", containers: names, ended: true}},
		"failed, and its pod is gone": {[]runtime.Object{job(ended(batchv1.JobFailed))}, &buildObject{namespace: namespace, containers: names, ended: true}},
		"about to fail":               {[]runtime.Object{job(ended(batchv1.JobFailureTarget)), jobPod()}, &buildObject{namespace: namespace, pod: "fn-job-pod", containers: names}},
		"suspended":                   {[]runtime.Object{suspended}, &buildObject{namespace: namespace, containers: names, ended: true}},
		"another Job's pod": {[]runtime.Object{job(batchv1.JobStatus{Active: 1}), buildPod()},
			&buildObject{namespace: namespace, containers: names}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newWorld(t, tc.objects...).clients.buildOf(t.Context(), newFunction("fn", jobBuilds))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(buildObject{})); diff != "" {
				t.Errorf("buildOf() (-want +got):\n%s", diff)
			}
		})
	}
}

// Every command that names or reads a build's object uses the kind in the status.
func TestJobCommands(t *testing.T) {
	succeeded := func(fs *v1alpha1.FunctionStatus) {
		built(fs)
		fs.Build.Ref = &v1alpha1.BuildReference{APIVersion: "batch/v1", Kind: "Job", Name: "fn-job"}
	}
	complete := job(ended(batchv1.JobComplete))

	w := newWorld(t, newFunction("fn", succeeded), complete, jobPod())
	w.want("completed", "build-status", "fn", "-o", "jsonpath={.image}")
	w.want("fake logsfake logs", "build-logs", "fn")
	if got, err := w.run("build-status", "fn"); err != nil || !strings.Contains(got, "\nJob      fn-job\n") {
		t.Errorf("build-status does not name the Job: %v\n%s", err, got)
	}

	w = newWorld(t, newFunction("fn", jobBuilds), complete, jobPod())
	w.onWatch(func() { w.update("fn", succeeded) })
	w.want("fake logsfake logs", "build-logs", "--follow", "fn")

	newWorld(t, newFunction("fn", succeeded), jobPod()).want("not_found", "build-status", "fn", "-o", "jsonpath={.image}")
}

// The log of a build begins when its TaskRun gets a pod.
func TestStreamBuildWaitsForThePod(t *testing.T) {
	early := taskRun()
	early.Status.PodName = ""
	w := newWorld(t, early, buildPod())
	once := sync.OnceFunc(func() {
		if _, err := w.tekton.TektonV1().TaskRuns(namespace).Update(context.Background(), taskRun(), metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	})
	w.tekton.PrependWatchReactor("taskruns", func(action clienttesting.Action) (bool, watch.Interface, error) {
		changes, err := w.tekton.Tracker().Watch(action.GetResource(), action.GetNamespace())
		go once()
		return true, changes, err
	})
	printed, err := w.streamBuild(t.Context(), w.clients, v1alpha1.BuildReference{Kind: "TaskRun", Name: "fn-1"})
	if err != nil || !printed || w.out.String() != "fake logs" {
		t.Errorf("streamBuild() = %v, %v and prints %q", printed, err, w.out)
	}
}

func TestStreamBuildWithoutALog(t *testing.T) {
	cancelled := taskRun()
	cancelled.Status.PodName = ""
	cancelled.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: corev1.ConditionFalse})
	for name, ref := range map[string]v1alpha1.BuildReference{
		"gone":              {Kind: "TaskRun", Name: "gone"},
		"ended without pod": {Kind: "TaskRun", Name: "fn-1"},
		"unknown kind":      {Kind: "Oven", Name: "fn-1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cancelled, buildPod())
			printed, err := w.streamBuild(t.Context(), w.clients, ref)
			if err != nil || printed || w.out.Len() > 0 {
				t.Errorf("streamBuild() = %v, %v and prints %q", printed, err, w.out)
			}
		})
	}
}
