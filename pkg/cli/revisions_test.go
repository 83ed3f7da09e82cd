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
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

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

// TestRevisionsOfDeployment checks that the ReplicaSets of a Function that a Deployment serves
// are its revisions.
func TestRevisionsOfDeployment(t *testing.T) {
	set := func(revision string, replicas, ready int32) *appsv1.ReplicaSet {
		s := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Name: revision + "-hash", Namespace: namespace, CreationTimestamp: ago(10 * time.Minute),
			Labels: map[string]string{serverless.FunctionUIDLabelKey: "uid-of-fn", serverless.RevisionLabelKey: revision},
		}}
		s.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.example/" + revision}}
		s.Status.Replicas, s.Status.ReadyReplicas = replicas, ready
		return s
	}
	deployed := func(fs *v1alpha1.FunctionStatus) { serves(fs); fs.Serving = string(config.KubernetesServer) }
	w := newWorld(t, newFunction("fn", deployed), set("fn-00003", 1, 0), set("fn-00001", 0, 0), set("fn-00002", 1, 1))
	w.want(`
REVISION   TRAFFIC   TAGS     READY     AGE   REASON
fn-00003   0%        <none>   Unknown   10m   PodsNotReady
fn-00002   100%      <none>   True      10m   
fn-00001   0%        <none>   True      10m   
`, "revisions", "fn")
	w.want("function.serverless.kiln.dev/fn rolled back to fn-00001\n", "rollback", "fn")
	if got := w.function("fn").Spec.Traffic; len(got) != 1 || got[0].RevisionName != "fn-00001" {
		t.Errorf("traffic is %v", got)
	}
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

func share(name string, percent int64) v1alpha1.TrafficStatus {
	return v1alpha1.TrafficStatus{RevisionName: name, Percent: &percent}
}

func TestReportRevisions(t *testing.T) {
	failed := revision("fn-00003", corev1.ConditionFalse)
	failed.Status.Conditions[0].Reason = "ExitCode1"
	fresh := revision("fn-00004", corev1.ConditionUnknown)
	fresh.Status.Conditions, fresh.Spec.Containers = nil, nil
	fn := newFunction("fn", serves, func(fs *v1alpha1.FunctionStatus) {
		fs.Traffic = []v1alpha1.TrafficStatus{
			share("fn-00002", 60), {RevisionName: "fn-00002", Percent: new(int64(30)), Tag: "stable"},
			{RevisionName: "fn-00001", Tag: "old"}, {RevisionName: "fn-00001", Tag: "older"}, share("fn-00001", 10),
		}
	})
	w := newWorld(t, fn, revision("fn-00001", corev1.ConditionTrue), revision("fn-00002", corev1.ConditionTrue), failed, fresh)
	revisions, err := w.clients.revisions(t.Context(), newFunction("fn"))
	if err != nil {
		t.Fatal(err)
	}
	created := ago(10 * time.Minute)
	want := []revisionReport{
		{Name: "fn-00004", Ready: "Unknown", Created: created},
		{Name: "fn-00003", Ready: "False", Reason: "ExitCode1", Image: "registry.example/fn-00003", Created: created},
		{Name: "fn-00002", Percent: 90, Tags: []string{"stable"}, Ready: "True", Image: "registry.example/fn-00002", Created: created},
		{Name: "fn-00001", Percent: 10, Tags: []string{"old", "older"}, Ready: "True", Image: "registry.example/fn-00001", Created: created},
	}
	if diff := cmp.Diff(want, reportRevisions(fn, revisions)); diff != "" {
		t.Errorf("reportRevisions() (-want +got):\n%s", diff)
	}
	w.want(`
REVISION   TRAFFIC   TAGS        READY     AGE   REASON      IMAGE
fn-00004   0%        <none>      Unknown   10m               
fn-00003   0%        <none>      False     10m   ExitCode1   registry.example/fn-00003
fn-00002   90%       stable      True      10m               registry.example/fn-00002
fn-00001   10%       old,older   True      10m               registry.example/fn-00001
`, "revisions", "fn", "-o", "wide")
}

// The numbers of revisions have five digits, or more.
func TestRevisionsNewestFirst(t *testing.T) {
	stranger := revision("another-00001", corev1.ConditionTrue)
	stranger.Labels["serving.knative.dev/service"] = "another"
	w := newWorld(t, newFunction("fn"), stranger, revision("fn-99999", corev1.ConditionTrue), revision("fn-100000", corev1.ConditionTrue), revision("fn-00009", corev1.ConditionTrue))
	w.want("fn-100000 fn-99999 fn-00009", "revisions", "fn", "-o", "jsonpath={.revisions[*].name}")
}

