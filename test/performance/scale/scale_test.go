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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/test/controlplane"
)

func TestCount(t *testing.T) {
	const log = `{"verb":"create","user":{"username":"system:serviceaccount:kiln-system:controller"},"objectRef":{"resource":"taskruns"},"responseStatus":{"code":201}}
{"verb":"update","user":{"username":"system:serviceaccount:kiln-system:controller"},"objectRef":{"resource":"functions","subresource":"status"},"responseStatus":{"code":200}}
{"verb":"update","user":{"username":"system:serviceaccount:kiln-system:controller"},"objectRef":{"resource":"functions","subresource":"status"},"responseStatus":{"code":409,"reason":"Conflict"}}
{"verb":"create","user":{"username":"system:serviceaccount:kiln-system:controller"},"objectRef":{"resource":"events"},"responseStatus":{"code":201}}
{"verb":"update","user":{"username":"system:serviceaccount:kiln-system:controller"},"objectRef":{"resource":"leases"},"responseStatus":{"code":200}}
{"verb":"list","user":{"username":"system:serviceaccount:kiln-system:controller"},"objectRef":{"resource":"taskruns"},"responseStatus":{"code":200}}
{"verb":"get","user":{"username":"system:serviceaccount:kiln-system:controller"},"objectRef":{"resource":"functions"},"responseStatus":{"code":200}}
{"verb":"update","user":{"username":"stand-in"},"objectRef":{"resource":"taskruns","subresource":"status"},"responseStatus":{"code":200}}
`
	counted := requests{}
	if err := counted.count(strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		selects func(request) bool
		want    int
	}{
		// A conflict is a failed write.
		{"writes", isWrite, 3},
		{"events", isEvent, 1},
		{"gets", isGet, 1},
		{"lists", isList, 1},
		{"conflicts", isConflict, 1},
	} {
		if got := counted.ofController(test.selects); got != test.want {
			t.Errorf("%s = %d, want %d", test.name, got, test.want)
		}
	}
	if err := counted.count(strings.NewReader(`{"verb":`)); err == nil {
		t.Error("half a line is counted")
	}
}

func TestKeysOf(t *testing.T) {
	want := []types.NamespacedName{
		{Namespace: "one", Name: "fn-00000"}, {Namespace: "two", Name: "fn-00001"}, {Namespace: "one", Name: "fn-00002"},
	}
	if diff := cmp.Diff(want, keysOf(3, one, two)); diff != "" {
		t.Errorf("keysOf (-want, +got): %s", diff)
	}
}

// taking returns the cost of the creation of 10 Functions.
func taking(wall time.Duration, writes, lists int) taken {
	return taken{wall: wall, api: wall.Seconds(), etcd: 1, own: 0.5, resident: 100 << 20, requests: requests{
		{User: controlplane.ControllerUser, Verb: "create", Resource: "configmaps"}: writes,
		{User: controlplane.ControllerUser, Verb: "list", Resource: "taskruns"}:     lists,
	}}
}

func newResults() *results {
	return &results{
		growth: []growth{
			{n: 10, kiln: []taken{taking(3*time.Second, 70, 0), taking(5*time.Second, 70, 0)}, bare: []taken{taking(2*time.Second, 60, 0), taking(5*time.Second, 60, 0)}},
			{n: 100, kiln: []taken{taking(60*time.Second, 900, 100)}},
		},
		plain: growth{n: 10, kiln: []taken{taking(4*time.Second, 90, 0)}, bare: []taken{taking(2*time.Second, 80, 0)}},
		live: live{
			functions: 100, base: 90 << 20, rested: 95 << 20, edited: 50,
			resync: taken{wall: time.Second}, restart: taking(20*time.Second, 1, 6), storm: taking(90*time.Second, 900, 100),
			idle: []single{{time.Second, 100 * time.Millisecond}}, busy: []single{{3 * time.Second, 200 * time.Millisecond}},
		},
		large: large{
			functions: 64, limit: 512 << 20, base: 60 << 20, rested: 76 << 20, createdPeak: 200 << 20, restartPeak: 100 << 20,
			created: taken{wall: 30 * time.Second}, restart: 2 * time.Second,
		},
	}
}

