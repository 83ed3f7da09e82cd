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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/observe"
)

func TestStatus(t *testing.T) {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "fn.1", Namespace: namespace}, InvolvedObject: corev1.ObjectReference{UID: "uid-of-fn"},
		Type: "Normal", Reason: "ServiceUpdated", Message: "Service fn was updated.", LastTimestamp: ago(2 * time.Minute),
	}
	w := newWorld(t, newFunction("fn", built), crashing("fn-00002", "a"), taskRun(), event)
	w.want(`
default/fn  Deploying  version 2, nodejs24, 60m old
Image     completed: TaskRun fn-1 built it.
Function  terminated: Container failed with: no such module

Steps
  Configuration done        ConfigMapCreated
  Build         done        TaskRunSucceeded
  Service       not yet     -
    `+messageOf(built)+`

Pods
  a  terminated, 3 restarts, 3m old
    Container failed with: no such module

Last events
  2m    Normal  ServiceUpdated        Service fn was updated.

Next: See the log from before the crash: kubectl fn logs --previous fn
`, "status", "fn")
	w.want("completed terminated", "status", "fn", "-o", "jsonpath={.image} {.function}")
	got, err := w.run("status", "fn", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal([]byte(got), &r); err != nil {
		t.Fatal(err)
	}
	want := map[string]podReport{"a": {Status: "terminated", Message: "Container failed with: no such module", Revision: "fn-00002", Restarts: 3}}
	if diff := cmp.Diff(want, r.PodStatuses); diff != "" {
		t.Errorf("pod_statuses (-want +got):\n%s", diff)
	}
}

func TestNext(t *testing.T) {
	tests := map[string]struct {
		world *world
		want  string
	}{
		"fails to build": {newWorld(t, newFunction("fn", buildFailed)), "See why the build failed: kubectl fn build-logs fn"},
		"builds":         {newWorld(t, newFunction("fn", builds)), "Watch the build: kubectl fn build-logs --follow fn"},
		"waits to build": {newWorld(t, newFunction("fn", func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationReady("", "")
			fs.MarkBuildUnknown(v1alpha1.ReasonBuildQueued, "")
		})), "See what the build waits for: kubectl fn build-status fn"},
		"invalid": {newWorld(t, newFunction("fn", func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonRuntimeUnknown, "no such runtime")
		})), "Correct the Function as ConfigurationReady says: kubectl edit fn fn"},
		"starts":  {newWorld(t, newFunction("fn", built)), "Wait: kubectl wait --for=condition=Ready fn/fn"},
		"serves":  {newWorld(t, newFunction("fn", serves)), "Call it: kubectl fn invoke fn"},
		"crashes": {newWorld(t, newFunction("fn", built), crashing("fn-00001", "a")), "See the log from before the crash: kubectl fn logs --previous fn"},
		"serves still": {newWorld(t, newFunction("fn", serves, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "it crashes")
		}), pod("fn-00001", "a")), "Correct the Function as Ready says, or go back: kubectl fn rollback fn"},
	}
	for name, tc := range tests {
		t.Run(name, func(*testing.T) { tc.world.want(tc.want, "status", "fn", "-o", "jsonpath={.next}") })
	}
}

// Scripts need a status for a Function that does not exist.
func TestStatusOfNone(t *testing.T) {
	w := newWorld(t)
	for _, command := range []string{"status", "build-status"} {
		got, err := w.run(command, "fn", "-o", "jsonpath={.image}")
		if got != "not_found" || err == nil || !strings.HasSuffix(err.Error(), "Try: kubectl fn list --all-namespaces") {
			t.Errorf("kubectl fn %s prints %q and returns %v", command, got, err)
		}
	}
}

// newCreated returns a Function that Kiln has not processed yet.
func newCreated() *v1alpha1.Function {
	return &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "fn", Namespace: namespace, Generation: 1}}
}

// imageMessage is what pkg/observe reports of the image of a Function without objects.
func imageMessage(fn *v1alpha1.Function) string {
	_, message := observe.Image(observe.Observed{Function: fn})
	return message
}

// functionMessage is what pkg/observe reports of a Function without objects.
func functionMessage(fn *v1alpha1.Function) string {
	_, message := observe.Function(observe.Observed{Function: fn})
	return message
}

// The output of status for Functions in several states.
var (
	wantNew = `
default/fn  new  version 1, no runtime, <none> old
Image     pending: ` + imageMessage(newCreated()) + `
Function  waiting: ` + functionMessage(newCreated()) + `

Steps
  Configuration not yet     -
  Build         not yet     -
  Service       not yet     -

Pods
  none

Next: See what the build waits for: kubectl fn build-status fn
`
	wantBranch = `
default/fn  Running  version 2, nodejs24, 60m old
URL       http://fn.default.svc.cluster.local
Image     completed: TaskRun fn-1 built it.
Source    commit 0123456789abcdef
Function  running: ` + messageOf(serves) + `

Steps
  Configuration done        ConfigMapCreated
  Branch        failed      SourceUpdateFailed
    The repository does not respond:
    timeout
  Build         done        TaskRunSucceeded
  Service       done        ServiceReady

Pods
  a  running, 0 restarts, 3m old

Next: Call it: kubectl fn invoke fn
`
	wantArchive = `
default/fn  Running  version 2, nodejs24, 60m old
URL       http://fn.default.svc.cluster.local
Image     not_found: TaskRun fn-1 built it.
Source    archive of sha256 fedcba
Function  running: ` + functionMessage(newFunction("fn", serves)) + `

Steps
  Configuration done        ConfigMapCreated
  Build         done        TaskRunSucceeded
  Service       done        ServiceReady

Pods
  none

Last events
  60m   Normal  Reason                message of c
    in two lines
  60s   Normal  Reason                message of a
    in two lines
  60s   Normal  Reason                message of b
    in two lines

Next: Call it: kubectl fn invoke fn
`
)

