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

package job

import (
	"context"

	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/pods"
)

// failedCreate is the reason of the Job controller's event when it cannot create a pod, for
// example because of a quota. The Job's status does not report it.
const failedCreate = "FailedCreate"

func init() {
	injection.Default.RegisterInformer(withCreateEvents)
	injection.Fake.RegisterInformer(withCreateEvents)
}

type createEventsKey struct{}

// withCreateEvents adds an informer of the events of pods that were not created. They are
// few.
func withCreateEvents(ctx context.Context) (context.Context, controller.Informer) {
	informer := pods.NewEventInformer(ctx, Kind, failedCreate)
	return context.WithValue(ctx, createEventsKey{}, informer), informer
}

// createEvents returns the informer of these events. It panics where injection has not
// set it up.
func createEvents(ctx context.Context) cache.SharedIndexInformer {
	informer, ok := ctx.Value(createEventsKey{}).(cache.SharedIndexInformer)
	if !ok {
		logging.FromContext(ctx).Panic("Unable to fetch the informer of pods that were not created from context.")
	}
	return informer
}
