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
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tektoncd/pipeline/pkg/apis/pipeline/pod"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
)

const (
	tag   = "0123456789abcdef0123456789abcdef"
	image = "pull.example.com/fn/default/greeter@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

var files = map[string]string{"Dockerfile": "FROM node:24", "handler.js": "x", "package.json": "{}", "layout.json": "{}"}

func function(options ...func(*v1alpha1.Function)) *v1alpha1.Function {
	fn := &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{
			Name: "greeter", Namespace: "default", UID: "uid",
			Labels:      map[string]string{"of": "the Function"},
			Annotations: map[string]string{"of": "the Function"},
		},
		Spec: v1alpha1.FunctionSpec{
			Runtime:     "nodejs24",
			MinReplicas: new(int32(1)),
			MaxReplicas: new(int32(3)),
			Env:         []corev1.EnvVar{{Name: "GREETING", Value: "hello"}},
			Labels:      map[string]string{"team": "a"},
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			},
		},
	}
	for _, option := range options {
		option(fn)
	}
	return fn
}

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

func testConfig() *config.Config {
	return &config.Config{
		Build: &config.Build{
			KanikoImage:  "registry.example.com/kaniko@sha256:123",
			ComposeImage: "registry.example.com/compose@sha256:123",
			Timeout:      10 * time.Minute,
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
			},
		},
		Registry: &config.Registry{Push: "push.example.com", Pull: "pull.example.com", Prefix: "fn", Insecure: []string{"push.example.com", "10.0.0.1:5000"}},
	}
}

func TestMakeConfigMap(t *testing.T) {
	want := &corev1.ConfigMap{ObjectMeta: ownedMeta("greeter-0123456789"), Immutable: new(true), Data: files}
	want.Labels["serverless.kiln.dev/image-tag"] = tag
	if diff := cmp.Diff(want, MakeConfigMap(function(), tag, files)); diff != "" {
		t.Errorf("MakeConfigMap() (-want, +got):\n%s", diff)
	}
}

