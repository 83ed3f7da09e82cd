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

// Package metrics tells how Functions, their builds and the controller fare.
// What it exports is described in docs/metrics.md.
package metrics

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/reconciler"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	informers "github.com/kiln-dev/kiln/pkg/client/informers/externalversions/serverless/v1alpha1"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
)

const (
	scopeName = "github.com/kiln-dev/kiln/pkg/metrics"

	phaseKey   = attribute.Key("phase")
	runtimeKey = attribute.Key("runtime")
	reasonKey  = attribute.Key("reason")
	outcomeKey = attribute.Key("outcome")

	// buildSucceeded is the outcome of a build that has made its image. Of others
	// it is the reason of the failure.
	buildSucceeded = "Succeeded"
)

// The outcomes of a reconcile.
const (
	reconcileSucceeded = "Succeeded"
	// reconcileConflict: somebody else has written the same object meanwhile. The
	// Function is tried again.
	reconcileConflict = "Conflict"
	// reconcileFailed: the Function is tried again.
	reconcileFailed = "Failed"
	// reconcileGivenUp: trying again cannot help until something changes.
	reconcileGivenUp = "GivenUp"
)

var (
	// From what a cache answers to what the API server takes under load, in seconds.
	reconcileBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	// From an image that is all but there to the longest timeouts in use, in seconds.
	buildBounds = []float64{2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1800, 3600}
)

// Instrument has the reconciles of the controller measured, and the Functions
// that it leads. Replicas that do not lead a Function tell nothing of it, so the
// sum over all replicas is right.
func Instrument(provider metric.MeterProvider, impl *controller.Impl, functions informers.FunctionInformer) error {
	leader, ok := impl.Reconciler.(leader)
	if !ok {
		return fmt.Errorf("%T cannot tell what it leads", impl.Reconciler)
	}
	meter := provider.Meter(scopeName)
	reconciles, err := newReconciles(meter, leader)
	if err != nil {
		return fmt.Errorf("failed to measure reconciles: %w", err)
	}
	builds, err := newBuilds(meter, leader)
	if err != nil {
		return fmt.Errorf("failed to measure builds: %w", err)
	}
	if err := countFunctions(meter, leader, functions.Lister()); err != nil {
		return fmt.Errorf("failed to count Functions: %w", err)
	}
	if _, err := functions.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: builds.onUpdate}); err != nil {
		return fmt.Errorf("failed to watch Functions: %w", err)
	}
	impl.Reconciler = reconciles
	return nil
}

// leader is a reconciler that knows which keys it leads. Those of
// injection-gen are.
type leader interface {
	controller.Reconciler
	reconciler.LeaderAware
	IsLeaderFor(key types.NamespacedName) bool
}

// countFunctions counts Functions whenever it is asked, so that the numbers are
// right from the start.
func countFunctions(meter metric.Meter, leader leader, lister listers.FunctionLister) error {
	functions, err := meter.Int64ObservableGauge("kiln.functions",
		metric.WithDescription("Functions, by phase and runtime"),
		metric.WithUnit("{function}"))
	if err != nil {
		return err
	}
	waiting, err := meter.Int64ObservableGauge("kiln.builds.queued",
		metric.WithDescription("Builds that wait for their turn"),
		metric.WithUnit("{build}"))
	if err != nil {
		return err
	}
	_, err = meter.RegisterCallback(
		func(_ context.Context, observer metric.Observer) error {
			all, err := lister.List(labels.Everything())
			if err != nil {
				return fmt.Errorf("failed to list Functions: %w", err)
			}
			type kind struct{ phase, runtime string }
			counts := map[kind]int64{}
			queued := int64(0)
			for _, fn := range all {
				if leader.IsLeaderFor(keyOf(fn)) {
					if isQueued(fn) {
						queued++
					}
					phase := cmp.Or(fn.Status.Phase, v1alpha1.FunctionInitializing)
					counts[kind{string(phase), fn.Spec.Runtime}]++
				}
			}
			for kind, count := range counts {
				observer.ObserveInt64(functions, count, metric.WithAttributes(phaseKey.String(kind.phase), runtimeKey.String(kind.runtime)))
			}
			if len(counts) > 0 {
				observer.ObserveInt64(waiting, queued)
			}
			return nil
		}, functions, waiting)
	return err
}

// isQueued says whether the Function waits for its turn to be built.
func isQueued(fn *v1alpha1.Function) bool {
	return fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).GetReason() == v1alpha1.ReasonBuildQueued
}

func keyOf(fn *v1alpha1.Function) types.NamespacedName {
	return types.NamespacedName{Namespace: fn.Namespace, Name: fn.Name}
}

