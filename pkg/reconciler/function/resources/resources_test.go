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
	"slices"
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
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
)

const (
	tag   = "0123456789abcdef0123456789abcdef"
	image = "pull.example.com/fn/default/greeter@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

var files = map[string]string{"Dockerfile": "FROM node:24", "handler.js": "x", "package.json": "{}"}

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
			KanikoImage: "registry.example.com/kaniko@sha256:123",
			Timeout:     10 * time.Minute,
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
		Request: builds.Request{Tag: tag, Fingerprint: "source=1", Generation: 3},
		Reason:  builds.ReasonSourceChanged,
		Attempt: 1,
		Files:   files,
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
				},
				Steps: []pipelinev1.Step{{
					Name:    "build",
					Image:   "registry.example.com/kaniko@sha256:123",
					Command: []string{"/ko-app/kaniko"},
					Args:    got.Spec.TaskSpec.Steps[0].Args, // see TestKanikoArgs
					ComputeResources: corev1.ResourceRequirements{
						Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
					},
					VolumeMounts: []corev1.VolumeMount{
						{Name: "kaniko", MountPath: "/kaniko"},
						{Name: "context", MountPath: "/kiln-build/Dockerfile", SubPath: "Dockerfile", ReadOnly: true},
						{Name: "context", MountPath: "/kiln-build/handler.js", SubPath: "handler.js", ReadOnly: true},
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
					{Name: "kaniko", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
					{Name: "context", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: "greeter-0123456789"},
					}}},
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

func TestKanikoArgs(t *testing.T) {
	want := []string{
		"--force",
		"--context=dir:///kiln-build",
		"--dockerfile=/kiln-build/Dockerfile",
		"--destination=push.example.com/fn/default/greeter:" + tag,
		"--digest-file=$(results.IMAGE_DIGEST.path)",
		"--image-url-file=$(results.IMAGE_URL.path)",
		"--ignore-path=/ko-app",
		"--snapshot-mode=redo",
		"--use-new-run",
		"--log-format=color",
		"--cache=true",
		"--insecure-registry=push.example.com",
		"--insecure-registry=10.0.0.1:5000",
	}
	if diff := cmp.Diff(want, kanikoArgs(function(), testConfig(), testBuild())); diff != "" {
		t.Errorf("kanikoArgs() (-want, +got):\n%s", diff)
	}
	again := testBuild()
	again.Reason = builds.ReasonRebuildRequested
	if got := kanikoArgs(function(), testConfig(), again); !slices.Contains(got, "--cache=false") {
		t.Errorf("kanikoArgs() of a build that was asked for = %v, want no cache", got)
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
						{Name: "GREETING", Value: "hello"},
					},
					Resources: corev1.ResourceRequirements{
						Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
					},
					ReadinessProbe: &corev1.Probe{
						ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(0)}},
						SuccessThreshold: 1,
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
	for name, fn := range map[string]*v1alpha1.Function{"everything said": function(), "nothing said": plain} {
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
		"what Serving fills in":    func(*servingv1.Service) {},
		"labels of others":         func(svc *servingv1.Service) { svc.Labels["theirs"] = "x" },
		"annotations of others":    func(svc *servingv1.Service) { svc.Annotations["theirs"] = "x" },
		"the template's of others": func(svc *servingv1.Service) { svc.Spec.Template.Annotations["theirs"] = "x" },
		"other defaults of Serving's": func(svc *servingv1.Service) {
			spec := &svc.Spec.Template.Spec
			spec.TimeoutSeconds, spec.IdleTimeoutSeconds = new(int64(7)), new(int64(5))
			spec.ResponseStartTimeoutSeconds, spec.ContainerConcurrency = new(int64(6)), new(int64(3))
			spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1")
			spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("400m")}
			spec.Containers[0].ReadinessProbe.PeriodSeconds = 10
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			existing := admitted(MakeService(function(), image))
			change(existing)
			before := existing.DeepCopy()
			merged, changed := MergeService(MakeService(function(), image), existing)
			if changed {
				t.Errorf("MergeService() wants a change (-existing, +merged):\n%s", cmp.Diff(existing, merged))
			}
			if diff := cmp.Diff(before, existing); diff != "" {
				t.Errorf("MergeService() changed the existing Service:\n%s", diff)
			}
		})
	}
}