func testBuild() Build {
	return Build{
		Request:   builds.Request{Tag: tag, Fingerprint: "source=1", Generation: 3},
		Reason:    builds.ReasonSourceChanged,
		Attempt:   1,
		BaseImage: "node:24",
		Files:     files,
		InstallFiles: map[string]string{
			"Dockerfile": files["Dockerfile"], "package.json": files["package.json"],
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
				Steps: []pipelinev1.Step{{
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
				}, got.Spec.TaskSpec.Steps[1]}, // see TestPushStep
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

// TestMakeTaskRunWithSecrets wants that what is secret, and what is of this build
// alone, is mounted where it is needed and nowhere else: the step that runs what
// others have written cannot push.
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
	install, push := &want.Spec.TaskSpec.Steps[0], &want.Spec.TaskSpec.Steps[1]
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

	// What runs nothing needs none of it but to push.
	build.Files = maps.Clone(files)
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

// TestMakeTaskRunScheduling wants that builds run where config-build says.
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

func TestBuildTimeout(t *testing.T) {
	cfg := &config.Build{Timeout: 10 * time.Minute, MaxTimeout: time.Hour}
	for asked, want := range map[time.Duration]time.Duration{
		-time.Second:  10 * time.Minute, // Tekton would wait for ever.
		0:             10 * time.Minute,
		time.Minute:   time.Minute,
		2 * time.Hour: time.Hour,
	} {
		fn := function(func(fn *v1alpha1.Function) {
			fn.Spec.Build = &v1alpha1.BuildSpec{Timeout: &metav1.Duration{Duration: asked}}
		})
		if got := buildTimeout(fn, cfg); got != want {
			t.Errorf("the timeout for %s is %s, want %s", asked, got, want)
		}
	}
}

func TestBuildResources(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		list := corev1.ResourceList{}
		if cpu != "" {
			list[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			list[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return list
	}
	cfg := &config.Build{
		Resources:    corev1.ResourceRequirements{Requests: list("100m", "256Mi"), Limits: list("", "2Gi")},
		MaxResources: list("", "4Gi"),
	}
	for name, row := range map[string]struct {
		said, want corev1.ResourceRequirements
	}{
		"nothing": {
			corev1.ResourceRequirements{},
			cfg.Resources,
		},
		"one of them": {
			corev1.ResourceRequirements{Limits: list("1", "")},
			corev1.ResourceRequirements{Requests: list("100m", "256Mi"), Limits: list("1", "2Gi")},
		},
		"a limit below the default request": {
			corev1.ResourceRequirements{Limits: list("", "128Mi")},
			corev1.ResourceRequirements{Requests: list("100m", "128Mi"), Limits: list("", "128Mi")},
		},
		"a request above the default limit": {
			corev1.ResourceRequirements{Requests: list("", "3Gi")},
			corev1.ResourceRequirements{Requests: list("100m", "3Gi"), Limits: list("", "3Gi")},
		},
		"above the ceiling": {
			corev1.ResourceRequirements{Requests: list("64", "8Gi"), Limits: list("", "9Gi")},
			corev1.ResourceRequirements{Requests: list("64", "4Gi"), Limits: list("", "4Gi")},
		},
	} {
		fn := function(func(fn *v1alpha1.Function) { fn.Spec.Build = &v1alpha1.BuildSpec{Resources: row.said} })
		if diff := cmp.Diff(row.want, buildResources(fn, cfg)); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", name, diff)
		}
	}
	if want := list("", "2Gi"); !cmp.Equal(want, cfg.Resources.Limits) {
		t.Errorf("the configuration was changed: %v", cfg.Resources)
	}
}

func TestPushStep(t *testing.T) {
	results := []string{
		"--image-digest-file=$(results.IMAGE_DIGEST.path)",
		"--image-url-file=$(results.IMAGE_URL.path)",
		"--base=node:24",
		"--base-image-file=$(results.BASE_IMAGE_ARTIFACT_INPUTS.path)",
		"--label=org.opencontainers.image.title=greeter",
		"--label=serverless.kiln.dev/function-namespace=default",
		"--label=serverless.kiln.dev/function-name=greeter",
		"--label=serverless.kiln.dev/image-tag=" + tag,
		"--label=serverless.kiln.dev/runtime=nodejs24",
		"--label=serverless.kiln.dev/source-hash=sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	}
	common := append([]string{
		"--context=/kiln-build",
		"--destination=push.example.com/fn/default/greeter:" + tag,
	}, results...)
	insecure := []string{"--insecure-registry=push.example.com", "--insecure-registry=10.0.0.1:5000"}
	for name, tc := range map[string]struct {
		without      string
		dependencies Dependencies
		wantSteps    []string
		wantArgs     []string
	}{
		"dependencies": {
			dependencies: Dependencies{Tag: "deps-1"},
			wantSteps:    []string{"install", "push"},
			wantArgs:     []string{"--layers=/kiln-layers", "--keep=push.example.com/fn/default/greeter:deps-1", "--layout=/kiln-build/layout.json"},
		},
		"dependencies that are there": {
			dependencies: Dependencies{Tag: "deps-1", Digest: "sha256:456"},
			wantSteps:    []string{"push"},
			wantArgs:     []string{"--dependencies=push.example.com/fn/default/greeter@sha256:456", "--layout=/kiln-build/layout.json"},
		},
		"nothing to run": {
			without:   "Dockerfile",
			wantSteps: []string{"push"},
			wantArgs:  []string{"--layout=/kiln-build/layout.json"},
		},
		"Dockerfile of the administrator": {
			without:   "layout.json",
			wantSteps: []string{"install", "push"},
			wantArgs:  []string{"--layers=/kiln-layers", "--config=/kiln-layers/config.json"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			build := testBuild()
			build.Files = maps.Clone(files)
			delete(build.Files, tc.without)
			build.Dependencies = tc.dependencies
			spec := MakeTaskRun(function(), testConfig(), build).Spec.TaskSpec
			var steps []string
			for _, step := range spec.Steps {
				steps = append(steps, step.Name)
			}
			if diff := cmp.Diff(tc.wantSteps, steps); diff != "" {
				t.Errorf("steps (-want, +got):\n%s", diff)
			}
			push := spec.Steps[len(spec.Steps)-1]
			if diff := cmp.Diff(slices.Concat(common, tc.wantArgs, insecure), push.Args); diff != "" {
				t.Errorf("args (-want, +got):\n%s", diff)
			}
			wantRestricted(t, push.SecurityContext)
			volumes := map[string]bool{}
			for _, volume := range spec.Volumes {
				volumes[volume.Name] = true
			}
			for _, step := range spec.Steps {
				for _, mount := range step.VolumeMounts {
					if !volumes[mount.Name] {
						t.Errorf("step %s mounts volume %q, which there is not", step.Name, mount.Name)
					}
				}
			}
		})
	}
}

// wantRestricted wants what the restricted Pod Security Standard does of a container.
func wantRestricted(t *testing.T, got *corev1.SecurityContext) {
	t.Helper()
	want := &corev1.SecurityContext{
		RunAsNonRoot:             new(true),
		ReadOnlyRootFilesystem:   new(true),
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("security context (-want, +got):\n%s", diff)
	}
}

func TestMakeServiceWithPullSecret(t *testing.T) {
	want := MakeService(function(), image)
	got := MakeService(function(), image, "registry")
	if hash := "serverless.kiln.dev/wish-hash"; got.Annotations[hash] == want.Annotations[hash] {
		t.Error("the pull secret is no part of the wish")
	}
	want.Annotations = got.Annotations
	want.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("MakeService() (-want, +got):\n%s", diff)
	}
}

func TestMakeService(t *testing.T) {
	got := MakeService(function(), image)

	want := &servingv1.Service{
		ObjectMeta: ownedMeta("greeter"),
		Spec: servingv1.ServiceSpec{RouteSpec: servingv1.RouteSpec{
			Traffic: []servingv1.TrafficTarget{{LatestRevision: new(true), Percent: new(int64(100))}},
		}, ConfigurationSpec: servingv1.ConfigurationSpec{Template: servingv1.RevisionTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{"team": "a", "serverless.kiln.dev/function-name": "greeter", "serverless.kiln.dev/function-uid": "uid"},
				Annotations: map[string]string{
					"autoscaling.knative.dev/min-scale": "1",
					"autoscaling.knative.dev/max-scale": "3",
				},
			},
			Spec: servingv1.RevisionSpec{PodSpec: corev1.PodSpec{
				AutomountServiceAccountToken: new(false),
				EnableServiceLinks:           new(false),
				Containers: []corev1.Container{{
					Name:  "function",
					Image: image,
					Env: []corev1.EnvVar{
						{Name: "FUNC_NAME", Value: "greeter"},
						{Name: "FUNC_NAMESPACE", Value: "default"},
						{Name: "FUNC_RUNTIME", Value: "nodejs24"},
						{Name: "FUNC_MEMORY_LIMIT", Value: "128Mi"},
						{Name: "GREETING", Value: "hello"},
					},
					Resources: corev1.ResourceRequirements{
						Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
					},
					ReadinessProbe: &corev1.Probe{
						ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(0)}},
						SuccessThreshold: 1,
						PeriodSeconds:    1,
						TimeoutSeconds:   1,
						FailureThreshold: 30,
					},
					SecurityContext: &corev1.SecurityContext{
						AllowPrivilegeEscalation: new(false),
						Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						ReadOnlyRootFilesystem:   new(true),
						RunAsNonRoot:             new(true),
						SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
				}},
				Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{
					EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("512Mi"))},
				}}},
			}},
		}}},
	}
	want.Labels["networking.knative.dev/visibility"] = "cluster-local"
	want.Annotations = map[string]string{"serverless.kiln.dev/wish-hash": got.Annotations["serverless.kiln.dev/wish-hash"]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("MakeService() (-want, +got):\n%s", diff)
	}
}

