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
	"time"

	"go.opentelemetry.io/otel/metric"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"knative.dev/pkg/controller"
)

// The outcomes of a reconcile.
const (
	reconcileSucceeded = "Succeeded"
	// reconcileConflict: somebody else wrote the same object. Kiln retries.
	reconcileConflict = "Conflict"
	// reconcileFailed: Kiln retries.
	reconcileFailed = "Failed"
	// reconcileGivenUp: Kiln does not retry until something changes.
	reconcileGivenUp = "GivenUp"
)

// reconcileBounds are in seconds: from an answer of the cache to an API server under load.
var reconcileBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

type reconciles struct {
	leader
	duration metric.Float64Histogram
}

func newReconciles(meter metric.Meter, leader leader) (*reconciles, error) {
	duration, err := meter.Float64Histogram("kiln.reconcile.duration",
		metric.WithDescription("Duration of reconciles of Functions, by outcome"),
		metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(reconcileBounds...))
	return &reconciles{leader: leader, duration: duration}, err
}

func (r *reconciles) Reconcile(ctx context.Context, key string) error {
	start := time.Now()
	err := r.leader.Reconcile(ctx, key)
	if outcome := outcomeOf(err); outcome != "" {
		r.duration.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(outcomeKey.String(outcome)))
	}
	return err
}

// outcomeOf returns the outcome of a reconcile. It is "" for a skipped one: another replica
// leads the Function, or the namespace is being deleted.
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
