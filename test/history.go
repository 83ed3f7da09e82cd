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

package test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// History remembers every object that there has been, also those that are gone.
type History[T metav1.Object] struct {
	mu   sync.Mutex
	seen map[types.UID]T
	err  error
}

// Record starts to remember the objects that opts select. It goes on until ctx
// ends.
func Record[T metav1.Object, L runtime.Object](ctx context.Context, client Watcher[L], opts metav1.ListOptions) *History[T] {
	h := &History[T]{seen: map[types.UID]T{}}
	go func() {
		err := follow(ctx, client, opts, func(objects []T) bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, object := range objects {
				h.seen[object.GetUID()] = object
			}
			return false
		})
		h.mu.Lock()
		defer h.mu.Unlock()
		if ctx.Err() == nil {
			h.err = err
		}
	}()
	return h
}

// Seen returns every object that there has been, in its last state, oldest
// first. It fails when the watch broke, so that nothing can be missed silently.
func (h *History[T]) Seen() ([]T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.seen), func(a, b T) int {
		return strings.Compare(
			a.GetCreationTimestamp().UTC().Format("20060102150405")+a.GetName(),
			b.GetCreationTimestamp().UTC().Format("20060102150405")+b.GetName())
	}), h.err
}