// TestMakeServiceWithEverything looks at what TestMakeService leaves out.
func TestMakeServiceWithEverything(t *testing.T) {
	fn := function(everythingSaid, func(fn *v1alpha1.Function) {
		fn.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		fn.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		fn.Spec.Visibility = v1alpha1.VisibilityPublic
		fn.Spec.Traffic = []v1alpha1.TrafficTarget{
			{RevisionName: "greeter-00001", Percent: new(int64(100)), Tag: "old"},
			{LatestRevision: new(true), Tag: "next"},
		}
	})
	got := MakeService(fn, image)

	want := MakeService(function(), image)
	delete(want.Labels, "networking.knative.dev/visibility")
	want.Annotations = got.Annotations
	want.Spec.Traffic = []servingv1.TrafficTarget{
		{RevisionName: "greeter-00001", LatestRevision: new(false), Percent: new(int64(100)), Tag: "old"},
		{LatestRevision: new(true), Percent: new(int64(0)), Tag: "next"},
	}
	want.Spec.Template.Annotations = map[string]string{
		"autoscaling.knative.dev/window":    "6s",
		"autoscaling.knative.dev/min-scale": "1", // minReplicas wins
		"autoscaling.knative.dev/max-scale": "3",

		"serving.knative.dev/progress-deadline": "20m",
	}
	spec := &want.Spec.Template.Spec
	spec.ContainerConcurrency, spec.TimeoutSeconds = new(int64(7)), new(int64(30))
	spec.ServiceAccountName, spec.AutomountServiceAccountToken = "robot", nil
	spec.NodeSelector, spec.Tolerations = fn.Spec.NodeSelector, fn.Spec.Tolerations
	spec.Containers[0].Env = slices.Insert(spec.Containers[0].Env, 3, corev1.EnvVar{Name: "FUNC_TIMEOUT", Value: "30"})
	spec.Containers[0].EnvFrom = fn.Spec.EnvFrom
	spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: "secret-0", MountPath: "/a", ReadOnly: true},
		corev1.VolumeMount{Name: "secret-1", MountPath: "/b", ReadOnly: true})
	for i, name := range []string{"two", "one"} {
		spec.Volumes = append(spec.Volumes, corev1.Volume{
			Name:         "secret-" + strconv.Itoa(i),
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}},
		})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("MakeService() (-want, +got):\n%s", diff)
	}
}