func TestRevisionsErrors(t *testing.T) {
	w := newWorld(t, newFunction("fn"))
	w.want("", "revisions", "fn")
	if got, want := w.errOut.String(), "There are no revisions yet. See: kubectl fn status fn\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	w.want("[]", "revisions", "fn", "-o", "jsonpath={.revisions}")
	w.serving.PrependReactor("list", "revisions", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrs.NewForbidden(servingv1.Resource("revisions"), "", errors.New("no role"))
	})
	for _, args := range [][]string{{"revisions", "fn"}, {"rollback", "fn"}, {"traffic", "fn", "latest=100"}} {
		w.wantError("failed to list revisions: ", askAdministrator, args...)
	}
}

func TestEarlier(t *testing.T) {
	ready := func(names ...string) (revisions []servingv1.Revision) {
		for _, name := range names {
			status := corev1.ConditionTrue
			if failed, ok := strings.CutPrefix(name, "!"); ok {
				name, status = failed, corev1.ConditionFalse
			}
			revisions = append(revisions, *revision("fn-0000"+name, status))
		}
		return revisions
	}
	tests := map[string]struct {
		revisions []servingv1.Revision
		traffic   []v1alpha1.TrafficStatus
		want      string
	}{
		"before the latest":         {ready("3", "2", "1"), []v1alpha1.TrafficStatus{share("fn-00003", 100)}, "fn-00002"},
		"before a rolled back one":  {ready("3", "2", "1"), []v1alpha1.TrafficStatus{share("fn-00002", 100)}, "fn-00001"},
		"before the oldest of some": {ready("3", "2", "1"), []v1alpha1.TrafficStatus{share("fn-00003", 90), share("fn-00002", 10)}, "fn-00001"},
		"failed ones are skipped":   {ready("4", "!3", "!2", "1"), []v1alpha1.TrafficStatus{share("fn-00004", 100)}, "fn-00001"},
		"a tag gets no requests":    {ready("2", "1"), []v1alpha1.TrafficStatus{share("fn-00002", 100), {RevisionName: "fn-00001", Tag: "old"}}, "fn-00001"},
		"no requests at all":        {ready("2", "1"), nil, "fn-00002"},
		"the oldest gets some":      {ready("2", "1"), []v1alpha1.TrafficStatus{share("fn-00001", 1), share("fn-00002", 99)}, ""},
		"all earlier ones failed":   {ready("2", "!1"), []v1alpha1.TrafficStatus{share("fn-00002", 100)}, ""},
		"no revisions":              {nil, nil, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := earlier(newFunction("fn", func(fs *v1alpha1.FunctionStatus) { fs.Traffic = tc.traffic }), tc.revisions)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("earlier() = %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestParseShares(t *testing.T) {
	revisions := []servingv1.Revision{*revision("fn-00002", corev1.ConditionTrue), *revision("fn-00001", corev1.ConditionTrue)}
	const advice = "\nTry: kubectl fn traffic fn latest=100"
	tests := map[string]struct {
		want    map[string]int64
		wantErr string
	}{
		"latest=100":              {want: map[string]int64{"latest": 100}},
		"1=100":                   {want: map[string]int64{"fn-00001": 100}},
		"00001=100":               {want: map[string]int64{"fn-00001": 100}},
		"fn-00001=100":            {want: map[string]int64{"fn-00001": 100}},
		"1=10%,latest=90%":        {want: map[string]int64{"fn-00001": 10, "latest": 90}},
		"1=0,2=100":               {want: map[string]int64{"fn-00001": 0, "fn-00002": 100}},
		"1=30,2=30,latest=40":     {want: map[string]int64{"fn-00001": 30, "fn-00002": 30, "latest": 40}},
		"":                        {wantErr: `"" does not have the form REVISION=PERCENT` + advice},
		"latest":                  {wantErr: `"latest" does not have the form REVISION=PERCENT` + advice},
		"latest=all":              {wantErr: `"latest=all" does not have the form REVISION=PERCENT` + advice},
		"latest=99.5":             {wantErr: `"latest=99.5" does not have the form REVISION=PERCENT` + advice},
		"latest=101":              {wantErr: `"latest=101" does not have the form REVISION=PERCENT` + advice},
		"latest=100,":             {wantErr: `"" does not have the form REVISION=PERCENT` + advice},
		"latest=50":               {wantErr: "the percentages add up to 50, not 100" + advice},
		"latest=60,1=60":          {wantErr: "the percentages add up to 120, not 100" + advice},
		"latest=50,latest=50":     {wantErr: "revision latest is given twice" + advice},
		"1=50,fn-00001=50":        {wantErr: "revision fn-00001 is given twice" + advice},
		"3=100":                   {wantErr: "function fn has no revision 3\nTry: kubectl fn revisions fn"},
		"another-00001=100":       {wantErr: "function fn has no revision another-00001\nTry: kubectl fn revisions fn"},
		"9223372036854775808=100": {wantErr: "function fn has no revision 9223372036854775808\nTry: kubectl fn revisions fn"},
	}
	for text, tc := range tests {
		t.Run(text, func(t *testing.T) {
			got, err := parseShares(newFunction("fn"), revisions, text)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("parseShares() (-want +got):\n%s", diff)
			}
			if (err == nil) != (tc.wantErr == "") || err != nil && err.Error() != tc.wantErr {
				t.Errorf("error is %v, want %q", err, tc.wantErr)
			}
		})
	}
}

func TestRetarget(t *testing.T) {
	to := func(name string, percent int64, tag string) v1alpha1.TrafficTarget {
		if name == latest {
			return v1alpha1.TrafficTarget{LatestRevision: new(true), Percent: &percent, Tag: tag}
		}
		return v1alpha1.TrafficTarget{RevisionName: name, Percent: &percent, Tag: tag}
	}
	tests := map[string]struct {
		old    []v1alpha1.TrafficTarget
		shares map[string]int64
		want   []v1alpha1.TrafficTarget
	}{
		"default":                {nil, map[string]int64{latest: 100}, nil},
		"back to the default":    {[]v1alpha1.TrafficTarget{to("a", 50, ""), to(latest, 50, "")}, map[string]int64{latest: 100}, nil},
		"one":                    {nil, map[string]int64{"a": 100}, []v1alpha1.TrafficTarget{to("a", 100, "")}},
		"in the order of names":  {nil, map[string]int64{"b": 10, "a": 20, latest: 70}, []v1alpha1.TrafficTarget{to("a", 20, ""), to("b", 10, ""), to(latest, 70, "")}},
		"old shares go":          {[]v1alpha1.TrafficTarget{to("a", 100, "")}, map[string]int64{"b": 100}, []v1alpha1.TrafficTarget{to("b", 100, "")}},
		"a tag stays":            {[]v1alpha1.TrafficTarget{to("a", 100, "old")}, map[string]int64{"b": 100}, []v1alpha1.TrafficTarget{to("a", 0, "old"), to("b", 100, "")}},
		"a tag of the latest":    {[]v1alpha1.TrafficTarget{to(latest, 10, "next")}, map[string]int64{"a": 90, latest: 10}, []v1alpha1.TrafficTarget{to(latest, 10, "next"), to("a", 90, "")}},
		"two tags of a revision": {[]v1alpha1.TrafficTarget{to("a", 0, "x"), to("a", 0, "y")}, map[string]int64{"a": 100}, []v1alpha1.TrafficTarget{to("a", 100, "x"), to("a", 0, "y")}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := retarget(tc.old, tc.shares)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("retarget() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrintTraffic(t *testing.T) {
	w := newWorld(t, newFunction("new"), newFunction("fn", serves, func(fs *v1alpha1.FunctionStatus) {
		fs.Traffic = []v1alpha1.TrafficStatus{
			{RevisionName: "fn-00002", LatestRevision: new(true), Percent: new(int64(90))},
			{RevisionName: "fn-00001", Percent: new(int64(10)), Tag: "old", URL: apis.HTTP("old-fn.default.svc.cluster.local")},
		}
	}))
	w.want(`
REVISION            TRAFFIC   TAG      URL
fn-00002 (latest)   90%       <none>   <none>
fn-00001            10%       old      http://old-fn.default.svc.cluster.local
`, "traffic", "fn")
	w.want("", "traffic", "new")
	if got, want := w.errOut.String(), "No revision gets requests yet. See: kubectl fn status new\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	w.wantError("expected the name of one Function, got 0 names", "kubectl fn list, or kubectl fn traffic --help", "traffic")
	w.wantError("expected the name of one Function, got 3 names", "kubectl fn list, or kubectl fn traffic --help", "traffic", "fn", "1=50", "2=50")
}

func TestRollbackAdvice(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), revision("fn-00001", corev1.ConditionTrue), revision("fn-00002", corev1.ConditionTrue))
	w.want("function.serverless.kiln.dev/fn rolled back to fn-00001\n", "rollback", "fn", "--to=fn-00001")
	if got, want := w.errOut.String(), "Newer revisions get no requests until: kubectl fn traffic fn latest=100\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	w.want("function.serverless.kiln.dev/fn traffic set\n", "traffic", "fn", "latest=100")
	if got := w.function("fn").Spec.Traffic; got != nil {
		t.Errorf("after the command that it names, traffic is %v", got)
	}
}
