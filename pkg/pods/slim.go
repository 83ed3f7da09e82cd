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

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/kmap"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/slim"
)

var keptConditions = []corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled, corev1.DisruptionTarget}

// Slim returns a transform that keeps of a pod only what reports trouble. Pods that
// serve carry one of the revision labels. They, and the pods of Jobs, keep the states of their
// containers. The pod of a Job is the only record of its end.
func Slim(revisionLabels ...string) cache.TransformFunc {
	keptLabels := append([]string{
		serverless.FunctionNameLabelKey, serverless.FunctionUIDLabelKey, batchv1.JobNameLabel, batchv1.ControllerUidLabel,
	}, revisionLabels...)
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
		if slices.ContainsFunc(revisionLabels, func(key string) bool { return kept.Labels[key] != "" }) {
			kept.Status.ContainerStatuses = slimContainers(pod)
		}
		if kept.Labels[batchv1.JobNameLabel] != "" {
			kept.Status.Phase, kept.Status.Reason, kept.Status.Message = pod.Status.Phase, pod.Status.Reason, pod.Status.Message
			slim.Share(&kept.Status.Phase)
			slim.Share(&kept.Status.Reason)
			kept.Status.InitContainerStatuses = slimSteps(pod.Status.InitContainerStatuses)
			kept.Status.ContainerStatuses = slimSteps(pod.Status.ContainerStatuses)
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

// slimSteps keeps how far each container of a build is, and the results.
func slimSteps(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for i := range statuses {
		status := corev1.ContainerStatus{Name: statuses[i].Name}
		slim.Share(&status.Name)
		switch state := statuses[i].State; {
		case state.Waiting != nil:
			waiting := *state.Waiting
			slim.Share(&waiting.Reason)
			status.State.Waiting = &waiting
		case state.Running != nil:
			status.State.Running = &running
		case state.Terminated != nil:
			end := corev1.ContainerStateTerminated{ExitCode: state.Terminated.ExitCode, Reason: state.Terminated.Reason, FinishedAt: state.Terminated.FinishedAt}
			slim.Share(&end.Reason)
			if status.Name == FetchContainer || status.Name == PushContainer {
				end.Message = state.Terminated.Message
			}
			status.State.Terminated = &end
		}
		kept = append(kept, status)
	}
	return kept
}

// running is the state of all containers that run. It is shared, and nothing writes it.
var running corev1.ContainerStateRunning
