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
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelinelisters "github.com/tektoncd/pipeline/pkg/client/listers/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// The cached listers list objects as the transforms of the controller leave them.

type cachedConfigMaps struct{ corev1listers.ConfigMapLister }

func (c cachedConfigMaps) ConfigMaps(namespace string) corev1listers.ConfigMapNamespaceLister {
	return cachedNamespace[*corev1.ConfigMap]{c.ConfigMapLister.ConfigMaps(namespace), slim.ConfigMap}
}

type cachedTaskRuns struct{ pipelinelisters.TaskRunLister }

func (c cachedTaskRuns) TaskRuns(namespace string) pipelinelisters.TaskRunNamespaceLister {
	return cachedNamespace[*pipelinev1.TaskRun]{c.TaskRunLister.TaskRuns(namespace), tekton.Slim}
}

type cachedServices struct{ servinglisters.ServiceLister }

func (c cachedServices) Services(namespace string) servinglisters.ServiceNamespaceLister {
	return cachedNamespace[*servingv1.Service]{c.ServiceLister.Services(namespace), knative.Slim}
}

type cachedPods struct{ corev1listers.PodLister }

func (c cachedPods) Pods(namespace string) corev1listers.PodNamespaceLister {
	return cachedNamespace[*corev1.Pod]{c.PodLister.Pods(namespace), pods.Slim(knative.RevisionLabelKey)}
}

// cachedNamespace lists the objects of a namespace as the transform leaves them.
type cachedNamespace[T interface {
	metav1.Object
	DeepCopy() T
}] struct {
	objects interface {
		List(labels.Selector) ([]T, error)
		Get(string) (T, error)
	}
	transform cache.TransformFunc
}

func (c cachedNamespace[T]) Get(name string) (T, error) {
	object, err := c.objects.Get(name)
	if err != nil {
		return object, err
	}
	return cached(object, c.transform), nil
}

func (c cachedNamespace[T]) List(selector labels.Selector) ([]T, error) {
	all, err := c.objects.List(selector)
	listed := make([]T, 0, len(all))
	for _, object := range all {
		listed = append(listed, cached(object, c.transform))
	}
	return listed, err
}

func cached[T interface{ DeepCopy() T }](object T, transform cache.TransformFunc) T {
	kept, err := transform(object.DeepCopy())
	if err != nil {
		panic(err)
	}
	return kept.(T)
}
