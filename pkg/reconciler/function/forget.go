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

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/kmeta"
	pkgreconciler "knative.dev/pkg/reconciler"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// ObserveDeletion implements reconciler.OnDeletionInterface.
func (r *Reconciler) ObserveDeletion(_ context.Context, key types.NamespacedName) error {
	r.lookups.Forget(key)
	r.taggings.Forget(key)
	r.polls.Forget(key)
	r.checks.Forget(key)
	r.contents.Forget(key)
	r.queue.Release(key)
	r.replaced.forget(key)
	return nil
}

// Demote forgets the Functions that another replica reconciles from now on. This replica
// would not notice that one of them is deleted and created again.
func (r *Reconciler) Demote(bucket pkgreconciler.Bucket) {
	r.lookups.ForgetAll(bucket.Has)
	r.taggings.ForgetAll(bucket.Has)
	r.polls.ForgetAll(bucket.Has)
	r.checks.ForgetAll(bucket.Has)
	r.contents.ForgetAll(bucket.Has)
	r.queue.Leave(bucket.Has)
}

// ReleaseDeleted returns a handler that forgets each Function that is deleted or being
// deleted. A Function that waits for a finalizer is no longer reconciled.
func ReleaseDeleted(forget ...func(types.NamespacedName)) cache.ResourceEventHandler {
	release := func(obj any) {
		if fn, err := kmeta.DeletionHandlingAccessor(obj); err == nil {
			for _, f := range forget {
				f(types.NamespacedName{Namespace: fn.GetNamespace(), Name: fn.GetName()})
			}
		}
	}
	return cache.FilteringResourceEventHandler{
		FilterFunc: func(obj any) bool {
			fn, ok := obj.(*v1alpha1.Function)
			return !ok || fn.DeletionTimestamp != nil
		},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: release, DeleteFunc: release},
	}
}
