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

package resources

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/tektoncd/pipeline/pkg/apis/pipeline/pod"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/kmap"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources/names"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	// FetchStepName is the name of the step that fetches the source, where it is not
	// in the Function.
	FetchStepName = "fetch"

	// InstallStepName is the name of the step in which Kaniko runs the Dockerfile:
	// where there is one.
	InstallStepName = "install"

	// PushStepName is the name of the step that makes the image and pushes it.
	PushStepName = "push"

	// StepContainerPrefix is what Tekton puts before a step's name to make that of its
	// container.
	StepContainerPrefix = "step-"

	// ImageURLResult is the result of a build that tells where its image is.
	// Tekton Chains signs the image that results of these two names tell of.
	ImageURLResult = "IMAGE_URL"

	// ImageDigestResult is the result of a build that tells its image's digest.
	ImageDigestResult = "IMAGE_DIGEST"

	// BaseImageResult is the result of a build that tells its base image, as an
	// object with a uri and a digest. Tekton Chains takes results whose names end
	// so for what went into the build.
	BaseImageResult = "BASE_IMAGE_ARTIFACT_INPUTS"

	// SourceResult is the result of a build that tells which source it has fetched, as
	// an object like that of the base image.
	SourceResult = "SOURCE_ARTIFACT_INPUTS"

	contextVolumeName = "context"
	contextPath       = "/kiln-build"
	layersVolumeName  = "layers"
	layersPath        = "/kiln-layers"
	kanikoVolumeName  = "kaniko"
	kanikoPath        = "/kaniko"
	kanikoBinary      = "/ko-app/kaniko"
	composeBinary     = "/ko-app/compose"

	credentialsVolumeName = "credentials"
	credentialsPath       = "/kiln-credentials"
	packagesVolumeName    = "packages"
	envVolumeName         = "env"

	// The step that fetches the source sees the ConfigMap as a folder, and makes the
	// build context of both, in a volume that the other steps read.
	filesPath                   = "/kiln-files"
	workVolumeName              = "work"
	workPath                    = "/kiln-work"
	fetchedContextPath          = workPath + "/context"
	fetchedSourcePath           = workPath + "/source.json"
	sourceCredentialsVolumeName = "source-credentials"
	sourceCredentialsPath       = "/kiln-source-credentials"
)

// Build says which TaskRun to make.
type Build struct {
	// Request is what the TaskRun is to build.
	builds.Request

	// Reason tells why.
	Reason string

	// Attempt counts how often this build was started.
	Attempt int32

	// BaseImage is the image to build upon: by digest, where that is known. It is ""
	// where the function's own Dockerfile says it.
	BaseImage string

	// Files is the build context, by file name.
	Files map[string]string

	// InstallFiles are those of it that may be read where something is run.
	InstallFiles map[string]string

	// Runtime knows what is to be in a source that is fetched.
	Runtime runtimes.Runtime

	// Dependencies is the image that has the dependencies, and nothing else of the
	// Function.
	Dependencies Dependencies

	// Credentials is the Secret with the credentials of registries that the
	// namespace has; it is nil where there is none.
	Credentials *corev1.Secret
}

// Dependencies is an image in the Function's repository.
type Dependencies struct {
	// Tag is the tag that the image has, or gets; "" if there is to be none.
	Tag string

	// Digest is its digest; "" if it is not there yet.
	Digest string
}

// installs says whether the build runs anything.
func (b *Build) installs() bool {
	_, ok := b.Files[runtimes.DockerfileName]
	return b.Runtime.IsOwnDockerfile() || ok && b.Dependencies.Digest == ""
}