func TestMergeServiceChanges(t *testing.T) {
	container := func(svc *servingv1.Service) *corev1.Container { return &svc.Spec.Template.Spec.Containers[0] }
	edits := map[string]func(*v1alpha1.Function){
		"env edited":     func(fn *v1alpha1.Function) { fn.Spec.Env[0].Value = "hi" },
		"env taken away": func(fn *v1alpha1.Function) { fn.Spec.Env = nil },
		"label away":     func(fn *v1alpha1.Function) { fn.Spec.Labels = nil },
		"resources": func(fn *v1alpha1.Function) {
			fn.Spec.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("1Gi")
		},
		"resources away":  func(fn *v1alpha1.Function) { fn.Spec.Resources = corev1.ResourceRequirements{} },
		"replicas":        func(fn *v1alpha1.Function) { fn.Spec.MinReplicas = new(int32(0)) },
		"no maximum":      func(fn *v1alpha1.Function) { fn.Spec.MaxReplicas = nil },
		"runtime renamed": func(fn *v1alpha1.Function) { fn.Spec.Runtime = "nodejs22" },
	}
	drifts := map[string]func(*servingv1.Service){
		"image": func(svc *servingv1.Service) { container(svc).Image = "evil" },
		"env added": func(svc *servingv1.Service) {
			container(svc).Env = append(container(svc).Env, corev1.EnvVar{Name: "X"})
		},
		"env changed": func(svc *servingv1.Service) { container(svc).Env[3].Value = "X" },
		"command":     func(svc *servingv1.Service) { container(svc).Command = []string{"sh"} },
		"root":        func(svc *servingv1.Service) { container(svc).SecurityContext.RunAsNonRoot = new(false) },
		"writable":    func(svc *servingv1.Service) { container(svc).SecurityContext.ReadOnlyRootFilesystem = nil },
		"sidecar": func(svc *servingv1.Service) {
			svc.Spec.Template.Spec.Containers = append(svc.Spec.Template.Spec.Containers, corev1.Container{})
		},
		"user":  func(svc *servingv1.Service) { container(svc).SecurityContext.RunAsUser = new(int64(0)) },
		"group": func(svc *servingv1.Service) { container(svc).SecurityContext.RunAsGroup = new(int64(0)) },
		"escalation": func(svc *servingv1.Service) {
			container(svc).SecurityContext.AllowPrivilegeEscalation = new(true)
		},
		"capability added": func(svc *servingv1.Service) {
			container(svc).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
		},
		"device added": func(svc *servingv1.Service) {
			container(svc).Resources.Limits["example.com/gpu"] = resource.MustParse("1")
		},
		"readiness": func(svc *servingv1.Service) { container(svc).ReadinessProbe.HTTPGet.Path = "/" },
		"liveness": func(svc *servingv1.Service) {
			container(svc).LivenessProbe = container(svc).ReadinessProbe.DeepCopy()
		},
		"pull policy":     func(svc *servingv1.Service) { container(svc).ImagePullPolicy = corev1.PullAlways },
		"token":           func(svc *servingv1.Service) { svc.Spec.Template.Spec.AutomountServiceAccountToken = new(true) },
		"node":            func(svc *servingv1.Service) { svc.Spec.Template.Spec.NodeSelector = map[string]string{"x": "y"} },
		"volume":          func(svc *servingv1.Service) { svc.Spec.Template.Spec.Volumes = nil },
		"pod label added": func(svc *servingv1.Service) { svc.Spec.Template.Labels["x"] = "y" },
		"visibility":      func(svc *servingv1.Service) { delete(svc.Labels, "networking.knative.dev/visibility") },
		"scale":           func(svc *servingv1.Service) { svc.Spec.Template.Annotations["autoscaling.knative.dev/min-scale"] = "9" },
		"hash":            func(svc *servingv1.Service) { delete(svc.Annotations, "serverless.kiln.dev/wish-hash") },
		"service account": func(svc *servingv1.Service) { svc.Spec.Template.Spec.ServiceAccountName = "admin" },
		"revision name":   func(svc *servingv1.Service) { svc.Spec.Template.Name = "greeter-mine" },
		"traffic pinned": func(svc *servingv1.Service) {
			svc.Spec.Traffic[0].LatestRevision, svc.Spec.Traffic[0].RevisionName = new(false), "greeter-00001"
		},
		"traffic tagged": func(svc *servingv1.Service) { svc.Spec.Traffic[0].Tag = "mine" },
		"traffic split": func(svc *servingv1.Service) {
			svc.Spec.Traffic = append(svc.Spec.Traffic, servingv1.TrafficTarget{RevisionName: "greeter-00001", Tag: "old"})
		},
		"image pull secrets": func(svc *servingv1.Service) {
			svc.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "x"}}
		},
	}
	check := func(t *testing.T, fn *v1alpha1.Function, existing *servingv1.Service) {
		t.Helper()
		desired := MakeService(fn, image)
		existing.Labels["theirs"] = "x"
		merged, changed := MergeService(desired, existing)
		if !changed {
			t.Fatal("MergeService() wants no change")
		}
		if diff := cmp.Diff(desired.Spec, merged.Spec); diff != "" {
			t.Errorf("spec (-want, +got):\n%s", diff)
		}
		if merged.Annotations["serving.knative.dev/creator"] != "someone" || merged.Labels["theirs"] != "x" {
			t.Errorf("labels %v and annotations %v lack those of others", merged.Labels, merged.Annotations)
		}
		stored := admitted(merged)
		if again, changed := MergeService(desired, stored); changed {
			t.Errorf("MergeService() never comes to rest (-stored, +merged):\n%s", cmp.Diff(stored, again))
		}
	}
	for name, edit := range edits {
		t.Run("wish/"+name, func(t *testing.T) { check(t, function(edit), admitted(MakeService(function(), image))) })
	}
	for name, drift := range drifts {
		t.Run("drift/"+name, func(t *testing.T) {
			existing := admitted(MakeService(function(), image))
			drift(existing)
			check(t, function(), existing)
		})
	}
}

