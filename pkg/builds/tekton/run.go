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

package tekton

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	containerregistry "github.com/google/go-containerregistry/pkg/v1"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
)

// kind is the kind of the objects that run builds.
const kind = "TaskRun"

// RunOf returns the build that the TaskRun runs.
func RunOf(tr *pipelinev1.TaskRun) builds.Run {
	state := stateOf(tr)
	run := builds.Run{
		Request: builds.Request{
			Tag:                tr.Labels[serverless.ImageTagLabelKey],
			Fingerprint:        tr.Annotations[serverless.BuildInputsAnnotationKey],
			Rebuild:            tr.Annotations[serverless.RebuildAnnotationKey],
			Commit:             tr.Annotations[serverless.BuildCommitAnnotationKey],
			Generation:         parse(tr, serverless.GenerationAnnotationKey, 64),
			CredentialsVersion: tr.Annotations[serverless.BuildCredentialsAnnotationKey],
		},
		Ref:            v1alpha1.BuildReference{APIVersion: pipelinev1.SchemeGroupVersion.String(), Kind: kind, Name: tr.Name},
		Object:         tr,
		Reason:         tr.Annotations[serverless.BuildReasonAnnotationKey],
		Attempt:        int32(cmp.Or(parse(tr, serverless.BuildAttemptAnnotationKey, 32), 1)),
		State:          state,
		CompletionTime: completionTime(tr, state),
		Source:         sourceOf(tr),
	}
	if !tr.CreationTimestamp.IsZero() {
		// Tekton sets its own start time later, and corrects it by a second or two. Each
		// correction would be a write of the status.
		run.StartTime = &tr.CreationTimestamp
	}
	if state == builds.Succeeded {
		run.Digest, _ = digestOf(tr)
		run.BaseDigest = digestIn(objectOf(tr, BaseImageResult), "digest")
		run.Installed = installedBy(tr)
	}
	return run
}

func parse(tr *pipelinev1.TaskRun, annotation string, bits int) int64 {
	n, err := strconv.ParseInt(tr.Annotations[annotation], 10, bits)
	if err != nil {
		return 0
	}
	return n
}

// completionTime returns when the build ended. Tekton does not set that where a
// container could not be created.
func completionTime(tr *pipelinev1.TaskRun, state builds.State) *metav1.Time {
	if condition := tr.Status.GetCondition(apis.ConditionSucceeded); state.Ended() && tr.Status.CompletionTime == nil {
		return &condition.LastTransitionTime.Inner
	}
	return tr.Status.CompletionTime
}

// stateOf returns the state of the TaskRun. One that succeeded without reporting a
// valid digest has Failed.
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

func digestOf(tr *pipelinev1.TaskRun) (string, error) {
	result, ok := resultOf(tr, ImageDigestResult)
	if !ok {
		return "", errors.New("the result " + ImageDigestResult + " is missing")
	}
	digest, err := containerregistry.NewHash(strings.TrimSpace(result.StringVal))
	if err != nil {
		return "", fmt.Errorf("the result %s is not a digest: %w", ImageDigestResult, err)
	}
	return digest.String(), nil
}

// installedBy returns the image with the dependencies that the TaskRun has installed. It
// is zero unless the result is valid.
func installedBy(tr *pipelinev1.TaskRun) v1alpha1.DependencyImage {
	result := objectOf(tr, DependenciesResult)
	digest := digestIn(result, "digest")
	if digest == "" || result["tag"] == "" {
		return v1alpha1.DependencyImage{}
	}
	return v1alpha1.DependencyImage{Tag: result["tag"], Digest: digest, PackagesDigest: digestIn(result, "packages")}
}

// digestIn returns a property that is a digest, or "".
func digestIn(result map[string]string, property string) string {
	digest, err := containerregistry.NewHash(result[property])
	if err != nil {
		return ""
	}
	return digest.String()
}

func sourceOf(tr *pipelinev1.TaskRun) builds.SourceDigest {
	var source builds.SourceDigest
	source.Algorithm, source.Value, _ = strings.Cut(objectOf(tr, SourceResult)["digest"], ":")
	return source
}

// objectOf returns the properties of a result that is an object.
func objectOf(tr *pipelinev1.TaskRun, name string) map[string]string {
	result, _ := resultOf(tr, name)
	return result.ObjectVal
}

// resultOf returns a result of the TaskRun.
func resultOf(tr *pipelinev1.TaskRun, name string) (pipelinev1.ResultValue, bool) {
	i := slices.IndexFunc(tr.Status.Results, func(result pipelinev1.TaskRunResult) bool { return result.Name == name })
	if i < 0 {
		return pipelinev1.ResultValue{}, false
	}
	return tr.Status.Results[i].Value, true
}