// reconciles measures the reconciles of a leader.
type reconciles struct {
	leader
	duration metric.Float64Histogram
}

func newReconciles(meter metric.Meter, leader leader) (*reconciles, error) {
	duration, err := meter.Float64Histogram("kiln.reconcile.duration",
		metric.WithDescription("How long reconciles of Functions took, by outcome"),
		metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(reconcileBounds...))
	return &reconciles{leader: leader, duration: duration}, err
}

// Reconcile implements controller.Reconciler.
func (r *reconciles) Reconcile(ctx context.Context, key string) error {
	start := time.Now()
	err := r.leader.Reconcile(ctx, key)
	if outcome := outcomeOf(err); outcome != "" {
		r.duration.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(outcomeKey.String(outcome)))
	}
	return err
}

// outcomeOf returns the outcome of a reconcile, or "" for one that did not take
// place: others lead the Function, or its namespace is going.
func outcomeOf(err error) string {
	requeued, _ := controller.IsRequeueKey(err)
	switch {
	case err == nil, requeued:
		return reconcileSucceeded
	case controller.IsSkipKey(err):
		return ""
	case apierrs.IsConflict(err):
		return reconcileConflict
	case controller.IsPermanentError(err):
		return reconcileGivenUp
	default:
		return reconcileFailed
	}
}

// buildMetrics measures builds as the status of Functions tells of them. Each
// change of a status is seen once by the replica that leads the Function, be it
// that replica or another that wrote it.
type buildMetrics struct {
	leader   leader
	started  metric.Int64Counter
	duration metric.Float64Histogram
	waited   metric.Float64Histogram
}

func newBuilds(meter metric.Meter, leader leader) (*buildMetrics, error) {
	started, err := meter.Int64Counter("kiln.builds",
		metric.WithDescription("Builds that were started, or spared as the image was there, by reason and runtime"),
		metric.WithUnit("{build}"))
	if err != nil {
		return nil, err
	}
	duration, err := meter.Float64Histogram("kiln.build.duration",
		metric.WithDescription("How long builds took from their start to their end, by outcome and runtime"),
		metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(buildBounds...))
	if err != nil {
		return nil, err
	}
	waited, err := meter.Float64Histogram("kiln.build.queue.duration",
		metric.WithDescription("How long builds waited for their turn before they were started"),
		metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(buildBounds...))
	return &buildMetrics{leader: leader, started: started, duration: duration, waited: waited}, err
}

func (m *buildMetrics) onUpdate(before, after any) {
	was, fn := before.(*v1alpha1.Function), after.(*v1alpha1.Function)
	if fn.Status.Build == nil || !m.leader.IsLeaderFor(keyOf(fn)) {
		return
	}
	now, last := *fn.Status.Build, v1alpha1.BuildStatus{}
	if was.Status.Build != nil {
		last = *was.Status.Build
	}
	ctx := context.Background()
	if isNew(last, now) {
		m.started.Add(ctx, 1, metric.WithAttributes(reasonKey.String(now.Reason), runtimeKey.String(fn.Spec.Runtime)))
	}
	if now.BuildName() != "" && now.BuildName() != last.BuildName() {
		m.waited.Record(ctx, waited(last).Seconds())
	}
	if hasEnded(now) && (now.BuildName() != last.BuildName() || !hasEnded(last)) {
		m.duration.Record(ctx, took(now).Seconds(), metric.WithAttributes(outcomeKey.String(outcomeOfBuild(now)), runtimeKey.String(fn.Spec.Runtime)))
	}
}

// isNew says whether a build has been started, or was found not to be needed.
func isNew(last, now v1alpha1.BuildStatus) bool {
	if now.Reason == builds.ReasonImageReused {
		return last.Reason != now.Reason || last.ImageTag != now.ImageTag || last.Rebuild != now.Rebuild
	}
	return now.BuildName() != "" && now.BuildName() != last.BuildName()
}

func hasEnded(b v1alpha1.BuildStatus) bool {
	return b.BuildName() != "" && b.CompletionTime != nil
}

// waited returns how long a build has waited for its turn that starts now.
func waited(last v1alpha1.BuildStatus) time.Duration {
	if last.QueuedTime == nil {
		return 0
	}
	return time.Since(last.QueuedTime.Time)
}

// took returns how long the build ran; nothing, if it ended before it began.
func took(b v1alpha1.BuildStatus) time.Duration {
	if b.StartTime == nil {
		return 0
	}
	return b.CompletionTime.Sub(b.StartTime.Time)
}

func outcomeOfBuild(b v1alpha1.BuildStatus) string {
	if b.Failure != nil {
		return b.Failure.Reason
	}
	return buildSucceeded
}
