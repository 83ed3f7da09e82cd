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
	"maps"
	"path"
	"slices"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// buildSteps returns the steps of the build. They run none of the author's code.
func buildSteps(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec) []pipelinev1.Step {
	if fn.Spec.IsFetched() {
		return []pipelinev1.Step{fetchStep(fn, cfg, build), pushStep(fn, cfg, build)}
	}
	return []pipelinev1.Step{pushStep(fn, cfg, build)}
}

// buildSidecars returns the sidecar in which Kaniko unpacks the base image over its own
// root filesystem and runs the Dockerfile in it. It is a sidecar because a step could
// forge each result of the TaskRun: Tekton mounts the results into all steps, and reads
// more of them from the termination message of each. A sidecar has neither.
//
// The sidecar waits for the fetch step, and the push step waits for the sidecar.
func buildSidecars(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec) []pipelinev1.Sidecar {
	if !build.Installs() {
		return nil
	}
	mounts := []corev1.VolumeMount{
		{Name: kanikoVolumeName, MountPath: kanikoPath},
		{Name: layersVolumeName, MountPath: layersPath},
	}
	contextPath := contextPathOf(fn)
	mounts = append(mounts, contextMounts(fn, build.InstallFiles)...)
	// Mounted files get into no layer and are no input of the build.
	if name, _ := packagesSecret(fn, cfg.Build); name != "" {
		mounts = append(mounts, corev1.VolumeMount{Name: packagesVolumeName, MountPath: runtimes.PackagesPath, ReadOnly: true})
	}
	if len(buildEnv(fn, build)) > 0 {
		mounts = append(mounts, corev1.VolumeMount{Name: envVolumeName, MountPath: path.Dir(runtimes.EnvFilePath), ReadOnly: true})
	}
	args := append(installArgs(contextPath, build), insecureRegistries(cfg)...)
	if fn.Spec.IsFetched() {
		args = append(args, "--wait-for="+fetchedSourcePath)
	}
	return []pipelinev1.Sidecar{{
		Name:             InstallName,
		Image:            cfg.Build.KanikoImage,
		Command:          []string{kanikoBinary},
		Args:             args,
		ComputeResources: buildResources(fn, cfg.Build),
		VolumeMounts:     mounts,
		SecurityContext: &corev1.SecurityContext{
			// Kaniko changes the owners and modes of the files that it unpacks. It needs
			// root in its container and no other privilege.
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
	}}
}

// installCapabilities returns the capabilities for unpacking images and running their
// commands. An author's own base image may hold files with capabilities, as Fedora's do.
func installCapabilities(build builds.Spec) []corev1.Capability {
	capabilities := []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}
	if build.Runtime.IsOwnDockerfile() {
		capabilities = append(capabilities, "SETFCAP")
	}
	return capabilities
}

// installArgs returns the arguments of the sidecar. Without a base image the sidecar
// keeps all layers, not only those on the base image. The push step must not pull an
// image that the author's Dockerfile names, because it has credentials.
func installArgs(contextPath string, build builds.Spec) []string {
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

// pushStep returns the step that puts the installed layers and the function's files on
// the base image, and pushes the result.
func pushStep(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec) pipelinev1.Step {
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
	if fn.Spec.IsFetched() {
		args = append(args, "--source="+fetchedSourcePath)
	}
	mounts := contextMounts(fn, build.Files)
	if build.Dependencies.Digest != "" {
		args = append(args, "--dependencies="+cfg.Registry.PushRepository(fn.Namespace, fn.Name)+"@"+build.Dependencies.Digest)
		if build.Dependencies.Packages != "" {
			args = append(args, "--packages="+build.Dependencies.Packages)
		}
	}
	if build.Installs() {
		args = append(args, "--layers="+layersPath)
		if keepsDependencies(build) {
			args = append(args, "--keep="+cfg.Registry.PushImage(fn.Namespace, fn.Name, build.Dependencies.Tag),
				"--kept-file=$(results."+DependenciesResult+".path)")
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
		ComputeResources: diskOfBuild(fn, cfg.Build).limit(copying(), nil),
		SecurityContext:  children.Restricted(),
	}
}

// keepsDependencies reports whether later builds can reuse the dependencies that the
// build installs.
func keepsDependencies(build builds.Spec) bool {
	return build.Installs() && build.Dependencies.Tag != ""
}

// copying returns the resources of a step that copies between disk and network. They do
// not depend on the size of the image.
func copying() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("50m"),
			corev1.ResourceMemory: resource.MustParse("64Mi"),
		},
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
	}
}

// imageLabels returns the labels of the image. They hold only inputs that its tag
// hashes too, so the same inputs make the same image. The generation is a second tag.
func imageLabels(fn *v1alpha1.Function, build builds.Spec) []string {
	labels := []string{
		"org.opencontainers.image.title=" + fn.Name,
		serverless.FunctionNamespaceLabelKey + "=" + fn.Namespace,
		serverless.FunctionNameLabelKey + "=" + fn.Name,
		serverless.ImageTagLabelKey + "=" + build.Tag,
		serverless.RuntimeLabelKey + "=" + fn.Spec.Runtime,
	}
	if fn.Spec.IsFetched() {
		return labels // The fetch step adds the hash of the source.
	}
	return append(labels, serverless.SourceHashLabelKey+"="+fn.TextDigests().Source)
}

func insecureRegistries(cfg *config.Config) []string {
	var args []string
	for _, host := range cfg.Registry.Insecure {
		args = append(args, "--insecure-registry="+host)
	}
	return args
}

// contextMounts mounts each file on its own. A ConfigMap mounted as a directory holds
// symbolic links, which Kaniko would copy. The context of a fetched source is in the
// volume of the fetch step.
func contextMounts(fn *v1alpha1.Function, files map[string]string) []corev1.VolumeMount {
	if fn.Spec.IsFetched() {
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