// MakeTaskRun returns the TaskRun that builds the Function's image and pushes it.
func MakeTaskRun(fn *v1alpha1.Function, cfg *config.Config, build Build) *pipelinev1.TaskRun {
	tr := &pipelinev1.TaskRun{
		ObjectMeta: objectMeta(fn, names.TaskRun(fn, build.Request, build.Attempt)),
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
				Results: buildResults(fn, build),
				Steps:   buildSteps(fn, cfg, build),
				Volumes: buildVolumes(fn, cfg, build),
			},
		},
	}
	tr.Labels = BuildLabels(fn, build.Tag)
	tr.Annotations = map[string]string{
		serverless.GenerationAnnotationKey:   strconv.FormatInt(build.Generation, 10),
		serverless.BuildReasonAnnotationKey:  build.Reason,
		serverless.BuildInputsAnnotationKey:  build.Fingerprint,
		serverless.BuildAttemptAnnotationKey: strconv.Itoa(int(build.Attempt)),
		// A sidecar would keep the build's pod from ending.
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

// buildResults returns what the build tells. What an own Dockerfile builds upon, only
// that tells, and who runs it may lie.
func buildResults(fn *v1alpha1.Function, build Build) []pipelinev1.TaskResult {
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
	if isFetched(fn) {
		results = append(results, pipelinev1.TaskResult{
			Name: SourceResult, Type: pipelinev1.ResultsTypeObject, Description: "The source that was fetched.", Properties: input,
		})
	}
	return results
}

// priorityClass returns the priority class of the build's pod; nil is the
// cluster's default.
func priorityClass(cfg *config.Build) *string {
	if cfg.PriorityClassName == "" {
		return nil
	}
	return &cfg.PriorityClassName
}

// BuildLabels returns the labels of the TaskRun that builds the image of the
// given tag.
func BuildLabels(fn *v1alpha1.Function, tag string) map[string]string {
	return kmap.Union(objectMeta(fn, "").Labels, map[string]string{serverless.ImageTagLabelKey: tag})
}

// buildSteps returns the steps of the build. What an author brings is run by
// one, and pushed by another: it never sees the credentials of the registry.
func buildSteps(fn *v1alpha1.Function, cfg *config.Config, build Build) []pipelinev1.Step {
	var steps []pipelinev1.Step
	if isFetched(fn) {
		steps = append(steps, fetchStep(fn, cfg, build))
	}
	if build.installs() {
		steps = append(steps, installStep(fn, cfg, build))
	}
	return append(steps, pushStep(fn, cfg, build))
}

// installStep returns the step in which Kaniko unpacks the base image over its
// own root filesystem and runs the Dockerfile in it.
func installStep(fn *v1alpha1.Function, cfg *config.Config, build Build) pipelinev1.Step {
	mounts := []corev1.VolumeMount{
		{Name: kanikoVolumeName, MountPath: kanikoPath},
		{Name: layersVolumeName, MountPath: layersPath},
	}
	contextPath := contextPathOf(fn)
	mounts = append(mounts, contextMounts(fn, build.InstallFiles)...)
	// What is mounted gets into no layer, and is no input of the build.
	if name, _ := packagesSecret(fn, cfg.Build); name != "" {
		mounts = append(mounts, corev1.VolumeMount{Name: packagesVolumeName, MountPath: runtimes.PackagesPath, ReadOnly: true})
	}
	if len(buildEnv(fn, build)) > 0 {
		mounts = append(mounts, corev1.VolumeMount{Name: envVolumeName, MountPath: path.Dir(runtimes.EnvFilePath), ReadOnly: true})
	}
	return pipelinev1.Step{
		Name:  InstallStepName,
		Image: cfg.Build.KanikoImage,
		// Said here, so that Tekton need not ask the registry for it.
		Command:          []string{kanikoBinary},
		Args:             append(installArgs(contextPath, build), insecureRegistries(cfg)...),
		ComputeResources: buildResources(fn, cfg.Build),
		VolumeMounts:     mounts,
		SecurityContext: &corev1.SecurityContext{
			// Kaniko changes owners and modes of what it unpacks: it needs root
			// in its container, and no more than that.
			RunAsUser:                new(int64(0)),
			RunAsGroup:               new(int64(0)),
			RunAsNonRoot:             new(false),
			AllowPrivilegeEscalation: new(false),
			Capabilities: &corev1.Capabilities{
				Drop: []corev1.Capability{"ALL"},
				Add:  installCapabilities(build),
			},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

// installCapabilities returns what unpacking images and running their commands takes.
// Only what others choose freely has files with capabilities of their own, as images
// of Fedora do.
func installCapabilities(build Build) []corev1.Capability {
	capabilities := []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}
	if build.Runtime.IsOwnDockerfile() {
		capabilities = append(capabilities, "SETFCAP")
	}
	return capabilities
}

// installArgs tells the step what to run. Where no base image is said, it keeps all
// layers of what the Dockerfile makes, and not only those upon the base image: the
// step that pushes must not pull, with its credentials, what this one names.
func installArgs(contextPath string, build Build) []string {
	args := []string{
		"--context=" + contextPath,
		"--dockerfile=" + path.Join(contextPath, runtimes.DockerfileName),
		"--layers=" + layersPath,
	}
	if !build.Runtime.IsOwnDockerfile() {
		args = append(args, "--base="+build.BaseImage)
	}
	return args
}

// pushStep returns the step that puts what was installed, and the function's
// files, upon the base image and pushes the result.
func pushStep(fn *v1alpha1.Function, cfg *config.Config, build Build) pipelinev1.Step {
	contextPath := contextPathOf(fn)
	args := []string{
		"--context=" + contextPath,
		"--destination=" + cfg.Registry.PushImage(fn.Namespace, fn.Name, build.Tag),
		"--image-digest-file=$(results." + ImageDigestResult + ".path)",
		"--image-url-file=$(results." + ImageURLResult + ".path)",
	}
	if !build.Runtime.IsOwnDockerfile() {
		args = append(args, "--base="+build.BaseImage, "--base-image-file=$(results."+BaseImageResult+".path)")
	}
	for _, label := range imageLabels(fn, build) {
		args = append(args, "--label="+label)
	}
	if isFetched(fn) {
		args = append(args, "--source="+fetchedSourcePath)
	}
	mounts := contextMounts(fn, build.Files)
	if build.Dependencies.Digest != "" {
		args = append(args, "--dependencies="+cfg.Registry.PushRepository(fn.Namespace, fn.Name)+"@"+build.Dependencies.Digest)
	}
	if build.installs() {
		args = append(args, "--layers="+layersPath)
		if build.Dependencies.Tag != "" {
			args = append(args, "--keep="+cfg.Registry.PushImage(fn.Namespace, fn.Name, build.Dependencies.Tag))
		}
		mounts = append(mounts, corev1.VolumeMount{Name: layersVolumeName, MountPath: layersPath, ReadOnly: true})
	}
	var env []corev1.EnvVar
	if build.Credentials != nil {
		mounts = append(mounts, corev1.VolumeMount{Name: credentialsVolumeName, MountPath: credentialsPath, ReadOnly: true})
		env = append(env, corev1.EnvVar{Name: "DOCKER_CONFIG", Value: credentialsPath})
	}
	if _, ok := build.Files[runtimes.LayoutName]; ok {
		args = append(args, "--layout="+path.Join(contextPath, runtimes.LayoutName))
	} else {
		args = append(args, "--config="+path.Join(layersPath, "config.json"))
	}
	return pipelinev1.Step{
		Name:             PushStepName,
		Image:            cfg.Build.ComposeImage,
		Command:          []string{composeBinary},
		Args:             append(args, insecureRegistries(cfg)...),
		Env:              env,
		VolumeMounts:     mounts,
		ComputeResources: copying(),
		SecurityContext:  restricted(),
	}
}

// copying returns the resources of a step that copies between files and the network,
// whatever their size.
func copying() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("50m"),
			corev1.ResourceMemory: resource.MustParse("64Mi"),
		},
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
	}
}

