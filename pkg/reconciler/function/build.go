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
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/pods"
)

// decided is the decision about a Function's build.
type decided struct {
	builds.Decision

	// obsolete are the builds to delete, and earlier the builds that must be gone before
	// another one starts.
	obsolete, earlier []builds.Build
}

// decide decides how the build goes on.
func decide(ctx context.Context, want plan, current gathered) decided {
	decision := builds.Decide(want.request, current.known)
	obsolete := builds.Obsolete(want.request, current.known.Existing, decision, historyLimit(ctx))
	return decided{Decision: decision, obsolete: obsolete, earlier: inTheWay(current.known.Existing, obsolete)}
}

// build builds the Function's image once, unless the registry holds it already.
func (r *Reconciler) build(ctx context.Context, fn *v1alpha1.Function, want plan, current gathered) error {
	decision := decide(ctx, want, current)
	if decision.Action == builds.Start && want.withheld != nil {
		return markWithheld(fn, want.withheld)
	}
	var found images.Found
	answered := false
	if decision.Action == builds.Start {
		found, answered = r.lookUp(fn, want, decision.Decision)
		// Only a start waits for the registry and the queue. Deletions, and the live lookup
		// of a missing build, must not wait.
		starts := len(decision.obsolete) == 0 && !current.isMissing(fn)
		if starts && (!answered || found.Image == "" && !r.mayStart(ctx, fn, want, decision.Decision)) {
			return nil
		}
	} else {
		r.lookups.Forget(children.KeyOf(fn))
	}
	if decision.Action == builds.Start || decision.Action == builds.GiveUp {
		// A stale cache must not cause a second build.
		var err error
		if current, err = r.gatherLive(ctx, fn, current); err != nil {
			return err
		}
		decision = decide(ctx, want, current)
	}
	if err := r.deleteBuilds(ctx, current, decision.obsolete); err != nil {
		return err
	}
	return r.act(ctx, fn, want, current, decision, found, answered)
}

// act carries out the decision. found is what the registries hold; it is valid if they have
// answered.
func (r *Reconciler) act(ctx context.Context, fn *v1alpha1.Function, want plan, current gathered, decision decided, found images.Found, answered bool) error {
	switch decision.Action {
	case builds.Start:
		if !decision.Reuse {
			found = images.Found{Base: found.Base}
		}
		if found.Image != "" {
			images.RecordBuilt(&fn.Status, want.lookup.Image)
			r.useImage(ctx, fn, want, found.Image, builds.ReasonImageReused)
			return nil
		}
		if len(decision.earlier) == 0 && !answered {
			return nil
		}
		return r.startBuild(ctx, fn, want, current, decision, found)
	case builds.Follow:
		run := *current.run(decision.Build)
		run, err := r.builders.of(&run.Ref).Restore(ctx, fn, want.request.Tag, run)
		if err != nil {
			return err
		}
		if isReported(fn, &run) && historyLimit(ctx) == 0 {
			return r.forgetBuild(ctx, fn, want, run)
		}
		if isGivenUp(fn, &run) {
			return r.abandonBuild(ctx, fn, run)
		}
		return r.followBuild(ctx, fn, want, run)
	case builds.Use:
		r.useImage(ctx, fn, want, digestIn(fn.Status.Image), decision.Reason)
	case builds.Stay:
		return markBuildFailed(fn)
	case builds.GiveUp:
		return r.giveUp(fn, want)
	}
	return nil
}

// historyLimit returns how many ended builds of a Function Kiln keeps.
func historyLimit(ctx context.Context) int {
	return int(config.FromContextOrDefaults(ctx).Build.HistoryLimit)
}

// inTheWay returns the builds that must be gone before another one starts: all but those
// that are kept as history.
func inTheWay(existing, obsolete []builds.Build) []builds.Build {
	return slices.DeleteFunc(slices.Clone(existing), func(b builds.Build) bool {
		return b.State.Ended() && !slices.ContainsFunc(obsolete, func(o builds.Build) bool { return o.Name == b.Name })
	})
}

// deleteBuilds deletes builds, also those that run.
func (r *Reconciler) deleteBuilds(ctx context.Context, current gathered, obsolete []builds.Build) error {
	for _, b := range obsolete {
		if b.Deleting {
			continue
		}
		run := *current.run(b.Name)
		if err := r.builders.of(&run.Ref).Delete(ctx, run); err != nil {
			return err
		}
	}
	return nil
}

// mayStart reports whether the build may start: it has a builder and a slot. If not, a
// condition says why.
func (r *Reconciler) mayStart(ctx context.Context, fn *v1alpha1.Function, want plan, decision builds.Decision) bool {
	_, ok := r.chosen(ctx, fn)
	return ok && r.isTurn(fn, want, decision)
}

