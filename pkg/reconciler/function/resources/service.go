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
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/pkg/kmap"
	"knative.dev/serving/pkg/apis/autoscaling"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources/names"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	// FunctionContainerName is the name of the container that runs the function.
	FunctionContainerName = "function"

	tmpVolumeName = "tmp"
	tmpPath       = "/tmp"
	// tmpSize bounds what a function can write to its node's disk.
	tmpSize = "512Mi"
)

// MakeService returns the Knative Service that runs the image, a reference by
// digest, as the Function says.
func MakeService(fn *v1alpha1.Function, image string) *servingv1.Service {
	svc := &servingv1.Service{
		ObjectMeta: objectMeta(fn, names.Service(fn)),
		Spec: servingv1.ServiceSpec{
			ConfigurationSpec: servingv1.ConfigurationSpec{
				Template: servingv1.RevisionTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{
						Labels: kmap.Union(fn.Spec.Labels, map[string]string{
							serverless.FunctionNameLabelKey: fn.Name,
							serverless.FunctionUIDLabelKey:  string(fn.UID),
						}),
						Annotations: scaleAnnotations(fn),
					},
					Spec: servingv1.RevisionSpec{PodSpec: podSpec(fn, image)},
				},
			},
			RouteSpec: servingv1.RouteSpec{
				Traffic: []servingv1.TrafficTarget{{LatestRevision: new(true), Percent: new(int64(100))}},
			},
		},
	}
	svc.Labels[netapi.VisibilityLabelKey] = serving.VisibilityClusterLocal
	svc.Annotations = map[string]string{
		serverless.WishHashAnnotationKey: hash([]any{svc.Labels, svc.Spec}),
	}
	return svc
}

// MergeService returns a copy of an existing Service that is as desired, and
// whether that is a change. Labels and annotations that others have put on it
// stay: Serving does not allow its own to change.
func MergeService(desired, existing *servingv1.Service) (merged *servingv1.Service, changed bool) {
	merged = existing.DeepCopy()
	if isServiceUpToDate(desired, existing) {
		return merged, false
	}
	merged.Labels = kmap.Union(existing.Labels, desired.Labels)
	merged.Annotations = kmap.Union(existing.Annotations, desired.Annotations)
	merged.Spec = desired.Spec
	return merged, true
}

// MergeRouting is MergeService without the revision template, which stays as it
// is: for as long as the image that the desired template runs is not there.
func MergeRouting(desired, existing *servingv1.Service) (merged *servingv1.Service, changed bool) {
	merged = existing.DeepCopy()
	merged.Labels = kmap.Union(existing.Labels, desired.Labels)
	merged.Spec.RouteSpec = desired.Spec.RouteSpec
	return merged, !maps.Equal(merged.Labels, existing.Labels) ||
		!equality.Semantic.DeepEqual(merged.Spec.RouteSpec, existing.Spec.RouteSpec)
}

// isServiceUpToDate compares in two ways. The hash tells whether the wish has
// changed, also where something is not wished for any more that Serving might
// have filled in. The comparison tells whether somebody else has changed the
// Service.
func isServiceUpToDate(desired, existing *servingv1.Service) bool {
	want, got := &desired.Spec.Template, &existing.Spec.Template
	return equality.Semantic.DeepDerivative(desired.Labels, existing.Labels) &&
		equality.Semantic.DeepDerivative(desired.Annotations, existing.Annotations) &&
		equality.Semantic.DeepEqual(desired.Spec.RouteSpec, existing.Spec.RouteSpec) &&
		got.Name == want.Name &&
		maps.Equal(got.Labels, want.Labels) &&
		hasScaleOf(want.Annotations, got.Annotations) &&
		equality.Semantic.DeepEqual(want.Spec, withoutDefaults(&want.Spec, &got.Spec))
}

// hasScaleOf compares the limits of the number of pods, by whichever of the
// names that Serving knows them by. Other annotations are others' business.
func hasScaleOf(want, got map[string]string) bool {
	return autoscaling.MinScaleAnnotation.Value(got) == autoscaling.MinScaleAnnotation.Value(want) &&
		autoscaling.MaxScaleAnnotation.Value(got) == autoscaling.MaxScaleAnnotation.Value(want)
}

// withoutDefaults returns the existing spec with what is not wished for, and
// Serving fills in as its administrator says, as it is desired. What Serving
// never fills in it leaves as it is.
func withoutDefaults(want, existing *servingv1.RevisionSpec) servingv1.RevisionSpec {
	got := *existing.DeepCopy()
	got.TimeoutSeconds = want.TimeoutSeconds
	got.ResponseStartTimeoutSeconds = want.ResponseStartTimeoutSeconds
	got.IdleTimeoutSeconds = want.IdleTimeoutSeconds
	got.ContainerConcurrency = want.ContainerConcurrency
	for i := range min(len(want.Containers), len(got.Containers)) {
		want, got := &want.Containers[i], &got.Containers[i]
		dropDefaults(got.Resources.Requests, want.Resources.Requests)
		dropDefaults(got.Resources.Limits, want.Resources.Limits)
		if got.ReadinessProbe != nil && equality.Semantic.DeepDerivative(want.ReadinessProbe.ProbeHandler, got.ReadinessProbe.ProbeHandler) {
			// How often it is asked is not wished for.
			got.ReadinessProbe = want.ReadinessProbe
		}
	}
	return got
}

// dropDefaults drops the resources that nobody wishes for and Serving has
// defaults for.
func dropDefaults(got, want corev1.ResourceList) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if _, ok := want[name]; !ok {
			delete(got, name)
		}
	}
}

// scaleAnnotations leaves out a maximum of 0, which would contradict a limit of
// Serving's own. A minimum of 0 is said, since Serving's default can be another.
func scaleAnnotations(fn *v1alpha1.Function) map[string]string {
	annotations := map[string]string{}
	if n := fn.Spec.MinReplicas; n != nil {
		annotations[autoscaling.MinScaleAnnotationKey] = strconv.Itoa(int(*n))
	}
	if n := fn.Spec.MaxReplicas; n != nil && *n > 0 {
		annotations[autoscaling.MaxScaleAnnotationKey] = strconv.Itoa(int(*n))
	}
	return annotations
}

// podSpec returns a pod that satisfies the restricted Pod Security Standard.
// All of it is said of the container, since Serving allows nothing of that kind
// to be said of the pod.
func podSpec(fn *v1alpha1.Function, image string) corev1.PodSpec {
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		Containers: []corev1.Container{{
			Name:      FunctionContainerName,
			Image:     image,
			Env:       env(fn),
			Resources: fn.Spec.Resources,
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: runtimes.HealthPath, Port: intstr.FromInt32(0)},
				},
				SuccessThreshold: 1,
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				ReadOnlyRootFilesystem:   new(true),
				RunAsNonRoot:             new(true),
				SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: tmpVolumeName, MountPath: tmpPath}},
		}},
		Volumes: []corev1.Volume{{
			Name: tmpVolumeName,
			VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse(tmpSize))},
			},
		}},
	}
}

// env returns what the function is told about itself, and what its author says.
func env(fn *v1alpha1.Function) []corev1.EnvVar {
	return append([]corev1.EnvVar{
		{Name: runtimes.EnvFunctionName, Value: fn.Name},
		{Name: runtimes.EnvFunctionNamespace, Value: fn.Namespace},
		{Name: runtimes.EnvFunctionRuntime, Value: fn.Spec.Runtime},
	}, fn.Spec.Env...)
}
