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
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
)

func exited(code int32, message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message}
}

var (
	syntaxError = exited(1, "handler.js:1: SyntaxError")

	// crashed1 has crashed once, and crashed2 twice.
	crashed1 = corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{Terminated: syntaxError}}
	crashed2 = corev1.ContainerStatus{
		Name: "function", RestartCount: 1,
		State:                corev1.ContainerState{Terminated: syntaxError},
		LastTerminationState: corev1.ContainerState{Terminated: syntaxError},
	}
)

func pod(fn *v1alpha1.Function, revision string, statuses ...corev1.ContainerStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: revision + "-deployment", Namespace: namespace,
			Labels: map[string]string{
				serverless.FunctionNameLabelKey: fn.Name,
				serverless.FunctionUIDLabelKey:  string(fn.UID),
				"serving.knative.dev/revision":  revision,
			},
		},
		Status: corev1.PodStatus{ContainerStatuses: statuses},
	}
}

func TestIsTelling(t *testing.T) {
	homeless := podWith("homeless", corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"})
	well := podWith("well", corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	tests := map[string]struct {
		fn   *v1alpha1.Function
		obj  any
		want bool
	}{
		"in trouble":                 {function(), pod(running1, "greeter-00001", crashed2), true},
		"without a node":             {function(), homeless, true},
		"well":                       {function(), well, false},
		"well, and wanted":           {function(withMinReplicas(1)), well, true},
		"of a Function that is gone": {function(withUID("x"), func(fn *v1alpha1.Function) { fn.Name = "other" }), well, false},
		"gone, and wanted":           {function(withMinReplicas(1)), cache.DeletedFinalStateUnknown{Key: "default/well", Obj: well}, true},
		"no pod":                     {function(withMinReplicas(1)), "x", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if err := indexer.Add(tc.fn); err != nil {
				t.Fatal(err)
			}
			if got := isTelling(listers.NewFunctionLister(indexer))(tc.obj); got != tc.want {
				t.Errorf("isTelling() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestWithoutPodSpec(t *testing.T) {
	want := pod(running1, "greeter-00001", crashed2)
	want.DeletionTimestamp = &noon
	want.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}}
	full := want.DeepCopy()
	full.Annotations = map[string]string{"a": "b"}
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	full.Spec.Containers = []corev1.Container{{Name: "function"}}
	full.Labels["pod-template-hash"] = "x"
	full.Status.Conditions = append(full.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized})
	full.Status.ContainerStatuses[0].Image = "image"
	full.Status.PodIP = "10.0.0.1"
	got, err := withoutPodSpec(full)
	if err != nil {
		t.Fatal("withoutPodSpec() =", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("withoutPodSpec() (-want, +got):\n%s", diff)
	}
	other := &corev1.ConfigMap{}
	if got, err := withoutPodSpec(other); err != nil || got != other {
		t.Errorf("withoutPodSpec(ConfigMap) = %v, %v", got, err)
	}
}

// TestWithoutPodSpecOfBuild wants of the pod of a build to be kept whether it was taken
// away, and no more.
func TestWithoutPodSpecOfBuild(t *testing.T) {
	full := completedPod(endedTaskRun(function()))
	podDisrupted(full)
	kept := cached(full, withoutPodSpec)
	if diff := cmp.Diff(full.Status.Conditions, kept.Status.Conditions); diff != "" {
		t.Errorf("conditions (-want, +got): %s", diff)
	}
	if kept.Status.ContainerStatuses != nil {
		t.Errorf("containers are kept: %v", kept.Status.ContainerStatuses)
	}
	if kept.Name != full.Name || kept.Labels[serverless.FunctionNameLabelKey] != name {
		t.Errorf("it is kept as %s, of Function %q", kept.Name, kept.Labels[serverless.FunctionNameLabelKey])
	}
}
