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

package children

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/kmap"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// RestoreMeta restores the labels and the owner reference that somebody has removed
// from a child. It reports whether the existing object has changed.
func RestoreMeta(existing, desired metav1.Object, fn *v1alpha1.Function) bool {
	restored := false
	if labels := kmap.Union(existing.GetLabels(), desired.GetLabels()); !maps.Equal(labels, existing.GetLabels()) {
		existing.SetLabels(labels)
		restored = true
	}
	if !metav1.IsControlledBy(existing, fn) {
		existing.SetOwnerReferences(append(existing.GetOwnerReferences(), *kmeta.NewControllerRef(fn)))
		restored = true
	}
	return restored
}

// GetUpdater gets and updates the objects of one kind.
type GetUpdater[T metav1.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Update(ctx context.Context, object T, opts metav1.UpdateOptions) (T, error)
}

// RestoreCached is RestoreMeta for an object that the cache keeps only in part. It changes
// and writes the live object, and returns the object as it is afterwards.
func RestoreCached[T interface {
	metav1.Object
	DeepCopy() T
}](ctx context.Context, objects GetUpdater[T], kind string, existing T, desired metav1.Object, fn *v1alpha1.Function) (T, error) {
	if !RestoreMeta(existing.DeepCopy(), desired, fn) {
		return existing, nil
	}
	live, err := objects.Get(ctx, existing.GetName(), metav1.GetOptions{})
	if err != nil {
		return existing, fmt.Errorf("failed to get %s: %w", kind, err)
	}
	if live.GetUID() != existing.GetUID() || !RestoreMeta(live, desired, fn) {
		// The cache is stale. The watch will wake the Function.
		return existing, nil
	}
	restored, err := objects.Update(ctx, live, metav1.UpdateOptions{})
	if err != nil {
		return existing, fmt.Errorf("failed to update %s: %w", kind, err)
	}
	return restored, nil
}
