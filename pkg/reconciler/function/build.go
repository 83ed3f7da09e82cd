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
	"net/http"
	"slices"
	"strings"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
)

// build sees to it that the image of the Function, as it is now, is built once,
// if the registry does not hold it already.
func (r *Reconciler) build(ctx context.Context, fn *v1alpha1.Function, want *plan, taskRuns []*pipelinev1.TaskRun) error {
	current := known(fn, taskRuns)
	decision := builds.Decide(want.request, current)
	history := int(config.FromContextOrDefaults(ctx).Build.HistoryLimit)
	var found images.Found
	answered := false
	if decision.Action == builds.Start {
		found, answered = r.lookUp(fn, want, decision)
		// What is to be ended first, or has got out of sight, waits for nobody.
		starts := len(builds.Obsolete(want.request, current.Existing, decision, history)) == 0 && !isOutOfSight(fn, taskRuns)
		if starts && (!answered || found.Image == "" && !r.isTurn(fn, want, decision)) {
			return nil
		}
	} else {
		r.lookups.Forget(keyOf(fn))
	}
	if decision.Action == builds.Start || decision.Action == builds.GiveUp {
		// A cache that lags behind must not cause a second build.
		if err := r.checkCurrent(ctx, fn); err != nil {
			return err
		}
		var err error
		if taskRuns, err = r.allTaskRuns(ctx, fn, taskRuns); err != nil {
			return err
		}
		current = known(fn, taskRuns)
		decision = builds.Decide(want.request, current)
	}
	if !decision.Reuse {
		found = images.Found{Base: found.Base}
	}
	if found.Image != "" {
		decision = builds.Decision{Action: builds.Use, Reason: builds.ReasonImageReused}
	}
	obsolete := builds.Obsolete(want.request, current.Existing, decision, history)
	if err := r.deleteTaskRuns(ctx, fn, taskRuns, obsolete); err != nil {
		return err
	}
	switch decision.Action {
	case builds.Start:
		earlier := inTheWay(current.Existing, obsolete)
		if len(earlier) == 0 && !answered {
			return nil
		}
		return r.startBuild(ctx, fn, want, decision, found, earlier)
	case builds.Follow:
		tr, err := r.healTaskRun(ctx, fn, want.request.Tag, taskRunNamed(taskRuns, decision.Build))
		if err != nil {
			return err
		}
		if history == 0 && isTold(fn, tr) {
			return r.forgetTaskRun(ctx, fn, want, tr)
		}
		return r.followBuild(ctx, fn, want, tr)
	case builds.Use:
		useImage(ctx, fn, want, cmp.Or(found.Image, digestIn(fn.Status.Image)), decision.Reason)
	case builds.Stay:
		return markBuildFailed(fn)
	case builds.GiveUp:
		return giveUp(fn, want)
	}
	return nil
}

// lookUp returns what the registries hold of a build that is to start, once they
// have answered. A Function that waits for its turn goes on to, meanwhile.
func (r *Reconciler) lookUp(fn *v1alpha1.Function, want *plan, decision builds.Decision) (images.Found, bool) {
	lookup := lookupFor(want, decision)
	r.lookups.Ask(keyOf(fn), lookup)
	found, answered := r.lookups.Answer(keyOf(fn), lookup, true)
	if !answered && !isQueued(fn) {
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonCheckingRegistry, "Registries are asked whether there is image %s:%s, and what to build it upon.", want.lookup.Name, want.request.Tag)
	}
	return found, answered
}

// isOutOfSight says whether the status names a TaskRun that the cache does not
// show: it has lost its label, or is gone.
func isOutOfSight(fn *v1alpha1.Function, taskRuns []*pipelinev1.TaskRun) bool {
	b := fn.Status.Build
	return b.BuildName() != "" && taskRunNamed(taskRuns, b.BuildName()) == nil
}

// taskRunsOf returns the Function's TaskRuns as the cache has them.
func (r *Reconciler) taskRunsOf(fn *v1alpha1.Function) ([]*pipelinev1.TaskRun, error) {
	taskRuns, err := r.taskRunLister.TaskRuns(fn.Namespace).List(childrenOf(fn))
	if err != nil {
		return nil, fmt.Errorf("failed to list TaskRuns: %w", err)
	}
	return taskRuns, nil
}

