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

package credentials

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/pkg/controller"
	rtesting "knative.dev/pkg/reconciler/testing"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	kilnfake "github.com/kiln-dev/kiln/pkg/client/clientset/versioned/fake"
	"github.com/kiln-dev/kiln/pkg/dockerconfig"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

// child returns the metadata of an object that Kiln has made for a Function.
func child(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"serverless.kiln.dev/function-uid": "uid-1"}}
}

// mounting returns a pod with a volume of the Secret.
func mounting(volume string) corev1.PodSpec {
	return corev1.PodSpec{Volumes: []corev1.Volume{{
		Name: volume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secretName, Optional: new(true)}},
	}}}
}

func template(spec corev1.PodSpec) servingv1.RevisionSpec {
	return servingv1.RevisionSpec{PodSpec: spec}
}

func service(spec corev1.PodSpec) *servingv1.Service {
	svc := &servingv1.Service{ObjectMeta: child("greeter")}
	svc.Spec.Template.Spec = template(spec)
	return svc
}

func taskRun(volume string, status corev1.ConditionStatus) *pipelinev1.TaskRun {
	return &pipelinev1.TaskRun{
		ObjectMeta: child("greeter-build"),
		Spec:       pipelinev1.TaskRunSpec{TaskSpec: &pipelinev1.TaskSpec{Volumes: mounting(volume).Volumes}},
		Status:     pipelinev1.TaskRunStatus{Status: duckv1.Status{Conditions: duckv1.Conditions{{Type: apis.ConditionSucceeded, Status: status}}}},
	}
}

func pod(spec corev1.PodSpec, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: child("greeter-pod"), Spec: spec, Status: corev1.PodStatus{Phase: phase}}
}

// naming returns a Function that names the Secret.
func naming(change func(*v1alpha1.FunctionSpec)) *v1alpha1.Function {
	fn := function()
	change(&fn.Spec)
	return fn
}

// TestReferencesBeforehand checks that no credentials get into a namespace where an object
// of an author waits for them, whatever the object is.
func TestReferencesBeforehand(t *testing.T) {
	withheld := func(by string) []string {
		return []string{rtesting.Eventf("Warning", "CredentialsReferenced",
			(&ReferencedError{Secret: secretName, By: corev1.ObjectReference{Kind: by, Name: map[string]string{
				"Function": "greeter", "Service": "greeter", "Revision": "greeter-00001", "TaskRun": "greeter-build", "Pod": "greeter-pod",
			}[by]}}).Error())}
	}
	refused := func(name, by string, object runtime.Object) rtesting.TableRow {
		return rtesting.TableRow{
			Name: name, Objects: []runtime.Object{source(passwordA), function(), object}, WantEvents: withheld(by),
			WantErr: true, // It is requeued.
		}
	}
	copied := func(name string, object runtime.Object) rtesting.TableRow {
		return rtesting.TableRow{
			Name: name, Objects: []runtime.Object{source(passwordA), function(), object},
			WantCreates: []runtime.Object{duplicate(passwordA, unsaved)},
		}
	}
	revision := &servingv1.Revision{ObjectMeta: child("greeter-00001"), Spec: template(mounting("secret-0"))}
	ref := corev1.LocalObjectReference{Name: secretName}
	pulling := corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{ref}}
	elsewhere := revision.DeepCopy()
	elsewhere.Namespace = "other"
	table := rtesting.TableTest{
		refused("Service that Serving has not seen yet", "Service", service(mounting("secret-0"))),
		refused("old Revision", "Revision", revision),
		refused("build that waits for the Secret", "TaskRun", taskRun("packages", corev1.ConditionUnknown)),
		refused("pod that outlives its Revision", "Pod", pod(mounting("secret-0"), corev1.PodRunning)),
		refused("pod that waits for the Secret", "Pod", pod(mounting("packages"), corev1.PodPending)),
		copied("pull secret", &servingv1.Revision{ObjectMeta: child("greeter-00001"), Spec: template(pulling)}),
		copied("build that has ended", taskRun("packages", corev1.ConditionTrue)),
		copied("build that pushes", taskRun("credentials", corev1.ConditionUnknown)),
		copied("pod that has ended", pod(mounting("packages"), corev1.PodSucceeded)),
		copied("pod of a build that pushes", pod(mounting("credentials"), corev1.PodRunning)),
		copied("another namespace", elsewhere),
		{
			Name:       "a rotated password stays away",
			Objects:    []runtime.Object{source(passwordB), function(), duplicate(passwordA), revision},
			WantEvents: withheld("Revision"), WantErr: true,
		}, {
			Name:    "an upgrade keeps the copy that there is",
			Objects: []runtime.Object{source(passwordA), function(), duplicate(passwordA), revision},
		},
	}
	for name, change := range map[string]func(*v1alpha1.FunctionSpec){
		"envFrom": func(fs *v1alpha1.FunctionSpec) {
			fs.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref, Optional: new(true)}}}
		},
		"build": func(fs *v1alpha1.FunctionSpec) { fs.Build = &v1alpha1.BuildSpec{SecretName: secretName} },
		"git":   func(fs *v1alpha1.FunctionSpec) { fs.Git = &v1alpha1.GitSource{SecretName: secretName} },
	} {
		row := refused("Function with "+name, "Function", naming(change))
		row.Objects = []runtime.Object{source(passwordA), naming(change)}
		table = append(table, row)
	}
	for i := range table {
		table[i].SkipNamespaceValidation, table[i].Key = true, namespace
	}
	table.Test(t, ktesting.Factory(controllerRoles(t), func(_ context.Context, w *ktesting.World) controller.Reconciler {
		return &Reconciler{
			secrets: fakeSecrets(w), functionLister: w.FunctionLister, store: fixedStore(secretName), recorder: w.Recorder,
		}
	}))
}

// TestReferencesAreRemembered checks that the Functions of a namespace do not each list
// all its objects.
func TestReferencesAreRemembered(t *testing.T) {
	kiln := kilnfake.NewSimpleClientset(naming(func(fs *v1alpha1.FunctionSpec) { fs.Build = &v1alpha1.BuildSpec{SecretName: secretName} }))
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := indexer.Add(source(passwordA)); err != nil {
		t.Fatal(err)
	}
	s := secretsOf(nil, corev1listers.NewSecretLister(indexer), nil)
	s.kiln = kiln
	for range 3 {
		if secret, err := s.Ensure(t.Context(), secretName, namespace); secret != nil || IsReferenced(err) == nil {
			t.Errorf("Ensure() = %v, %v", secret, err)
		}
	}
	if got := len(kiln.Actions()); got != 1 {
		t.Errorf("%d requests, want 1: %v", got, kiln.Actions())
	}
	keychain, err := s.Keychain(t.Context(), secretName, namespace)
	if diff := cmp.Diff(dockerconfig.Keychain{}, keychain); err != nil || diff != "" {
		t.Errorf("the Keychain is not anonymous: %v\n%s", err, diff)
	}
}
