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
	"cmp"
	"context"
	"fmt"

	"go.opentelemetry.io/otel/metric"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
)

// countFunctions counts Functions at each export, so the numbers are correct from the
// start.
func countFunctions(meter metric.Meter, leader leader, lister listers.FunctionLister) error {
	functions, err := meter.Int64ObservableGauge("kiln.functions",
		metric.WithDescription("Functions, by phase and runtime"),
		metric.WithUnit("{function}"))
	if err != nil {
		return err
	}
	waiting, err := meter.Int64ObservableGauge("kiln.builds.queued",
		metric.WithDescription("Builds that wait in the queue"),
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

func isQueued(fn *v1alpha1.Function) bool {
	return fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).GetReason() == v1alpha1.ReasonBuildQueued
}
