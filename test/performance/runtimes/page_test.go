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
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/test/performance/report"
)

// figures returns samples that differ only in times.
func figures(seconds float64) samples {
	return samples{cpu: {seconds}, event: {2 * seconds}, throughput: {seconds}, single: {2 * seconds}, p99: {80 * seconds}, singleP99: {3 * seconds}, start: {0.05}, memory: {70}, size: {0}}
}

func TestTableRows(t *testing.T) {
	g := group{title: "Node 24", servers: []server{
		{name: bare, title: "bare"}, {name: bare + inAsync, title: "bare, async"}, {name: kiln + inAsync, title: "Kiln", like: bare + inAsync},
	}}
	got := tableRows(g, map[string]samples{bare: figures(0.0001), bare + inAsync: figures(0.000125), kiln + inAsync: figures(0.00015)})
	want := []string{
		"| Node 24, bare (100 µs; 200 µs; 10000/s; 5000/s; 50 ms) | 1 | 1 | 1 | 1 | 1 | 8.0; 0.30 | 70 | 0.00 |",
		"| Node 24, bare, async | 1.25 | 1.25 | 0.80 | 0.80 | 1.00 | 10.0; 0.38 | 70 | 0.00 |",
		"| Node 24, Kiln | 1.50 (1.20) | 1.50 (1.20) | 0.67 (0.83) | 0.67 (0.83) | 1.00 (1.00) | 12.0; 0.45 | 70 | 0.00 |",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestConclude(t *testing.T) {
	g := group{runtime: "python313", servers: []server{{name: bare}, {name: bare + inThreads}, {name: kiln + inThreads, like: bare + inThreads}}}
	rows := conclude(g, map[string]samples{bare: figures(0.0001), bare + inThreads: figures(0.000125), kiln + inThreads: figures(0.00015)})
	i := slices.IndexFunc(rows, func(r report.Row) bool { return r.Name == "python313-kiln-threads-cpu" })
	if i < 0 {
		t.Fatalf("no row of CPU among %+v", rows)
	}
	if got := rows[i].Baseline; got != "python313-bare-cpu" {
		t.Errorf("Ratio is of %q, want the bare server's row", got)
	}
	got := map[string]string{}
	for part, value := range rows[i].Parts {
		got[part] = fmt.Sprintf("%.2f", value)
	}
	if diff := cmp.Diff(map[string]string{relative: "1.50", relativeToLike: "1.20"}, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

func TestReplaceRows(t *testing.T) {
	const page = "text\n| Node 22, a |\n| Node 22, b |\n| Python, a |\nend\n"
	for _, test := range []struct {
		name, title, want string
		fails             bool
	}{
		{name: "more rows than before", title: "Python", want: "text\n| Node 22, a |\n| Node 22, b |\nnew\nrows\nend\n"},
		{name: "as many, in their place", title: "Node 22", want: "text\nnew\nrows\n| Python, a |\nend\n"},
		{name: "a runtime that the page does not have", title: "Node 24", fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := replaceRows(page, test.title, []string{"new", "rows"})
			if (err != nil) != test.fails {
				t.Fatalf("error: %v, want one: %v", err, test.fails)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("page (-want +got):\n%s", diff)
			}
		})
	}
}
