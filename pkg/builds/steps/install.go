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
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// installStep returns the container in which Kaniko unpacks the base image over its own
// root filesystem and runs the Dockerfile in it. If it starts together with the others, it
// waits for the fetch step, and the push step waits for it.
func installStep(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec, target Target) corev1.Container {
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
	if fn.Spec.IsFetched() && !target.InTurn {
		args = append(args, "--wait-for="+fetchedSourcePath)
	}
	return corev1.Container{
		Name:         Install,
		Image:        cfg.Build.KanikoImage,
		Command:      []string{kanikoBinary},
		Args:         args,
		Resources:    buildResources(fn, cfg.Build),
		VolumeMounts: mounts,
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
	}
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

// installArgs returns the arguments of the install step. Without a base image it
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