// imageLabels returns the labels of the image. They tell of what is in its tag as
// well, so that the same inputs make the same image: the generation is not, and is
// another tag of the image.
func imageLabels(fn *v1alpha1.Function, build Build) []string {
	labels := []string{
		"org.opencontainers.image.title=" + fn.Name,
		serverless.FunctionNamespaceLabelKey + "=" + fn.Namespace,
		serverless.FunctionNameLabelKey + "=" + fn.Name,
		serverless.ImageTagLabelKey + "=" + build.Tag,
		serverless.RuntimeLabelKey + "=" + fn.Spec.Runtime,
	}
	if isFetched(fn) {
		return labels // Its hash is told by the step that fetches it.
	}
	source := sha256.Sum256([]byte(fn.Spec.Source))
	return append(labels, serverless.SourceHashLabelKey+"=sha256:"+hex.EncodeToString(source[:]))
}

func insecureRegistries(cfg *config.Config) []string {
	var args []string
	for _, host := range cfg.Registry.Insecure {
		args = append(args, "--insecure-registry="+host)
	}
	return args
}

// contextMounts mounts each file by itself. A ConfigMap that is mounted as a
// directory holds symbolic links, and Kaniko would copy these. A context with a
// source that was fetched is in a volume of its own.
func contextMounts(fn *v1alpha1.Function, files map[string]string) []corev1.VolumeMount {
	if isFetched(fn) {
		return []corev1.VolumeMount{{Name: workVolumeName, MountPath: workPath, ReadOnly: true}}
	}
	mounts := make([]corev1.VolumeMount, 0, len(files))
	for _, file := range slices.Sorted(maps.Keys(files)) {
		mounts = append(mounts, corev1.VolumeMount{
			Name:      contextVolumeName,
			MountPath: path.Join(contextPath, file),
			SubPath:   file,
			ReadOnly:  true,
		})
	}
	return mounts
}

