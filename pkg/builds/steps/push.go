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

package steps

import (
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// pushStep returns the container that puts the installed layers and the function's files on
// the base image, and pushes the result.
func pushStep(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec, target Target) corev1.Container {
	contextPath := contextPathOf(fn)
	args := append([]string{
		"--context=" + contextPath,
		"--destination=" + cfg.Registry.PushImage(fn.Namespace, fn.Name, build.Tag),
	}, target.pushResults()...)
	if !build.Runtime.IsOwnDockerfile() {
		args = append(args, "--base="+build.BaseImage)
		args = append(args, target.result("--base-image-file", BaseImageResult)...)
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
		if KeepsDependencies(build) {
			args = append(args, "--keep="+cfg.Registry.PushImage(fn.Namespace, fn.Name, build.Dependencies.Tag))
			args = append(args, target.result("--kept-file", DependenciesResult)...)
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
	return corev1.Container{
		Name:            Push,
		Image:           cfg.Build.ComposeImage,
		Command:         []string{composeBinary},
		Args:            append(args, insecureRegistries(cfg)...),
		Env:             env,
		VolumeMounts:    mounts,
		Resources:       diskOfBuild(fn, cfg.Build).limit(copying(), nil),
		SecurityContext: children.Restricted(),
	}
}

// pushResults returns the arguments of the push step for the results of each build.
func (t Target) pushResults() []string {
	if t.ResultFile == nil {
		return []string{"--results-file=" + corev1.TerminationMessagePathDefault}
	}
	return append(t.result("--image-digest-file", ImageDigestResult), t.result("--image-url-file", ImageURLResult)...)
}

// result returns the argument for the file of one result, if it has its own file.
func (t Target) result(flag, name string) []string {
	if t.ResultFile == nil {
		return nil
	}
	return []string{flag + "=" + t.ResultFile(name)}
}

// KeepsDependencies reports whether later builds can reuse the dependencies that the
// build installs.
func KeepsDependencies(build builds.Spec) bool {
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
