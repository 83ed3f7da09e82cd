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
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"
	"knative.dev/pkg/logging/logkey"
)

const (
	component = "function-controller"

	// reasonInternalError is the reason of the event that the generated reconciler
	// emits for each error of each reconcile.
	reasonInternalError = "InternalError"

	// eventTimeout bounds each write of an event. Events are written one after the other,
	// so one lost response would delay all others. It is longer than the timeout of a
	// webhook: a rejected event is dropped, but one without a response is retried.
	eventTimeout = 35 * time.Second
)

// withEventRecorder returns a context with an event recorder, which the generated
// reconciler also uses. The recorder stops with the context.
func withEventRecorder(ctx context.Context) context.Context {
	if controller.GetEventRecorder(ctx) != nil {
		return ctx
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	logger := logging.FromContext(ctx).Named("events")
	broadcaster.StartEventWatcher(func(event *corev1.Event) {
		logger.Infow(event.Message, "type", event.Type, "reason", event.Reason, "kind", event.InvolvedObject.Kind,
			logkey.Key, event.InvolvedObject.Namespace+"/"+event.InvolvedObject.Name)
	})
	broadcaster.StartRecordingToSink(eventSink{ctx: ctx, events: kubeclient.Get(ctx).CoreV1().Events(""), timeout: eventTimeout})
	return controller.WithEventRecorder(ctx, edgeRecorder{broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})})
}

type eventSink struct {
	ctx     context.Context
	events  typedcorev1.EventInterface
	timeout time.Duration
}

func (s eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	return s.events.CreateWithEventNamespaceWithContext(ctx, event)
}

func (s eventSink) Update(event *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	return s.events.UpdateWithEventNamespaceWithContext(ctx, event)
}

func (s eventSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	return s.events.PatchWithEventNamespaceWithContext(ctx, event, data)
}

// edgeRecorder drops the events of failed reconciles. A condition, and one event when it
// changes, report what a user can fix. All other errors are retried and logged.
type edgeRecorder struct{ record.EventRecorder }

func (r edgeRecorder) Event(object runtime.Object, eventType, reason, message string) {
	if reason != reasonInternalError {
		r.EventRecorder.Event(object, eventType, reason, message)
	}
}
