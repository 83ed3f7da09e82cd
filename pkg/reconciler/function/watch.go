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
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/kmeta"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// enqueueFunctionOf returns a handler that enqueues the Function of a child. It uses the
// name of the owner, not the UID: the deletion of a child of an earlier Function wakes
// the new Function of that name. The label finds the Function of an orphaned child.
func enqueueFunctionOf(enqueue func(types.NamespacedName)) func(any) {
	byLabel := enqueueFunctionOfLabel(enqueue)
	return func(obj any) {
		child, err := kmeta.DeletionHandlingAccessor(obj)
		if err != nil {
			return
		}
		if owner := metav1.GetControllerOf(child); owner != nil {
			enqueue(types.NamespacedName{Namespace: child.GetNamespace(), Name: owner.Name})
		}
		byLabel(obj)
	}
}

func enqueueFunctionOfLabel(enqueue func(types.NamespacedName)) func(any) {
	return func(obj any) {
		child, err := kmeta.DeletionHandlingAccessor(obj)
		if err != nil {
			return
		}
		if name := child.GetLabels()[serverless.FunctionNameLabelKey]; name != "" {
			enqueue(types.NamespacedName{Namespace: child.GetNamespace(), Name: name})
		}
	}
}

// enqueueFunctionsBeside returns a handler that enqueues all Functions in the namespace
// of an object.
func enqueueFunctionsBeside(ctx context.Context, enqueue func(types.NamespacedName), lister listers.FunctionLister) func(any) {
	return func(obj any) {
		object, err := kmeta.DeletionHandlingAccessor(obj)
		if err != nil {
			logging.FromContext(ctx).Errorw("Failed to read an event", "error", err)
			return
		}
		fns, err := lister.Functions(object.GetNamespace()).List(labels.Everything())
		if err != nil {
			logging.FromContext(ctx).Errorw("Failed to list Functions", "error", err)
		}
		for _, fn := range fns {
			enqueue(children.KeyOf(fn))
		}
	}
}

// isBegun reports whether a Function is being built or deployed. Such Functions go first
// in the queue. An ended build then releases its slot at once.
func isBegun(lister listers.FunctionLister) func(types.NamespacedName) bool {
	return func(key types.NamespacedName) bool {
		fn, err := lister.Functions(key.Namespace).Get(key.Name)
		return err == nil && (fn.Status.Phase == v1alpha1.FunctionBuilding || fn.Status.Phase == v1alpha1.FunctionDeploying)
	}
}

// NewPodHandler returns a handler that calls wake for each event of a pod that can change the
// status of a Function. It reads the caches of Functions and of events about mounts.
func NewPodHandler(functions listers.FunctionLister, mountEvents corev1listers.EventLister, wake func(types.NamespacedName)) cache.ResourceEventHandler {
	return podWatch{functions: functions, mountEvents: mountEvents, wake: wake}.handler()
}

// podWatch wakes Functions for events of pods that can change the status.
type podWatch struct {
	functions   listers.FunctionLister
	mountEvents corev1listers.EventLister
	wake        func(types.NamespacedName)
}

func (w podWatch) handler() cache.ResourceEventHandler {
	wake := enqueueFunctionOfLabel(w.wake)
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if w.isNews(nil, podOf(obj)) {
				wake(obj)
			}
		},
		UpdateFunc: func(old, now any) {
			if w.isNews(podOf(old), podOf(now)) {
				wake(now)
			}
		},
		DeleteFunc: func(obj any) {
			if w.isNews(podOf(obj), nil) {
				wake(obj)
			}
		},
	}
}

// podOf returns the pod of an event, or nil.
func podOf(obj any) *corev1.Pod {
	child, err := kmeta.DeletionHandlingAccessor(obj)
	if err != nil {
		return nil
	}
	pod, _ := child.(*corev1.Pod)
	return pod
}

// isNews reports whether the change of a pod can change what the status says. A nil pod does
// not exist.
func (w podWatch) isNews(before, after *corev1.Pod) bool {
	pod := cmp.Or(after, before)
	if pod == nil {
		return false
	}
	// The list is of failed mounts only. An error leaves the events of pods.
	events, _ := w.mountEvents.Events(pod.Namespace).List(labels.Everything())
	old, now := stateOfPod(before, events), stateOfPod(after, events)
	if old.Trouble != now.Trouble || old.Unscheduled != now.Unscheduled {
		return true
	}
	return old.Ready != now.Ready && w.counts(pod, now.Ready > old.Ready)
}

// counts reports whether the status depends on the number of ready pods, which the pod has
// increased or decreased. Serving reports the pods of a Function without a minimum.
func (w podWatch) counts(pod *corev1.Pod, increased bool) bool {
	if pod.Labels[knative.RevisionLabelKey] == "" && pod.Labels[serverless.RevisionLabelKey] == "" {
		return false
	}
	fn, err := w.functions.Functions(pod.Namespace).Get(pod.Labels[serverless.FunctionNameLabelKey])
	if err != nil || fn.DesiredMinReplicas() == 0 && fn.Status.Serving != string(config.KubernetesServer) {
		return false
	}
	// One more pod changes nothing while there are enough.
	return !increased || !fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).IsTrue()
}

func stateOfPod(pod *corev1.Pod, events []*corev1.Event) pods.State {
	if pod == nil {
		return pods.State{}
	}
	return pods.StateOf([]*corev1.Pod{pod}, events)
}

// hurryPulls returns a handler that calls hurry for the Function of a pod whose image
// cannot be pulled.
func hurryPulls(hurry func(types.NamespacedName)) cache.ResourceEventHandler {
	return cache.FilteringResourceEventHandler{
		FilterFunc: pods.CannotPull,
		Handler:    controller.HandleAll(enqueueFunctionOfLabel(hurry)),
	}
}
