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
	"slices"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
)

// RunOf returns the build that the TaskRun runs.
func RunOf(tr *pipelinev1.TaskRun) builds.Run {
	state := stateOf(tr)
	run := steps.RunOf(tr, state, resultsOf(tr))
	run.Ref = v1alpha1.BuildReference{APIVersion: pipelinev1.SchemeGroupVersion.String(), Kind: Kind, Name: tr.Name}
	run.CompletionTime = completionTime(tr, state)
	return run
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
	if results := resultsOf(tr); !results.IsValid() {
		return builds.Failed
	}
	return builds.Succeeded
}

// resultsOf returns the results of the TaskRun.
func resultsOf(tr *pipelinev1.TaskRun) steps.Results {
	return steps.Results{
		ImageDigest:  resultOf(tr, steps.ImageDigestResult).StringVal,
		BaseImage:    resultOf(tr, steps.BaseImageResult).ObjectVal,
		Dependencies: resultOf(tr, steps.DependenciesResult).ObjectVal,
		Source:       resultOf(tr, steps.SourceResult).ObjectVal,
	}
}

// resultOf returns a result of the TaskRun, or its zero value.
func resultOf(tr *pipelinev1.TaskRun, name string) pipelinev1.ResultValue {
	i := slices.IndexFunc(tr.Status.Results, func(result pipelinev1.TaskRunResult) bool { return result.Name == name })
	if i < 0 {
		return pipelinev1.ResultValue{}
	}
	return tr.Status.Results[i].Value
}