func TestReport(t *testing.T) {
	got := newResults().report()
	names := make([]string, 0, len(got.Rows))
	for _, row := range got.Rows {
		names = append(names, row.Name)
	}
	if diff := cmp.Diff([]string{"create-10", "create-100", "plain-create-10", "steady-writes", "restart", "storm", "large"}, names); diff != "" {
		t.Errorf("rows (-want, +got): %s", diff)
	}
	for _, test := range []struct {
		row       string
		got, want float64
	}{
		{"create-10", got.Row("create-10").Ratio, 1.25}, // Of 1.5 and 1.
		{"create-10", got.Row("create-10").Parts["writes_per_function"], 7},
		{"create-10", got.Row("create-10").Parts["bare_writes_per_function"], 6},
		{"create-100", got.Row("create-100").Ratio, 1.5},
		{"plain-create-10", got.Row("plain-create-10").Ratio, 2},
		{"create-100", got.Row("create-100").Parts["lists_per_function"], 1},
		{"restart", got.Row("restart").Parts["controller_kib_per_function"], 51.2},
		{"storm", got.Row("storm").Ratio, 1.5},
		{"storm", got.Row("storm").Parts["busy_ratio"], 3},
		{"storm", got.Row("storm").Parts["busy_writes_ratio"], 2},
		{"large", got.Row("large").Parts["controller_kib_per_function"], 256},
	} {
		if diff := cmp.Diff(test.want, test.got, cmp.Comparer(func(x, y float64) bool { return x-y < 1e-9 && y-x < 1e-9 })); diff != "" {
			t.Errorf("%s (-want, +got): %s", test.row, diff)
		}
	}
}

func TestPageWithoutBareClient(t *testing.T) {
	found := newResults()
	found.growth = found.growth[1:]
	got := page(found.report())
	if want := "| 100 | 60.0 | – | – | 9.00, of – |"; !strings.Contains(got, want) {
		t.Errorf("the page lacks %q:\n%s", want, got)
	}
	if strings.Contains(got, "CPU makes the difference") {
		t.Errorf("the page tells of a bare client that there was not:\n%s", got)
	}
}

func TestCheck(t *testing.T) {
	err := check(newResults().report())
	if err == nil || err.Error() != "writes after a restart: 1, and not ≤ 0" {
		t.Errorf("check = %v, want that a new start has written, and not a word of what took too long", err)
	}
	found := newResults()
	found.live.restart = taking(20*time.Second, 0, 6)
	if err := check(found.report()); err != nil {
		t.Errorf("check = %v, want nothing wrong", err)
	}
	// Both happen if the controller keeps the sources.
	found.large.restartPeak, found.large.rested = 513<<20, 83<<20
	const want = "most memory of the controller with 64 Functions of 900 KiB: 513 MiB, and not ≤ 512 MiB\n" +
		"memory that they add to the controller at rest: 23 MiB, and not ≤ 22.5 MiB"
	if err := check(found.report()); err == nil || err.Error() != want {
		t.Errorf("check = %v, want %s", err, want)
	}
}

func TestSave(t *testing.T) {
	folder := t.TempDir()
	if err := newResults().save(folder+"/bench", folder+"/docs"); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"bench/scale.json", "docs/performance-growth.svg"} {
		if info, err := os.Stat(folder + "/" + file); err != nil || info.Size() == 0 {
			t.Errorf("%s = %v, %v", file, info, err)
		}
	}
	data, err := os.ReadFile(folder + "/docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| creation of 10: time, relative to the bare client | ≤ 1.25 | 1.25 | met |",
		"| writes after a restart | ≤ 0 | 1 | **not met** |",
		"| 10 | 4.0 | 3.5 | 1.25 | 7.00, of 6 |",
		"| 100 | 60.0 | – | – | 9.00, of – |",
		"| 10, with Jobs and Deployments | 4.0 | 2.0 | 2.00 | 9.00, of 8 |",
		"| creation of 10, with Jobs and Deployments: time, relative to the bare client | ≤ 1.25 | 2 | **not met** |",
		"| a restart of the controller, until it has reconciled all | 2.0 | 100 |",
		"| Kiln | 400.0 | 100.0 | 0.0 | 0.0 | 50.0 | 550.0 |",
		"| the bare client | 350.0 | 100.0 |",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the page lacks %q:\n%s", want, data)
		}
	}
}

func TestParseQueue(t *testing.T) {
	const text = `# TYPE kn_workqueue_depth gauge
kn_workqueue_depth{name="github.com.kiln-dev.kiln.pkg.reconciler.function.Reconciler-fast"} 2
kn_workqueue_depth{name="github.com.kiln-dev.kiln.pkg.reconciler.function.Reconciler-slow"} 1
kn_workqueue_depth{name="functions"} 7
kn_workqueue_depth{name="image-lookups"} 4
# TYPE kn_workqueue_process_duration_seconds histogram
kn_workqueue_process_duration_seconds_bucket{name="github.com.kiln-dev.kiln.pkg.reconciler.function.Reconciler-consumer",le="+Inf"} 5
kn_workqueue_process_duration_seconds_sum{name="github.com.kiln-dev.kiln.pkg.reconciler.function.Reconciler-consumer"} 1.5
kn_workqueue_process_duration_seconds_count{name="github.com.kiln-dev.kiln.pkg.reconciler.function.Reconciler-consumer"} 5
`
	got, err := parseQueue([]byte(text))
	if want := (queue{done: 5, waiting: 10}); err != nil || got != want {
		t.Errorf("parseQueue() = %+v, %v, want %+v", got, err, want)
	}
}
