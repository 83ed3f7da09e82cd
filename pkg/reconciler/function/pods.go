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

package function

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"knative.dev/pkg/kmap"
	"knative.dev/pkg/kmeta"
	"knative.dev/serving/pkg/apis/serving"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/observe"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
)

// troubleOf says why the pod's function does not start, or "".
func troubleOf(pod *corev1.Pod) string {
	return observe.Trouble(pod, resources.FunctionContainerName)
}

// podState is what the pods of a revision tell.
type podState struct {
	// ready counts those that take requests.
	ready int

	// trouble says why some do not start, or is empty.
	trouble string

	// unscheduled says why there is no node for some, or is empty.
	unscheduled string

	// waiting is since when the one of them runs that takes no requests, and has run
	// the longest; zero if there is none.
	waiting time.Time
}

// stateOfPods looks at the pods of a revision, and at what happened to them. The
// order of a list is not always the same; what is said should be.
func stateOfPods(pods []*corev1.Pod, events []*corev1.Event) podState {
	var state podState
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if c := observe.PodCondition(pod, corev1.PodReady); c.Status == corev1.ConditionTrue {
			state.ready++
		} else if since := runningSince(pod); !since.IsZero() && (state.waiting.IsZero() || since.Before(state.waiting)) {
			state.waiting = since
		}
		state.trouble = least(state.trouble, cmp.Or(troubleOf(pod), mountTroubleOf(pod, events)))
		state.unscheduled = least(state.unscheduled, observe.Unscheduled(pod))
	}
	return state
}

// runningSince tells since when all that is in the pod runs, so that nothing but the
// function is waited for; zero if something does not.
func runningSince(pod *corev1.Pod) (since time.Time) {
	for i := range pod.Status.ContainerStatuses {
		running := pod.Status.ContainerStatuses[i].State.Running
		switch {
		case running == nil:
			return time.Time{}
		case running.StartedAt.After(since):
			since = running.StartedAt.Time
		}
	}
	return since
}

// least returns the lesser of two texts that is not empty.
func least(a, b string) string {
	if a == "" || b != "" && b < a {
		return b
	}
	return a
}

// isTelling filters the events of pods: of those that are well Serving tells,
// unless the Function wants a number of them at any time.
func isTelling(functions listers.FunctionLister) func(any) bool {
	return func(obj any) bool {
		if pod, ok := obj.(*corev1.Pod); ok && (troubleOf(pod) != "" || observe.Unscheduled(pod) != "") {
			return true
		}
		pod, err := kmeta.DeletionHandlingAccessor(obj)
		if err != nil {
			return false
		}
		fn, err := functions.Functions(pod.GetNamespace()).Get(pod.GetLabels()[serverless.FunctionNameLabelKey])
		return err == nil && minReplicas(fn) > 0
	}
}

// podsOf selects the pods of a revision of the Function.
func podsOf(fn *v1alpha1.Function, revision string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{
		serverless.FunctionUIDLabelKey: string(fn.UID),
		serving.RevisionLabelKey:       revision,
	})
}

// withoutPodSpec keeps of a pod what tells of trouble, since there are many. What becomes
// of the containers of a build is told by its TaskRun.
func withoutPodSpec(obj any) (any, error) {
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
			Labels:            kmap.Filter(pod.Labels, func(key string) bool { return !slices.Contains(podLabels, key) }),
			DeletionTimestamp: pod.DeletionTimestamp,
		},
	}
	shareMeta(&kept.ObjectMeta)
	for _, condition := range pod.Status.Conditions {
		if slices.Contains(podConditions, condition.Type) {
			shareText(&condition.Type)
			shareText(&condition.Status)
			shareText(&condition.Reason)
			kept.Status.Conditions = append(kept.Status.Conditions, condition)
		}
	}
	if kept.Labels[serving.RevisionLabelKey] == "" {
		return kept, nil
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		shareText(&status.Name)
		kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: status.Name, State: status.State, LastTerminationState: status.LastTerminationState, RestartCount: status.RestartCount,
		})
	}
	return kept, nil
}

// The labels and conditions of pods that are looked at.
var (
	podLabels     = []string{serverless.FunctionNameLabelKey, serverless.FunctionUIDLabelKey, serving.RevisionLabelKey}
	podConditions = []corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled, corev1.DisruptionTarget}
)
