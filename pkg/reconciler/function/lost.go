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

package function

import (
	"context"
	"time"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/images"
)

// longestCheckInterval bounds the backoff of checks, unless the configured interval is
// longer.
const longestCheckInterval = 24 * time.Hour

// checkImage checks in the background that the registry still holds the deployed image. It
// reports whether the image is lost: the next build is then in the status, and starts once
// that is written, so that a crash cannot lose it.
func (r *Reconciler) checkImage(ctx context.Context, fn *v1alpha1.Function, want plan, current gathered) (lost bool) {
	check := images.Check{
		Repository: repositoryOf(ctx, fn), Digest: digestIn(fn.Status.Image),
		Interval: checkInterval(config.FromContextOrDefaults(ctx).Registry.CheckInterval, fn.Status.Build),
	}
	if check.Interval == 0 || !isDeployed(want.request, current.known) {
		r.checks.Forget(children.KeyOf(fn))
		return false
	}
	r.checks.Ask(children.KeyOf(fn), check)
	if checked, _ := r.checks.Answer(children.KeyOf(fn), check, true); !checked.Lost {
		return false
	}
	// The same digest may come back. This answer must not count for that image.
	r.checks.Forget(children.KeyOf(fn))
	spec := builds.Spec{Request: want.request, Reason: builds.ReasonImageLost, Attempt: builds.NextRound(fn.Status.Build.Attempts)}
	remember(fn, spec)
	fn.Status.MarkBuildUnknown("", "The registry no longer holds image %s. The build is about to start.", fn.Status.Image)
	return true
}

// isDeployed reports whether the image of the last build, which has succeeded, is the
// desired one.
func isDeployed(want builds.Request, known builds.Known) bool {
	return known.ImageTag == want.Tag && known.IsSettled(want) && known.Last.State == builds.Succeeded
}

// checkInterval returns the time between two checks. Each rebuild of a lost image doubles
// it, because something may delete the image again and again.
func checkInterval(interval time.Duration, last *v1alpha1.BuildStatus) time.Duration {
	if last == nil || last.Reason != builds.ReasonImageLost {
		return interval
	}
	most := max(interval, longestCheckInterval)
	for round := last.Attempts; round > builds.MaxAttempts && interval < most; round -= builds.MaxAttempts {
		interval *= 2
	}
	return min(interval, most)
}
