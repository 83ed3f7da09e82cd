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
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// BenchmarkHeap measures the memory of a Ready Function's objects, by kind, in the caches
// of the informers. -benchtime sets the number of Functions; 2000x is a good one.
func BenchmarkHeap(b *testing.B) {
	byFunction := slim.Indexers()
	fn := readyFunction()
	tr := endedTaskRun(fn)
	for _, kind := range []struct {
		name      string
		object    metav1.Object
		empty     func() any
		transform cache.TransformFunc
		indexers  cache.Indexers
	}{
		{"Function", fn, func() any { return &v1alpha1.Function{} }, slim.Function, nil},
		{"ConfigMap", configMap(fn, asStored), func() any { return &corev1.ConfigMap{} }, slim.ConfigMap, byFunction},
		{"TaskRun", tr, func() any { return &pipelinev1.TaskRun{} }, tekton.Slim, byFunction},
		{"Service", readyService(fn), func() any { return &servingv1.Service{} }, knative.Slim, nil},
		{"Pod-of-the-build", completedPod(tr), func() any { return &corev1.Pod{} }, pods.Slim(knative.RevisionLabelKey), byFunction},
		{"Pod-of-the-function", servingPod(fn), func() any { return &corev1.Pod{} }, pods.Slim(knative.RevisionLabelKey), byFunction},
	} {
		b.Run(kind.name, func(b *testing.B) {
			text, err := json.Marshal(kind.object)
			if err != nil {
				b.Fatal(err)
			}
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			if err := store.AddIndexers(kind.indexers); err != nil {
				b.Fatal(err)
			}
			before := liveHeap()
			for i := range b.N {
				if err := store.Add(decoded(b, string(text), i, kind.empty(), kind.transform)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(liveHeap()-before)/1024/float64(b.N), "KiB/object")
			runtime.KeepAlive(store)
		})
	}
}

// decoded returns the i-th object as a cache has it. It has its own name and UIDs, and shares
// no string with another object.
func decoded(b *testing.B, text string, i int, object any, transform cache.TransformFunc) any {
	unique := strings.NewReplacer("greeter", fmt.Sprintf("fn-%05d", i), "uid-", fmt.Sprintf("3f6c1e0a-7d52-4c1b-9e8f-%011d", i))
	if err := json.Unmarshal([]byte(unique.Replace(text)), object); err != nil {
		b.Fatal(err)
	}
	kept, err := transform(object)
	if err != nil {
		b.Fatal(err)
	}
	return kept
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// stored has the metadata that the API server adds.
func stored(object metav1.Object, uid string) {
	object.SetUID(types.UID(uid))
	object.SetResourceVersion("123456")
	object.SetCreationTimestamp(noon)
	fields := &metav1.FieldsV1{}
	fields.SetRawString(`{"f:metadata":{"f:labels":{".":{}}}}`)
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "controller", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &noon, FieldsType: "FieldsV1",
		FieldsV1: fields,
	}})
}

func asStored(cm *corev1.ConfigMap) { stored(cm, "uid-2") }

// readyFunction returns a Function that was built and runs, with the annotation of
// kubectl apply.
func readyFunction() *v1alpha1.Function {
	fn := function(withSource(strings.Repeat(sourceA+"\n", 4)))
	stored(fn, "uid-1")
	fn.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: fn.Spec.Source}
	tr := taskRun(fn, builds.ReasonFirstBuild, taskRunSucceeded(digestA))
	observed(configured, built(tr, digestA), running)(fn)
	fn.Status.VersionTag = versionTag(fn)
	for i := range fn.Status.Conditions {
		fn.Status.Conditions[i].LastTransitionTime = apis.VolatileTime{Inner: noon}
	}
	return fn
}