// TestMergeServiceScale puts back a maximum where none is wished for.
func TestMergeServiceScale(t *testing.T) {
	desired := MakeService(function(func(fn *v1alpha1.Function) { fn.Spec.MaxReplicas = new(int32(0)) }), image)
	for _, key := range []string{"autoscaling.knative.dev/max-scale", "autoscaling.knative.dev/maxScale"} {
		existing := admitted(desired.DeepCopy())
		existing.Spec.Template.Annotations[key] = "1"
		merged, changed := MergeService(desired, existing)
		if got, ok := merged.Spec.Template.Annotations[key]; !changed || ok {
			t.Errorf("MergeService() changed = %v and leaves %s: %s", changed, key, got)
		}
	}
}

func TestMergeRouting(t *testing.T) {
	older := function(func(fn *v1alpha1.Function) { fn.Spec.Env = nil })
	tests := map[string]struct {
		change  func(*servingv1.Service)
		changed bool
	}{
		"an older template":  {func(*servingv1.Service) {}, false},
		"an edited template": {func(svc *servingv1.Service) { svc.Spec.Template.Spec.Containers[0].Image = "other" }, false},
		"no hash":            {func(svc *servingv1.Service) { svc.Annotations = nil }, false},
		"labels of others":   {func(svc *servingv1.Service) { svc.Labels["theirs"] = "x" }, false},
		"visibility":         {func(svc *servingv1.Service) { delete(svc.Labels, "networking.knative.dev/visibility") }, true},
		"no labels":          {func(svc *servingv1.Service) { svc.Labels = nil }, true},
		"traffic tagged":     {func(svc *servingv1.Service) { svc.Spec.Traffic[0].Tag = "mine" }, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			desired, existing := MakeService(function(), image), admitted(MakeService(older, image))
			tc.change(existing)
			merged, changed := MergeRouting(desired, existing)
			if changed != tc.changed {
				t.Errorf("MergeRouting() changed = %v", changed)
			}
			if diff := cmp.Diff(existing.Spec.Template, merged.Spec.Template); diff != "" {
				t.Errorf("MergeRouting() changed the template (-existing, +merged):\n%s", diff)
			}
			if diff := cmp.Diff(desired.Spec.RouteSpec, merged.Spec.RouteSpec); diff != "" {
				t.Errorf("MergeRouting() route (-want, +got):\n%s", diff)
			}
			if _, again := MergeRouting(desired, merged); again {
				t.Error("MergeRouting() never comes to rest")
			}
		})
	}
}
