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

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// TestNeighboursVerdict checks that the verdict finds each kind of harm, and none beside a
// neighbour that is bounded.
func TestNeighboursVerdict(t *testing.T) {
	l := limits{median: 3, worst: 6}
	alone := neighbourReport{Neighbour: nobody, EditsS: []float64{9, 5, 4}}
	for _, test := range []struct {
		name string
		row  neighbourReport
		want string
	}{
		{"within the factors", neighbourReport{EditsS: []float64{15, 30, 4}, Made: 1}, ""},
		{"slow", neighbourReport{EditsS: []float64{16, 4, 17}, Made: 1}, "an edit took 16.0 s, more than 3 times the 5.0 s"},
		{"one of two waits for a slot", neighbourReport{EditsS: []float64{25, 5}, Made: 1}, ""},
		{"both of two are slow", neighbourReport{EditsS: []float64{25, 6}, Made: 1}, "an edit took 15.5 s, more than 3 times the 5.0 s"},
		{"one edit waits for a slot", neighbourReport{EditsS: []float64{120, 5, 5}, Made: 1}, ""},
		{"one edit is very slow", neighbourReport{EditsS: []float64{121, 5, 5}, Made: 1}, "the slowest edit took 121.0 s, more than 6 times the 5.0 s without a neighbour and 90 s"},
		{"starved", neighbourReport{EditsS: []float64{5, 5, 29}, Starved: "BuildQueued", Made: 1}, "an edit was not Ready after 29.0 s: BuildQueued"},
		{"the neighbour did nothing", neighbourReport{EditsS: []float64{5}, Refused: 7}, "the neighbour did nothing, and 7 of its requests were refused"},
		{"one edit was retried", neighbourReport{EditsS: []float64{5}, Made: 1, RefusedEdits: 1, RefusedS: 1.5}, ""},
		{"edits were refused for long", neighbourReport{EditsS: []float64{5}, Made: 1, RefusedEdits: 3, RefusedS: 3.5}, "edits were refused 3 times, for 3.5 s"},
		{"the webhook ended", neighbourReport{EditsS: []float64{5}, Made: 1, Ended: []string{"webhook ended"}}, "webhook ended"},
		{"requests failed", neighbourReport{EditsS: []float64{5}, Made: 1, traffic: traffic{Calls: 9, Failed: 1, Failure: "502"}}, "1 of 9 requests to a Function failed"},
		{"requests failed to both", neighbourReport{EditsS: []float64{5}, Made: 1, traffic: traffic{Failed: 4, BareFailed: 4}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.row.Neighbour = "a build storm"
			test.row.AloneS = alone.EditsS
			err := (&neighboursReport{Rows: []neighbourReport{alone, test.row}}).verdict(l)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("verdict = %v, want %q", err, test.want)
			}
		})
	}
	two := neighbourReport{Neighbour: "a build storm", EditsS: []float64{70, 60}, AloneS: alone.EditsS, Made: 1}
	if err := (&neighboursReport{Rows: []neighbourReport{alone, two}}).verdict(shortLimits); err != nil {
		t.Errorf("verdict of a short run = %v, want nil: it has no limit of the median", err)
	}
	for name, rows := range map[string][]neighbourReport{
		"nothing":            nil,
		"no baseline":        {{Neighbour: "a build storm", EditsS: []float64{5}, Made: 1}},
		"no edit":            {{Neighbour: nobody}},
		"a starved baseline": {{Neighbour: nobody, EditsS: []float64{5, 120}, Starved: "BuildQueued"}},
	} {
		if err := (&neighboursReport{Rows: rows}).verdict(l); err == nil {
			t.Errorf("%s: verdict found nothing wrong", name)
		}
	}
}

// TestAdd checks that edits without a neighbour are judged together.
func TestAdd(t *testing.T) {
	got := neighbourReport{Neighbour: nobody, EditsS: []float64{5}, RefusedEdits: 1, RefusedS: 1, traffic: traffic{Calls: 10, BareCalls: 9}}
	first := got.EditsS
	got.add(neighbourReport{Neighbour: nobody, EditsS: []float64{7}, Starved: "slow", RefusedEdits: 2, RefusedS: 3, Ended: []string{"webhook"},
		traffic: traffic{Calls: 20, Failed: 2, BareCalls: 19, BareFailed: 1, Failure: "502"}})
	want := neighbourReport{Neighbour: nobody, EditsS: []float64{5, 7}, Starved: "slow", RefusedEdits: 3, RefusedS: 3, Ended: []string{"webhook"},
		traffic: traffic{Calls: 30, Failed: 2, BareCalls: 28, BareFailed: 1, Failure: "502"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(neighbourReport{}, traffic{})); diff != "" {
		t.Errorf("add (-want, +got):\n%s", diff)
	}
	if len(first) != 1 {
		t.Errorf("the first edits are %v", first)
	}
}

func TestEnded(t *testing.T) {
	killed := &corev1.ContainerStateTerminated{Reason: "OOMKilled"}
	pod := func(uid string, status corev1.ContainerStatus) corev1.Pod {
		status.Name = "webhook"
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "webhook-" + uid, UID: types.UID(uid)},
			Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status}},
		}
	}
	before := []corev1.Pod{pod("a", corev1.ContainerStatus{RestartCount: 2})}
	for _, test := range []struct {
		name  string
		after []corev1.Pod
		want  []string
	}{
		{"it runs", before, nil},
		{"there is one more", append(before, pod("b", corev1.ContainerStatus{RestartCount: 1})), nil},
		{"restarted", []corev1.Pod{pod("a", corev1.ContainerStatus{RestartCount: 4, LastTerminationState: corev1.ContainerState{Terminated: killed}})},
			[]string{"webhook of pod webhook-a ended 2 times, last as OOMKilled"}},
		{"not restarted yet", []corev1.Pod{pod("a", corev1.ContainerStatus{RestartCount: 2, State: corev1.ContainerState{Terminated: killed}})},
			[]string{"webhook of pod webhook-a ended 1 times, last as OOMKilled"}},
		{"replaced", []corev1.Pod{pod("b", corev1.ContainerStatus{})}, []string{"pod webhook-a was deleted"}},
	} {
		if diff := cmp.Diff(test.want, ended(before, test.after)); diff != "" {
			t.Errorf("%s: ended (-want, +got):\n%s", test.name, diff)
		}
	}
}