// checkCurrent returns errStale unless the Function is as the API server has it:
// its status, too, which may know of a build that the cache has not heard of.
func (r *Reconciler) checkCurrent(ctx context.Context, fn *v1alpha1.Function) error {
	live, err := r.kiln.ServerlessV1alpha1().Functions(fn.Namespace).Get(ctx, fn.Name, metav1.GetOptions{})
	switch {
	case apierrs.IsNotFound(err), err == nil && live.DeletionTimestamp != nil:
		r.queue.Release(keyOf(fn))
		return errStale
	case err != nil:
		return fmt.Errorf("failed to get Function: %w", err)
	case live.UID != fn.UID || live.ResourceVersion != fn.ResourceVersion:
		return errStale
	}
	return nil
}

// allTaskRuns returns the Function's TaskRuns with those that the cache, which has
// the others, does not show: it may not have heard of one that was just created, and
// never hears of one without its label. Those that may run the queue knows. Who has
// come to lead has told it of all that the API server had, and all others were
// started through it: also by a request without an answer, or before the Function was
// edited, so that no name that could be made now leads to them.
func (r *Reconciler) allTaskRuns(ctx context.Context, fn *v1alpha1.Function, taskRuns []*pipelinev1.TaskRun) ([]*pipelinev1.TaskRun, error) {
	all := slices.Clone(taskRuns)
	for _, name := range r.queue.Running(keyOf(fn), fn.UID) {
		if taskRunNamed(all, name.Name) != nil {
			continue
		}
		tr, err := r.tekton.TektonV1().TaskRuns(fn.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case apierrs.IsNotFound(err):
			r.queue.End(name)
		case err != nil:
			return nil, fmt.Errorf("failed to get TaskRun: %w", err)
		default:
			all = append(all, tr)
		}
	}
	if fn.Status.Build.BuildName() == "" || taskRunNamed(all, fn.Status.Build.BuildName()) != nil {
		return all, nil
	}
	lost, err := r.tekton.TektonV1().TaskRuns(fn.Namespace).Get(ctx, fn.Status.Build.BuildName(), metav1.GetOptions{})
	switch {
	case apierrs.IsNotFound(err):
		return all, nil
	case err != nil:
		return nil, fmt.Errorf("failed to get TaskRun: %w", err)
	case !metav1.IsControlledBy(lost, fn):
		return all, nil
	}
	if lost, err = r.healTaskRun(ctx, fn, fn.Status.Build.ImageTag, lost); err != nil {
		return nil, err
	}
	return append(all, lost), nil
}

// healTaskRun returns the TaskRun with what somebody has taken from its metadata.
func (r *Reconciler) healTaskRun(ctx context.Context, fn *v1alpha1.Function, tag string, tr *pipelinev1.TaskRun) (*pipelinev1.TaskRun, error) {
	desired := &metav1.ObjectMeta{Labels: resources.BuildLabels(fn, tag)}
	return healCached(ctx, r.tekton.TektonV1().TaskRuns(fn.Namespace), "TaskRun", tr, func(tr metav1.Object) bool { return heal(tr, desired, fn) })
}

// deleteTaskRuns deletes the TaskRuns of builds, those that run too.
func (r *Reconciler) deleteTaskRuns(ctx context.Context, fn *v1alpha1.Function, taskRuns []*pipelinev1.TaskRun, obsolete []builds.Build) error {
	for _, b := range obsolete {
		if b.Deleting {
			continue
		}
		tr := taskRunNamed(taskRuns, b.Name)
		if err := r.tekton.TektonV1().TaskRuns(fn.Namespace).Delete(ctx, tr.Name, deleteOptions(tr)); err != nil && !isGone(err) {
			return fmt.Errorf("failed to delete TaskRun: %w", err)
		}
	}
	return nil
}

// inTheWay returns the builds that must be gone before another starts: all but
// those that are kept as history.
func inTheWay(existing, obsolete []builds.Build) []builds.Build {
	return slices.DeleteFunc(existing, func(b builds.Build) bool {
		return b.State.Ended() && !slices.ContainsFunc(obsolete, func(o builds.Build) bool { return o.Name == b.Name })
	})
}

// isTold says whether the status tells how the TaskRun has ended.
func isTold(fn *v1alpha1.Function, tr *pipelinev1.TaskRun) bool {
	return isRemembered(fn, tr) && rememberedState(fn.Status.Build).Ended()
}

// forgetTaskRun deletes a TaskRun that has ended, of which the status tells all.
func (r *Reconciler) forgetTaskRun(ctx context.Context, fn *v1alpha1.Function, want *plan, tr *pipelinev1.TaskRun) error {
	last := builds.Build{Name: tr.Name, Deleting: tr.DeletionTimestamp != nil}
	if err := r.deleteTaskRuns(ctx, fn, []*pipelinev1.TaskRun{tr}, []builds.Build{last}); err != nil {
		return err
	}
	if fn.Status.Build.Failure != nil {
		return markBuildFailed(fn)
	}
	useImage(ctx, fn, want, digestIn(fn.Status.Image), fn.Status.Build.Reason)
	return nil
}

