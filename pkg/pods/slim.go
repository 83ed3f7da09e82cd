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

package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/kmap"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/slim"
)

var keptConditions = []corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled, corev1.DisruptionTarget}

// Slim returns a transform that keeps of a pod only what reports trouble. Pods that
// serve carry the revision label; they alone keep the states of their containers.
func Slim(revisionLabel string) cache.TransformFunc {
	keptLabels := []string{serverless.FunctionNameLabelKey, serverless.FunctionUIDLabelKey, revisionLabel}
	return func(obj any) (any, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return obj, nil
		}
		kept := &corev1.Pod{
			TypeMeta: pod.TypeMeta,
			ObjectMeta: metav1.ObjectMeta{
				Name:              pod.Name,
				Namespace:         pod.Namespace,
				UID:               pod.UID,
				ResourceVersion:   pod.ResourceVersion,
				Labels:            kmap.Filter(pod.Labels, func(key string) bool { return !slices.Contains(keptLabels, key) }),
				DeletionTimestamp: pod.DeletionTimestamp,
			},
		}
		slim.ShareMeta(&kept.ObjectMeta)
		kept.Status.Conditions = slimConditions(pod)
		if kept.Labels[revisionLabel] != "" {
			kept.Status.ContainerStatuses = slimContainers(pod)
		}
		return kept, nil
	}
}

func slimConditions(pod *corev1.Pod) []corev1.PodCondition {
	var kept []corev1.PodCondition
	for _, condition := range pod.Status.Conditions {
		if slices.Contains(keptConditions, condition.Type) {
			slim.Share(&condition.Type)
			slim.Share(&condition.Status)
			slim.Share(&condition.Reason)
			kept = append(kept, condition)
		}
	}
	return kept
}

func slimContainers(pod *corev1.Pod) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		slim.Share(&status.Name)
		kept = append(kept, corev1.ContainerStatus{
			Name: status.Name, State: status.State, LastTerminationState: status.LastTerminationState, RestartCount: status.RestartCount,
		})
	}
	return kept
}
