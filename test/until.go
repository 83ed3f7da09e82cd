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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Watcher lists and watches one kind of object. All typed clients implement it.
type Watcher[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Check returns nil if all objects are as expected, or else an error that says what is
// missing. GiveUp marks an error that waiting cannot resolve.
type Check[T metav1.Object] func(objects []T) error

// hopelessError is the error of a check that waiting cannot resolve.
type hopelessError struct{ error }

func (e hopelessError) Unwrap() error { return e.error }

// GiveUp marks the error of a check that waiting cannot resolve.
func GiveUp(err error) error { return hopelessError{err} }

// Named selects the object with that name.
func Named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
}

// Until calls check with the objects that opts select, and again after each change of one
// of them, until it returns nil. It misses no change. If ctx ends, the error has the last
// result of check.
func Until[T metav1.Object, L runtime.Object](ctx context.Context, client Watcher[L], opts metav1.ListOptions, check Check[T]) error {
	var missing error
	err := follow(ctx, client, opts, func(objects []T) (stop bool) {
		missing = check(objects)
		return missing == nil || errors.As(missing, new(hopelessError))
	})
	if missing != nil && err != nil {
		return fmt.Errorf("%w; last result: %w", err, missing)
	}
	return errors.Join(err, missing)
}

// follow calls visit with the objects that opts select, and again after each change of one
// of them, until visit returns true or ctx ends.
func follow[T metav1.Object, L runtime.Object](ctx context.Context, client Watcher[L], opts metav1.ListOptions, visit func([]T) (stop bool)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	list, err := client.List(ctx, opts)
	if err != nil {
		return fmt.Errorf("failed to list: %w", err)
	}
	objects, err := byUID[T](list)
	if err != nil {
		return err
	}
	listMeta, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("failed to read list: %w", err)
	}
	changes, err := watchtools.NewRetryWatcherWithContext(ctx, listMeta.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, at metav1.ListOptions) (watch.Interface, error) {
			at.FieldSelector, at.LabelSelector = opts.FieldSelector, opts.LabelSelector
			return client.Watch(ctx, at)
		},
	})
	if err != nil {
		return fmt.Errorf("failed to watch: %w", err)
	}
	for !visit(sorted(objects)) {
		if err := apply(ctx, changes, objects); err != nil {
			return err
		}
	}
	return nil
}

// apply waits for the next change and applies it to objects.
func apply[T metav1.Object](ctx context.Context, changes watch.Interface, objects map[types.UID]T) error {
	var event watch.Event
	select {
	case <-ctx.Done():
		return fmt.Errorf("gave up waiting: %w", context.Cause(ctx))
	case event = <-changes.ResultChan():
	}
	object, ok := event.Object.(T)
	switch {
	case !ok && ctx.Err() != nil:
		return fmt.Errorf("gave up waiting: %w", context.Cause(ctx))
	case !ok:
		return fmt.Errorf("failed to watch: %w", apierrs.FromObject(event.Object))
	case event.Type == watch.Deleted:
		delete(objects, object.GetUID())
	default:
		objects[object.GetUID()] = object
	}
	return nil
}

func byUID[T metav1.Object](list runtime.Object) (map[types.UID]T, error) {
	objects := map[types.UID]T{}
	err := meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(T)
		if !ok {
			return fmt.Errorf("list has %T, not %T", item, *new(T))
		}
		objects[object.GetUID()] = object
		return nil
	})
	return objects, err
}

func sorted[T metav1.Object](objects map[types.UID]T) []T {
	return slices.SortedFunc(maps.Values(objects), func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
}
