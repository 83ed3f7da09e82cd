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

package slim

import (
	"context"

	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/logging"
)

// Watch registers the handler with the informer, whose cache keeps what the transform
// leaves of an object. It panics once the informer has started.
func Watch(ctx context.Context, informer cache.SharedIndexInformer, transform cache.TransformFunc, handler cache.ResourceEventHandler) {
	logger := logging.FromContext(ctx)
	if err := informer.SetTransform(transform); err != nil {
		logger.Panicw("Failed to set the transform of an informer", "error", err)
	}
	if _, err := informer.AddEventHandler(handler); err != nil {
		logger.Panicw("Failed to watch an informer", "error", err)
	}
}