func TestScaleAnnotations(t *testing.T) {
	tests := map[string]struct {
		least, most *int32
		want        map[string]string
	}{
		"not said":   {nil, nil, map[string]string{}},
		"to zero":    {new(int32(0)), new(int32(5)), map[string]string{"autoscaling.knative.dev/min-scale": "0", "autoscaling.knative.dev/max-scale": "5"}},
		"no maximum": {new(int32(2)), new(int32(0)), map[string]string{"autoscaling.knative.dev/min-scale": "2"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fn := function(func(fn *v1alpha1.Function) { fn.Spec.MinReplicas, fn.Spec.MaxReplicas = tc.least, tc.most })
			if diff := cmp.Diff(tc.want, scaleAnnotations(fn)); diff != "" {
				t.Errorf("scaleAnnotations() (-want, +got):\n%s", diff)
			}
		})
	}
}

// TestAdmission has the real webhook code of Tekton and Serving judge what is made.
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
			"Service": MakeService(fn, image),
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

// admitted returns the Service as Serving stores it.
func admitted(svc *servingv1.Service) *servingv1.Service {
	svc.SetDefaults(apis.WithinCreate(context.Background()))
	svc.Annotations["serving.knative.dev/creator"] = "someone"
	return svc
}

func TestMergeServiceLeavesAlone(t *testing.T) {
	tests := map[string]func(*servingv1.Service){
		"what Serving fills in": func(*servingv1.Service) {},
		"labels of others":      func(svc *servingv1.Service) { svc.Labels["theirs"] = "x" },
		"annotations of others": func(svc *servingv1.Service) { svc.Annotations["theirs"] = "x" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			existing := admitted(MakeService(function(), image))
			remembered := Remember(existing)
			change(existing)
			before := existing.DeepCopy()
			merged, change := MergeService(MakeService(function(), image), existing, remembered)
			if change != NoChange {
				t.Errorf("MergeService() wants a change (-existing, +merged):\n%s", cmp.Diff(existing, merged))
			}
			if diff := cmp.Diff(before, existing); diff != "" {
				t.Errorf("MergeService() changed the existing Service:\n%s", diff)
			}
		})
	}
}

