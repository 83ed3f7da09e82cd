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
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tektoncd/pipeline/pkg/apis/pipeline/pod"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/steps/stepstest"
)

const tag = stepstest.Tag

var function, testConfig, testBuild = stepstest.Function, stepstest.Config, stepstest.Build

func ownedMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:      name,
		Namespace: "default",
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "serverless.kiln.dev/v1alpha1", Kind: "Function", Name: "greeter", UID: "uid",
			Controller: new(true), BlockOwnerDeletion: new(true),
		}},
		Labels: map[string]string{
			"app.kubernetes.io/managed-by":      "kiln",
			"serverless.kiln.dev/function-name": "greeter",
			"serverless.kiln.dev/function-uid":  "uid",
		},
	}
}

func TestMakeTaskRun(t *testing.T) {
	got := MakeTaskRun(function(), testConfig(), testBuild())

	want := &pipelinev1.TaskRun{
		ObjectMeta: ownedMeta(got.Name),
		Spec: pipelinev1.TaskRunSpec{
			Timeout: &metav1.Duration{Duration: 10 * time.Minute},
			PodTemplate: &pod.PodTemplate{
				AutomountServiceAccountToken: new(false),
				EnableServiceLinks:           new(false),
				SecurityContext: &corev1.PodSecurityContext{
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			},
			TaskSpec: &pipelinev1.TaskSpec{
				Results: []pipelinev1.TaskResult{
					{Name: "IMAGE_URL", Type: "string", Description: "The image that was pushed."},
					{Name: "IMAGE_DIGEST", Type: "string", Description: "The digest of the image that was pushed."},
					{
						Name: "BASE_IMAGE_ARTIFACT_INPUTS", Type: "object", Description: "The image that it is built upon.",
						Properties: map[string]pipelinev1.PropertySpec{"uri": {Type: "string"}, "digest": {Type: "string"}},
					},
				},
				Steps: got.Spec.TaskSpec.Steps, // see TestPushStep of package steps
				Sidecars: []pipelinev1.Sidecar{{
					Name:    "install",
					Image:   "registry.example.com/kaniko@sha256:123",
					Command: []string{"/ko-app/kaniko"},
					Args: []string{
						"--context=/kiln-build",
						"--dockerfile=/kiln-build/Dockerfile",
						"--layers=/kiln-layers",
						"--base=node:24",
						"--insecure-registry=push.example.com",
						"--insecure-registry=10.0.0.1:5000",
					},
					ComputeResources: corev1.ResourceRequirements{
						Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
					},
					VolumeMounts: []corev1.VolumeMount{
						{Name: "kaniko", MountPath: "/kaniko"},
						{Name: "layers", MountPath: "/kiln-layers"},
						{Name: "context", MountPath: "/kiln-build/Dockerfile", SubPath: "Dockerfile", ReadOnly: true},
						{Name: "context", MountPath: "/kiln-build/package.json", SubPath: "package.json", ReadOnly: true},
					},
					SecurityContext: &corev1.SecurityContext{
						RunAsUser:                new(int64(0)),
						RunAsGroup:               new(int64(0)),
						RunAsNonRoot:             new(false),
						AllowPrivilegeEscalation: new(false),
						Capabilities: &corev1.Capabilities{
							Drop: []corev1.Capability{"ALL"},
							Add:  []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"},
						},
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
				}},
				Volumes: []corev1.Volume{
					{Name: "context", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: "greeter-0123456789"},
					}}},
					{Name: "kaniko", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
					{Name: "layers", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				},
			},
		},
	}
	want.Labels["serverless.kiln.dev/image-tag"] = tag
	want.Annotations = map[string]string{
		"serverless.kiln.dev/generation":    "3",
		"serverless.kiln.dev/build-reason":  "SourceChanged",
		"serverless.kiln.dev/build-inputs":  "source=1",
		"serverless.kiln.dev/build-attempt": "1",
		"sidecar.istio.io/inject":           "false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("MakeTaskRun() (-want, +got):\n%s", diff)
	}

	again := testBuild()
	again.Rebuild, again.Reason = "x", builds.ReasonRebuildRequested
	if got := MakeTaskRun(function(), testConfig(), again).Annotations["serverless.kiln.dev/rebuild"]; got != "x" {
		t.Errorf("rebuild annotation = %q, want x", got)
	}
}

// TestMakeTaskRunWithSecrets checks that only the steps that need a secret mount it. The
// step that runs untrusted code cannot push.
func TestMakeTaskRunWithSecrets(t *testing.T) {
	cfg := testConfig()
	cfg.Build.PackageRegistrySecret = "packages"
	build := testBuild()
	build.Credentials, build.CredentialsVersion = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "registry"}}, "7"
	fn := function(func(fn *v1alpha1.Function) {
		fn.Spec.Build = &v1alpha1.BuildSpec{Env: []v1alpha1.BuildEnvVar{{Name: "B", Value: "it's $(B)"}, {Name: "A", Value: "a"}}}
	})
	got := MakeTaskRun(fn, cfg, build)

	want := MakeTaskRun(function(), testConfig(), testBuild())
	want.Annotations["serverless.kiln.dev/build-credentials"] = "7"
	want.Annotations["serverless.kiln.dev/build-env"] = "export A='a'\nexport B='it'\\''s $(B)'\n"
	install, push := &want.Spec.TaskSpec.Sidecars[0], &want.Spec.TaskSpec.Steps[0]
	install.VolumeMounts = append(install.VolumeMounts,
		corev1.VolumeMount{Name: "packages", MountPath: "/kiln-packages", ReadOnly: true},
		corev1.VolumeMount{Name: "env", MountPath: "/kiln-env", ReadOnly: true})
	push.VolumeMounts = append(push.VolumeMounts,
		corev1.VolumeMount{Name: "credentials", MountPath: "/kiln-credentials", ReadOnly: true})
	push.Env = []corev1.EnvVar{{Name: "DOCKER_CONFIG", Value: "/kiln-credentials"}}
	volumes := want.Spec.TaskSpec.Volumes
	want.Spec.TaskSpec.Volumes = slices.Concat(volumes[:1], []corev1.Volume{
		{Name: "credentials", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: "registry", Items: []corev1.KeyToPath{{Key: ".dockerconfigjson", Path: "config.json"}},
		}}},
	}, volumes[1:], []corev1.Volume{
		{Name: "packages", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: "packages", Optional: new(true),
		}}},
		{Name: "env", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "env", FieldRef: &corev1.ObjectFieldSelector{
				FieldPath: "metadata.annotations['serverless.kiln.dev/build-env']",
			}}},
		}}},
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("MakeTaskRun() (-want, +got):\n%s", diff)
	}

	// A Secret that the Function names must be there.
	fn.Spec.Build.SecretName = "mine"
	got = MakeTaskRun(fn, cfg, build)
	source := got.Spec.TaskSpec.Volumes[4].Secret
	if diff := cmp.Diff(&corev1.SecretVolumeSource{SecretName: "mine", Optional: new(false)}, source); diff != "" {
		t.Errorf("spec.build.secretName (-want, +got):\n%s", diff)
	}

	// A build that installs nothing only pushes.
	delete(build.Files, "Dockerfile")
	got = MakeTaskRun(fn, cfg, build)
	var names []string
	for _, volume := range got.Spec.TaskSpec.Volumes {
		names = append(names, volume.Name)
	}
	if diff := cmp.Diff([]string{"context", "credentials"}, names); diff != "" {
		t.Errorf("volumes of a build that installs nothing (-want, +got):\n%s", diff)
	}
	if env, ok := got.Annotations["serverless.kiln.dev/build-env"]; ok {
		t.Errorf("a build that installs nothing has the environment %q", env)
	}
}

