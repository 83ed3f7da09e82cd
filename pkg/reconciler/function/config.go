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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"
	"knative.dev/pkg/logging/logkey"

	"github.com/kiln-dev/kiln/pkg/apis/config"
)

const (
	// component is who events are from.
	component = "function-controller"

	// reasonInvalidConfiguration is the reason of the event on a ConfigMap that
	// cannot be read.
	reasonInvalidConfiguration = "InvalidConfiguration"
)

// withEventRecorder returns a context with the recorder that the reconciler
// uses, too. It ends with the context.
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
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kubeclient.Get(ctx).CoreV1().Events("")})
	return controller.WithEventRecorder(ctx, broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component}))
}

// warnOfConfig has an event emitted on each ConfigMap that was changed to what
// cannot be read. The store keeps what was there before. It is for the webhook to
// deny such a ConfigMap, but a webhook may be away.
func warnOfConfig(ctx context.Context, cmw configmap.Watcher, impl *controller.Impl) {
	recorder := controller.GetEventRecorder(ctx)
	warn := func(cm *corev1.ConfigMap) {
		err := config.Check(cm)
		if err == nil {
			return
		}
		// Each replica sees it, and one is to tell.
		leader, ok := impl.Reconciler.(interface {
			IsLeaderFor(key types.NamespacedName) bool
		})
		if ok && leader.IsLeaderFor(types.NamespacedName{Namespace: cm.Namespace, Name: cm.Name}) {
			recorder.Eventf(cm, corev1.EventTypeWarning, reasonInvalidConfiguration,
				"What it said before stays in force. %v", err)
		}
	}
	for name := range config.Constructors() {
		cmw.Watch(name, warn)
	}
}
