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

package kubernetes

import (
	"cmp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/kmap"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// Slim is a transform that replaces the pod template of a Deployment by its hash, which
// takes the place of its name. The labels and annotations that Kiln reads stay. Of other
// objects, it drops the status.
func Slim(obj any) (any, error) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		template := &o.Spec.Template
		kept := func(pairs map[string]string, key string) map[string]string {
			return kmap.Filter(pairs, func(other string) bool { return other != key })
		}
		*template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
			Name:        hashOf(o),
			Labels:      kept(template.Labels, serverless.RevisionLabelKey),
			Annotations: kept(template.Annotations, serverless.WishHashAnnotationKey),
		}}
		slim.ShareMeta(&o.ObjectMeta)
	case *corev1.Service:
		o.ManagedFields, o.Status = nil, corev1.ServiceStatus{}
	case *autoscalingv2.HorizontalPodAutoscaler:
		o.ManagedFields, o.Status = nil, autoscalingv2.HorizontalPodAutoscalerStatus{}
	case *policyv1.PodDisruptionBudget:
		o.ManagedFields, o.Status = nil, policyv1.PodDisruptionBudgetStatus{}
	case *networkingv1.Ingress:
		o.ManagedFields, o.Status = nil, networkingv1.IngressStatus{}
	}
	return obj, nil
}

// remember returns what status.templateHash remembers of a Deployment that Kiln has just
// written: a hash of the desired template, and one of the stored template, which has the API
// server's defaults.
func remember(stored *appsv1.Deployment) string {
	return wishOf(&stored.Spec.Template) + "." + hashOf(stored)
}

// isEdited reports whether somebody else has changed the template. It reports false where the
// desired template differs from the remembered one: the status may have lost Kiln's last write.
func isEdited(deployment *appsv1.Deployment, remembered string) bool {
	desired, stored, ok := strings.Cut(remembered, ".")
	wish := wishOf(&deployment.Spec.Template)
	return ok && (wish == desired || wish == "") && hashOf(deployment) != stored
}

// hashOf returns the hash of the Deployment's pod template, also of a shortened one.
func hashOf(deployment *appsv1.Deployment) string {
	if template := &deployment.Spec.Template; len(template.Spec.Containers) == 0 {
		return template.Name
	}
	return podspec.Hash(deployment.Spec.Template)
}

func wishOf(template *corev1.PodTemplateSpec) string {
	return template.Annotations[serverless.WishHashAnnotationKey]
}

func revisionOf(deployment *appsv1.Deployment) string {
	return deployment.Spec.Template.Labels[serverless.RevisionLabelKey]
}

// newestOf returns the number of the newest revision.
func newestOf(fn *v1alpha1.Function, deployment *appsv1.Deployment) int {
	return max(numberOf("-"+deployment.Annotations[serverless.RevisionAnnotationKey]), numberOf(revisionOf(deployment)), numberOf(fn.Status.LatestCreatedRevisionName))
}

// differs reports whether the Deployment must be written to be as desired, apart from its
// template.
func differs(existing, desired *appsv1.Deployment) bool {
	return existing.Spec.Paused || existing.Spec.MinReadySeconds != 0 ||
		!equality.Semantic.DeepEqual(existing.Spec.Strategy, desired.Spec.Strategy) ||
		!equality.Semantic.DeepEqual(existing.Spec.RevisionHistoryLimit, desired.Spec.RevisionHistoryLimit) ||
		!equality.Semantic.DeepEqual(existing.Spec.ProgressDeadlineSeconds, desired.Spec.ProgressDeadlineSeconds) ||
		*desired.Spec.Replicas != replicasOf(existing)
}

// replicasOf returns the wanted number of pods of the Deployment.
func replicasOf(deployment *appsv1.Deployment) int32 {
	return *cmp.Or(deployment.Spec.Replicas, new(int32(1)))
}
