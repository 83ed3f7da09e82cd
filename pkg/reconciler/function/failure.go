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
	"errors"
	"fmt"
	"path"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	// logTimeout is how long after the end of a build Kiln keeps trying to read its log.
	logTimeout = time.Minute
	logRetry   = 2 * time.Second
	logPoll    = 250 * time.Millisecond
)

// followFailure reports in the status why the build failed. It reads the log once; the
// status keeps the excerpt.
func (r *Reconciler) followFailure(ctx context.Context, fn *v1alpha1.Function, want plan, run builds.Run) error {
	if fn.Status.Build.Failure != nil {
		return markBuildFailed(fn)
	}
	failure, err := r.builders.of(&run.Ref).Failure(ctx, run)
	if err != nil {
		logging.FromContext(ctx).Infow("Failed to read the log of a failed build", "build", run.Ref.Name, "error", err)
		switch {
		case errors.Is(err, pods.ErrReading):
			return r.awaitLog(fn, run, "failed", logPoll)
		case errors.Is(err, builds.ErrBehind) && mayHaveLog(err, run):
			return r.awaitLog(fn, run, "ended", logRetry)
		case errors.Is(err, builds.ErrBehind):
			// The cache lacks the pod for long: somebody may have removed its label.
			return r.awaitLog(fn, run, "ended", logTimeout)
		case failure.Cause == builds.StepFailed && mayHaveLog(err, run):
			return r.awaitLog(fn, run, "failed", logRetry)
		}
	}
	failure.Secrets, failure.DependencyFile = secretsOf(fn), fetchedDependencies(fn, want.runtime)
	failure.OwnDockerfile = want.runtime.IsOwnDockerfile()
	if run.Unfinished {
		fn.Status.Build.CompletionTime = new(metav1.Now())
	}
	fn.Status.Build.Failure = failure.Describe(r.builders.of(&run.Ref).Reasons().Failed, want.runtime.ExplainBuildFailure)
	return markBuildFailed(fn)
}

// awaitLog reports that the build has ended and that its log cannot be read yet. The status
// does not record the end before that, so a restarted controller reads the log too.
func (r *Reconciler) awaitLog(fn *v1alpha1.Function, run builds.Run, how string, delay time.Duration) error {
	fn.Status.Build.CompletionTime = nil
	fn.Status.MarkBuildUnknown(r.builders.of(&run.Ref).Reasons().Running, "%s %s has %s. Its log cannot be read yet.", run.Ref.Kind, run.Ref.Name, how)
	return controller.NewRequeueAfter(delay)
}

// fetchedDependencies names the file of a fetched source that lists the dependencies. It
// returns "" for an inline source.
func fetchedDependencies(fn *v1alpha1.Function, runtime runtimes.Runtime) string {
	switch {
	case fn.Spec.IsFetched() && runtime.DependencyFile == "":
		return "the source"
	case fn.Spec.Git != nil:
		return path.Join(fn.Spec.Git.ContextDir, runtime.DependencyFile) + " of the repository"
	case fn.Spec.Archive != nil:
		return runtime.DependencyFile + " of the archive"
	}
	return ""
}

// markBuildFailed reports that the build failed, and when it is retried. Its error
// requeues the Function for that time.
func markBuildFailed(fn *v1alpha1.Function) error {
	failure := fn.Status.Build.Failure
	last := describe(fn.Status.Build)
	last.State = builds.Failed
	at, again := last.RetryAt()
	switch {
	case again:
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonBuildRetrying, "Attempt %d of %d failed, the next starts at %s: %s: %s",
			builds.AttemptInRound(last.Attempt), builds.MaxAttempts, at.UTC().Format(time.TimeOnly+" MST"), failure.Reason, failure.Message)
		return controller.NewRequeueAfter(time.Until(at))
	case failure.Transient:
		fn.Status.MarkBuildFailed(failure.Reason, "All %d attempts failed. To build again, set the Function's annotation %s. %s",
			builds.AttemptInRound(last.Attempt), serverless.RebuildAnnotationKey, failure.Message)
	default:
		fn.Status.MarkBuildFailed(failure.Reason, "%s", failure.Message)
	}
	return nil
}

// giveUp reports that somebody deleted the build each time it started.
func (r *Reconciler) giveUp(fn *v1alpha1.Function, want plan) error {
	builder := r.builders.of(fn.Status.Build.Ref)
	failure := builds.Failure{Cause: builds.Deleted, Message: fmt.Sprintf("%s %s was deleted.", builder.Kind(), fn.Status.Build.BuildName())}
	fn.Status.Build.Failure = failure.Describe(builder.Reasons().Failed, want.runtime.ExplainBuildFailure)
	return markBuildFailed(fn)
}

// mayHaveLog reports whether an unreadable log may become readable soon. A log is lost with
// its pod, and a pod with its node.
func mayHaveLog(err error, run builds.Run) bool {
	if apierrs.IsNotFound(err) || apierrs.IsForbidden(err) {
		return false
	}
	return run.CompletionTime != nil && time.Since(run.CompletionTime.Time) < logTimeout
}
