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
	"strconv"
	"strings"

	containerregistry "github.com/google/go-containerregistry/pkg/v1"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
)

// build sees to it that the image of the Function, as it is now, is built once,
// if the registry does not hold it already.
func (r *Reconciler) build(ctx context.Context, fn *v1alpha1.Function, want *plan, taskRuns []*pipelinev1.TaskRun) error {
	decision := builds.Decide(want.request, known(fn, taskRuns))
	found := images.Found{}
	if decision.Reuse {
		var answered bool
		if found, answered = r.lookups.Answer(keyOf(fn), want.lookup, true); !answered {
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonCheckingRegistry, "The registry is asked for image %s:%s.", want.lookup.Name, want.lookup.Tag)
			return nil
		}
	}
	if decision.Action == builds.Start {
		// A cache that lags behind must not cause a second build.
		if err := r.checkCurrent(ctx, fn); err != nil {
			return err
		}
		var err error
		if taskRuns, err = r.liveTaskRuns(ctx, fn); err != nil {
			return err
		}
		decision = builds.Decide(want.request, known(fn, taskRuns))
	}
	if !decision.Reuse {
		found = images.Found{}
	}
	if found.Image != "" {
		decision = builds.Decision{Action: builds.Use, Reason: builds.ReasonImageReused}
	}
	if err := r.deleteObsolete(ctx, fn, want, taskRuns, decision); err != nil {
		return err
	}
	switch decision.Action {
	case builds.Start:
		return r.startBuild(ctx, fn, want, decision.Reason, found.Dependencies, buildsOf(fn, taskRuns))
	case builds.Follow:
		tr, err := r.healTaskRun(ctx, fn, want.request.Tag, taskRunNamed(taskRuns, decision.Build))
		if err != nil {
			return err
		}
		return r.followBuild(ctx, fn, want, tr)
	case builds.Use:
		useImage(ctx, fn, want, cmp.Or(found.Image, digestIn(fn.Status.Image)), decision.Reason)
	case builds.Stay:
		markBuildFailed(fn)
	}
	return nil
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
	case apierrs.IsNotFound(err):
		return errStale
	case err != nil:
		return fmt.Errorf("failed to get Function: %w", err)
	case live.UID != fn.UID || live.ResourceVersion != fn.ResourceVersion:
		return errStale
	}
	return nil
}

// liveTaskRuns returns the Function's TaskRuns as the API server has them,
// with the one that the status names even where it has lost its label. To get
// that one, and the one about to be created, would not do: where this process,
// or the leader before it, ended right after it had created a TaskRun, and the
// Function was edited since, no name leads to that TaskRun, and a cache that was
// just filled need not show it.
func (r *Reconciler) liveTaskRuns(ctx context.Context, fn *v1alpha1.Function) ([]*pipelinev1.TaskRun, error) {
	client := r.tekton.TektonV1().TaskRuns(fn.Namespace)
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: childrenOf(fn).String()})
	if err != nil {
		return nil, fmt.Errorf("failed to list TaskRuns: %w", err)
	}
	taskRuns := make([]*pipelinev1.TaskRun, 0, len(list.Items))
	for i := range list.Items {
		taskRuns = append(taskRuns, &list.Items[i])
	}
	if fn.Status.Build == nil || fn.Status.Build.TaskRunName == "" || taskRunNamed(taskRuns, fn.Status.Build.TaskRunName) != nil {
		return taskRuns, nil
	}
	lost, err := client.Get(ctx, fn.Status.Build.TaskRunName, metav1.GetOptions{})
	switch {
	case apierrs.IsNotFound(err):
		return taskRuns, nil
	case err != nil:
		return nil, fmt.Errorf("failed to get TaskRun: %w", err)
	case !metav1.IsControlledBy(lost, fn):
		return taskRuns, nil
	}
	if lost, err = r.healTaskRun(ctx, fn, fn.Status.Build.ImageTag, lost); err != nil {
		return nil, err
	}
	return append(taskRuns, lost), nil
}

// healTaskRun returns the TaskRun with what somebody has taken from its metadata.
func (r *Reconciler) healTaskRun(ctx context.Context, fn *v1alpha1.Function, tag string, tr *pipelinev1.TaskRun) (*pipelinev1.TaskRun, error) {
	healed := tr.DeepCopy()
	if !heal(healed, &metav1.ObjectMeta{Labels: resources.BuildLabels(fn, tag)}, fn) {
		return tr, nil
	}
	healed, err := r.tekton.TektonV1().TaskRuns(fn.Namespace).Update(ctx, healed, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to update TaskRun: %w", err)
	}
	return healed, nil
}

