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
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

func volumesOf(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec) []corev1.Volume {
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

// fetchVolumes returns the volumes of the fetch step. The build waits for the Secret
// that the Function names.
func fetchVolumes(fn *v1alpha1.Function, cfg *config.Config) []corev1.Volume {
	volumes := []corev1.Volume{emptyDir(workVolumeName, diskOfBuild(fn, cfg.Build).work)}
	if name := sourceSecret(fn); name != "" {
		volumes = append(volumes, corev1.Volume{
			Name:         sourceCredentialsVolumeName,
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}},
		})
	}
	return volumes
}
