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

package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"knative.dev/pkg/controller"
	pkgreconciler "knative.dev/pkg/reconciler"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	fakekilnclient "github.com/kiln-dev/kiln/pkg/client/injection/client/fake"
	functioninformer "github.com/kiln-dev/kiln/pkg/client/injection/informers/serverless/v1alpha1/function"

	_ "github.com/kiln-dev/kiln/pkg/client/injection/informers/serverless/v1alpha1/function/fake"
)

const namespace = "default"

// fakeReconciler leads every Function except those of others.
type fakeReconciler struct {
	pkgreconciler.LeaderAwareFuncs
	err error
}

func (r *fakeReconciler) Reconcile(context.Context, string) error { return r.err }

func (*fakeReconciler) IsLeaderFor(key types.NamespacedName) bool { return key.Namespace == namespace }

// world is an instrumented controller and what it exports.
type world struct {
	*testing.T
	ctx        context.Context
	cancel     context.CancelFunc
	reader     *sdkmetric.ManualReader
	reconciler *fakeReconciler
	impl       *controller.Impl
	builds     func(before, after any)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel, _ := rtesting.SetupFakeContextWithCancel(t)
	t.Cleanup(cancel)
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	w := &world{T: t, ctx: ctx, cancel: cancel, reader: reader, reconciler: &fakeReconciler{}}
	w.impl = &controller.Impl{Reconciler: w.reconciler}
	if err := Instrument(provider, w.impl, functioninformer.Get(ctx)); err != nil {
		t.Fatal("Instrument() =", err)
	}
	m, err := newBuilds(provider.Meter(scopeName), w.reconciler)
	if err != nil {
		t.Fatal("newBuilds() =", err)
	}
	w.builds = m.onUpdate
	return w
}

func (w *world) have(fns ...*v1alpha1.Function) {
	w.Helper()
	for _, fn := range fns {
		if err := functioninformer.Get(w.ctx).Informer().GetIndexer().Add(fn); err != nil {
			w.Fatal("Failed to add to the cache:", err)
		}
	}
}

// collect returns what is exported, by name.
func (w *world) collect() map[string]metricdata.Metrics {
	w.Helper()
	var data metricdata.ResourceMetrics
	if err := w.reader.Collect(w.ctx, &data); err != nil {
		w.Fatal("Collect() =", err)
	}
	found := map[string]metricdata.Metrics{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			found[m.Name] = m
		}
	}
	return found
}

// series is one exported row: the attributes, and then the value, or the count and the
// sum.
func series(m metricdata.Metrics) []string {
	var rows []string
	switch data := m.Data.(type) {
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			rows = append(rows, fmt.Sprintf("%s %d", attributes(p.Attributes), p.Value))
		}
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			rows = append(rows, fmt.Sprintf("%s %d", attributes(p.Attributes), p.Value))
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			rows = append(rows, fmt.Sprintf("%s %d %.0f", attributes(p.Attributes), p.Count, p.Sum))
		}
	}
	slices.Sort(rows)
	return rows
}

func attributes(set attribute.Set) string {
	return set.Encoded(attribute.DefaultEncoder())
}

func function(name string, options ...func(*v1alpha1.Function)) *v1alpha1.Function {
	fn := &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.FunctionSpec{Runtime: "nodejs24"},
	}
	for _, option := range options {
		option(fn)
	}
	return fn
}

func phase(phase v1alpha1.FunctionPhase, runtime string) func(*v1alpha1.Function) {
	return func(fn *v1alpha1.Function) { fn.Status.Phase, fn.Spec.Runtime = phase, runtime }
}

func of(namespace string) func(*v1alpha1.Function) {
	return func(fn *v1alpha1.Function) { fn.Namespace = namespace }
}