// TestMakeTaskRunScheduling checks that builds run where config-build says.
func TestMakeTaskRunScheduling(t *testing.T) {
	cfg := testConfig()
	cfg.Build.PriorityClassName = "builds"
	cfg.Build.NodeSelector = map[string]string{"pool": "builds"}
	cfg.Build.Tolerations = []corev1.Toleration{{Key: "builds", Operator: corev1.TolerationOpExists}}
	template := MakeTaskRun(function(), cfg, testBuild()).Spec.PodTemplate
	if template.PriorityClassName == nil || *template.PriorityClassName != "builds" {
		t.Errorf("the priority class is %v", template.PriorityClassName)
	}
	if diff := cmp.Diff(cfg.Build.NodeSelector, template.NodeSelector); diff != "" {
		t.Errorf("node selector (-want, +got):\n%s", diff)
	}
	if diff := cmp.Diff(cfg.Build.Tolerations, template.Tolerations); diff != "" {
		t.Errorf("tolerations (-want, +got):\n%s", diff)
	}
}

// everythingSaid is a Function with every field that affects its pods.
func everythingSaid(fn *v1alpha1.Function) {
	fn.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}}}
	fn.Spec.SecretMounts = []v1alpha1.SecretMount{{SecretName: "one", MountPath: "/b"}, {SecretName: "two", MountPath: "/a"}}
	fn.Spec.ServiceAccountName = "robot"
	fn.Spec.Concurrency = new(int64(7))
	fn.Spec.TimeoutSeconds = new(int64(30))
	fn.Spec.Annotations = map[string]string{
		"autoscaling.knative.dev/window":        "6s",
		"autoscaling.knative.dev/min-scale":     "9",
		"serving.knative.dev/progress-deadline": "20m",
	}
}

// TestAdmission validates the created objects with the real webhook code of Tekton and
// Serving.
func TestAdmission(t *testing.T) {
	plain := function(func(fn *v1alpha1.Function) { fn.Spec = v1alpha1.FunctionSpec{Runtime: "nodejs24"} })
	fetched := function(func(fn *v1alpha1.Function) {
		fn.Spec.Archive = &v1alpha1.ArchiveSource{URL: "http://store:9000/a.zip?x=(b)", SecretName: "store"}
	})
	for name, fn := range map[string]*v1alpha1.Function{
		"much said": function(), "everything said": function(everythingSaid), "nothing said": plain, "source elsewhere": fetched,
	} {
		for kind, obj := range map[string]interface {
			apis.Defaultable
			apis.Validatable
		}{
			"TaskRun": MakeTaskRun(fn, testConfig(), testBuild()),
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				ctx := apis.WithinCreate(context.Background())
				obj.SetDefaults(ctx)
				if err := obj.Validate(ctx); err != nil {
					t.Errorf("Validate() = %v", err)
				}
			})
		}
	}
}
