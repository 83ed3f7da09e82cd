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
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1informers "k8s.io/client-go/informers/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/children"
)

// failedMount is the reason of the kubelet's event when it cannot mount a volume, for
// example because a Secret does not exist. The pod's status does not report it.
const failedMount = "FailedMount"

func init() {
	injection.Default.RegisterInformer(withMountEvents)
	injection.Fake.RegisterInformer(withMountEvents)
}

type mountEventsKey struct{}

// withMountEvents adds an informer of the events of failed mounts. They are few.
func withMountEvents(ctx context.Context) (context.Context, controller.Informer) {
	informer := NewEventInformer(ctx, "Pod", failedMount)
	return context.WithValue(ctx, mountEventsKey{}, informer), informer
}

// NewEventInformer returns an informer of the events of that reason about objects of that
// kind. It must be one of the injected informers, which the main starts.
func NewEventInformer(ctx context.Context, kind, reason string) cache.SharedIndexInformer {
	return corev1informers.NewFilteredEventInformer(kubeclient.Get(ctx), metav1.NamespaceAll, controller.GetResyncPeriod(ctx),
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(options *metav1.ListOptions) {
			options.FieldSelector = fields.Set{"involvedObject.kind": kind, "reason": reason}.String()
		})
}

// MountEvents returns the informer of the events of failed mounts. It panics where
// injection has not set it up.
func MountEvents(ctx context.Context) cache.SharedIndexInformer {
	informer, ok := ctx.Value(mountEventsKey{}).(cache.SharedIndexInformer)
	if !ok {
		logging.FromContext(ctx).Panic("Unable to fetch the informer of failed mounts from context.")
	}
	return informer
}

// SlimEvent is a transform that keeps of an event only what reports trouble.
func SlimEvent(obj any) (any, error) {
	event, ok := obj.(*corev1.Event)
	if !ok {
		return obj, nil
	}
	return &corev1.Event{
		TypeMeta: event.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name:            event.Name,
			Namespace:       event.Namespace,
			UID:             event.UID,
			ResourceVersion: event.ResourceVersion,
		},
		InvolvedObject: corev1.ObjectReference{Name: event.InvolvedObject.Name, UID: event.InvolvedObject.UID},
		Reason:         event.Reason,
		Message:        event.Message,
		Count:          event.Count,
		LastTimestamp:  event.LastTimestamp,
	}, nil
}

// EnqueueFunctionOfMount returns a handler that enqueues the Function of the event's
// pod. It ignores the first occurrence, which may be an accident.
func EnqueueFunctionOfMount(pods corev1listers.PodLister, enqueue func(types.NamespacedName)) func(any) {
	return func(obj any) {
		event, ok := obj.(*corev1.Event)
		if !ok || event.Count < 2 {
			return
		}
		pod, err := pods.Pods(event.Namespace).Get(event.InvolvedObject.Name)
		if err != nil {
			// The pod belongs to no Function, or is not cached yet. The event will recur.
			return
		}
		if name := pod.Labels[serverless.FunctionNameLabelKey]; name != "" {
			enqueue(types.NamespacedName{Namespace: pod.Namespace, Name: name})
		}
	}
}

// FailedMount returns which volume the pod of that name cannot mount, or "".
func FailedMount(pods corev1listers.PodLister, events corev1listers.EventLister, namespace, name string) (string, error) {
	pod, err := pods.Pods(namespace).Get(name)
	if apierrs.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("failed to get Pod: %w", err)
	}
	all, err := events.Events(namespace).List(labels.Everything())
	if err != nil {
		return "", fmt.Errorf("failed to list Events: %w", err)
	}
	return failedMountOf(pod, all), nil
}

// mountTroubleOf returns which volume a pod that is being created cannot mount, or "".
// Failed mounts no longer matter once the pod was created.
func mountTroubleOf(pod *corev1.Pod, events []*corev1.Event) string {
	if !isBeingCreated(pod) {
		return ""
	}
	return failedMountOf(pod, events)
}

func failedMountOf(pod *corev1.Pod, events []*corev1.Event) string {
	trouble := ""
	for _, event := range events {
		if event.InvolvedObject.UID == pod.UID && event.Reason == failedMount && event.Count > 1 {
			trouble = first(trouble, failedMount+": "+event.Message)
		}
	}
	return trouble
}

func isBeingCreated(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.Name == children.FunctionContainer {
			return status.State.Waiting != nil && status.State.Waiting.Reason == "ContainerCreating"
		}
	}
	return false
}