func TestFunctions(t *testing.T) {
	w := newWorld(t)
	if got := series(w.collect()["kiln.functions"]); len(got) > 0 {
		t.Errorf("without Functions: %q", got)
	}
	w.have(
		function("a", phase(v1alpha1.FunctionRunning, "nodejs24")),
		function("b", phase(v1alpha1.FunctionRunning, "nodejs24")),
		function("c", phase(v1alpha1.FunctionRunning, "nodejs22")),
		function("d", phase(v1alpha1.FunctionFailed, "nodejs22")),
		function("unseen", phase("", "nodejs22")),
		function("others", of("others"), phase(v1alpha1.FunctionRunning, "nodejs24")),
	)
	want := []string{
		"phase=Failed,runtime=nodejs22 1",
		"phase=Initializing,runtime=nodejs22 1",
		"phase=Running,runtime=nodejs22 1",
		"phase=Running,runtime=nodejs24 2",
	}
	if diff := cmp.Diff(want, series(w.collect()["kiln.functions"])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// The gauges count only existing objects.
	w.have(function("d", phase(v1alpha1.FunctionRunning, "nodejs22")))
	want = []string{
		"phase=Initializing,runtime=nodejs22 1",
		"phase=Running,runtime=nodejs22 2",
		"phase=Running,runtime=nodejs24 2",
	}
	if diff := cmp.Diff(want, series(w.collect()["kiln.functions"])); diff != "" {
		t.Errorf("after a change (-want +got):\n%s", diff)
	}
}

func TestReconciles(t *testing.T) {
	conflict := apierrs.NewConflict(schema.GroupResource{Resource: "functions"}, "a", errors.New("changed"))
	tests := map[string]struct {
		err  error
		want string
	}{
		"succeeded":           {nil, "outcome=Succeeded 1 0"},
		"to be tried again":   {controller.NewRequeueAfter(time.Minute), "outcome=Succeeded 1 0"},
		"conflict":            {fmt.Errorf("failed to update: %w", conflict), "outcome=Conflict 1 0"},
		"failed":              {errors.New("no connection"), "outcome=Failed 1 0"},
		"useless to go on":    {fmt.Errorf("denied: %w", controller.NewPermanentError(errors.New("bad"))), "outcome=GivenUp 1 0"},
		"led by someone else": {controller.NewSkipKey("default/a"), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.reconciler.err = tc.err
			if err := w.impl.Reconciler.Reconcile(w.ctx, "default/a"); !errors.Is(err, tc.err) {
				t.Errorf("Reconcile() = %v, want %v", err, tc.err)
			}
			if got := strings.Join(series(w.collect()["kiln.reconcile.duration"]), "; "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A controller runs without leader election if its reconciler is not LeaderAware.
func TestStaysLeaderAware(t *testing.T) {
	w := newWorld(t)
	promoted := false
	w.reconciler.PromoteFunc = func(pkgreconciler.Bucket, func(pkgreconciler.Bucket, types.NamespacedName)) error {
		promoted = true
		return nil
	}
	aware, ok := w.impl.Reconciler.(pkgreconciler.LeaderAware)
	if !ok {
		t.Fatalf("%T is not LeaderAware", w.impl.Reconciler)
	}
	if err := aware.Promote(pkgreconciler.UniversalBucket(), func(pkgreconciler.Bucket, types.NamespacedName) {}); err != nil || !promoted {
		t.Errorf("Promote() = %v; promoted: %t", err, promoted)
	}
	plain := &controller.Impl{Reconciler: plainReconciler{}}
	if err := Instrument(sdkmetric.NewMeterProvider(), plain, functioninformer.Get(w.ctx)); err == nil {
		t.Error("Instrument() takes a reconciler that cannot tell what it leads")
	}
}

type plainReconciler struct{}

func (plainReconciler) Reconcile(context.Context, string) error { return nil }

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// build sets status.build to a running build.
func build(name, reason string, options ...func(*v1alpha1.BuildStatus)) func(*v1alpha1.Function) {
	return func(fn *v1alpha1.Function) {
		fn.Status.Build = &v1alpha1.BuildStatus{Ref: &v1alpha1.BuildReference{APIVersion: "tekton.dev/v1", Kind: "TaskRun", Name: name}, Reason: reason, ImageTag: "tag"}
		for _, option := range options {
			option(fn.Status.Build)
		}
	}
}

// job sets status.build to a first build that a Job runs.
func job(name string, options ...func(*v1alpha1.BuildStatus)) func(*v1alpha1.Function) {
	return build(name, builds.ReasonFirstBuild, append(options, func(b *v1alpha1.BuildStatus) {
		b.Ref = &v1alpha1.BuildReference{APIVersion: "batch/v1", Kind: "Job", Name: name}
	})...)
}

func ran(d time.Duration) func(*v1alpha1.BuildStatus) {
	return func(b *v1alpha1.BuildStatus) {
		b.StartTime = &metav1.Time{Time: noon}
		b.CompletionTime = &metav1.Time{Time: noon.Add(d)}
	}
}

func failed(reason string) func(*v1alpha1.BuildStatus) {
	return func(b *v1alpha1.BuildStatus) { b.Failure = &v1alpha1.BuildFailure{Reason: reason} }
}

func tagged(tag string) func(*v1alpha1.BuildStatus) {
	return func(b *v1alpha1.BuildStatus) { b.ImageTag = tag }
}

func TestBuilds(t *testing.T) {
	nothing := func(*v1alpha1.Function) {}
	first := build("b1", builds.ReasonFirstBuild)
	done := build("b1", builds.ReasonFirstBuild, ran(8*time.Second))
	reused := build("", builds.ReasonImageReused, tagged("A"))
	tests := map[string]struct {
		// states are the consecutive statuses.
		states    []func(*v1alpha1.Function)
		namespace string
		started   []string
		ended     []string
	}{
		"no build yet": {states: []func(*v1alpha1.Function){nothing, nothing}},
		"one that goes well is seen many times and counted once": {
			states:  []func(*v1alpha1.Function){nothing, first, first, done, done},
			started: []string{"builder=tekton,reason=FirstBuild,runtime=nodejs24 1"},
			ended:   []string{"builder=tekton,outcome=Succeeded,runtime=nodejs24 1 8"},
		},
		"one that had ended before this replica has begun": {
			states: []func(*v1alpha1.Function){done, done},
		},
		"one that has ended while no controller ran": {
			states: []func(*v1alpha1.Function){first, done},
			ended:  []string{"builder=tekton,outcome=Succeeded,runtime=nodejs24 1 8"},
		},
		"one that is planned has not started": {
			states:  []func(*v1alpha1.Function){done, build("", builds.ReasonSourceChanged), build("b2", builds.ReasonSourceChanged)},
			started: []string{"builder=tekton,reason=SourceChanged,runtime=nodejs24 1"},
		},
		"one that fails, and the next": {
			states: []func(*v1alpha1.Function){
				first,
				build("b1", builds.ReasonFirstBuild, ran(900*time.Second), failed(v1alpha1.ReasonBuildTimeout)),
				build("b2", builds.ReasonPreviousBuildFailed),
				build("b2", builds.ReasonPreviousBuildFailed, ran(5*time.Second)),
			},
			started: []string{"builder=tekton,reason=PreviousBuildFailed,runtime=nodejs24 1"},
			ended:   []string{"builder=tekton,outcome=BuildTimeout,runtime=nodejs24 1 900", "builder=tekton,outcome=Succeeded,runtime=nodejs24 1 5"},
		},
		"one that is replaced before it ends": {
			states:  []func(*v1alpha1.Function){nothing, first, build("b2", builds.ReasonSourceChanged)},
			started: []string{"builder=tekton,reason=FirstBuild,runtime=nodejs24 1", "builder=tekton,reason=SourceChanged,runtime=nodejs24 1"},
		},
		"one that is cancelled before it runs": {
			states: []func(*v1alpha1.Function){first, build("b1", builds.ReasonFirstBuild, failed(v1alpha1.ReasonBuildCancelled),
				func(b *v1alpha1.BuildStatus) { b.CompletionTime = &metav1.Time{Time: noon} })},
			ended: []string{"builder=tekton,outcome=BuildCancelled,runtime=nodejs24 1 0"},
		},
		"one that a Job runs": {
			states:  []func(*v1alpha1.Function){nothing, job("b1"), job("b1", ran(2*time.Second))},
			started: []string{"builder=job,reason=FirstBuild,runtime=nodejs24 1"},
			ended:   []string{"builder=job,outcome=Succeeded,runtime=nodejs24 1 2"},
		},
		"images that are reused": {
			states: []func(*v1alpha1.Function){done, reused, reused, build("", builds.ReasonImageReused, tagged("B")), done},
			// The last state is of an earlier build.
			started: []string{"builder=none,reason=ImageReused,runtime=nodejs24 2", "builder=tekton,reason=FirstBuild,runtime=nodejs24 1"},
			ended:   []string{"builder=tekton,outcome=Succeeded,runtime=nodejs24 1 8"},
		},
		"others lead the Function": {
			states:    []func(*v1alpha1.Function){nothing, first, done},
			namespace: "others",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.namespace == "" {
				tc.namespace = namespace
			}
			for i := range len(tc.states) - 1 {
				w.builds(function("a", of(tc.namespace), tc.states[i]), function("a", of(tc.namespace), tc.states[i+1]))
			}
			found := w.collect()
			if diff := cmp.Diff(tc.started, series(found["kiln.builds"])); diff != "" {
				t.Errorf("started (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.ended, series(found["kiln.build.duration"])); diff != "" {
				t.Errorf("ended (-want +got):\n%s", diff)
			}
		})
	}
}

func TestQueue(t *testing.T) {
	w := newWorld(t)
	waits := func(fn *v1alpha1.Function) {
		fn.Status.Build = &v1alpha1.BuildStatus{QueuedTime: new(metav1.NewMicroTime(time.Now().Add(-time.Minute)))}
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonBuildQueued, "")
	}
	w.have(function("a", waits), function("b", waits), function("c"), function("others", of("others"), waits))
	if diff := cmp.Diff([]string{" 2"}, series(w.collect()["kiln.builds.queued"])); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
	started := build("b1", builds.ReasonFirstBuild)
	w.builds(function("a", waits), function("a", started))
	w.builds(function("a", started), function("a", started))
	w.builds(function("c"), function("c", started))
	if diff := cmp.Diff([]string{"builder=tekton 2 60"}, series(w.collect()["kiln.build.queue.duration"])); diff != "" {
		t.Errorf("waited (-want +got):\n%s", diff)
	}
}

// TestInstrument sends the states of a Function through the informer.
func TestInstrument(t *testing.T) {
	w := newWorld(t)
	stop, err := rtesting.RunAndSyncInformers(w.ctx, functioninformer.Get(w.ctx).Informer())
	if err != nil {
		t.Fatal("Failed to start the informer:", err)
	}
	defer func() { w.cancel(); stop() }()
	client := fakekilnclient.Get(w.ctx).ServerlessV1alpha1().Functions(namespace)
	if _, err := client.Create(w.ctx, function("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal("Failed to create:", err)
	}
	if _, err := client.UpdateStatus(w.ctx, function("a", build("b1", builds.ReasonFirstBuild, ran(8*time.Second))), metav1.UpdateOptions{}); err != nil {
		t.Fatal("Failed to update:", err)
	}
	want := []string{"builder=tekton,outcome=Succeeded,runtime=nodejs24 1 8"}
	var got []string
	if err := wait.PollUntilContextTimeout(w.ctx, time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		got = series(w.collect()["kiln.build.duration"])
		return slices.Equal(got, want), nil
	}); err != nil {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDocumentation compares docs/metrics.md with the exported metrics.
func TestDocumentation(t *testing.T) {
	w := newWorld(t)
	w.have(function("a"))
	w.builds(function("a"), function("a", build("b1", builds.ReasonFirstBuild, ran(time.Second))))
	if err := w.impl.Reconciler.Reconcile(w.ctx, "default/a"); err != nil {
		t.Fatal("Reconcile() =", err)
	}
	got := map[string]string{}
	for name, m := range w.collect() {
		got[name] = describe(m)
	}
	if diff := cmp.Diff(documented(t), got); diff != "" {
		t.Errorf("docs/metrics.md (-documented +exported):\n%s", diff)
	}
}

// describe returns the name in Prometheus, the kind and the attributes.
func describe(m metricdata.Metrics) string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	var set attribute.Set
	var kind string
	switch data := m.Data.(type) {
	case metricdata.Gauge[int64]:
		kind, set = "gauge", data.DataPoints[0].Attributes
	case metricdata.Sum[int64]:
		kind, set = "counter", data.DataPoints[0].Attributes
		name += "_total"
	case metricdata.Histogram[float64]:
		kind, set = "histogram", data.DataPoints[0].Attributes
	}
	keys := map[attribute.Key]bool{}
	for _, kv := range set.ToSlice() {
		keys[kv.Key] = true
	}
	return fmt.Sprintf("%s %s %v", name, kind, slices.Sorted(maps.Keys(keys)))
}

// documented reads the first table of docs/metrics.md. A row has the name in Prometheus,
// the name in OpenTelemetry, the kind and the attributes.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("`([^`]+)`")
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`kiln_") {
			continue
		}
		var keys []string
		for _, match := range code.FindAllStringSubmatch(cells[4], -1) {
			keys = append(keys, match[1])
		}
		slices.Sort(keys)
		first := func(cell string) string { return code.FindStringSubmatch(cell)[1] }
		found[first(cells[2])] = fmt.Sprintf("%s %s %v", first(cells[1]), strings.TrimSpace(cells[3]), keys)
	}
	return found
}