// deleteObsolete deletes the TaskRuns that the Function has no use for any
// more, those that run too.
func (r *Reconciler) deleteObsolete(ctx context.Context, fn *v1alpha1.Function, want *plan, taskRuns []*pipelinev1.TaskRun, decision builds.Decision) error {
	for _, b := range builds.Obsolete(want.request, buildsOf(fn, taskRuns), decision) {
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

// startBuild creates the TaskRun once no other of the Function exists, so that
// there are never two. The deletion of the last of them wakes the Function.
func (r *Reconciler) startBuild(ctx context.Context, fn *v1alpha1.Function, want *plan, reason, dependencies string, earlier []builds.Build) error {
	build := resources.Build{
		Request: want.request, Reason: reason, Attempt: 1,
		BaseImage: want.baseImage, Files: want.files, Credentials: want.credentials,
		Dependencies: resources.Dependencies{Tag: want.lookup.Dependencies, Digest: dependencies},
	}
	if last := fn.Status.Build; last != nil {
		switch {
		case reason == builds.ReasonBuildDeleted, isPlanned(last, want.request.Tag):
			build.Reason, build.Attempt = last.Reason, last.Attempts+1
		case reason == builds.ReasonCredentialsChanged:
			build.Attempt = last.Attempts + 1
		}
	}
	if len(earlier) > 0 {
		fn.Status.Build = &v1alpha1.BuildStatus{
			Reason:     build.Reason,
			Generation: build.Generation,
			ImageTag:   build.Tag,
			Inputs:     build.Fingerprint,
			Rebuild:    build.Rebuild,
			Attempts:   build.Attempt - 1,
		}
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunsDeleted, "The build starts when earlier ones are gone: %s.", namesOf(earlier))
		return nil
	}
	tr, from, err := r.createTaskRun(ctx, fn, resources.MakeTaskRun(fn, config.FromContextOrDefaults(ctx), build))
	if err != nil {
		return err
	}
	switch ownershipOf(tr, fn) {
	case foreign:
		fn.Status.MarkBuildFailed(v1alpha1.ReasonNotOwned, notOwned, "TaskRun", tr.Name)
		return fmt.Errorf("function %s does not own TaskRun %s", fn.Name, tr.Name)
	case leaving:
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonWaitingForDeletion, "TaskRun %s is being deleted.", tr.Name)
		return from.awaitDeletion("TaskRun", tr.Name)
	}
	if tr, err = r.healTaskRun(ctx, fn, want.request.Tag, tr); err != nil {
		return err
	}
	return r.followBuild(ctx, fn, want, tr)
}

// createTaskRun creates the TaskRun, or returns the one that has its name.
func (r *Reconciler) createTaskRun(ctx context.Context, fn *v1alpha1.Function, desired *pipelinev1.TaskRun) (*pipelinev1.TaskRun, origin, error) {
	tr, err := r.tekton.TektonV1().TaskRuns(fn.Namespace).Create(ctx, desired, metav1.CreateOptions{})
	switch {
	case err == nil:
		return tr, created, nil
	case apierrs.IsAlreadyExists(err):
		if tr, err = r.tekton.TektonV1().TaskRuns(fn.Namespace).Get(ctx, desired.Name, metav1.GetOptions{}); err != nil {
			return nil, unlisted, fmt.Errorf("failed to get TaskRun: %w", err)
		}
		return tr, unlisted, nil
	case isRejected(err):
		fn.Status.MarkBuildFailed(v1alpha1.ReasonTaskRunFailed, "TaskRun %s cannot be created: %v", desired.Name, err)
	}
	return nil, created, retry(fmt.Errorf("failed to create TaskRun: %w", err))
}

