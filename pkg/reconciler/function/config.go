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
)

// reasonInvalidConfiguration is the reason of the event on a ConfigMap that
// cannot be read.
const reasonInvalidConfiguration = "InvalidConfiguration"

// warnOfConfig has an event emitted on each ConfigMap that was changed to what
// cannot be read. The store keeps what was there before. It is for the webhook to
// deny such a ConfigMap, but a webhook may be away.
func warnOfConfig(ctx context.Context, cmw configmap.Watcher, leader leader) {
	recorder := controller.GetEventRecorder(ctx)
	warn := func(cm *corev1.ConfigMap) {
		err := config.Check(cm)
		if err == nil {
			return
		}
		// Each replica sees it, and one is to tell.
		if leader.IsLeaderFor(types.NamespacedName{Namespace: cm.Namespace, Name: cm.Name}) {
			recorder.Eventf(cm, corev1.EventTypeWarning, reasonInvalidConfiguration,
				"What it said before stays in force. %v", err)
		}
	}
	for name := range config.Constructors() {
		cmw.Watch(name, warn)
	}
}
