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
	"github.com/tektoncd/pipeline/pkg/apis/pipeline/pod"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/kmap"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/children"
)

const (
	// StepContainerPrefix is Tekton's prefix of the name of a step's container.
	StepContainerPrefix = "step-"

	// SidecarContainerPrefix is Tekton's prefix of the name of a sidecar's container.
	SidecarContainerPrefix = "sidecar-"
)

// target writes each result to the file that Tekton reads.
var target = steps.Target{ResultFile: func(result string) string { return "$(results." + result + ".path)" }}

// MakeTaskRun returns the TaskRun that builds and pushes the Function's image.
func MakeTaskRun(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec) *pipelinev1.TaskRun {
	made := steps.Make(fn, cfg, build, target)
	tr := &pipelinev1.TaskRun{
		ObjectMeta: children.ObjectMeta(fn, builds.NameOf(fn, build.Request, build.Attempt)),
		Spec: pipelinev1.TaskRunSpec{
			Timeout: &metav1.Duration{Duration: steps.Timeout(fn, cfg.Build)},
			PodTemplate: &pod.PodTemplate{
				PriorityClassName:            priorityClass(cfg.Build),
				NodeSelector:                 cfg.Build.NodeSelector,
				Tolerations:                  cfg.Build.Tolerations,
				AutomountServiceAccountToken: new(false),
				EnableServiceLinks:           new(false),
				SecurityContext: &corev1.PodSecurityContext{
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			},
			TaskSpec: &pipelinev1.TaskSpec{
				Results:  buildResults(fn, build),
				Steps:    stepsOf(made),
				Sidecars: sidecarsOf(made),
				Volumes:  made.Volumes,
			},
		},
	}
	tr.Labels = children.BuildLabels(fn, build.Tag)
	// Tekton copies the annotations to the pod.
	tr.Annotations = kmap.Union(steps.Annotations(build), steps.PodAnnotations(fn, build))
	return tr
}

// stepsOf returns the containers that run none of the author's code.
func stepsOf(made steps.Steps) []pipelinev1.Step {
	var list []pipelinev1.Step
	for _, c := range []*corev1.Container{made.Fetch, &made.Push} {
		if c == nil {
			continue
		}
		list = append(list, pipelinev1.Step{
			Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args, Env: c.Env,
			VolumeMounts: c.VolumeMounts, ComputeResources: c.Resources, SecurityContext: c.SecurityContext,
		})
	}
	return list
}

// sidecarsOf returns the container that installs. It is a sidecar because a step could
// forge each result of the TaskRun: Tekton mounts the results into all steps, and reads
// more of them from the termination message of each. A sidecar has neither.
func sidecarsOf(made steps.Steps) []pipelinev1.Sidecar {
	c := made.Install
	if c == nil {
		return nil
	}
	return []pipelinev1.Sidecar{{
		Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args, Env: c.Env,
		VolumeMounts: c.VolumeMounts, ComputeResources: c.Resources, SecurityContext: c.SecurityContext,
	}}
}

// buildResults returns the results of the build. An author's own Dockerfile names its
// base image itself, so the build cannot vouch for that.
func buildResults(fn *v1alpha1.Function, build builds.Spec) []pipelinev1.TaskResult {
	input := map[string]pipelinev1.PropertySpec{"uri": {Type: pipelinev1.ParamTypeString}, "digest": {Type: pipelinev1.ParamTypeString}}
	results := []pipelinev1.TaskResult{
		{Name: steps.ImageURLResult, Type: pipelinev1.ResultsTypeString, Description: "The image that was pushed."},
		{Name: steps.ImageDigestResult, Type: pipelinev1.ResultsTypeString, Description: "The digest of the image that was pushed."},
	}
	if !build.Runtime.IsOwnDockerfile() {
		results = append(results, pipelinev1.TaskResult{
			Name: steps.BaseImageResult, Type: pipelinev1.ResultsTypeObject, Description: "The image that it is built upon.", Properties: input,
		})
	}
	if steps.KeepsDependencies(build) {
		kept := map[string]pipelinev1.PropertySpec{
			"tag": {Type: pipelinev1.ParamTypeString}, "digest": {Type: pipelinev1.ParamTypeString}, "packages": {Type: pipelinev1.ParamTypeString},
		}
		results = append(results, pipelinev1.TaskResult{
			Name: steps.DependenciesResult, Type: pipelinev1.ResultsTypeObject, Description: "The installed dependencies, for later builds.", Properties: kept,
		})
	}
	if fn.Spec.IsFetched() {
		results = append(results, pipelinev1.TaskResult{
			Name: steps.SourceResult, Type: pipelinev1.ResultsTypeObject, Description: "The source that was fetched.", Properties: input,
		})
	}
	return results
}

// priorityClass returns the priority class of the build's pod, or nil for the
// cluster's default.
func priorityClass(cfg *config.Build) *string {
	if cfg.PriorityClassName == "" {
		return nil
	}
	return &cfg.PriorityClassName
}
