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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelinelisters "github.com/tektoncd/pipeline/pkg/client/listers/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
)

// cachedConfigMaps lists ConfigMaps as the controller's cache has them.
type cachedConfigMaps struct{ corev1listers.ConfigMapLister }

// ConfigMaps implements corev1listers.ConfigMapLister.
func (c cachedConfigMaps) ConfigMaps(namespace string) corev1listers.ConfigMapNamespaceLister {
	return cachedNamespace[*corev1.ConfigMap]{c.ConfigMapLister.ConfigMaps(namespace), withoutContent}
}

// cachedTaskRuns lists TaskRuns as the controller's cache has them.
type cachedTaskRuns struct{ pipelinelisters.TaskRunLister }

// TaskRuns implements pipelinelisters.TaskRunLister.
func (c cachedTaskRuns) TaskRuns(namespace string) pipelinelisters.TaskRunNamespaceLister {
	return cachedNamespace[*pipelinev1.TaskRun]{c.TaskRunLister.TaskRuns(namespace), withoutTask}
}

// cachedServices lists Services as the controller's cache has them.
type cachedServices struct{ servinglisters.ServiceLister }

// Services implements servinglisters.ServiceLister.
func (c cachedServices) Services(namespace string) servinglisters.ServiceNamespaceLister {
	return cachedNamespace[*servingv1.Service]{c.ServiceLister.Services(namespace), withoutTemplate}
}

// cachedPods lists pods as the controller's cache has them.
type cachedPods struct{ corev1listers.PodLister }

// Pods implements corev1listers.PodLister.
func (c cachedPods) Pods(namespace string) corev1listers.PodNamespaceLister {
	return cachedNamespace[*corev1.Pod]{c.PodLister.Pods(namespace), withoutPodSpec}
}

// cachedNamespace lists the objects of a namespace as a cache of that transform
// has them.
type cachedNamespace[T interface {
	metav1.Object
	DeepCopy() T
}] struct {
	objects   namespaceLister[T]
	transform cache.TransformFunc
}

// Get implements the lister of the kind.
func (c cachedNamespace[T]) Get(name string) (T, error) {
	object, err := c.objects.Get(name)
	if err != nil {
		return object, err
	}
	return cached(object, c.transform), nil
}

// List implements the lister of the kind.
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

func TestWithoutTask(t *testing.T) {
	live := taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)
	live.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "controller"}}
	live.Status.TaskSpec = live.Spec.TaskSpec.DeepCopy()
	kept := cached(live, withoutTask)
	if kept.Spec.TaskSpec != nil || kept.Status.TaskSpec != nil || kept.ManagedFields != nil {
		t.Errorf("what the TaskRun does is kept: %v, %v, %v", kept.Spec.TaskSpec, kept.Status.TaskSpec, kept.ManagedFields)
	}
	if diff := cmp.Diff(live.Status.Status, kept.Status.Status); diff != "" {
		t.Errorf("how it fares (-want, +got): %s", diff)
	}
}

// TestWithoutTaskSteps wants to be kept of steps which has failed, and where its log is.
func TestWithoutTaskSteps(t *testing.T) {
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: "results", ContainerID: "containerd://1"}}
	}
	live := taskRun(function(), builds.ReasonFirstBuild)
	live.Status.Steps = []pipelinev1.StepState{
		{Name: "a", Container: "step-a", ImageID: "image", ContainerState: ended(0)},
		{Name: "b", Container: "step-b", ImageID: "image", ContainerState: ended(2)},
		{Name: "c", Container: "step-c", ContainerState: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}
	kept := cached(live, withoutTask)
	container, code := failedContainer(kept)
	if container != "step-b" || code != 2 {
		t.Errorf("container %q has failed with code %d", container, code)
	}
	for i, step := range kept.Status.Steps {
		if want := live.Status.Steps[i]; step.Name != want.Name || step.Container != want.Container {
			t.Errorf("step %q of container %q is kept in place of %q of %q", step.Name, step.Container, want.Name, want.Container)
		}
		if step.ImageID != "" || step.Terminated != nil && (step.Terminated.Message != "" || step.Terminated.ContainerID != "") {
			t.Errorf("of step %s is kept: %+v", step.Name, step)
		}
	}
}