// everythingSaid is a Function that leaves nothing out that its pods can be told.
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

func TestMergeServiceChanges(t *testing.T) {
	container := func(svc *servingv1.Service) *corev1.Container { return &svc.Spec.Template.Spec.Containers[0] }
	template := func(svc *servingv1.Service) *servingv1.RevisionSpec { return &svc.Spec.Template.Spec }
	drifts := map[string]struct {
		drift func(*servingv1.Service)
		want  Change
	}{
		"image": {func(svc *servingv1.Service) { container(svc).Image = "evil" }, RevisionChange},
		"env added": {func(svc *servingv1.Service) {
			container(svc).Env = append(container(svc).Env, corev1.EnvVar{Name: "X"})
		}, RevisionChange},
		"env changed":  {func(svc *servingv1.Service) { container(svc).Env[3].Value = "X" }, RevisionChange},
		"envFrom away": {func(svc *servingv1.Service) { container(svc).EnvFrom = nil }, RevisionChange},
		"command":      {func(svc *servingv1.Service) { container(svc).Command = []string{"sh"} }, RevisionChange},
		"root":         {func(svc *servingv1.Service) { container(svc).SecurityContext.RunAsNonRoot = new(false) }, RevisionChange},
		"writable":     {func(svc *servingv1.Service) { container(svc).SecurityContext.ReadOnlyRootFilesystem = nil }, RevisionChange},
		"CPU": {func(svc *servingv1.Service) {
			container(svc).Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1")
		}, RevisionChange},
		"memory": {func(svc *servingv1.Service) {
			container(svc).Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		}, RevisionChange},
		"a device": {func(svc *servingv1.Service) {
			container(svc).Resources.Limits["example.com/gpu"] = resource.MustParse("1")
		}, RevisionChange},
		"readiness":      {func(svc *servingv1.Service) { container(svc).ReadinessProbe.HTTPGet.Path = "/" }, RevisionChange},
		"probe's period": {func(svc *servingv1.Service) { container(svc).ReadinessProbe.PeriodSeconds = 600 }, RevisionChange},
		"liveness": {func(svc *servingv1.Service) {
			container(svc).LivenessProbe = container(svc).ReadinessProbe.DeepCopy()
		}, RevisionChange},
		"pull policy": {func(svc *servingv1.Service) { container(svc).ImagePullPolicy = corev1.PullAlways }, RevisionChange},
		"sidecar": {func(svc *servingv1.Service) {
			template(svc).Containers = append(template(svc).Containers, corev1.Container{})
		}, RevisionChange},
		"concurrency":     {func(svc *servingv1.Service) { template(svc).ContainerConcurrency = new(int64(1)) }, RevisionChange},
		"timeout":         {func(svc *servingv1.Service) { template(svc).TimeoutSeconds = new(int64(1)) }, RevisionChange},
		"idle timeout":    {func(svc *servingv1.Service) { template(svc).IdleTimeoutSeconds = new(int64(1)) }, RevisionChange},
		"token":           {func(svc *servingv1.Service) { template(svc).AutomountServiceAccountToken = new(true) }, RevisionChange},
		"node":            {func(svc *servingv1.Service) { template(svc).NodeSelector = map[string]string{"x": "y"} }, RevisionChange},
		"toleration":      {func(svc *servingv1.Service) { template(svc).Tolerations = []corev1.Toleration{{Key: "x"}} }, RevisionChange},
		"volumes":         {func(svc *servingv1.Service) { template(svc).Volumes = nil }, RevisionChange},
		"another Secret":  {func(svc *servingv1.Service) { template(svc).Volumes[1].Secret.SecretName = "x" }, RevisionChange},
		"service account": {func(svc *servingv1.Service) { template(svc).ServiceAccountName = "admin" }, RevisionChange},
		"pull secrets": {func(svc *servingv1.Service) {
			template(svc).ImagePullSecrets = []corev1.LocalObjectReference{{Name: "x"}}
		}, RevisionChange},
		"pod label":          {func(svc *servingv1.Service) { svc.Spec.Template.Labels["x"] = "y" }, RevisionChange},
		"pod annotation":     {func(svc *servingv1.Service) { svc.Spec.Template.Annotations["x"] = "y" }, RevisionChange},
		"no pod annotations": {func(svc *servingv1.Service) { svc.Spec.Template.Annotations = nil }, RevisionChange},
		"scale":              {func(svc *servingv1.Service) { svc.Spec.Template.Annotations["autoscaling.knative.dev/min-scale"] = "9" }, RevisionChange},
		"scale, by an older name": {func(svc *servingv1.Service) {
			svc.Spec.Template.Annotations["autoscaling.knative.dev/maxScale"] = "1"
		}, RevisionChange},
		"revision name": {func(svc *servingv1.Service) { svc.Spec.Template.Name = "greeter-mine" }, RevisionChange},
		"hash":          {func(svc *servingv1.Service) { delete(svc.Annotations, "serverless.kiln.dev/wish-hash") }, RevisionChange},
		"visibility":    {func(svc *servingv1.Service) { delete(svc.Labels, "networking.knative.dev/visibility") }, RouteChange},
		"traffic pinned": {func(svc *servingv1.Service) {
			svc.Spec.Traffic[0].LatestRevision, svc.Spec.Traffic[0].RevisionName = new(false), "greeter-00001"
		}, RouteChange},
		"traffic tagged": {func(svc *servingv1.Service) { svc.Spec.Traffic[0].Tag = "mine" }, RouteChange},
		"traffic split": {func(svc *servingv1.Service) {
			svc.Spec.Traffic = append(svc.Spec.Traffic, servingv1.TrafficTarget{RevisionName: "greeter-00001", Tag: "old"})
		}, RouteChange},
	}
	for name, tc := range drifts {
		t.Run(name, func(t *testing.T) {
			desired, existing := MakeService(function(everythingSaid), image), admitted(MakeService(function(everythingSaid), image))
			remembered := Remember(existing)
			existing.Labels["theirs"] = "x"
			tc.drift(existing)
			merged, change := MergeService(desired.DeepCopy(), existing, remembered)
			if change != tc.want {
				t.Fatalf("MergeService() wants change %v, want %v", change, tc.want)
			}
			if merged.Annotations["serving.knative.dev/creator"] != "someone" || merged.Labels["theirs"] != "x" {
				t.Errorf("labels %v and annotations %v lack those of others", merged.Labels, merged.Annotations)
			}
			healed := admitted(merged)
			if got := Remember(healed); got != remembered {
				t.Errorf("template is not healed (-want, +got):\n%s", cmp.Diff(desired.Spec.Template, healed.Spec.Template))
			}
			if again, change := MergeService(desired, healed, remembered); change != NoChange {
				t.Errorf("MergeService() never comes to rest (-stored, +merged):\n%s", cmp.Diff(healed, again))
			}
		})
	}
}

