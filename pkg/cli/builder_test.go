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

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		"unknown kind": {fn: newFunction("fn", jobBuilds), taskRun: taskRun()},
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

// Every command that names or reads a build's object uses the kind in the status.
func TestSecondBuilder(t *testing.T) {
	jobs := map[string]*buildObject{"fn-job": {namespace: namespace, pod: "fn-job-pod", containers: []string{"install", "push"}}}
	builders["Job"] = builder{
		get: func(_ context.Context, _ *Clients, _, name string) (*buildObject, error) {
			if job, ok := jobs[name]; ok {
				return job, nil
			}
			return nil, apierrs.NewNotFound(schema.GroupResource{Group: "batch", Resource: "jobs"}, name)
		},
		follow: func(_ context.Context, _ *Clients, _, name string, visit func(*buildObject) (bool, error)) error {
			_, err := visit(jobs[name])
			return err
		},
	}
	t.Cleanup(func() { delete(builders, "Job") })
	p := buildPod()
	p.Name = "fn-job-pod"
	p.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "install", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
		{Name: "push", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
	}
	succeeded := func(fs *v1alpha1.FunctionStatus) {
		built(fs)
		fs.Build.Ref = &v1alpha1.BuildReference{APIVersion: "batch/v1", Kind: "Job", Name: "fn-job"}
	}

	w := newWorld(t, newFunction("fn", succeeded), p)
	w.want("completed", "build-status", "fn", "-o", "jsonpath={.image}")
	w.want("fake logsfake logs", "build-logs", "fn")
	if got, err := w.run("build-status", "fn"); err != nil || !strings.Contains(got, "\nJob      fn-job\n") {
		t.Errorf("build-status does not name the Job: %v\n%s", err, got)
	}

	w = newWorld(t, newFunction("fn", jobBuilds), p)
	w.onWatch(func() { w.update("fn", succeeded) })
	w.want("fake logsfake logs", "build-logs", "--follow", "fn")

	delete(jobs, "fn-job")
	newWorld(t, newFunction("fn", succeeded), p).want("not_found", "build-status", "fn", "-o", "jsonpath={.image}")
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
		"unknown kind":      {Kind: "Job", Name: "fn-1"},
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
