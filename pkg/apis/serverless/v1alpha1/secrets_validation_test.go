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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
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
	err := all(credentials).ValidateSecrets([]string{"other-reserved", credentials})
	for _, field := range []string{
		"env[1].valueFrom.secretKeyRef.name", "envFrom[1].secretRef.name", "secretMounts[1].secretName", "archive.secretName", "git.secretName", "build.secretName",
	} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("ValidateSecrets() = %v, want it to name %s", err, field)
		}
	}
	for _, other := range []string{"env[0]", "env[2]", "envFrom[0]", "secretMounts[0]"} {
		if strings.Contains(err.Error(), other) {
			t.Errorf("ValidateSecrets() = %v, want nothing about %s", err, other)
		}
	}
	if err := all("mine").ValidateSecrets([]string{"other-reserved", credentials}); err != nil {
		t.Errorf("ValidateSecrets() of others = %v", err)
	}
	if err := all(credentials).ValidateSecrets(nil); err != nil {
		t.Errorf("ValidateSecrets() without credentials = %v", err)
	}
	if err := new(FunctionSpec).ValidateSecrets([]string{"other-reserved", credentials}); err != nil {
		t.Errorf("ValidateSecrets() of a Function without Secrets = %v", err)
	}
}

// TestValidateSecretsBeforehand checks that no reference can wait for the Secret: it is
// denied also while no credentials, or others, are configured.
func TestValidateSecretsBeforehand(t *testing.T) {
	for name, row := range map[string]struct {
		configured, named string
		want              bool
	}{
		"none configured":            {"", config.DefaultCredentials, true},
		"the default configured":     {config.DefaultCredentials, config.DefaultCredentials, true},
		"another configured":         {"another", config.DefaultCredentials, true},
		"another configured, named":  {"another", "another", true},
		"a Secret with another name": {"", "another", false},
	} {
		fn := &Function{ObjectMeta: metav1.ObjectMeta{Name: "greeter"}, Spec: FunctionSpec{
			Runtime: "any", Source: "x", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: row.named}, Optional: new(true),
			}}},
		}}
		ctx := config.ToContext(t.Context(), &config.Config{Registry: &config.Registry{Credentials: row.configured}})
		fn.SetDefaults(ctx)
		err := fn.Validate(ctx)
		if got := err != nil && strings.Contains(err.Error(), "spec.envFrom[0].secretRef.name"); got != row.want {
			t.Errorf("%s: Validate() = %v", name, err)
		}
	}
}