// TestHostileFunctions checks that the API accepts what neighbours create. Otherwise they
// would do nothing.
func TestHostileFunctions(t *testing.T) {
	large := newLarge("bad", 0, 7)
	if len(large.Spec.Source) != largeBytes {
		t.Errorf("a large source has %d bytes, want %d", len(large.Spec.Source), largeBytes)
	}
	all := []*v1alpha1.Function{large, newStuck("bad", 0)}
	all = append(all, fillers("bad", 7, 256)...)
	all = append(all, stormers("bad", 7)...)
	for _, fn := range all {
		ctx := apis.WithinCreate(t.Context())
		fn.SetDefaults(ctx)
		if err := fn.Validate(ctx); err != nil {
			t.Errorf("the Function %s is invalid: %v", fn.Name, err)
		}
	}
	if a, b := stormers("bad", 1)[0].Spec.Deps, stormers("bad", 2)[0].Spec.Deps; a == b {
		t.Errorf("two versions have the same dependencies: %s", a)
	}
	if a, b := newLarge("bad", 0, 1).Spec.Source, newLarge("bad", 0, 2).Spec.Source; a == b {
		t.Error("two versions have the same source")
	}
}

// TestHostileEnds checks that a neighbour's loops end with it, and count what was refused.
func TestHostileEnds(t *testing.T) {
	h := newHostile(t.Context(), nil, "", 0)
	begun := make(chan struct{})
	h.loop(mostRounds, time.Nanosecond, func(ctx context.Context, round int) {
		_ = h.count(errors.New("refused"))
		if round == 1 {
			close(begun)
			<-ctx.Done()
		}
	})
	<-begun
	if err := h.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.made.Load() != 0 || h.refused.Load() != 1 {
		t.Errorf("%d requests were made and %d refused, want 0 and 1", h.made.Load(), h.refused.Load())
	}
}

// TestNeighboursPage checks that an update keeps the other chapters and the rows of other
// neighbours.
func TestNeighboursPage(t *testing.T) {
	alone := neighbourReport{Neighbour: nobody, EditsS: []float64{5}}
	storm := neighbourReport{Neighbour: "a build storm", AloneS: alone.EditsS, EditsS: []float64{10, 12, 8}, Made: 1, traffic: traffic{Calls: 900, BareCalls: 901}}
	flood := neighbourReport{Neighbour: "a webhook flood", AloneS: alone.EditsS, EditsS: []float64{5, 30}, Starved: "refused", RefusedEdits: 9, RefusedS: 30, Ended: []string{"webhook"}}
	page1 := page("", &neighboursReport{Cores: 2, FillMiB: 1024, Rows: []neighbourReport{alone, storm, flood}})
	page2 := page(page1, newWeather(10).report())
	storm.EditsS = []float64{15}
	page3 := page(page2, &neighboursReport{Cores: 2, FillMiB: 1024, Rows: []neighbourReport{alone, storm}})
	const floodRow = "| a webhook flood | 2 | 5.0 s | 17.5 s, 3.5 × | not Ready after 30.0 s, 6.0 × | 9, 30.0 s | 0 of 0 | 0 of 0 | 1 |\n"
	for name, test := range map[string]struct {
		page string
		want []string
	}{
		"neighbours": {page1, []string{pageIntro, neighboursIntro, "wrote 1024 MiB", "| nobody | 1 | 5.0 s | 5.0 s, 1.0 × |", floodRow,
			"| a build storm | 3 | 5.0 s | 10.0 s, 2.0 × | 12.0 s, 2.4 × | 0, 0.0 s | 0 of 900 | 0 of 901 | 0 |\n"}},
		"weather":     {page2, []string{pageIntro, weatherIntro, neighboursIntro, floodRow}},
		"one of them": {page3, []string{pageIntro, weatherIntro, neighboursIntro, floodRow, "| a build storm | 1 | 5.0 s | 15.0 s, 3.0 × |"}},
	} {
		rest := test.page
		for _, want := range test.want {
			_, after, ok := strings.Cut(rest, want)
			if !ok {
				t.Errorf("%s: the page does not have %q in its place:\n%s", name, want, test.page)
			}
			rest = after
		}
		if n := strings.Count(test.page, "\n## "+neighboursTitle+"\n"); n != 1 {
			t.Errorf("%s: the page has the chapter %d times", name, n)
		}
	}
}