// remember records in the status a build that has no object yet, or that a reused image
// makes unnecessary.
func remember(fn *v1alpha1.Function, spec builds.Spec) {
	fn.Status.Build = &v1alpha1.BuildStatus{
		Reason:     spec.Reason,
		Generation: spec.Generation,
		ImageTag:   spec.Tag,
		Inputs:     spec.Fingerprint,
		Rebuild:    spec.Rebuild,
		Commit:     spec.Commit,
		Attempts:   spec.Attempt - 1,
	}
}

// startBuild starts the build once it has a slot and no other build of the Function
// exists. The deletion of the last one, or a free slot, wakes the Function.
func (r *Reconciler) startBuild(ctx context.Context, fn *v1alpha1.Function, want plan, current gathered, decision decided, found images.Found) error {
	spec := specOf(fn, want, decision.Decision, found)
	if len(decision.earlier) > 0 {
		remember(fn, spec)
		earlier := r.builders.of(&current.run(decision.earlier[0].Name).Ref)
		fn.Status.MarkBuildUnknown(earlier.Reasons().Deleted, "The build starts when earlier ones are gone: %s.", namesOf(decision.earlier))
		return nil
	}
	builder, ok := r.chosen(ctx, fn)
	if !ok {
		return nil
	}
	name := types.NamespacedName{Namespace: fn.Namespace, Name: builds.NameOf(fn, spec.Request, spec.Attempt)}
	if place := r.queue.Start(children.KeyOf(fn), ticketOf(fn, decision.Decision), name); !place.Granted {
		markQueued(fn, spec, place)
		return nil
	}
	runs := false
	defer func() {
		if !runs {
			r.queue.End(name)
		}
	}()
	run, from, err := create(ctx, fn, builder, spec, name.Name)
	if err != nil {
		if children.MayExist(err) {
			runs = true
			r.queue.Doubt(name)
		}
		return err
	}
	switch children.OwnershipOf(run.Object, fn) {
	case children.Foreign:
		fn.Status.MarkBuildFailed(v1alpha1.ReasonNotOwned, children.NotOwnedFormat, run.Ref.Kind, run.Ref.Name)
		return children.RetryName()
	case children.Leaving:
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonWaitingForDeletion, "%s %s is being deleted.", run.Ref.Kind, run.Ref.Name)
		return from.AwaitDeletion(run.Ref.Kind, run.Ref.Name)
	}
	runs = !run.State.Ended()
	if run, err = builder.Restore(ctx, fn, want.request.Tag, run); err != nil {
		return err
	}
	return r.followBuild(ctx, fn, want, run)
}

// create creates the build, or returns the one that has its name.
func create(ctx context.Context, fn *v1alpha1.Function, builder Builder, spec builds.Spec, name string) (builds.Run, children.Origin, error) {
	run, from, err := builder.Start(ctx, fn, spec)
	if err == nil || from != children.Created {
		return run, from, err
	}
	switch {
	case children.IsRejected(err):
		fn.Status.MarkBuildFailed(builder.Reasons().Failed, "%s %s cannot be created: %v", builder.Kind(), name, err)
	case !children.IsNamespaceTerminating(err):
		fn.Status.MarkBuildUnknown(builder.Reasons().NotCreated, "%s %s cannot be created. Kiln keeps retrying: %v", builder.Kind(), name, err)
	}
	return run, from, children.RetryError(fmt.Errorf("failed to create %s: %w", builder.Kind(), err))
}

// followBuild reports the state of the build in the status.
func (r *Reconciler) followBuild(ctx context.Context, fn *v1alpha1.Function, want plan, run builds.Run) error {
	reported := isReported(fn, &run)
	fn.Status.Build = statusOf(fn, &run)
	switch run.State {
	case builds.Succeeded:
		if !reported {
			log, err := r.installLog(ctx, fn, run)
			if err != nil {
				return r.awaitLog(fn, run, "succeeded", logPoll)
			}
			fn.Status.Build.Log = log
			recordImages(fn, want.request.Tag, run)
		}
		setImage(ctx, fn, want.request.Tag, run.Digest)
		fn.Status.Source = sourceOf(fn, run.Source)
		r.markBuilt(fn)
		return nil
	case builds.Failed:
		return r.followFailure(ctx, fn, want, run)
	default:
		return r.markProgress(fn, run)
	}
}

// recordImages records in the status the images that the build has pushed, for reuse.
func recordImages(fn *v1alpha1.Function, tag string, run builds.Run) {
	if isReusable(fn) {
		images.RecordBuilt(&fn.Status, v1alpha1.BuiltImage{Tag: tag, Digest: run.Digest, BaseDigest: run.BaseDigest})
	}
	images.RecordInstalled(&fn.Status, run.Installed)
}

