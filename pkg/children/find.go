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
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

const (
	// findPage is how many objects FindLive holds at a time. A Function can have a megabyte.
	findPage = 20

	// pageTimeout bounds the wait of EachLive for each page. A new leader builds nothing
	// meanwhile, so it must not wait for a lost response.
	pageTimeout = 10 * time.Second
)

var errFound = errors.New("found")

// EachLive calls do with each object that list returns and that has Kiln's label.
func EachLive[T runtime.Object](ctx context.Context, kind string, list func(context.Context, metav1.ListOptions) (runtime.Object, error), do func(T) error) error {
	pages := pager.New(pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, pageTimeout)
		defer cancel()
		return list(ctx, opts)
	}))
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: LabelSelector}, func(obj runtime.Object) error { return do(obj.(T)) })
	if err != nil {
		return fmt.Errorf("failed to list %ss: %w", kind, err)
	}
	return nil
}

// FindLive returns the first object of a live list that matches, or nil.
func FindLive[T interface {
	metav1.Object
	runtime.Object
}](ctx context.Context, list pager.ListPageFunc, kind, selector string, matches func(T) bool) (*corev1.ObjectReference, error) {
	pages := pager.New(list)
	pages.PageSize, pages.PageBufferSize = findPage, 0
	var found *corev1.ObjectReference
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: selector}, func(obj runtime.Object) error {
		object, ok := obj.(T)
		if !ok || !matches(object) {
			return nil
		}
		found = &corev1.ObjectReference{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}
		return errFound
	})
	if err != nil && !errors.Is(err, errFound) {
		return nil, fmt.Errorf("failed to list %ss: %w", kind, err)
	}
	return found, nil
}
