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
	"context"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// others are the objects of Functions besides their Deployments.
type others struct {
	services  child[corev1.Service, *corev1.Service]
	scalers   child[autoscalingv2.HorizontalPodAutoscaler, *autoscalingv2.HorizontalPodAutoscaler]
	budgets   child[policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget]
	ingresses child[networkingv1.Ingress, *networkingv1.Ingress]
}

func newOthers(kube kubernetes.Interface, stores Stores) *others {
	same := equality.Semantic.DeepEqual
	return &others{
		services: child[corev1.Service, *corev1.Service]{
			kind: serviceKind, store: stores.Services,
			client: func(namespace string) client[*corev1.Service] { return kube.CoreV1().Services(namespace) },
			isSame: func(a, b *corev1.Service) bool {
				return same(a.Spec.Selector, b.Spec.Selector) && same(withoutNodePorts(a.Spec.Ports), b.Spec.Ports) && a.Spec.Type == b.Spec.Type
			},
			merge: func(existing, desired *corev1.Service) {
				existing.Spec.Selector, existing.Spec.Ports, existing.Spec.Type = desired.Spec.Selector, desired.Spec.Ports, desired.Spec.Type
				existing.Spec.ExternalName = ""
			},
		},
		scalers: child[autoscalingv2.HorizontalPodAutoscaler, *autoscalingv2.HorizontalPodAutoscaler]{
			kind: scalerKind, store: stores.Scalers,
			client: func(namespace string) client[*autoscalingv2.HorizontalPodAutoscaler] {
				return kube.AutoscalingV2().HorizontalPodAutoscalers(namespace)
			},
			isSame: func(a, b *autoscalingv2.HorizontalPodAutoscaler) bool {
				return same(a.Spec.ScaleTargetRef, b.Spec.ScaleTargetRef) && same(a.Spec.MinReplicas, b.Spec.MinReplicas) &&
					a.Spec.MaxReplicas == b.Spec.MaxReplicas && same(a.Spec.Metrics, b.Spec.Metrics)
			},
			// The behaviour stays: Kiln sets none, and somebody else may.
			merge: func(existing, desired *autoscalingv2.HorizontalPodAutoscaler) {
				behavior := existing.Spec.Behavior
				existing.Spec = desired.Spec
				existing.Spec.Behavior = behavior
			},
		},
		budgets: child[policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget]{
			kind: budgetKind, store: stores.Budgets,
			client: func(namespace string) client[*policyv1.PodDisruptionBudget] {
				return kube.PolicyV1().PodDisruptionBudgets(namespace)
			},
			isSame: func(a, b *policyv1.PodDisruptionBudget) bool { return same(a.Spec, b.Spec) },
			merge:  func(existing, desired *policyv1.PodDisruptionBudget) { existing.Spec = desired.Spec },
		},
		ingresses: child[networkingv1.Ingress, *networkingv1.Ingress]{
			kind: ingressKind, store: stores.Ingresses,
			client: func(namespace string) client[*networkingv1.Ingress] { return kube.NetworkingV1().Ingresses(namespace) },
			isSame: func(a, b *networkingv1.Ingress) bool {
				return same(a.Spec.Rules, b.Spec.Rules) && (b.Spec.IngressClassName == nil || same(a.Spec.IngressClassName, b.Spec.IngressClassName))
			},
			merge: func(existing, desired *networkingv1.Ingress) {
				existing.Spec.Rules = desired.Spec.Rules
				if desired.Spec.IngressClassName != nil {
					existing.Spec.IngressClassName = desired.Spec.IngressClassName
				}
			},
		},
	}
}

// withoutNodePorts returns the ports without what a Service of another type had.
func withoutNodePorts(ports []corev1.ServicePort) []corev1.ServicePort {
	var bare []corev1.ServicePort
	for _, port := range ports {
		port.NodePort = 0
		bare = append(bare, port)
	}
	return bare
}

// applyOthers makes the objects besides the Deployment as the spec says. One that fails does
// not keep back the others.
func (s *Server) applyOthers(ctx context.Context, fn *v1alpha1.Function) error {
	o, check := newOthers(s.Client, s.Stores), s.CheckCurrent
	return cmp.Or(
		o.services.apply(ctx, fn, MakeService(fn), check),
		o.scalers.apply(ctx, fn, MakeScaler(ctx, fn), check),
		o.budgets.apply(ctx, fn, MakeBudget(fn), check),
		o.ingresses.apply(ctx, fn, MakeIngress(ctx, fn), check),
	)
}