// markProgress reports in the status how far a build is that has not ended.
func (r *Reconciler) markProgress(fn *v1alpha1.Function, run builds.Run) error {
	builder := r.builders.of(&run.Ref)
	progress, err := builder.Progress(run)
	if err != nil {
		return err
	}
	switch progress.Stage {
	case builds.Created:
		fn.Status.MarkBuildUnknown(builder.Reasons().Created, "%s", progress.Message)
	case builds.Started:
		fn.Status.MarkBuildUnknown(builder.Reasons().Running, "%s", progress.Message)
	case builds.OverQuota:
		fn.Status.MarkBuildFailed(v1alpha1.ReasonQuotaExceeded,
			"The namespace's quota does not allow the pod of the build. It is retried every minute: %s", progress.Message)
	}
	return nil
}

// installLog returns the end of the log of the installation of dependencies, or "". An
// unreadable log must not delay the image, so the only error is pods.ErrReading.
func (r *Reconciler) installLog(ctx context.Context, fn *v1alpha1.Function, run builds.Run) (string, error) {
	log, err := r.builders.of(&run.Ref).InstallLog(ctx, run)
	if errors.Is(err, pods.ErrReading) {
		return "", err
	}
	if err != nil {
		logging.FromContext(ctx).Infow("Failed to read the log of a build", "build", run.Ref.Name, "error", err)
	}
	return builds.Excerpt(log, secretsOf(fn)...), nil
}

// markBuilt reports that the build in the status has made the image.
func (r *Reconciler) markBuilt(fn *v1alpha1.Function) {
	builder := r.builders.of(fn.Status.Build.Ref)
	fn.Status.MarkBuildReady(builder.Reasons().Succeeded, "%s %s built %s.", builder.Kind(), fn.Status.Build.BuildName(), fn.Status.Image)
}

// useImage deploys the image of that digest. Its build may no longer exist.
func (r *Reconciler) useImage(ctx context.Context, fn *v1alpha1.Function, want plan, digest, reason string) {
	if !fn.Spec.IsFetched() || isPinned(fn) {
		fn.Status.Source = sourceOf(fn, builds.SourceDigest{})
	}
	setImage(ctx, fn, want.request.Tag, digest)
	if reason != builds.ReasonImageReused {
		r.markBuilt(fn)
		return
	}
	remember(fn, builds.Spec{Request: want.request, Reason: builds.ReasonImageReused, Attempt: 1})
	fn.Status.MarkBuildReady(v1alpha1.ReasonImageReused, "%s was built before.", fn.Status.Image)
}

// abandonBuild deletes a build that could still run although the status reports its failure.
// A stale cache must not cause the deletion of one that has ended.
func (r *Reconciler) abandonBuild(ctx context.Context, fn *v1alpha1.Function, run builds.Run) error {
	live, err := r.builders.Get(ctx, fn.Namespace, run.Ref.Name)
	switch {
	case apierrs.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("failed to get build %s: %w", run.Ref.Name, err)
	case isGivenUp(fn, &live) && live.Object.GetDeletionTimestamp() == nil:
		if err := r.builders.of(&live.Ref).Delete(ctx, live); err != nil {
			return err
		}
	}
	return markBuildFailed(fn)
}

// forgetBuild deletes a build that has ended and that the status describes in full.
func (r *Reconciler) forgetBuild(ctx context.Context, fn *v1alpha1.Function, want plan, run builds.Run) error {
	if run.Object.GetDeletionTimestamp() == nil {
		if err := r.builders.of(&run.Ref).Delete(ctx, run); err != nil {
			return err
		}
	}
	if fn.Status.Build.Failure != nil {
		return markBuildFailed(fn)
	}
	r.useImage(ctx, fn, want, digestIn(fn.Status.Image), fn.Status.Build.Reason)
	return nil
}

// sourceOf returns the source of the Function's image, or nil for an inline source. A
// digest that the build reports overrides the digest in the spec.
func sourceOf(fn *v1alpha1.Function, fetched builds.SourceDigest) *v1alpha1.SourceStatus {
	source := &v1alpha1.SourceStatus{}
	switch {
	case !fn.Spec.IsFetched():
		return nil
	case fn.Spec.Archive != nil:
		source.SHA256 = fn.Spec.Archive.SHA256
	case isPinned(fn):
		source.Commit = fn.Spec.Git.Revision
	}
	source.Commit = cmp.Or(fetched.Commit(), source.Commit)
	if fetched.Algorithm == "sha256" {
		source.SHA256 = fetched.Value
	}
	return source
}

// setImage sets the image to deploy: by digest, at the registry address that nodes use. A
// new image needs a new version tag.
func setImage(ctx context.Context, fn *v1alpha1.Function, tag, digest string) {
	if digest != digestIn(fn.Status.Image) {
		fn.Status.VersionTag = ""
	}
	fn.Status.ImageTag = tag
	fn.Status.Image = config.FromContextOrDefaults(ctx).Registry.PullImage(fn.Namespace, fn.Name, digest)
}

func namesOf(existing []builds.Build) string {
	names := make([]string, 0, len(existing))
	for _, b := range existing {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
