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
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/fairqueue"
)

const reasonInvalidConfiguration = "InvalidConfiguration"

// warnOfConfig emits an event on each ConfigMap that becomes invalid. The store keeps the
// previous values. The webhook denies such a ConfigMap unless it is unavailable.
func warnOfConfig(ctx context.Context, cmw configmap.Watcher, leader fairqueue.Leader) {
	recorder := controller.GetEventRecorder(ctx)
	warn := func(cm *corev1.ConfigMap) {
		err := config.Check(cm)
		if err == nil {
			return
		}
		// Each replica sees the change, but only the leader emits the event.
		if leader.IsLeaderFor(types.NamespacedName{Namespace: cm.Namespace, Name: cm.Name}) {
			recorder.Eventf(cm, corev1.EventTypeWarning, reasonInvalidConfiguration,
				"The previous values stay in effect: %v", err)
		}
	}
	for name := range config.Constructors() {
		cmw.Watch(name, warn)
	}
}
