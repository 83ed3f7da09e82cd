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

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
)

// buildSucceeded is the outcome of a build that made its image. The outcome of a
// failed build is the reason of its failure.
const buildSucceeded = "Succeeded"

// builders has the name of the builder in config-build for each kind of object that it
// makes.
var builders = map[string]string{"TaskRun": string(config.TektonBuilder), "Job": string(config.JobBuilder)}

// buildBounds are in seconds: from a build of cached layers to the longest usual timeout.
var buildBounds = []float64{2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1800, 3600}

// buildMetrics measures builds by the status of Functions. The replica that leads a
// Function sees each change of its status once, whichever replica wrote it.
type buildMetrics struct {
	leader   leader
	started  metric.Int64Counter
	duration metric.Float64Histogram
	waited   metric.Float64Histogram
}

func newBuilds(meter metric.Meter, leader leader) (*buildMetrics, error) {
	started, err := meter.Int64Counter("kiln.builds",
		metric.WithDescription("Builds that were started, or not needed because the image existed, by reason, runtime and builder"),
		metric.WithUnit("{build}"))
	if err != nil {
		return nil, err
	}
	duration, err := meter.Float64Histogram("kiln.build.duration",
		metric.WithDescription("Duration of builds, by outcome, runtime and builder"),
		metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(buildBounds...))
	if err != nil {
		return nil, err
	}
	waited, err := meter.Float64Histogram("kiln.build.queue.duration",
		metric.WithDescription("How long builds waited in the queue before they started, by builder"),
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
	builder := builderKey.String(builderOf(now))
	if isNew(last, now) {
		m.started.Add(ctx, 1, metric.WithAttributes(reasonKey.String(now.Reason), runtimeKey.String(fn.Spec.Runtime), builder))
	}
	if now.BuildName() != "" && now.BuildName() != last.BuildName() {
		m.waited.Record(ctx, waited(last).Seconds(), metric.WithAttributes(builder))
	}
	if hasEnded(now) && (now.BuildName() != last.BuildName() || !hasEnded(last)) {
		m.duration.Record(ctx, took(now).Seconds(), metric.WithAttributes(outcomeKey.String(outcomeOfBuild(now)), runtimeKey.String(fn.Spec.Runtime), builder))
	}
}

func isNew(last, now v1alpha1.BuildStatus) bool {
	if now.Reason == builds.ReasonImageReused {
		return last.Reason != now.Reason || last.ImageTag != now.ImageTag || last.Rebuild != now.Rebuild
	}
	return now.BuildName() != "" && now.BuildName() != last.BuildName()
}

func hasEnded(b v1alpha1.BuildStatus) bool {
	return b.BuildName() != "" && b.CompletionTime != nil
}

func waited(last v1alpha1.BuildStatus) time.Duration {
	if last.QueuedTime == nil {
		return 0
	}
	return time.Since(last.QueuedTime.Time)
}

func took(b v1alpha1.BuildStatus) time.Duration {
	if b.StartTime == nil {
		return 0
	}
	return b.CompletionTime.Sub(b.StartTime.Time)
}

// builderOf returns the builder of the build, or "none" for a reused image.
func builderOf(b v1alpha1.BuildStatus) string {
	if b.BuildName() == "" {
		return "none"
	}
	if builder, ok := builders[b.Ref.Kind]; ok {
		return builder
	}
	return b.Ref.Kind
}

func outcomeOfBuild(b v1alpha1.BuildStatus) string {
	if b.Failure != nil {
		return b.Failure.Reason
	}
	return buildSucceeded
}