// endedTaskRun returns the TaskRun of its build, as Tekton leaves it.
func endedTaskRun(fn *v1alpha1.Function) *pipelinev1.TaskRun {
	tr := taskRun(fn, builds.ReasonFirstBuild, taskRunSucceeded(digestA))
	stored(tr, "uid-3")
	tr.Annotations["pipeline.tekton.dev/release"] = "v1.15.1"
	tr.Annotations["chains.tekton.dev/signed"] = "true"
	tr.Spec.ServiceAccountName = "default"
	tr.Status.TaskSpec = tr.Spec.TaskSpec.DeepCopy()
	tr.Status.Results = append(tr.Status.Results, pipelinev1.TaskRunResult{
		Name: steps.BaseImageResult, Type: pipelinev1.ResultsTypeObject,
		Value: *pipelinev1.NewObject(map[string]string{"uri": "docker.io/library/node", "digest": digestB}),
	})
	for _, step := range tr.Spec.TaskSpec.Steps {
		tr.Status.Steps = append(tr.Status.Steps, pipelinev1.StepState{
			Name: step.Name, Container: tekton.StepContainerPrefix + step.Name, ImageID: step.Image + "@" + digestC,
			TerminationReason: "Completed",
			ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "Completed", ContainerID: "containerd://" + digestB, StartedAt: noon, FinishedAt: noon,
			}},
		})
	}
	return tr
}

// readyService returns its Service, as Serving has completed it.
func readyService(fn *v1alpha1.Function) *servingv1.Service {
	svc := service(fn, serviceReady)
	stored(svc, "uid-4")
	svc.Annotations[serving.UpdaterAnnotation] = svc.Annotations[serving.CreatorAnnotation]
	ready := func(t apis.ConditionType) apis.Condition {
		return apis.Condition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: apis.VolatileTime{Inner: noon}}
	}
	svc.Status.Conditions = duckv1.Conditions{
		ready(servingv1.ServiceConditionConfigurationsReady), ready(servingv1.ServiceConditionReady), ready(servingv1.ServiceConditionRoutesReady),
	}
	return svc
}

// completedPod returns the pod of the TaskRun, which stays for as long as that does.
func completedPod(tr *pipelinev1.TaskRun) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: tr.Namespace, Name: tr.Status.PodName, Labels: map[string]string{
			"tekton.dev/taskRun": tr.Name, "tekton.dev/taskRunUID": "uid-3",
		}, Annotations: tr.Annotations},
	}
	maps.Copy(pod.Labels, tr.Labels)
	completed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "Completed", ContainerID: "containerd://" + digestB, StartedAt: noon, FinishedAt: noon,
		Message: `[{"key":"IMAGE_DIGEST","value":"` + digestA + `","type":1}]`,
	}}
	for _, step := range tr.Status.Steps {
		addContainer(pod, step.Container, completed)
	}
	describePod(pod, "uid-5", corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled)
	return pod
}

// servingPod returns a pod that runs the function, with the queue proxy.
func servingPod(fn *v1alpha1.Function) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: fn.Namespace, Name: "greeter-00001-deployment-6c5f97d8b7-x2x4p", Labels: map[string]string{
			"app": "greeter-00001", "pod-template-hash": "6c5f97d8b7", serving.ConfigurationLabelKey: "greeter", serving.ConfigurationGenerationLabelKey: "1",
			serving.ConfigurationUIDLabelKey: "uid-7", serving.RevisionLabelKey: "greeter-00001", serving.RevisionUID: "uid-8",
			serving.ServiceLabelKey: "greeter", serving.ServiceUIDLabelKey: "uid-4",
		}},
	}
	maps.Copy(pod.Labels, service(fn).Spec.Template.Labels)
	for _, container := range []string{"queue-proxy", children.FunctionContainer} {
		addContainer(pod, container, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: noon}})
	}
	describePod(pod, "uid-6", corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled)
	return pod
}

func addContainer(pod *corev1.Pod, name string, state corev1.ContainerState) {
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: name, State: state, Image: repo + "@" + digestA, ImageID: repo + "@" + digestA, ContainerID: "containerd://" + digestC, Started: new(true), Ready: true,
		VolumeMounts: []corev1.VolumeMountStatus{{Name: "tmp", MountPath: "/tmp"}, {Name: "kube-api-access", MountPath: "/var/run/secrets"}},
		Resources:    &corev1.ResourceRequirements{},
	})
}

func describePod(pod *corev1.Pod, uid string, conditions ...corev1.PodConditionType) {
	stored(pod, uid)
	for _, t := range conditions {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: t, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(time.Second)), ObservedGeneration: 1,
		})
	}
}
