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
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	containerregistry "github.com/google/go-containerregistry/pkg/v1"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
)

const (
	// podPending is the reason of a TaskRun whose pod has not started.
	podPending = "Pending"
	// unscheduled is in the message of such a TaskRun where no node has taken its
	// pod; what the scheduler says of that follows.
	unscheduled = `"PodScheduled":"False"`
	// exceededQuota is the reason of a TaskRun whose pod a quota does not allow.
	// Tekton creates the pod when it does.
	exceededQuota = "ExceededResourceQuota"
)

// fetchedBy returns the digest of the source that the TaskRun has fetched, and what
// kind of digest it is.
func fetchedBy(tr *pipelinev1.TaskRun) (algorithm, digest string) {
	for _, result := range tr.Status.Results {
		if result.Name == resources.SourceResult {
			algorithm, digest, _ = strings.Cut(result.Value.ObjectVal["digest"], ":")
		}
	}
	return algorithm, digest
}

// known collects what the status and the TaskRuns tell of the Function's builds.
func known(fn *v1alpha1.Function, taskRuns []*pipelinev1.TaskRun) builds.Known {
	k := builds.Known{Existing: buildsOf(fn, taskRuns), Now: time.Now()}
	if digestIn(fn.Status.Image) != "" {
		k.ImageTag = fn.Status.ImageTag
	}
	if b := fn.Status.Build; b != nil {
		k.Last = new(describe(b))
		k.Last.State = rememberedState(b)
		k.Last.Fetched = commitBuilt(fn)
	}
	return k
}

// describe tells of the build what the status says of it.
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

// buildsOf tells of the TaskRuns that are the Function's. One that has lost its
// owner reference still is when the status names it.
func buildsOf(fn *v1alpha1.Function, taskRuns []*pipelinev1.TaskRun) []builds.Build {
	existing := make([]builds.Build, 0, len(taskRuns))
	for _, tr := range taskRuns {
		orphaned := metav1.GetControllerOfNoCopy(tr) == nil && isRemembered(fn, tr)
		if !orphaned && !metav1.IsControlledBy(tr, fn) {
			continue
		}
		b := describe(buildStatus(fn, tr))
		b.Commit, b.Fetched = commitAskedOf(fn, tr), commitFetchedBy(tr)
		b.Generation = generationOf(fn, tr)
		b.State = stateOf(tr)
		b.Deleting = tr.DeletionTimestamp != nil
		existing = append(existing, b)
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
		Ref:        &v1alpha1.BuildReference{APIVersion: pipelinev1.SchemeGroupVersion.String(), Kind: "TaskRun", Name: tr.Name},
		Reason:     tr.Annotations[serverless.BuildReasonAnnotationKey],
		Generation: generationOf(fn, tr),
		ImageTag:   tr.Labels[serverless.ImageTagLabelKey],
		Inputs:     tr.Annotations[serverless.BuildInputsAnnotationKey],
		Rebuild:    tr.Annotations[serverless.RebuildAnnotationKey],
		Commit:     cmp.Or(commitFetchedBy(tr), commitAskedOf(fn, tr)),
		Attempts:   int32(attempts),

		CredentialsVersion: tr.Annotations[serverless.BuildCredentialsAnnotationKey],

		CompletionTime: tr.Status.CompletionTime,
	}
	if !tr.CreationTimestamp.IsZero() {
		// Tekton's own start comes right after, and is corrected by a second or two:
		// each time a write.
		status.StartTime = &tr.CreationTimestamp
	}
	if condition := tr.Status.GetCondition(apis.ConditionSucceeded); stateOf(tr).Ended() && status.CompletionTime == nil {
		// Where a container cannot be made, Tekton does not set it.
		status.CompletionTime = &condition.LastTransitionTime.Inner
	}
	if !stateOf(tr).Ended() {
		// It serves the Function as it is now, whichever generation asked first.
		status.Generation = max(status.Generation, fn.Generation)
	}
	if isRemembered(fn, tr) {
		status.Failure, status.Log = fn.Status.Build.Failure, fn.Status.Build.Log
		status.ImageTag = cmp.Or(status.ImageTag, fn.Status.Build.ImageTag)
		status.Inputs = cmp.Or(status.Inputs, fn.Status.Build.Inputs)
		status.CredentialsVersion = cmp.Or(status.CredentialsVersion, fn.Status.Build.CredentialsVersion)
	}
	return status
}

// isRemembered says whether the status is of the TaskRun.
func isRemembered(fn *v1alpha1.Function, tr *pipelinev1.TaskRun) bool {
	return fn.Status.Build.BuildName() == tr.Name
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
