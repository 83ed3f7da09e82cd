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

// Package slim keeps informer caches small. It drops unused fields and shares repeated
// strings. Transformed objects must not be written back to the API server.
package slim

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

// functionIndex is the index by Function. Without it each reconcile would scan all
// objects of a namespace.
const functionIndex = "function"

// Indexed adds the index by Function to the informer and returns its indexer. The
// informer must not have started.
func Indexed(ctx context.Context, informer cache.SharedIndexInformer) cache.Indexer {
	if err := informer.AddIndexers(Indexers()); err != nil {
		logging.FromContext(ctx).Panicw("Failed to index an informer", "error", err)
	}
	return informer.GetIndexer()
}

// Indexers returns the index by Function.
func Indexers() cache.Indexers { return cache.Indexers{functionIndex: indexByFunction} }

// indexByFunction returns the first characters of the UID of the child's Function. One
// entry per Function would take more memory.
func indexByFunction(obj any) ([]string, error) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return nil, nil
	}
	return []string{prefixOf(o.GetLabels()[serverless.FunctionUIDLabelKey])}, nil
}

// prefixOf returns the first two characters of a UID, which is random: one of 256.
func prefixOf(uid string) string { return uid[:min(len(uid), 2)] }

// NamespaceLister is the part that the namespace listers of all kinds share.
type NamespaceLister[T metav1.Object] interface {
	Get(name string) (T, error)
	List(selector labels.Selector) ([]T, error)
}

// Namespace lists the objects of one namespace by the index where the selector names
// a Function, and with the embedded lister otherwise.
type Namespace[T metav1.Object] struct {
	NamespaceLister[T]

	// Indexer is what Indexed has returned.
	Indexer cache.Indexer

	// Name is the name of the namespace.
	Name string
}

// List implements the namespace lister of the kind.
func (l Namespace[T]) List(selector labels.Selector) ([]T, error) {
	uid, ok := selector.RequiresExactMatch(serverless.FunctionUIDLabelKey)
	if !ok {
		return l.NamespaceLister.List(selector)
	}
	found, err := l.Indexer.ByIndex(functionIndex, prefixOf(uid))
	if err != nil {
		return nil, err
	}
	var objects []T
	for _, obj := range found {
		if o, ok := obj.(T); ok && o.GetNamespace() == l.Name && selector.Matches(labels.Set(o.GetLabels())) {
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// ConfigMapLister is a lister of ConfigMaps that uses the index.
type ConfigMapLister struct {
	corev1listers.ConfigMapLister
	Indexer cache.Indexer
}

// ConfigMaps implements corev1listers.ConfigMapLister.
func (l ConfigMapLister) ConfigMaps(namespace string) corev1listers.ConfigMapNamespaceLister {
	return Namespace[*corev1.ConfigMap]{l.ConfigMapLister.ConfigMaps(namespace), l.Indexer, namespace}
}

// PodLister is a lister of Pods that uses the index.
type PodLister struct {
	corev1listers.PodLister
	Indexer cache.Indexer
}

// Pods implements corev1listers.PodLister.
func (l PodLister) Pods(namespace string) corev1listers.PodNamespaceLister {
	return Namespace[*corev1.Pod]{l.PodLister.Pods(namespace), l.Indexer, namespace}
}
