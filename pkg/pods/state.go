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

// Package pods reads what pods report: whether they serve, why they do not start, and
// the end of their logs.
package pods

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/observe"
)

const (
	// OOMKilled is the kubelet's reason of a container that exceeded its memory limit.
	OOMKilled = "OOMKilled"

	// Evicted is the kubelet's reason of a pod that it evicted.
	Evicted = "Evicted"
)

// State is what the pods of a revision report.
type State struct {
	// Ready is the number of pods that take requests.
	Ready int

	// Trouble is why some pods do not start, or "".
	Trouble string

	// Unscheduled is why no node takes some pods, or "".
	Unscheduled string

	// RunningSince is when the oldest of the pods that run and are not ready began to
	// run. It is zero if there is none.
	RunningSince time.Time
}

// StateOf returns the state of pods, with the events of their failed mounts. The
// result does not depend on the order of the lists.
func StateOf(pods []*corev1.Pod, events []*corev1.Event) State {
	var state State
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if c := observe.PodCondition(pod, corev1.PodReady); c.Status == corev1.ConditionTrue {
			state.Ready++
		} else if since := runningSince(pod); !since.IsZero() && (state.RunningSince.IsZero() || since.Before(state.RunningSince)) {
			state.RunningSince = since
		}
		state.Trouble = first(state.Trouble, cmp.Or(TroubleOf(pod), mountTroubleOf(pod, events)))
		state.Unscheduled = first(state.Unscheduled, observe.Unscheduled(pod))
	}
	return state
}

// TroubleOf returns why the function of the pod does not start, or "".
func TroubleOf(pod *corev1.Pod) string {
	return observe.Trouble(pod, children.FunctionContainer)
}

// CannotPull reports whether the object is a pod of a function whose image cannot be pulled.
func CannotPull(obj any) bool {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.DeletionTimestamp != nil {
		return false
	}
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == children.FunctionContainer })
	if i < 0 {
		return false
	}
	waiting := pod.Status.ContainerStatuses[i].State.Waiting
	return waiting != nil && waiting.Reason == "ImagePullBackOff"
}

// runningSince returns when the last container of the pod started. It is zero while
// one of them does not run.
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

func first(a, b string) string {
	if a == "" || b != "" && b < a {
		return b
	}
	return a
}
