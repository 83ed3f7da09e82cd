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

package pods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNamesSecret(t *testing.T) {
	const name = "kiln-registry-credentials"
	ref := corev1.LocalObjectReference{Name: name}
	volume := func(named string, source corev1.VolumeSource) *corev1.PodSpec {
		return &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "other"}, {Name: named, VolumeSource: source}}}
	}
	secret := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, Optional: new(true)}}
	container := corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: name}, {Name: "B", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref, Optional: new(true)},
	}}}}
	for what, row := range map[string]struct {
		spec *corev1.PodSpec
		want bool
	}{
		"volume": {volume("secret-0", secret), true},
		"projected volume": {volume("secret-0", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{}, {Secret: &corev1.SecretProjection{LocalObjectReference: ref}}},
		}}), true},
		"env":            {&corev1.PodSpec{Containers: []corev1.Container{{}, container}}, true},
		"init container": {&corev1.PodSpec{InitContainers: []corev1.Container{container}}, true},
		"envFrom": {&corev1.PodSpec{Containers: []corev1.Container{{
			EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref}}},
		}}}, true},
		"ConfigMaps of that name": {&corev1.PodSpec{Containers: []corev1.Container{{
			Env:     []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref}}}},
			EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref}}},
		}}}, false},
		"pull secret":              {&corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{ref}}, false},
		"the build's own volume":   {volume(CredentialsVolume, secret), false},
		"volume of another Secret": {volume("x", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name + "2"}}), false},
	} {
		if got := NamesSecret(row.spec, name); got != row.want {
			t.Errorf("%s: NamesSecret() = %t", what, got)
		}
	}
}