// TestMergeServiceWish edits the Function, each time to something and back to
// nothing.
func TestMergeServiceWish(t *testing.T) {
	edits := map[string]struct {
		edit func(*v1alpha1.Function)
		want Change
	}{
		"env":             {func(fn *v1alpha1.Function) { fn.Spec.Env = nil }, RevisionChange},
		"label":           {func(fn *v1alpha1.Function) { fn.Spec.Labels = nil }, RevisionChange},
		"resources":       {func(fn *v1alpha1.Function) { fn.Spec.Resources = corev1.ResourceRequirements{} }, RevisionChange},
		"least replicas":  {func(fn *v1alpha1.Function) { fn.Spec.MinReplicas = new(int32(0)) }, RevisionChange},
		"no maximum":      {func(fn *v1alpha1.Function) { fn.Spec.MaxReplicas = nil }, RevisionChange},
		"runtime renamed": {func(fn *v1alpha1.Function) { fn.Spec.Runtime = "nodejs22" }, RevisionChange},
		"everything":      {everythingSaid, RevisionChange},
		"node":            {func(fn *v1alpha1.Function) { fn.Spec.NodeSelector = map[string]string{"x": "y"} }, RevisionChange},
		"tolerations":     {func(fn *v1alpha1.Function) { fn.Spec.Tolerations = []corev1.Toleration{{Key: "x"}} }, RevisionChange},
		"public":          {func(fn *v1alpha1.Function) { fn.Spec.Visibility = v1alpha1.VisibilityPublic }, RouteChange},
		"traffic": {func(fn *v1alpha1.Function) {
			fn.Spec.Traffic = []v1alpha1.TrafficTarget{
				{RevisionName: "greeter-00001", Percent: new(int64(100))}, {LatestRevision: new(true), Tag: "next"},
			}
		}, RouteChange},
		"visibility said": {func(fn *v1alpha1.Function) { fn.Spec.Visibility = v1alpha1.VisibilityClusterLocal }, NoChange},
	}
	for name, tc := range edits {
		t.Run(name, func(t *testing.T) {
			from, to := function(), function(tc.edit)
			for _, step := range []struct{ before, after *v1alpha1.Function }{{from, to}, {to, from}} {
				desired, existing := MakeService(step.after, image), admitted(MakeService(step.before, image))
				merged, change := MergeService(desired, existing, Remember(existing))
				if change != tc.want {
					t.Fatalf("MergeService() wants change %v, want %v", change, tc.want)
				}
				stored := admitted(merged)
				if diff := cmp.Diff(admitted(desired.DeepCopy()), stored); diff != "" {
					t.Errorf("the Service is not as desired (-want, +got):\n%s", diff)
				}
				if again, change := MergeService(desired, stored, Remember(stored)); change != NoChange {
					t.Errorf("MergeService() never comes to rest (-stored, +merged):\n%s", cmp.Diff(stored, again))
				}
			}
		})
	}
}