func TestStatusOfEachState(t *testing.T) {
	event := func(name string, age time.Duration) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, InvolvedObject: corev1.ObjectReference{UID: "uid-of-fn"},
			Type: "Normal", Reason: "Reason", Message: "message of " + name + "\nin two lines", LastTimestamp: ago(age),
		}
	}
	deleted := pod("fn-00001", "deleted")
	deleted.DeletionTimestamp, deleted.Finalizers = new(ago(0)), []string{"example.com/test"}
	fromGit := newFunction("fn", serves, func(fs *v1alpha1.FunctionStatus) {
		fs.Source = &v1alpha1.SourceStatus{Commit: "0123456789abcdef"}
		fs.MarkSourceNotFollowed("The repository does not respond:\ntimeout")
	})
	fromArchive := newFunction("fn", serves, func(fs *v1alpha1.FunctionStatus) { fs.Source = &v1alpha1.SourceStatus{SHA256: "fedcba"} })
	tests := map[string]struct {
		objects []runtime.Object
		want    string
	}{
		"just created":                   {[]runtime.Object{newCreated()}, wantNew},
		"serves a branch":                {[]runtime.Object{fromGit, pod("fn-00002", "a"), deleted, taskRun()}, wantBranch},
		"serves an archive, with events": {[]runtime.Object{fromArchive, event("b", time.Minute), event("a", time.Minute), event("c", time.Hour)}, wantArchive},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { newWorld(t, tc.objects...).want(tc.want, "status", "fn") })
	}
}

func TestEventsOf(t *testing.T) {
	var objects []runtime.Object
	for i, name := range []string{"g", "f", "e", "d", "c", "b", "a"} {
		objects = append(objects, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, LastTimestamp: ago(time.Duration(i) * time.Minute),
		})
	}
	w := newWorld(t, objects...)
	events, err := eventsOf(t.Context(), w.clients, newFunction("fn"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, event := range events {
		got = append(got, event.Name)
	}
	if diff := cmp.Diff([]string{"c", "d", "e", "f", "g"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	list := w.kube.Actions()[0].(clienttesting.ListAction)
	if got, want := list.GetListRestrictions().Fields.String(), "involvedObject.uid=uid-of-fn"; got != want {
		t.Errorf("it selects the events by %q, want %q", got, want)
	}
	w = newWorld(t, newFunction("fn"))
	w.kube.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrs.NewForbidden(corev1.Resource("events"), "", errors.New("no role"))
	})
	w.wantError("failed to list events: ", askAdministrator, "status", "fn")
	// Programs get no events, so they need no permission to list them.
	w.want("fn", "status", "fn", "-o", "jsonpath={.name}")
}

func TestNewReport(t *testing.T) {
	fn := newFunction("fn", serves, func(fs *v1alpha1.FunctionStatus) { fs.Source = &v1alpha1.SourceStatus{Commit: "abc"} })
	deleted := pod("fn-00001", "deleted")
	deleted.DeletionTimestamp = new(ago(0))
	pending := pod("fn-00002", "pending")
	pending.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available.",
	}}}
	got := newReport(namespace, "fn", observe.Observed{
		Function: fn, Container: "function", Pods: []*corev1.Pod{pod("fn-00002", "ready"), crashing("fn-00001", "crashes"), pending, deleted},
	})
	want := report{
		Name: "fn", Namespace: namespace, Runtime: "nodejs24", Version: 2, Phase: v1alpha1.FunctionRunning,
		URL: "http://fn.default.svc.cluster.local", Image: "not_found", ImageMessage: "TaskRun fn-1 built it.",
		ImageName: "registry.example/fn@sha256:01", Source: &v1alpha1.SourceStatus{Commit: "abc"},
		Function: "running", FunctionMessage: messageOf(serves),
		PodStatuses: map[string]podReport{
			"ready":   {Status: "running", Revision: "fn-00002"},
			"crashes": {Status: "terminated", Message: "Container failed with: no such module", Revision: "fn-00001", Restarts: 3},
			"pending": {Status: "pending", Message: "0/1 nodes are available.", Revision: "fn-00002"},
		},
		Conditions: fn.Status.Conditions, Traffic: fn.Status.Traffic, Next: "Call it: kubectl fn invoke fn",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("newReport() (-want +got):\n%s", diff)
	}
	none := newReport(namespace, "gone", observe.Observed{})
	want = report{
		Name: "gone", Namespace: namespace, Image: "not_found", ImageMessage: imageMessage(nil),
		Function: "not_found", FunctionMessage: functionMessage(nil),
	}
	if diff := cmp.Diff(want, none); diff != "" {
		t.Errorf("newReport() of no Function (-want +got):\n%s", diff)
	}
}

func TestNextOfPods(t *testing.T) {
	homeless := pod("fn-00002", "a")
	homeless.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
	}}}
	newWorld(t, newFunction("fn", built), homeless).want(
		"Make its pods fit a node: lower spec.resources, or add a node. For details: kubectl describe pod", "status", "fn", "-o", "jsonpath={.next}")
}

func TestWordFor(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]string{
		corev1.ConditionTrue: "done", corev1.ConditionFalse: "failed", corev1.ConditionUnknown: "not yet",
	} {
		if got := wordFor(&apis.Condition{Status: status}); got != want {
			t.Errorf("wordFor(%s) = %q, want %q", status, got, want)
		}
	}
	if got := wordFor(nil); got != "not yet" {
		t.Errorf("wordFor(nil) = %q", got)
	}
}
