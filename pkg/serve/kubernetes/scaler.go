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
	"context"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
)

// cpuTarget is the share of the requested CPU that the pods use on average, in percent. It is
// what Kubernetes uses by default.
const cpuTarget = 80

// leastReplicas is how many pods the Function has at any time. A Deployment without pods
// could not start one for a request.
func leastReplicas(fn *v1alpha1.Function) int32 {
	if fn.Spec.Replicas != nil {
		return *fn.Spec.Replicas
	}
	return max(1, int32(fn.DesiredMinReplicas()))
}

// mostReplicas is how many pods an autoscaler may start.
func mostReplicas(ctx context.Context, fn *v1alpha1.Function) int32 {
	if fn.Spec.MaxReplicas == nil || *fn.Spec.MaxReplicas == 0 {
		return max(leastReplicas(fn), config.FromContextOrDefaults(ctx).Functions.MostAutoscaled)
	}
	return *fn.Spec.MaxReplicas
}

// MakeScaler returns the HorizontalPodAutoscaler of the Function, or nil if its number of pods
// is fixed.
func MakeScaler(ctx context.Context, fn *v1alpha1.Function) *autoscalingv2.HorizontalPodAutoscaler {
	least, most := leastReplicas(fn), mostReplicas(ctx, fn)
	if cpu := fn.Spec.Resources.Requests.Cpu(); fn.Spec.Replicas != nil || most <= least || cpu.IsZero() {
		return nil
	}
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: objectMeta(fn),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: appsv1.SchemeGroupVersion.String(), Kind: deploymentKind, Name: children.ServiceName(fn),
			},
			MinReplicas: &least,
			MaxReplicas: most,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name:   corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(cpuTarget))},
				},
			}},
		},
	}
}

// desiredReplicas returns the number of pods of the Deployment. Where an autoscaler sets it,
// that is the present number, unless it is 0: that would disable the autoscaler.
func desiredReplicas(ctx context.Context, fn *v1alpha1.Function, existing *appsv1.Deployment) int32 {
	if existing == nil || MakeScaler(ctx, fn) == nil || replicasOf(existing) == 0 {
		return leastReplicas(fn)
	}
	return replicasOf(existing)
}

// MakeBudget returns the PodDisruptionBudget of the Function, or nil if it may have a single
// pod: that could never be evicted.
func MakeBudget(fn *v1alpha1.Function) *policyv1.PodDisruptionBudget {
	if leastReplicas(fn) <= 1 {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: objectMeta(fn),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)),
			Selector:       &metav1.LabelSelector{MatchLabels: podLabels(fn)},
		},
	}
}