// TestWithoutTaskEnded wants of a TaskRun that has succeeded to be kept what it tells of
// its build, and nothing else that others have, or may have, put into it.
func TestWithoutTaskEnded(t *testing.T) {
	live := endedTaskRun(function(withBuildEnv("TOKEN", "x")))
	live.Annotations[serverless.BuildEnvAnnotationKey] = "TOKEN=x"
	live.Status.Steps = []pipelinev1.StepState{{Name: resources.InstallStepName, Container: "step-install"}, {Name: resources.PushStepName}}
	kept := cached(live, withoutTask)
	if diff := cmp.Diff(cached(kept, withoutTask), kept); diff != "" {
		t.Errorf("what is kept changes when it is kept again (-want, +got): %s", diff)
	}
	if diff := cmp.Diff(pipelinev1.TaskRunSpec{}, kept.Spec); diff != "" {
		t.Errorf("of what it does is kept (-want, +got): %s", diff)
	}
	if diff := cmp.Diff(live.Status.Steps[:1], kept.Status.Steps); diff != "" {
		t.Errorf("steps (-want, +got): %s", diff)
	}
	for key := range kept.Annotations {
		if !strings.HasPrefix(key, serverless.GroupName) || key == serverless.BuildEnvAnnotationKey {
			t.Errorf("annotation %s is kept", key)
		}
	}
	fn := function()
	if diff := cmp.Diff(buildsOf(fn, []*pipelinev1.TaskRun{live}), buildsOf(fn, []*pipelinev1.TaskRun{kept})); diff != "" {
		t.Errorf("what it tells of the build (-want, +got): %s", diff)
	}
	want, _ := digestOf(live)
	if got, err := digestOf(kept); got != want || err != nil {
		t.Errorf("digest = %s, %v; want %s", got, err, want)
	}
}

// TestWithoutTemplate wants of a Service to be kept what there is to be known of its
// revision template, also when it is kept again.
func TestWithoutTemplate(t *testing.T) {
	live := svc1.DeepCopy()
	live.SetDefaults(apis.WithinCreate(t.Context()))
	edited := live.DeepCopy()
	edited.Spec.Template.Spec.Containers[0].Image += "0"
	remembered := resources.Remember(live)
	for name, test := range map[string]struct {
		svc  *servingv1.Service
		want bool
	}{"as it was written": {live, false}, "edited": {edited, true}} {
		kept := cached(test.svc, withoutTemplate)
		for range 2 {
			if resources.HasTemplate(kept) || !resources.HasTemplate(test.svc) {
				t.Errorf("%s: the template is kept: %v", name, kept.Spec.Template)
			}
			if got := resources.IsTemplateEdited(kept, remembered); got != test.want {
				t.Errorf("%s: IsTemplateEdited() = %v", name, got)
			}
			if got, want := resources.Remember(kept), resources.Remember(test.svc); got != want {
				t.Errorf("%s: Remember() = %s, want %s", name, got, want)
			}
			kept = cached(kept, withoutTemplate)
		}
		if diff := cmp.Diff(test.svc.Spec.RouteSpec, kept.Spec.RouteSpec); diff != "" {
			t.Errorf("%s: the routes (-want, +got): %s", name, diff)
		}
	}
}

func TestWithoutContent(t *testing.T) {
	live := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "controller"}}},
		Data:       map[string]string{"wrapper": strings.Repeat("x", 1<<16), "source": "y"},
		BinaryData: map[string][]byte{"z": {1}},
	}
	want := digestOfContent(live)
	kept := cached(live, withoutContent)
	if kept.Size() > 1<<8 {
		t.Errorf("of the ConfigMap %d bytes are kept", kept.Size())
	}
	if got := digestOfContent(kept); got != want {
		t.Errorf("digest = %s, want %s", got, want)
	}
	if diff := cmp.Diff(kept, cached(kept, withoutContent)); diff != "" {
		t.Errorf("what is kept changes when it is kept again (-want, +got): %s", diff)
	}
}

func TestDigestOfContent(t *testing.T) {
	seen := map[string]map[string]string{}
	for _, data := range []map[string]string{
		nil, {"a": ""}, {"a": "b"}, {"ab": ""}, {"a": "b", "c": ""}, {"a": "", "b": "c"}, {"a": "bc"},
	} {
		digest := digestOfContent(&corev1.ConfigMap{Data: data})
		if other, ok := seen[digest]; ok {
			t.Errorf("%v and %v have the same digest", data, other)
		}
		seen[digest] = data
	}
}
