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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func TestList(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"), crashing("fn-00002", "b"), buildPod())
	w.want(`
NAME   CONFIGURED   BUILT   RUNNING   RUNTIME    VERSION   AGE   PODS   IMAGE AGE   URL
fn     True         True    True      nodejs24   2         60m   1/2    4m          http://fn.default.svc.cluster.local
`, "list")
	w.want(`
NAMESPACE   NAME   CONFIGURED   BUILT   RUNNING   RUNTIME    VERSION   AGE   PODS   IMAGE AGE   URL
default     fn     True         True    True      nodejs24   2         60m   1/2    4m          http://fn.default.svc.cluster.local
`, "get", "--all-namespaces")
	w.want("function.serverless.kiln.dev/fn\n", "get", "fn", "-o", "name")
	w.want("http://fn.default.svc.cluster.local", "get", "fn", "-o", "jsonpath={.status.url}")
	got, err := w.run("list", "-o", "yaml")
	var list v1alpha1.FunctionList
	if err := yaml.UnmarshalStrict([]byte(got), &list); err != nil || list.Kind != "FunctionList" || len(list.Items) != 1 {
		t.Errorf("kubectl fn list -o yaml is no list of one Function: %v\n%s", err, got)
	}
	if err != nil {
		t.Error(err)
	}
	w.wantError("names cannot be combined with -A or -l", "kubectl fn list --help", "list", "fn", "-A")

	w = newWorld(t, newFunction("fn", buildFailed))
	w.want(`
NAME   CONFIGURED   BUILT   RUNNING   RUNTIME    VERSION   AGE   PODS   IMAGE AGE   URL      PHASE    REASON          IMAGE
fn     True         False   Unknown   nodejs24   2         60m   0/0    <none>      <none>   Failed   TaskRunFailed   <none>
`, "list", "-o", "wide")
	w = newWorld(t)
	w.want("", "list")
	if got := w.errOut.String(); !strings.HasPrefix(got, "There are no Functions in default.") {
		t.Errorf("kubectl fn list without any says %q", got)
	}
}

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
    The service is about to be updated.

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
		t.Run(name, func(t *testing.T) { tc.world.want(tc.want, "status", "fn", "-o", "jsonpath={.next}") })
	}
}

// Scripts want a word where there is no Function, too.
func TestStatusOfNone(t *testing.T) {
	w := newWorld(t)
	for _, command := range []string{"status", "build-status"} {
		got, err := w.run(command, "fn", "-o", "jsonpath={.image}")
		if got != "not_found" || err == nil || !strings.HasSuffix(err.Error(), "Try: kubectl fn list --all-namespaces") {
			t.Errorf("kubectl fn %s prints %q and returns %v", command, got, err)
		}
	}
}

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
		t.Errorf("it says %q, want %q", got, want)
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

func TestLogs(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), crashing("fn-00002", "a"), pod("fn-00001", "b"), buildPod())
	w.want("fake logs", "logs", "fn")
	w.want("[b] fake logs\n[a] fake logs\n", "logs", "--all-pods", "fn")
	w.wantError("--follow and --previous cannot be combined", "kubectl fn logs --previous fn", "logs", "--follow", "--previous", "fn")
	newWorld(t, newFunction("fn", serves)).wantError("function fn has no pods", "kubectl fn status fn", "logs", "fn")
}

