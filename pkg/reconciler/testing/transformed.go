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

package testing

import (
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelinelisters "github.com/tektoncd/pipeline/pkg/client/listers/pipeline/v1"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	batchv1listers "k8s.io/client-go/listers/batch/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
)

// TransformedFunctions lists Functions after the transform.
type TransformedFunctions struct {
	listers.FunctionLister
	Transform cache.TransformFunc
}

// Functions implements listers.FunctionLister.
func (l TransformedFunctions) Functions(namespace string) listers.FunctionNamespaceLister {
	return transformedNamespace[*v1alpha1.Function]{l.FunctionLister.Functions(namespace), l.Transform}
}

// TransformedConfigMaps lists ConfigMaps after the transform.
type TransformedConfigMaps struct {
	corev1listers.ConfigMapLister
	Transform cache.TransformFunc
}

// ConfigMaps implements corev1listers.ConfigMapLister.
func (l TransformedConfigMaps) ConfigMaps(namespace string) corev1listers.ConfigMapNamespaceLister {
	return transformedNamespace[*corev1.ConfigMap]{l.ConfigMapLister.ConfigMaps(namespace), l.Transform}
}

// TransformedJobs lists Jobs after the transform.
type TransformedJobs struct {
	batchv1listers.JobLister
	Transform cache.TransformFunc
}

// Jobs implements batchv1listers.JobLister.
func (l TransformedJobs) Jobs(namespace string) batchv1listers.JobNamespaceLister {
	return transformedNamespace[*batchv1.Job]{l.JobLister.Jobs(namespace), l.Transform}
}

// TransformedTaskRuns lists TaskRuns after the transform.
type TransformedTaskRuns struct {
	pipelinelisters.TaskRunLister
	Transform cache.TransformFunc
}

// TaskRuns implements pipelinelisters.TaskRunLister.
func (l TransformedTaskRuns) TaskRuns(namespace string) pipelinelisters.TaskRunNamespaceLister {
	return transformedNamespace[*pipelinev1.TaskRun]{l.TaskRunLister.TaskRuns(namespace), l.Transform}
}

// TransformedServices lists Services after the transform.
type TransformedServices struct {
	servinglisters.ServiceLister
	Transform cache.TransformFunc
}

// Services implements servinglisters.ServiceLister.
func (l TransformedServices) Services(namespace string) servinglisters.ServiceNamespaceLister {
	return transformedNamespace[*servingv1.Service]{l.ServiceLister.Services(namespace), l.Transform}
}

// TransformedPods lists Pods after the transform.
type TransformedPods struct {
	corev1listers.PodLister
	Transform cache.TransformFunc
}

// Pods implements corev1listers.PodLister.
func (l TransformedPods) Pods(namespace string) corev1listers.PodNamespaceLister {
	return transformedNamespace[*corev1.Pod]{l.PodLister.Pods(namespace), l.Transform}
}

// TransformedStore has objects after the transform.
type TransformedStore struct {
	cache.Store
	Transform cache.TransformFunc
}

// GetByKey implements cache.Store.
func (s TransformedStore) GetByKey(key string) (any, bool, error) {
	found, ok, err := s.Store.GetByKey(key)
	if ok && err == nil {
		found, err = s.Transform(found.(Object).DeepCopyObject())
	}
	return found, ok, err
}

type transformedNamespace[T interface {
	metav1.Object
	DeepCopy() T
}] struct {
	objects interface {
		List(labels.Selector) ([]T, error)
		Get(string) (T, error)
	}
	transform cache.TransformFunc
}

// Get implements the lister of the kind.
func (n transformedNamespace[T]) Get(name string) (T, error) {
	object, err := n.objects.Get(name)
	if err != nil {
		return object, err
	}
	return transformed(object, n.transform), nil
}

func (n transformedNamespace[T]) List(selector labels.Selector) ([]T, error) {
	all, err := n.objects.List(selector)
	listed := make([]T, 0, len(all))
	for _, object := range all {
		listed = append(listed, transformed(object, n.transform))
	}
	return listed, err
}

func transformed[T interface{ DeepCopy() T }](object T, transform cache.TransformFunc) T {
	kept, err := transform(object.DeepCopy())
	if err != nil {
		panic(err)
	}
	return kept.(T)
}
