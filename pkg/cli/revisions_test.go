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
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"

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