func TestPrefixer(t *testing.T) {
	var out strings.Builder
	lines := &sync.Mutex{}
	a, b := newPrefixer(&out, lines, "a"), newPrefixer(&out, lines, "b")
	for _, write := range []struct {
		to   *prefixer
		text string
	}{{a, "one\ntw"}, {b, "other\r\n"}, {a, "o\n\n"}, {b, "open"}} {
		if n, err := write.to.Write([]byte(write.text)); n != len(write.text) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", write.text, n, err)
		}
	}
	b.flush()
	b.flush()
	if got, want := out.String(), "[a] one\n[b] other\n[a] two\n[a] \n[b] open\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestRevisions(t *testing.T) {
	fn := newFunction("fn", serves)
	fn.Status.Traffic = append(fn.Status.Traffic, v1alpha1.TrafficStatus{RevisionName: "fn-00001", Tag: "old"})
	w := newWorld(t, fn, revision("fn-00001", corev1.ConditionTrue), revision("fn-00002", corev1.ConditionTrue))
	w.want(`
REVISION   TRAFFIC   TAGS     READY   AGE   REASON
fn-00002   100%      <none>   True    10m   
fn-00001   0%        old      True    10m   
`, "revisions", "fn")
	w.want(`fn-00002 100`, "revisions", "fn", "-o", "jsonpath={.revisions[0].name} {.revisions[0].percent}")
	w.want(`
REVISION            TRAFFIC   TAG      URL
fn-00002 (latest)   100%      <none>   <none>
fn-00001            0%        old      <none>
`, "traffic", "fn")
}

func TestRollback(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), revision("fn-00001", corev1.ConditionTrue), revision("fn-00002", corev1.ConditionTrue), revision("fn-00003", corev1.ConditionFalse))
	w.want("function.serverless.kiln.dev/fn rolled back to fn-00001\n", "rollback", "fn")
	want := []v1alpha1.TrafficTarget{{RevisionName: "fn-00001", Percent: new(int64(100))}}
	if diff := cmp.Diff(want, w.function("fn").Spec.Traffic); diff != "" {
		t.Errorf("traffic (-want +got):\n%s", diff)
	}
	w.want("function.serverless.kiln.dev/fn rolled back to fn-00002\n", "rollback", "fn", "--to=2")
	w.wantError("function fn has no revision 7", "kubectl fn revisions fn", "rollback", "fn", "--to=7")
	newWorld(t, newFunction("fn", serves), revision("fn-00002", corev1.ConditionTrue)).
		wantError("has no earlier ready revision", "kubectl fn revisions fn", "rollback", "fn")
}

func TestTraffic(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), revision("fn-00001", corev1.ConditionTrue), revision("fn-00002", corev1.ConditionTrue))
	w.want("function.serverless.kiln.dev/fn traffic set\n", "traffic", "fn", "fn-00001=10,latest=90")
	want := []v1alpha1.TrafficTarget{
		{RevisionName: "fn-00001", Percent: new(int64(10))}, {LatestRevision: new(true), Percent: new(int64(90))},
	}
	if diff := cmp.Diff(want, w.function("fn").Spec.Traffic); diff != "" {
		t.Errorf("traffic (-want +got):\n%s", diff)
	}
	for given, words := range map[string]string{
		"1=10,latest=80":  "the percentages add up to 90, not 100",
		"1=10,1=90":       "revision fn-00001 is given twice",
		"1":               `"1" does not have the form REVISION=PERCENT`,
		"1=-1,latest=101": `"1=-1" does not have the form REVISION=PERCENT`,
	} {
		w.wantError(words, "kubectl fn traffic fn latest=100", "traffic", "fn", given)
	}
	w.wantError("function fn has no revision 9", "kubectl fn revisions fn", "traffic", "fn", "9=100")
	w.want("function.serverless.kiln.dev/fn traffic set\n", "traffic", "fn", "latest=100")
	if got := w.function("fn").Spec.Traffic; got != nil {
		t.Errorf("traffic is %v, want none", got)
	}
}

func TestRetargetKeepsTags(t *testing.T) {
	old := []v1alpha1.TrafficTarget{
		{RevisionName: "fn-00001", Percent: new(int64(50)), Tag: "old"}, {LatestRevision: new(true), Percent: new(int64(50))},
	}
	want := []v1alpha1.TrafficTarget{
		{RevisionName: "fn-00001", Percent: new(int64(20)), Tag: "old"}, {LatestRevision: new(true), Percent: new(int64(80))},
	}
	if diff := cmp.Diff(want, retarget(old, map[string]int64{"fn-00001": 20, latest: 80})); diff != "" {
		t.Errorf("retarget() (-want +got):\n%s", diff)
	}
	want = []v1alpha1.TrafficTarget{
		{RevisionName: "fn-00001", Percent: new(int64(0)), Tag: "old"}, {LatestRevision: new(true), Percent: new(int64(100))},
	}
	if diff := cmp.Diff(want, retarget(old, map[string]int64{latest: 100})); diff != "" {
		t.Errorf("retarget() (-want +got):\n%s", diff)
	}
}