// followBuild says in the status where the build stands.
func (r *Reconciler) followBuild(ctx context.Context, fn *v1alpha1.Function, want *plan, tr *pipelinev1.TaskRun) error {
	fn.Status.Build = buildStatus(fn, tr)
	condition := tr.Status.GetCondition(apis.ConditionSucceeded)
	switch stateOf(tr) {
	case builds.Succeeded:
		digest, _ := digestOf(tr)
		setImage(ctx, fn, want.request.Tag, digest)
		fn.Status.MarkBuildReady(v1alpha1.ReasonTaskRunSucceeded, "TaskRun %s built %s.", tr.Name, fn.Status.Image)
	case builds.Failed:
		return r.followFailure(ctx, fn, want, tr)
	default:
		switch {
		case condition == nil:
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunCreated, "TaskRun %s is about to run.", tr.Name)
		case condition.Reason == podPending && len(neededSecrets(tr)) > 0:
			// Neither Tekton nor the pod tells of a Secret that does not exist.
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s waits for its pod to start, which needs Secret %s to exist.",
				tr.Name, strings.Join(neededSecrets(tr), " and Secret "))
		case isOrdinary(condition.Reason):
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s runs.", tr.Name)
		default:
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s: %s: %s", tr.Name, condition.Reason, condition.Message)
		}
	}
	return nil
}

// podPending is the reason of a TaskRun whose pod has not started.
const podPending = "Pending"

// neededSecrets returns the names of the Secrets that the TaskRun's pod cannot
// start without.
func neededSecrets(tr *pipelinev1.TaskRun) (names []string) {
	if tr.Spec.TaskSpec == nil {
		return nil
	}
	for _, volume := range tr.Spec.TaskSpec.Volumes {
		if secret := volume.Secret; secret != nil && (secret.Optional == nil || !*secret.Optional) {
			names = append(names, secret.SecretName)
		}
	}
	return names
}

// isOrdinary says whether a reason of a TaskRun that has not ended tells no
// more than that. Others tell what holds it up.
func isOrdinary(reason string) bool {
	switch reason {
	case string(pipelinev1.TaskRunReasonStarted), string(pipelinev1.TaskRunReasonRunning), podPending:
		return true
	}
	return false
}

