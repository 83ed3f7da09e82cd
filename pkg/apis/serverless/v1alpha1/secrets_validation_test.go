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

package v1alpha1

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestValidateSecrets(t *testing.T) {
	const credentials = "kiln-registry-credentials"
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	all := func(name string) *FunctionSpec {
		return &FunctionSpec{
			Env: []corev1.EnvVar{
				{Name: "A", Value: credentials},
				{Name: "B", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref(name), Key: "x"}}},
				{Name: "C", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref(name), Key: "x"}}},
			},
			EnvFrom:      []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref(name)}}, {SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref(name)}}},
			SecretMounts: []SecretMount{{SecretName: "other", MountPath: "/x"}, {SecretName: name, MountPath: "/y"}},
			Archive:      &ArchiveSource{URL: "https://example.com/x.zip", SecretName: name},
			Git:          &GitSource{URL: "https://example.com/x.git", SecretName: name},
			Build:        &BuildSpec{SecretName: name},
		}
	}
	err := all(credentials).validateSecrets(credentials)
	for _, field := range []string{
		"env[1].valueFrom.secretKeyRef.name", "envFrom[1].secretRef.name", "secretMounts[1].secretName", "archive.secretName", "git.secretName", "build.secretName",
	} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("validateSecrets() = %v, want it to name %s", err, field)
		}
	}
	for _, other := range []string{"env[0]", "env[2]", "envFrom[0]", "secretMounts[0]"} {
		if strings.Contains(err.Error(), other) {
			t.Errorf("validateSecrets() = %v, want nothing about %s", err, other)
		}
	}
	if err := all("mine").validateSecrets(credentials); err != nil {
		t.Errorf("validateSecrets() of others = %v", err)
	}
	if err := all(credentials).validateSecrets(""); err != nil {
		t.Errorf("validateSecrets() without credentials = %v", err)
	}
	if err := new(FunctionSpec).validateSecrets(credentials); err != nil {
		t.Errorf("validateSecrets() of a Function without Secrets = %v", err)
	}
}