// nextBuild returns the build to start.
func nextBuild(fn *v1alpha1.Function, want *plan, decision builds.Decision, found images.Found) resources.Build {
	build := resources.Build{
		Request: want.request, Reason: decision.Reason, Attempt: 1,
		BaseImage: byDigest(want.lookup.Base, found.Base), Credentials: want.credentials,
		Files: want.files, InstallFiles: want.installFiles, Runtime: want.runtime,
		Dependencies: resources.Dependencies{Tag: want.lookup.DependenciesTag(found.Base), Digest: found.Dependencies},
	}
	if last := fn.Status.Build; last != nil && (decision.Again || decision.Reason == builds.ReasonCredentialsChanged) {
		build.Attempt = last.Attempts + 1
	}
	return build
}

// remember has the status tell of a build that is to start, or need not.
func remember(fn *v1alpha1.Function, build resources.Build) {
	fn.Status.Build = &v1alpha1.BuildStatus{
		Reason:     build.Reason,
		Generation: build.Generation,
		ImageTag:   build.Tag,
		Inputs:     build.Fingerprint,
		Rebuild:    build.Rebuild,
		Commit:     build.Commit,
		Attempts:   build.Attempt - 1,
	}
}

// startBuild creates the TaskRun once it is its turn and no other of the Function
// is in the way, so that there are never two. The deletion of the last of them
// wakes the Function, and so does its turn.
func (r *Reconciler) startBuild(ctx context.Context, fn *v1alpha1.Function, want *plan, decision builds.Decision, found images.Found, earlier []builds.Build) error {
	build := nextBuild(fn, want, decision, found)
	if len(earlier) > 0 {
		remember(fn, build)
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunsDeleted, "The build starts when earlier ones are gone: %s.", namesOf(earlier))
		return nil
	}
	desired := resources.MakeTaskRun(fn, config.FromContextOrDefaults(ctx), build)
	name := types.NamespacedName{Namespace: desired.Namespace, Name: desired.Name}
	if place := r.queue.Start(keyOf(fn), ticketOf(fn, decision), name); !place.Granted {
		markQueued(fn, build, place)
		return nil
	}
	runs := false
	defer func() {
		if !runs {
			r.queue.End(name)
		}
	}()
	tr, from, err := r.createTaskRun(ctx, fn, desired)
	if err != nil {
		if mayExist(err) {
			runs = true
			r.queue.Doubt(name)
		}
		return err
	}
	switch ownershipOf(tr, fn) {
	case foreign:
		fn.Status.MarkBuildFailed(v1alpha1.ReasonNotOwned, notOwned, "TaskRun", tr.Name)
		return awaitName()
	case leaving:
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonWaitingForDeletion, "TaskRun %s is being deleted.", tr.Name)
		return from.awaitDeletion("TaskRun", tr.Name)
	}
	runs = !stateOf(tr).Ended()
	if tr, err = r.healTaskRun(ctx, fn, want.request.Tag, tr); err != nil {
		return err
	}
	return r.followBuild(ctx, fn, want, tr)
}

// createTaskRun creates the TaskRun, or returns the one that has its name.
func (r *Reconciler) createTaskRun(ctx context.Context, fn *v1alpha1.Function, desired *pipelinev1.TaskRun) (*pipelinev1.TaskRun, origin, error) {
	tr, from, err := createOrGet(ctx, r.tekton.TektonV1().TaskRuns(fn.Namespace), "TaskRun", desired)
	if err == nil || from != created {
		return tr, from, err
	}
	switch {
	case isRejected(err):
		fn.Status.MarkBuildFailed(v1alpha1.ReasonTaskRunFailed, "TaskRun %s cannot be created: %v", desired.Name, err)
	case !isNamespaceLeaving(err):
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunNotCreated, "TaskRun %s cannot be created for now, and is tried again: %v", desired.Name, err)
	}
	return nil, from, retry(fmt.Errorf("failed to create TaskRun: %w", err))
}

// mayExist says whether an object may have been created although there is an error:
// where the API server has not refused it, or the answer has got lost.
func mayExist(err error) bool {
	refusal, ok := errors.AsType[*apierrs.StatusError](err)
	return !ok || refusal.ErrStatus.Code >= http.StatusInternalServerError
}

