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
	"fmt"
	"slices"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
)

// gathered is what the status and the cluster tell about the builds of a Function.
type gathered struct {
	// known is the input of the decision.
	known builds.Known

	// runs are the builds in the cluster.
	runs []builds.Run
}

// gather combines the status with the builds in the cluster.
func gather(fn *v1alpha1.Function, runs []builds.Run) gathered {
	known := builds.Known{Existing: buildsOf(fn, runs), Now: time.Now()}
	if digestIn(fn.Status.Image) != "" {
		known.ImageTag = fn.Status.ImageTag
	}
	if b := fn.Status.Build; b != nil {
		known.Last = new(describe(b))
		known.Last.State = rememberedState(b)
		known.Last.Fetched = commitBuilt(fn)
	}
	return gathered{known: known, runs: runs}
}

func (g gathered) run(name string) *builds.Run { return findRun(g.runs, name) }

// isMissing reports whether the status names a build that the cache does not show. Its
// object was deleted, or has lost its label.
func (g gathered) isMissing(fn *v1alpha1.Function) bool {
	name := fn.Status.Build.BuildName()
	return name != "" && g.run(name) == nil
}

// gatherLive gathers again, with the builds that the cache does not show. It returns
// errStale if the Function itself is stale.
func (r *Reconciler) gatherLive(ctx context.Context, fn *v1alpha1.Function, cached gathered) (gathered, error) {
	if err := r.checkCurrent(ctx, fn); err != nil {
		return gathered{}, err
	}
	runs, err := r.addQueued(ctx, fn, cached.runs)
	if err != nil {
		return gathered{}, err
	}
	if runs, err = r.addRemembered(ctx, fn, runs); err != nil {
		return gathered{}, err
	}
	return gather(fn, runs), nil
}

