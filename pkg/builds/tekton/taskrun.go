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
	"path"
	"strconv"
	"time"

	"github.com/tektoncd/pipeline/pkg/apis/pipeline/pod"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	// FetchStepName is the name of the step that fetches a source from Git or an archive.
	FetchStepName = "fetch"

	// InstallName is the name of the sidecar in which Kaniko runs the Dockerfile. In
	// builds of earlier Kilns it is a step.
	InstallName = "install"

	// PushStepName is the name of the step that composes the image and pushes it.
	PushStepName = "push"

	// StepContainerPrefix is Tekton's prefix of the name of a step's container.
	StepContainerPrefix = "step-"

	// SidecarContainerPrefix is Tekton's prefix of the name of a sidecar's container.
	SidecarContainerPrefix = "sidecar-"

	// ImageURLResult is the result with the repository of the image. Tekton Chains signs
	// the image that the results ImageURLResult and ImageDigestResult describe.
	ImageURLResult = "IMAGE_URL"

	// ImageDigestResult is the result with the digest of the image.
	ImageDigestResult = "IMAGE_DIGEST"

	// BaseImageResult is the result with the base image: an object with a uri and a
	// digest. Tekton Chains records results with this suffix as inputs of the build.
	BaseImageResult = "BASE_IMAGE_ARTIFACT_INPUTS"

	// SourceResult is the result with the fetched source: an object like BaseImageResult.
	SourceResult = "SOURCE_ARTIFACT_INPUTS"

	// DependenciesResult is the result with the image of the installed dependencies: an
	// object with its tag, its digest, and the digest of the list of its packages. Tekton
	// Chains does not sign it, because no Function runs it.
	DependenciesResult = "DEPENDENCIES"

	contextVolumeName = "context"
	contextPath       = "/kiln-build"
	layersVolumeName  = "layers"
	layersPath        = "/kiln-layers"
	kanikoVolumeName  = "kaniko"
	kanikoPath        = "/kaniko"
	kanikoBinary      = "/ko-app/kaniko"
	composeBinary     = "/ko-app/compose"

	credentialsVolumeName = pods.CredentialsVolume
	credentialsPath       = "/kiln-credentials"
	packagesVolumeName    = "packages"
	envVolumeName         = "env"

	// The fetch step mounts the ConfigMap as a folder. It writes the build context into a
	// volume that the other steps read.
	filesPath                   = "/kiln-files"
	workVolumeName              = "work"
	workPath                    = "/kiln-work"
	fetchedContextPath          = workPath + "/context"
	fetchedSourcePath           = workPath + "/source.json"
	sourceCredentialsVolumeName = "source-credentials"
	sourceCredentialsPath       = "/kiln-source-credentials"
)

// MakeTaskRun returns the TaskRun that builds and pushes the Function's image.
func MakeTaskRun(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec) *pipelinev1.TaskRun {
	tr := &pipelinev1.TaskRun{
		ObjectMeta: children.ObjectMeta(fn, builds.NameOf(fn, build.Request, build.Attempt)),
		Spec: pipelinev1.TaskRunSpec{
			Timeout: &metav1.Duration{Duration: buildTimeout(fn, cfg.Build)},
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
				Steps:    buildSteps(fn, cfg, build),
				Sidecars: buildSidecars(fn, cfg, build),
				Volumes:  buildVolumes(fn, cfg, build),
			},
		},
	}
	tr.Labels = children.BuildLabels(fn, build.Tag)
	tr.Annotations = map[string]string{
		serverless.GenerationAnnotationKey:   strconv.FormatInt(build.Generation, 10),
		serverless.BuildReasonAnnotationKey:  build.Reason,
		serverless.BuildInputsAnnotationKey:  build.Fingerprint,
		serverless.BuildAttemptAnnotationKey: strconv.Itoa(int(build.Attempt)),
		// The sidecar of a mesh would keep the pod from ending.
		"sidecar.istio.io/inject": "false",
	}
	if build.Rebuild != "" {
		tr.Annotations[serverless.RebuildAnnotationKey] = build.Rebuild
	}
	if build.Commit != "" {
		tr.Annotations[serverless.BuildCommitAnnotationKey] = build.Commit
	}
	if build.CredentialsVersion != "" {
		tr.Annotations[serverless.BuildCredentialsAnnotationKey] = build.CredentialsVersion
	}
	if env := buildEnv(fn, build); len(env) > 0 {
		tr.Annotations[serverless.BuildEnvAnnotationKey] = runtimes.EnvFile(env)
	}
	return tr
}