func TestRebuildAndDelete(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves))
	w.want("function.serverless.kiln.dev/fn rebuild requested\n", "rebuild", "fn")
	if got, want := w.function("fn").Annotations[serverless.RebuildAnnotationKey], "2026-01-01T12:00:00Z"; got != want {
		t.Errorf("the annotation is %q, want %q", got, want)
	}
	w.want("function.serverless.kiln.dev \"fn\" deleted\n", "delete", "fn")
	w.wantError("there is no Function fn", "kubectl fn list --all-namespaces", "delete", "fn")
	w.wantError("expected the name of at least one Function", "kubectl fn list", "delete")
}

func TestDescribeRuntime(t *testing.T) {
	w := newWorld(t, runtimesConfig())
	w.want(`
RUNTIME      LANGUAGE     DEPRECATED   SOURCE FILE   DEPENDENCY FILE    BASE IMAGE
dockerfile   dockerfile   false        Dockerfile    <none>             <none>
nodejs24     nodejs       false        handler.js    package.json       node:24
python313    python       true         handler.py    requirements.txt   python:3.13
`, "describe-runtime")
	w.want(`
Runtime       python313
Language      python
Base image    python:3.13
Deprecated    yes: choose another one
Source        handler.py, in spec.source
Dependencies  requirements.txt, in spec.deps
Health        GET /healthz

Next: kubectl fn init DIR --runtime=python313
`, "describe-runtime", "python313")
	w.want(`
Runtime       dockerfile
Language      dockerfile
Base image    set by the Dockerfile
Source        Dockerfile and the files beside it, in spec.git or spec.archive
Dependencies  installed by the Dockerfile
Health        the container listens on $PORT, which is 8080

Next: kubectl fn init DIR --runtime=dockerfile
`, "describe-runtime", "dockerfile")
	w.want("python", "describe-runtime", "python313", "-o", "jsonpath={.language}")
	w.wantError("unknown runtime cobol; the runtimes are dockerfile, nodejs24, python313", "kubectl fn describe-runtime", "describe-runtime", "cobol")
	newWorld(t).wantError("Kiln is probably not installed on this cluster", "kubectl config current-context", "describe-runtime")
}

func TestCompletion(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), newFunction("greeter"), runtimesConfig(),
		revision("fn-00001", corev1.ConditionTrue), revision("fn-00002", corev1.ConditionTrue),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}})
	for _, tc := range []struct{ typed, want string }{
		{"status |", "fn greeter"},
		{"status g|", "greeter"},
		{"status fn |", ""},
		{"delete fn |", "greeter"},
		{"describe-runtime n|", "nodejs24"},
		{"rollback fn --to |", "fn-00002 fn-00001"},
		{"traffic fn |", "fn-00002= fn-00001= latest="},
		{"traffic fn fn-00001=10,l|", "fn-00001=10,latest="},
		{"list --namespace t|", "team-a"},
		{"status fn --output |", "wide json yaml kyaml name go-template go-template-file template templatefile jsonpath jsonpath-as-json jsonpath-file"},
	} {
		words := strings.Split(strings.TrimSuffix(tc.typed, "|"), " ")
		got, err := w.run(append([]string{"__complete"}, words...)...)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(got[:strings.LastIndex(got, ":")])
		if got := strings.Join(lines, " "); got != tc.want {
			t.Errorf("%q is completed by %q, want %q", tc.typed, got, tc.want)
		}
	}
}