// useImage uses the image of that digest, whose TaskRun need not exist any more.
func useImage(ctx context.Context, fn *v1alpha1.Function, want *plan, digest, reason string) {
	setImage(ctx, fn, want.request.Tag, digest)
	if reason != builds.ReasonImageReused {
		fn.Status.MarkBuildReady(v1alpha1.ReasonTaskRunSucceeded, "TaskRun %s built %s.", fn.Status.Build.TaskRunName, fn.Status.Image)
		return
	}
	fn.Status.Build = &v1alpha1.BuildStatus{
		Reason:     builds.ReasonImageReused,
		Generation: want.request.Generation,
		ImageTag:   want.request.Tag,
		Inputs:     want.request.Fingerprint,
		Rebuild:    want.request.Rebuild,
	}
	fn.Status.MarkBuildReady(v1alpha1.ReasonImageReused, "%s was built before.", fn.Status.Image)
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

// digestIn returns the digest of a reference, or "".
func digestIn(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}

// known collects what the status and the TaskRuns tell of the Function's builds.
func known(fn *v1alpha1.Function, taskRuns []*pipelinev1.TaskRun) builds.Known {
	k := builds.Known{Existing: buildsOf(fn, taskRuns)}
	if digestIn(fn.Status.Image) != "" {
		k.ImageTag = fn.Status.ImageTag
	}
	if b := fn.Status.Build; b != nil {
		k.Last = &builds.Build{
			Name:    b.TaskRunName,
			Request: builds.Request{Tag: b.ImageTag, Fingerprint: b.Inputs, Rebuild: b.Rebuild, Generation: b.Generation},
			Reason:  b.Reason,
			State:   rememberedState(b),
		}
	}
	return k
}

// isPlanned says whether the build waits for earlier ones to be gone, to make
// the image of that tag.
func isPlanned(b *v1alpha1.BuildStatus, tag string) bool {
	return rememberedState(b) == builds.Planned && b.ImageTag == tag
}

func rememberedState(b *v1alpha1.BuildStatus) builds.State {
	switch {
	case b.Failure != nil:
		return builds.Failed
	case b.CompletionTime != nil, b.Reason == builds.ReasonImageReused:
		return builds.Succeeded
	case b.TaskRunName != "":
		return builds.Running
	default:
		return builds.Planned
	}
}

// buildsOf tells of the TaskRuns that are the Function's. One that has lost its
// owner reference still is when the status names it.
func buildsOf(fn *v1alpha1.Function, taskRuns []*pipelinev1.TaskRun) []builds.Build {
	existing := make([]builds.Build, 0, len(taskRuns))
	for _, tr := range taskRuns {
		orphaned := metav1.GetControllerOfNoCopy(tr) == nil && isRemembered(fn, tr)
		if !orphaned && !metav1.IsControlledBy(tr, fn) {
			continue
		}
		status := buildStatus(fn, tr)
		existing = append(existing, builds.Build{
			Name: tr.Name,
			Request: builds.Request{
				Tag:         status.ImageTag,
				Fingerprint: status.Inputs,
				Rebuild:     status.Rebuild,
				Generation:  generationOf(fn, tr),

				CredentialsVersion: tr.Annotations[serverless.BuildCredentialsAnnotationKey],
			},
			Reason:   status.Reason,
			State:    stateOf(tr),
			Deleting: tr.DeletionTimestamp != nil,
			Refused:  status.Failure != nil && status.Failure.Reason == v1alpha1.ReasonRegistryUnauthorized,
		})
	}
	return existing
}

func stateOf(tr *pipelinev1.TaskRun) builds.State {
	condition := tr.Status.GetCondition(apis.ConditionSucceeded)
	switch {
	case condition.IsFalse():
		return builds.Failed
	case !condition.IsTrue():
		return builds.Running
	}
	if _, err := digestOf(tr); err != nil {
		return builds.Failed
	}
	return builds.Succeeded
}

// digestOf returns the digest of the image that the TaskRun has pushed.
func digestOf(tr *pipelinev1.TaskRun) (string, error) {
	i := slices.IndexFunc(tr.Status.Results, func(result pipelinev1.TaskRunResult) bool {
		return result.Name == resources.ImageDigestResult
	})
	if i < 0 {
		return "", errors.New("there is no result " + resources.ImageDigestResult)
	}
	digest, err := containerregistry.NewHash(strings.TrimSpace(tr.Status.Results[i].Value.StringVal))
	if err != nil {
		return "", fmt.Errorf("the result %s is no digest: %w", resources.ImageDigestResult, err)
	}
	return digest.String(), nil
}

// buildStatus describes the build that the TaskRun runs.
func buildStatus(fn *v1alpha1.Function, tr *pipelinev1.TaskRun) *v1alpha1.BuildStatus {
	attempts, err := strconv.ParseInt(tr.Annotations[serverless.BuildAttemptAnnotationKey], 10, 32)
	if err != nil {
		attempts = 1
	}
	status := &v1alpha1.BuildStatus{
		TaskRunName:    tr.Name,
		Reason:         tr.Annotations[serverless.BuildReasonAnnotationKey],
		Generation:     generationOf(fn, tr),
		ImageTag:       tr.Labels[serverless.ImageTagLabelKey],
		Inputs:         tr.Annotations[serverless.BuildInputsAnnotationKey],
		Rebuild:        tr.Annotations[serverless.RebuildAnnotationKey],
		Attempts:       int32(attempts),
		StartTime:      tr.Status.StartTime,
		CompletionTime: tr.Status.CompletionTime,
	}
	if !stateOf(tr).Ended() {
		// It serves the Function as it is now, whichever generation asked first.
		status.Generation = max(status.Generation, fn.Generation)
	}
	if isRemembered(fn, tr) {
		status.Failure = fn.Status.Build.Failure
		status.ImageTag = cmp.Or(status.ImageTag, fn.Status.Build.ImageTag)
		status.Inputs = cmp.Or(status.Inputs, fn.Status.Build.Inputs)
	}
	return status
}

// isRemembered says whether the status is of the TaskRun.
func isRemembered(fn *v1alpha1.Function, tr *pipelinev1.TaskRun) bool {
	return fn.Status.Build != nil && fn.Status.Build.TaskRunName == tr.Name
}

// generationOf returns the newest generation of the Function that the TaskRun
// was to serve.
func generationOf(fn *v1alpha1.Function, tr *pipelinev1.TaskRun) int64 {
	generation, err := strconv.ParseInt(tr.Annotations[serverless.GenerationAnnotationKey], 10, 64)
	if err != nil {
		generation = 0
	}
	if isRemembered(fn, tr) {
		generation = max(generation, fn.Status.Build.Generation)
	}
	return generation
}

func taskRunNamed(taskRuns []*pipelinev1.TaskRun, name string) *pipelinev1.TaskRun {
	i := slices.IndexFunc(taskRuns, func(tr *pipelinev1.TaskRun) bool { return tr.Name == name })
	if i < 0 {
		return nil
	}
	return taskRuns[i]
}

func namesOf(existing []builds.Build) string {
	names := make([]string, 0, len(existing))
	for _, b := range existing {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