func buildVolumes(fn *v1alpha1.Function, cfg *config.Config, build Build) []corev1.Volume {
	volumes := []corev1.Volume{{
		Name: contextVolumeName,
		VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: names.ConfigMap(fn, build.Tag)},
		}},
	}}
	if isFetched(fn) {
		volumes = append(volumes, fetchVolumes(fn)...)
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
	if build.installs() {
		volumes = append(volumes, installVolumes(fn, cfg, build)...)
	}
	return volumes
}

// installVolumes returns what only the step needs that installs dependencies.
func installVolumes(fn *v1alpha1.Function, cfg *config.Config, build Build) []corev1.Volume {
	volumes := []corev1.Volume{
		{Name: kanikoVolumeName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: layersVolumeName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
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

// packagesSecret returns the name of the Secret with the credentials of package
// registries. The build of a Function that names one waits until it exists.
func packagesSecret(fn *v1alpha1.Function, cfg *config.Build) (name string, optional bool) {
	if fn.Spec.Build != nil && fn.Spec.Build.SecretName != "" {
		return fn.Spec.Build.SecretName, false
	}
	return cfg.PackageRegistrySecret, true
}

// buildEnv returns the environment of the package manager, where it runs.
func buildEnv(fn *v1alpha1.Function, build Build) map[string]string {
	if fn.Spec.Build == nil || !build.installs() {
		return nil
	}
	env := make(map[string]string, len(fn.Spec.Build.Env))
	for _, variable := range fn.Spec.Build.Env {
		env[variable.Name] = variable.Value
	}
	return env
}

// buildTimeout returns how long the build may take. A Function that was accepted
// before the ceiling came down has it from then on.
func buildTimeout(fn *v1alpha1.Function, cfg *config.Build) time.Duration {
	if fn.Spec.Build == nil || fn.Spec.Build.Timeout == nil || fn.Spec.Build.Timeout.Duration <= 0 {
		return cfg.Timeout
	}
	return min(fn.Spec.Build.Timeout.Duration, cfg.MaxTimeout)
}

// buildResources returns what the build requests and may use at most: what the
// Function says, as far as the ceilings go, and what the configuration says of
// the rest. A request of the one that is above a limit of the other gives way to
// what the Function says.
func buildResources(fn *v1alpha1.Function, cfg *config.Build) corev1.ResourceRequirements {
	resources := *cfg.Resources.DeepCopy()
	if fn.Spec.Build == nil {
		return resources
	}
	said := fn.Spec.Build.Resources
	resources.Requests = overlay(resources.Requests, said.Requests, cfg.MaxResources)
	resources.Limits = overlay(resources.Limits, said.Limits, cfg.MaxResources)
	for name, limit := range resources.Limits {
		request, ok := resources.Requests[name]
		if !ok || request.Cmp(limit) <= 0 {
			continue
		}
		if _, ok := said.Limits[name]; ok {
			resources.Requests[name] = limit
		} else {
			resources.Limits[name] = request
		}
	}
	return resources
}

// overlay returns the list with what is said instead, but no more than most.
func overlay(list, said, most corev1.ResourceList) corev1.ResourceList {
	if list == nil && len(said) > 0 {
		list = make(corev1.ResourceList, len(said))
	}
	for name, quantity := range said {
		if ceiling, ok := most[name]; ok && quantity.Cmp(ceiling) > 0 {
			quantity = ceiling
		}
		list[name] = quantity
	}
	return list
}