// TestSecretMountsOrder wants no new revision of what is a set.
func TestSecretMountsOrder(t *testing.T) {
	fn, other := function(everythingSaid), function(everythingSaid)
	slices.Reverse(other.Spec.SecretMounts)
	if diff := cmp.Diff(MakeService(fn, image), MakeService(other, image)); diff != "" {
		t.Errorf("the order of secretMounts counts:\n%s", diff)
	}
}

func TestMergeRoute(t *testing.T) {
	older := function(func(fn *v1alpha1.Function) { fn.Spec.Env = nil })
	tests := map[string]struct {
		change func(*servingv1.Service)
		want   Change
	}{
		"an older template":  {func(*servingv1.Service) {}, NoChange},
		"an edited template": {func(svc *servingv1.Service) { svc.Spec.Template.Spec.Containers[0].Image = "other" }, NoChange},
		"no hash":            {func(svc *servingv1.Service) { svc.Annotations = nil }, NoChange},
		"labels of others":   {func(svc *servingv1.Service) { svc.Labels["theirs"] = "x" }, NoChange},
		"visibility":         {func(svc *servingv1.Service) { delete(svc.Labels, "networking.knative.dev/visibility") }, RouteChange},
		"no labels":          {func(svc *servingv1.Service) { svc.Labels = nil }, RouteChange},
		"traffic tagged":     {func(svc *servingv1.Service) { svc.Spec.Traffic[0].Tag = "mine" }, RouteChange},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			desired, existing := MakeService(function(), image), admitted(MakeService(older, image))
			tc.change(existing)
			merged, change := MergeRoute(desired, existing)
			if change != tc.want {
				t.Errorf("MergeRoute() wants change %v, want %v", change, tc.want)
			}
			if diff := cmp.Diff(existing.Spec.Template, merged.Spec.Template); diff != "" {
				t.Errorf("MergeRoute() changed the template (-existing, +merged):\n%s", diff)
			}
			if diff := cmp.Diff(desired.Spec.RouteSpec, merged.Spec.RouteSpec); diff != "" {
				t.Errorf("MergeRoute() route (-want, +got):\n%s", diff)
			}
			if _, again := MergeRoute(desired, merged); again != NoChange {
				t.Error("MergeRoute() never comes to rest")
			}
		})
	}
}

