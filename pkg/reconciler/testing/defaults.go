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

package testing

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SetDefaults sets the API server's defaults of objects that serve Functions.
func SetDefaults(object runtime.Object) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		pod := &o.Spec.Template.Spec
		pod.RestartPolicy, pod.DNSPolicy, pod.SchedulerName = corev1.RestartPolicyAlways, corev1.DNSClusterFirst, corev1.DefaultSchedulerName
		pod.SecurityContext = cmp.Or(pod.SecurityContext, &corev1.PodSecurityContext{})
		for i := range pod.Containers {
			c := &pod.Containers[i]
			c.ImagePullPolicy, c.TerminationMessagePath, c.TerminationMessagePolicy = corev1.PullIfNotPresent, "/dev/termination-log", corev1.TerminationMessageReadFile
			if c.ReadinessProbe != nil && c.ReadinessProbe.HTTPGet != nil {
				c.ReadinessProbe.HTTPGet.Scheme = corev1.URISchemeHTTP
			}
		}
	case *corev1.Service:
		o.Spec.ClusterIP, o.Spec.ClusterIPs, o.Spec.SessionAffinity = "10.0.0.1", []string{"10.0.0.1"}, corev1.ServiceAffinityNone
		o.Spec.IPFamilies, o.Spec.IPFamilyPolicy = []corev1.IPFamily{corev1.IPv4Protocol}, new(corev1.IPFamilyPolicySingleStack)
		o.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	case *autoscalingv2.HorizontalPodAutoscaler:
		o.Spec.MinReplicas = cmp.Or(o.Spec.MinReplicas, new(int32(1)))
	case *networkingv1.Ingress:
		o.Spec.IngressClassName = cmp.Or(o.Spec.IngressClassName, new("default"))
	}
}
