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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"
)

// newWeather returns the results for one Function on a day without faults and on one with
// faults.
func newWeather(requests int) *weather {
	w := &weather{forecast: forecast{functions: 1, seed: 1}, judge: &judge{live: map[types.UID]map[string]struct{}{}}}
	for _, rate := range []float64{0, 0.05} {
		w.rounds = append(w.rounds, round{
			day: day{rate: rate}, worst: 2 * time.Second, after: vitals{goroutines: 100, heap: 10 << 20, resident: 80 << 20},
			tally: tally{work: requests, faults: map[string]int{string(lost): 1}, by: map[string]*share{"one/fn-000": {requests: requests, faults: 1, busiest: 3}}},
		})
	}
	return w
}

// TestVerdict checks that the verdict finds each kind of error, and none in a correct run.
func TestVerdict(t *testing.T) {
	// It is created and deleted, and there is one fault.
	most := 2*perStep + perFault
	for _, test := range []struct {
		name   string
		change func(*weather)
		want   string
	}{
		{"well", func(*weather) {}, ""},
		{"requests", func(w *weather) { w.rounds[1].tally.by["one/fn-000"].requests = most + 1 }, "at most 25 were to be"},
		{"busy", func(w *weather) { w.rounds[1].tally.by["one/fn-000"].busiest = perSecond + 1 }, "within a second"},
		{"goroutines", func(w *weather) { w.rounds[1].after.goroutines += moreGoroutines + 1 }, "goroutines in the end"},
		{"heap", func(w *weather) { w.rounds[1].after.heap *= 2 }, "uses 20.0 MiB in the end"},
		{"heap after a fine day", func(w *weather) {
			w.rounds[0].rate, w.rounds[1].rate = 0, 0
			w.rounds[1].after.heap *= 1.1
		}, "uses 11.0 MiB after a fine day"},
		{"heap after a fine day of many Events", func(w *weather) {
			w.rounds[0].rate, w.rounds[1].rate = 0, 0
			w.rounds[1].after.heap *= 1.1
			w.rounds[1].tally.events = 500
		}, ""},
		{"ended", func(w *weather) { w.rounds[1].starts = 1 }, "the controller ended 1 times"},
		{"webhook ended", func(w *weather) { w.rounds[1].webhookStarts = 2 }, "the webhook ended 2 times"},
		{"killed", func(w *weather) { w.rounds[1].starts, w.rounds[1].webhookStarts, w.rounds[1].killed = 1, 1, true }, ""},
		{"two builds", func(w *weather) { w.judge.wrong = []string{"two TaskRuns"} }, "two TaskRuns"},
	} {
		w := newWeather(most)
		test.change(w)
		err := w.judge.verdict(w)
		if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: verdict() = %v, want %q", test.name, err, test.want)
		}
	}
}

// TestPage checks that an update keeps the other chapter and the rows of other victims.
func TestPage(t *testing.T) {
	registry := killReport{Victim: "the registry", Functions: 20, Built: 8, ReadyS: 70, Builds: 8, traffic: traffic{Calls: 900, BareCalls: 901}}
	containerd := killReport{Victim: "containerd", Functions: 20, Built: 8, ReadyS: 80, Builds: 9, traffic: traffic{Calls: 800, BareCalls: 801}}
	wantRegistry := "| the registry | 20, 8 | 70.0 s | 0.0 s | 8 | 0 of 900 | 0 of 901 |"
	page1 := page("", &killsReport{Kills: []killReport{containerd, registry}})
	page2 := page(page1, newWeather(10).report())
	containerd.ReadyS, containerd.Skipped = 90, errSkipped.Error()
	page3 := page(page2, &killsReport{Kills: []killReport{containerd}})
	for name, test := range map[string]struct {
		page string
		want []string
	}{
		"kills":                   {page1, []string{pageIntro, killsIntro, wantRegistry, "| containerd | 20, 8 | 80.0 s |"}},
		"weather":                 {page2, []string{pageIntro, weatherIntro, "1 Functions, with `-seed=1`", killsIntro, wantRegistry, "| containerd | 20, 8 | 80.0 s |"}},
		"one of them killed anew": {page3, []string{pageIntro, weatherIntro, "1 Functions, with `-seed=1`", killsIntro, wantRegistry, "| containerd (not killed: "}},
	} {
		rest := test.page
		for _, want := range test.want {
			_, after, ok := strings.Cut(rest, want)
			if !ok {
				t.Errorf("%s: the page does not have %q in its place:\n%s", name, want, test.page)
			}
			rest = after
		}
		for _, heading := range []string{weatherTitle, killsTitle} {
			if n := strings.Count(test.page, "\n## "+heading+"\n"); n > 1 {
				t.Errorf("%s: the page has the chapter %q %d times", name, heading, n)
			}
		}
	}
	if again := page(page3, newWeather(10).report()); again != page3 {
		t.Errorf("the same result changed the page: %s", cmp.Diff(page3, again))
	}
}

func TestWrite(t *testing.T) {
	folder := t.TempDir()
	if err := write(folder, folder, "weather", newWeather(10).report()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(folder, "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 Functions, with `-seed=1`", "| 5 % | TaskRun, Service | 2.0 s | 10 | 0 | 10 | 40 % | 3 | 100 | 10.0 |", "| 5 %, TaskRun, Service | answer lost 1 |"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the page does not have %q:\n%s", want, data)
		}
	}
}