// addQueued adds the builds that the queue knows and the cache does not show. The queue
// knows every build that may be running: a new leader seeds it from a live list, and
// every later build starts through it, even one whose create response was lost.
func (r *Reconciler) addQueued(ctx context.Context, fn *v1alpha1.Function, cached []builds.Run) ([]builds.Run, error) {
	runs := slices.Clone(cached)
	for _, name := range r.queue.Running(children.KeyOf(fn), fn.UID) {
		if findRun(runs, name.Name) != nil {
			continue
		}
		run, err := r.builders.Get(ctx, name.Namespace, name.Name)
		switch {
		case apierrs.IsNotFound(err):
			r.queue.End(name)
		case err != nil:
			return nil, fmt.Errorf("failed to get build %s: %w", name, err)
		default:
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// addRemembered adds the build that the status names, if its object has lost the label.
func (r *Reconciler) addRemembered(ctx context.Context, fn *v1alpha1.Function, runs []builds.Run) ([]builds.Run, error) {
	name := fn.Status.Build.BuildName()
	if name == "" || findRun(runs, name) != nil {
		return runs, nil
	}
	run, err := r.builders.Get(ctx, fn.Namespace, name)
	switch {
	case apierrs.IsNotFound(err):
		return runs, nil
	case err != nil:
		return nil, fmt.Errorf("failed to get build %s: %w", name, err)
	case !metav1.IsControlledBy(run.Object, fn):
		return runs, nil
	}
	if run, err = r.builders.of(&run.Ref).Restore(ctx, fn, fn.Status.Build.ImageTag, run); err != nil {
		return nil, err
	}
	return append(runs, run), nil
}

// buildsOf returns the builds of the Function. A build that has lost its owner reference
// is one of them if the status names it.
func buildsOf(fn *v1alpha1.Function, runs []builds.Run) []builds.Build {
	existing := make([]builds.Build, 0, len(runs))
	for i := range runs {
		run := &runs[i]
		orphaned := metav1.GetControllerOfNoCopy(run.Object) == nil && isRemembered(fn, run)
		if !orphaned && !metav1.IsControlledBy(run.Object, fn) {
			continue
		}
		b := describe(statusOf(fn, run))
		b.Commit, b.Fetched = commitAskedOf(fn, run), run.Source.Commit()
		b.Generation = generationOf(fn, run)
		b.State = run.State
		b.Unfinished = run.Unfinished
		b.Deleting = run.Object.GetDeletionTimestamp() != nil
		existing = append(existing, b)
	}
	return existing
}

// statusOf returns the status of the build. The earlier status of the same build adds
// what the object has lost.
func statusOf(fn *v1alpha1.Function, run *builds.Run) *v1alpha1.BuildStatus {
	status := &v1alpha1.BuildStatus{
		Ref:        new(run.Ref),
		Reason:     run.Reason,
		Generation: generationOf(fn, run),
		ImageTag:   run.Tag,
		Inputs:     run.Fingerprint,
		Rebuild:    run.Rebuild,
		Commit:     cmp.Or(run.Source.Commit(), commitAskedOf(fn, run)),
		Attempts:   run.Attempt,

		CredentialsVersion: run.CredentialsVersion,

		StartTime:      run.StartTime,
		CompletionTime: run.CompletionTime,
	}
	if !run.State.Ended() {
		// A running build serves the current generation, whichever generation started it.
		status.Generation = max(status.Generation, fn.Generation)
	}
	if isRemembered(fn, run) {
		last := fn.Status.Build
		status.Failure, status.Log = last.Failure, last.Log
		if last.Failure != nil {
			// An object that could still run has no time of its end.
			status.CompletionTime = last.CompletionTime
		}
		status.ImageTag = cmp.Or(status.ImageTag, last.ImageTag)
		status.Inputs = cmp.Or(status.Inputs, last.Inputs)
		status.CredentialsVersion = cmp.Or(status.CredentialsVersion, last.CredentialsVersion)
	}
	return status
}

// describe returns the build that the status describes, without its state.
func describe(b *v1alpha1.BuildStatus) builds.Build {
	var ended time.Time
	if b.CompletionTime != nil {
		ended = b.CompletionTime.Time
	}
	return builds.Build{
		Name: b.BuildName(),
		Request: builds.Request{
			Tag:                b.ImageTag,
			Fingerprint:        b.Inputs,
			Rebuild:            b.Rebuild,
			Commit:             b.Commit,
			Generation:         b.Generation,
			CredentialsVersion: b.CredentialsVersion,
		},
		Reason:  b.Reason,
		Attempt: b.Attempts,
		Refused: b.Failure != nil && b.Failure.Reason == v1alpha1.ReasonRegistryUnauthorized,

		Transient: b.Failure != nil && b.Failure.Transient,
		Ended:     ended,
	}
}

func rememberedState(b *v1alpha1.BuildStatus) builds.State {
	switch {
	case b.Failure != nil:
		return builds.Failed
	case b.CompletionTime != nil, b.Reason == builds.ReasonImageReused:
		return builds.Succeeded
	case b.BuildName() != "":
		return builds.Running
	default:
		return builds.Planned
	}
}

func isRemembered(fn *v1alpha1.Function, run *builds.Run) bool {
	return fn.Status.Build.BuildName() == run.Ref.Name
}

// isReported reports whether the status tells how the build ended.
func isReported(fn *v1alpha1.Function, run *builds.Run) bool {
	return isRemembered(fn, run) && rememberedState(fn.Status.Build).Ended()
}

// isGivenUp reports whether the status reports the failure of a build that could still run,
// or has run since.
func isGivenUp(fn *v1alpha1.Function, run *builds.Run) bool {
	return isRemembered(fn, run) && fn.Status.Build.Failure != nil && (run.Unfinished || run.State != builds.Failed)
}

// generationOf returns the newest generation of the Function that the build serves.
func generationOf(fn *v1alpha1.Function, run *builds.Run) int64 {
	if isRemembered(fn, run) {
		return max(run.Generation, fn.Status.Build.Generation)
	}
	return run.Generation
}

// commitAskedOf returns the commit that the build was started for, or "".
func commitAskedOf(fn *v1alpha1.Function, run *builds.Run) string {
	if isRemembered(fn, run) {
		return cmp.Or(run.Commit, fn.Status.Build.Commit)
	}
	return run.Commit
}

// commitBuilt returns the commit of the last build, also of one that failed. It is ""
// while the commit is unknown.
func commitBuilt(fn *v1alpha1.Function) string {
	b := fn.Status.Build
	if b.Commit == "" && b.Failure == nil && fn.Status.Source != nil {
		// An earlier version of Kiln has built it.
		return fn.Status.Source.Commit
	}
	return b.Commit
}

func findRun(runs []builds.Run, name string) *builds.Run {
	i := slices.IndexFunc(runs, func(run builds.Run) bool { return run.Ref.Name == name })
	if i < 0 {
		return nil
	}
	return &runs[i]
}