// followBuild says in the status where the build stands.
func (r *Reconciler) followBuild(ctx context.Context, fn *v1alpha1.Function, want *plan, tr *pipelinev1.TaskRun) error {
	told := isTold(fn, tr)
	fn.Status.Build = buildStatus(fn, tr)
	condition := tr.Status.GetCondition(apis.ConditionSucceeded)
	switch stateOf(tr) {
	case builds.Succeeded:
		if !told {
			fn.Status.Build.Log = r.installationLog(ctx, fn, tr)
		}
		digest, _ := digestOf(tr)
		setImage(ctx, fn, want.request.Tag, digest)
		fn.Status.Source = sourceOf(fn, tr)
		fn.Status.MarkBuildReady(v1alpha1.ReasonTaskRunSucceeded, "TaskRun %s built %s.", tr.Name, fn.Status.Image)
	case builds.Failed:
		return r.followFailure(ctx, fn, want, tr)
	default:
		switch {
		case condition == nil, condition.Reason == string(pipelinev1.TaskRunReasonStarted):
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunCreated, "TaskRun %s is about to run.", tr.Name)
		case condition.Reason == podPending && strings.Contains(condition.Message, unscheduled):
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s waits for a node: %s", tr.Name, condition.Message)
		case condition.Reason == podPending:
			return r.followStart(fn, tr)
		case condition.Reason == exceededQuota:
			fn.Status.MarkBuildFailed(v1alpha1.ReasonQuotaExceeded, "The namespace's quota does not allow the build's pod, which is tried again every minute: %s", condition.Message)
		case condition.Reason == string(pipelinev1.TaskRunReasonRunning):
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s runs.", tr.Name)
		default:
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s: %s: %s", tr.Name, condition.Reason, condition.Message)
		}
	}
	return nil
}

// followStart says in the status what the pod of a build that has a node waits for: it is
// about to run while its images are pulled, but not where it does not get one of its
// folders.
func (r *Reconciler) followStart(fn *v1alpha1.Function, tr *pipelinev1.TaskRun) error {
	trouble, err := r.mountTroubleOfBuild(tr)
	switch {
	case err != nil:
		return err
	case trouble != "":
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s waits for its pod to start: %s", tr.Name, trouble)
	default:
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunCreated, "TaskRun %s is about to run.", tr.Name)
	}
	return nil
}

// useImage uses the image of that digest, whose TaskRun need not exist any more.
func useImage(ctx context.Context, fn *v1alpha1.Function, want *plan, digest, reason string) {
	if !fn.Spec.IsFetched() || isPinned(fn) {
		fn.Status.Source = sourceOf(fn, nil)
	}
	setImage(ctx, fn, want.request.Tag, digest)
	if reason != builds.ReasonImageReused {
		fn.Status.MarkBuildReady(v1alpha1.ReasonTaskRunSucceeded, "TaskRun %s built %s.", fn.Status.Build.BuildName(), fn.Status.Image)
		return
	}
	remember(fn, resources.Build{Request: want.request, Reason: builds.ReasonImageReused, Attempt: 1})
	fn.Status.MarkBuildReady(v1alpha1.ReasonImageReused, "%s was built before.", fn.Status.Image)
}

// sourceOf tells which source the Function's image is made of, if it was fetched:
// what the Function says of it, and what the TaskRun, if there is one, has found.
func sourceOf(fn *v1alpha1.Function, tr *pipelinev1.TaskRun) *v1alpha1.SourceStatus {
	source := &v1alpha1.SourceStatus{}
	switch {
	case !fn.Spec.IsFetched():
		return nil
	case fn.Spec.Archive != nil:
		source.SHA256 = fn.Spec.Archive.SHA256
	case isPinned(fn):
		source.Commit = fn.Spec.Git.Revision
	}
	if tr == nil {
		return source
	}
	switch algorithm, digest := fetchedBy(tr); algorithm {
	case "sha256":
		source.SHA256 = digest
	case "sha1":
		source.Commit = digest
	}
	return source
}

// setImage sets the image to deploy: by digest, and as the nodes reach the
// registry now. The registry is told of another image's generation anew.
func setImage(ctx context.Context, fn *v1alpha1.Function, tag, digest string) {
	if digest != digestIn(fn.Status.Image) {
		fn.Status.VersionTag = ""
	}
	fn.Status.ImageTag = tag
	fn.Status.Image = config.FromContextOrDefaults(ctx).Registry.PullImage(fn.Namespace, fn.Name, digest)
}

// byDigest returns the reference of an image with its digest, where that is
// known: whoever pulls it then gets the same, though its tag be moved.
func byDigest(image, digest string) string {
	if digest == "" || digestIn(image) != "" {
		return image
	}
	return image + "@" + digest
}

// digestIn returns the digest of a reference, or "".
func digestIn(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}
