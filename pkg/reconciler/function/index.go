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

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelinelisters "github.com/tektoncd/pipeline/pkg/client/listers/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

// functionIndex finds the children of a Function in a cache. Without it each
// reconcile would look at all of the namespace.
const functionIndex = "function"

// indexed returns what an informer holds, with functionIndex.
func indexed(ctx context.Context, informer cache.SharedIndexInformer) cache.Indexer {
	if err := informer.AddIndexers(cache.Indexers{functionIndex: functionOf}); err != nil {
		logging.FromContext(ctx).Panicw("Failed to index an informer", "error", err)
	}
	return informer.GetIndexer()
}

// functionOf returns of the UID of the Function that an object was created for as much
// as it takes to leave few to choose from. An entry of each Function would take more
// memory than it saves time.
func functionOf(obj any) ([]string, error) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return nil, nil
	}
	return []string{beginOf(o.GetLabels()[serverless.FunctionUIDLabelKey])}, nil
}

// beginOf returns the first two characters of a UID, which is random: one of 256.
func beginOf(uid string) string { return uid[:min(len(uid), 2)] }

// indexedNamespace lists objects of a namespace by the index where the selector
// names a Function, and else as all do.
type indexedNamespace[T metav1.Object] struct {
	namespaceLister[T]
	indexer   cache.Indexer
	namespace string
}

// namespaceLister is what the listers of all kinds have in common.
type namespaceLister[T metav1.Object] interface {
	Get(name string) (T, error)
	List(selector labels.Selector) ([]T, error)
}

// List implements the lister of the kind.
func (l indexedNamespace[T]) List(selector labels.Selector) ([]T, error) {
	uid, ok := selector.RequiresExactMatch(serverless.FunctionUIDLabelKey)
	if !ok {
		return l.namespaceLister.List(selector)
	}
	found, err := l.indexer.ByIndex(functionIndex, beginOf(uid))
	if err != nil {
		return nil, err
	}
	var objects []T
	for _, obj := range found {
		if o, ok := obj.(T); ok && o.GetNamespace() == l.namespace && selector.Matches(labels.Set(o.GetLabels())) {
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// indexedConfigMaps is a ConfigMapLister that uses the index.
type indexedConfigMaps struct {
	corev1listers.ConfigMapLister
	indexer cache.Indexer
}

// ConfigMaps implements corev1listers.ConfigMapLister.
func (l indexedConfigMaps) ConfigMaps(namespace string) corev1listers.ConfigMapNamespaceLister {
	return indexedNamespace[*corev1.ConfigMap]{l.ConfigMapLister.ConfigMaps(namespace), l.indexer, namespace}
}

// indexedTaskRuns is a TaskRunLister that uses the index.
type indexedTaskRuns struct {
	pipelinelisters.TaskRunLister
	indexer cache.Indexer
}

// TaskRuns implements pipelinelisters.TaskRunLister.
func (l indexedTaskRuns) TaskRuns(namespace string) pipelinelisters.TaskRunNamespaceLister {
	return indexedNamespace[*pipelinev1.TaskRun]{l.TaskRunLister.TaskRuns(namespace), l.indexer, namespace}
}

// indexedPods is a PodLister that uses the index.
type indexedPods struct {
	corev1listers.PodLister
	indexer cache.Indexer
}

// Pods implements corev1listers.PodLister.
func (l indexedPods) Pods(namespace string) corev1listers.PodNamespaceLister {
	return indexedNamespace[*corev1.Pod]{l.PodLister.Pods(namespace), l.indexer, namespace}
}