// buildResults returns the results of the build. An author's own Dockerfile names its
// base image itself, so the build cannot vouch for that.
func buildResults(fn *v1alpha1.Function, build builds.Spec) []pipelinev1.TaskResult {
	input := map[string]pipelinev1.PropertySpec{"uri": {Type: pipelinev1.ParamTypeString}, "digest": {Type: pipelinev1.ParamTypeString}}
	results := []pipelinev1.TaskResult{
		{Name: ImageURLResult, Type: pipelinev1.ResultsTypeString, Description: "The image that was pushed."},
		{Name: ImageDigestResult, Type: pipelinev1.ResultsTypeString, Description: "The digest of the image that was pushed."},
	}
	if !build.Runtime.IsOwnDockerfile() {
		results = append(results, pipelinev1.TaskResult{
			Name: BaseImageResult, Type: pipelinev1.ResultsTypeObject, Description: "The image that it is built upon.", Properties: input,
		})
	}
	if keepsDependencies(build) {
		kept := map[string]pipelinev1.PropertySpec{
			"tag": {Type: pipelinev1.ParamTypeString}, "digest": {Type: pipelinev1.ParamTypeString}, "packages": {Type: pipelinev1.ParamTypeString},
		}
		results = append(results, pipelinev1.TaskResult{
			Name: DependenciesResult, Type: pipelinev1.ResultsTypeObject, Description: "The installed dependencies, for later builds.", Properties: kept,
		})
	}
	if fn.Spec.IsFetched() {
		results = append(results, pipelinev1.TaskResult{
			Name: SourceResult, Type: pipelinev1.ResultsTypeObject, Description: "The source that was fetched.", Properties: input,
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

// packagesSecret returns the name of the Secret with credentials for package
// registries. A build waits for a Secret that its Function names.
func packagesSecret(fn *v1alpha1.Function, cfg *config.Build) (name string, optional bool) {
	if fn.Spec.Build != nil && fn.Spec.Build.SecretName != "" {
		return fn.Spec.Build.SecretName, false
	}
	return cfg.PackageRegistrySecret, true
}

// buildEnv returns the environment of the package manager.
func buildEnv(fn *v1alpha1.Function, build builds.Spec) map[string]string {
	if fn.Spec.Build == nil || !build.Installs() {
		return nil
	}
	env := make(map[string]string, len(fn.Spec.Build.Env))
	for _, variable := range fn.Spec.Build.Env {
		env[variable.Name] = variable.Value
	}
	return env
}

// buildTimeout returns the timeout of the build. The ceiling also applies to Functions
// that were accepted before it was lowered.
func buildTimeout(fn *v1alpha1.Function, cfg *config.Build) time.Duration {
	if fn.Spec.Build == nil || fn.Spec.Build.Timeout == nil || fn.Spec.Build.Timeout.Duration <= 0 {
		return cfg.Timeout
	}
	return min(fn.Spec.Build.Timeout.Duration, cfg.MaxTimeout)
}

// buildResources returns the resources of the installation: those of the Function up
// to the ceilings, and the configured ones for the rest. Where a request of one is
// above a limit of the other, the Function's value wins.
func buildResources(fn *v1alpha1.Function, cfg *config.Build) corev1.ResourceRequirements {
	resources := *cfg.Resources.DeepCopy()
	if fn.Spec.Build == nil {
		return resources
	}
	own := fn.Spec.Build.Resources
	resources.Requests = overlay(resources.Requests, own.Requests, cfg.MaxResources)
	resources.Limits = overlay(resources.Limits, own.Limits, cfg.MaxResources)
	for name, limit := range resources.Limits {
		request, ok := resources.Requests[name]
		if !ok || request.Cmp(limit) <= 0 {
			continue
		}
		if _, ok := own.Limits[name]; ok {
			resources.Requests[name] = limit
		} else {
			resources.Limits[name] = request
		}
	}
	return resources
}

// overlay returns the list with the quantities of own, each at most that of most.
func overlay(list, own, most corev1.ResourceList) corev1.ResourceList {
	if list == nil && len(own) > 0 {
		list = make(corev1.ResourceList, len(own))
	}
	for name, quantity := range own {
		if ceiling, ok := most[name]; ok && quantity.Cmp(ceiling) > 0 {
			quantity = ceiling
		}
		list[name] = quantity
	}
	return list
}

func buildVolumes(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec) []corev1.Volume {
	volumes := []corev1.Volume{{
		Name: contextVolumeName,
		VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: children.ConfigMapName(fn, build.Tag)},
		}},
	}}
	if fn.Spec.IsFetched() {
		volumes = append(volumes, fetchVolumes(fn, cfg)...)
	}
	if build.Credentials != nil {
		volumes = append(volumes, corev1.Volume{
			Name: credentialsVolumeName,
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: build.Credentials.Name,
				Items:      []corev1.KeyToPath{{Key: corev1.DockerConfigJsonKey, Path: "config.json"}},
			}},
		})
	}
	if build.Installs() {
		volumes = append(volumes, installVolumes(fn, cfg, build)...)
	}
	return volumes
}

func installVolumes(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec) []corev1.Volume {
	most := diskOfBuild(fn, cfg.Build).install
	volumes := []corev1.Volume{emptyDir(kanikoVolumeName, most), emptyDir(layersVolumeName, most)}
	if name, optional := packagesSecret(fn, cfg.Build); name != "" {
		volumes = append(volumes, corev1.Volume{
			Name:         packagesVolumeName,
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, Optional: &optional}},
		})
	}
	if len(buildEnv(fn, build)) > 0 {
		volumes = append(volumes, corev1.Volume{
			Name: envVolumeName,
			VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
				Items: []corev1.DownwardAPIVolumeFile{{
					Path:     path.Base(runtimes.EnvFilePath),
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + serverless.BuildEnvAnnotationKey + "']"},
				}},
			}},
		})
	}
	return volumes
}
