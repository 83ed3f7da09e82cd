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

package knative

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const (
	tag   = "0123456789abcdef0123456789abcdef"
	image = "pull.example.com/fn/default/greeter@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

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

func TestMakeServiceWithPullSecret(t *testing.T) {
	want := MakeService(function(), image)
	got := MakeService(function(), image, "registry")
	if hash := "serverless.kiln.dev/wish-hash"; got.Annotations[hash] == want.Annotations[hash] {
		t.Error("the hash of the desired Service lacks the pull secret")
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
			restored := admitted(merged)
			if got := Remember(restored); got != remembered {
				t.Errorf("template is not restored (-want, +got):\n%s", cmp.Diff(desired.Spec.Template, restored.Spec.Template))
			}
			if again, change := MergeService(desired, restored, remembered); change != NoChange {
				t.Errorf("MergeService() never settles (-stored, +merged):\n%s", cmp.Diff(restored, again))
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
					t.Errorf("MergeService() never settles (-stored, +merged):\n%s", cmp.Diff(stored, again))
				}
			}
		})
	}
}

// TestMounts checks the volumes of each kind of mount, and that another order of them causes
// no new revision.
func TestMounts(t *testing.T) {
	fn := function(everythingSaid, func(fn *v1alpha1.Function) {
		fn.Spec.ConfigMapMounts = []v1alpha1.ConfigMapMount{{ConfigMapName: "three", MountPath: "/d"}, {ConfigMapName: "four", MountPath: "/c"}}
		fn.Spec.EmptyDirMounts = []v1alpha1.EmptyDirMount{{MountPath: "/f"}, {MountPath: "/e", SizeLimit: new(resource.MustParse("1Gi"))}}
		fn.Spec.PersistentVolumeClaimMounts = []v1alpha1.PersistentVolumeClaimMount{{ClaimName: "data", MountPath: "/h"}, {ClaimName: "data", MountPath: "/g", ReadOnly: true}}
	})
	configMap := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
	}
	emptyDir := func(size string) corev1.VolumeSource {
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse(size))}}
	}
	claim := func(readOnly bool) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: readOnly}}
	}
	want := corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "tmp", VolumeSource: emptyDir("512Mi")},
			{Name: "secret-0", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "two"}}},
			{Name: "secret-1", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "one"}}},
			{Name: "config-map-0", VolumeSource: configMap("four")},
			{Name: "config-map-1", VolumeSource: configMap("three")},
			{Name: "empty-dir-0", VolumeSource: emptyDir("1Gi")},
			{Name: "empty-dir-1", VolumeSource: emptyDir("512Mi")},
			{Name: "persistent-volume-claim-0", VolumeSource: claim(true)},
			{Name: "persistent-volume-claim-1", VolumeSource: claim(false)},
		},
		Containers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{
			{Name: "tmp", MountPath: "/tmp"},
			{Name: "secret-0", MountPath: "/a", ReadOnly: true},
			{Name: "secret-1", MountPath: "/b", ReadOnly: true},
			{Name: "config-map-0", MountPath: "/c", ReadOnly: true},
			{Name: "config-map-1", MountPath: "/d", ReadOnly: true},
			{Name: "empty-dir-0", MountPath: "/e"},
			{Name: "empty-dir-1", MountPath: "/f"},
			{Name: "persistent-volume-claim-0", MountPath: "/g", ReadOnly: true},
			{Name: "persistent-volume-claim-1", MountPath: "/h"},
		}}},
	}
	got := MakeService(fn, image)
	pod := got.Spec.Template.Spec.PodSpec
	if diff := cmp.Diff(want, corev1.PodSpec{
		Volumes: pod.Volumes, Containers: []corev1.Container{{VolumeMounts: pod.Containers[0].VolumeMounts}},
	}); diff != "" {
		t.Errorf("the volumes (-want, +got):\n%s", diff)
	}
	other := fn.DeepCopy()
	slices.Reverse(other.Spec.SecretMounts)
	slices.Reverse(other.Spec.ConfigMapMounts)
	slices.Reverse(other.Spec.EmptyDirMounts)
	slices.Reverse(other.Spec.PersistentVolumeClaimMounts)
	if diff := cmp.Diff(got, MakeService(other, image)); diff != "" {
		t.Errorf("the order of the mounts counts:\n%s", diff)
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
		t.Error("IsTemplateEdited() of a Service that was made for another template = true")
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

// TestMakeListeningService checks that the Service of an image without Kiln's wrapper
// differs only in its probe.
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