func TestRestoreTemplate(t *testing.T) {
	svc := admitted(MakeService(function(everythingSaid, func(fn *v1alpha1.Function) {
		fn.Spec.Annotations["serving.knative.dev/progress-deadline"] = "30s"
	}), image))
	remembered := Remember(svc)
	if IsTemplateEdited(svc, remembered) || IsTemplateEdited(svc, "") {
		t.Error("IsTemplateEdited() of what is as remembered, or of what nothing is remembered, = true")
	}
	edited := svc.DeepCopy()
	edited.Spec.Template.Spec.Containers[0].Image = "evil"
	if !IsTemplateEdited(edited, remembered) {
		t.Error("IsTemplateEdited() = false")
	}
	if IsTemplateEdited(admitted(MakeService(function(), image)), remembered) {
		t.Error("IsTemplateEdited() of what was made for another wish = true")
	}

	var revisions []servingv1.Revision
	for i, from := range []*servingv1.Service{edited, svc} {
		template := from.Spec.Template.DeepCopy()
		revision := servingv1.Revision{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		revision.Name, revision.Namespace, revision.UID = "greeter-0000"+strconv.Itoa(i), "default", "1"
		revision.Labels["serving.knative.dev/service"] = "greeter"
		revision.Annotations["serving.knative.dev/creator"] = "someone"
		revisions = append(revisions, revision)
	}
	edited.Annotations = nil
	if !IsTemplateEdited(edited, remembered) {
		t.Error("IsTemplateEdited() of what has lost its annotations = false")
	}
	if RestoreTemplate(edited.DeepCopy(), revisions[:1], remembered) {
		t.Error("RestoreTemplate() from a revision of something else = true")
	}
	if !RestoreTemplate(edited, revisions, remembered) {
		t.Error("RestoreTemplate() = false")
	}
	if diff := cmp.Diff(svc.Spec, edited.Spec); diff != "" {
		t.Errorf("RestoreTemplate() (-want, +got):\n%s", diff)
	}
	if Remember(edited) != remembered {
		t.Error("The restored Service is not as remembered")
	}
}

// TestMakeListeningService wants that an image which need not know of Kiln is asked
// for nothing that Kiln's wrappers answer, as often as they are.
func TestMakeListeningService(t *testing.T) {
	want, got := MakeService(function(), image, "registry"), MakeListeningService(function(), image, "registry")
	probe := want.Spec.Template.Spec.Containers[0].ReadinessProbe
	probe.HTTPGet, probe.TCPSocket = nil, &corev1.TCPSocketAction{Port: intstr.FromInt32(0)}
	if want.Annotations[serverless.WishHashAnnotationKey] == got.Annotations[serverless.WishHashAnnotationKey] {
		t.Error("nobody would see that the probe is another")
	}
	want.Annotations = got.Annotations
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("MakeListeningService() (-want, +got):\n%s", diff)
	}
}
