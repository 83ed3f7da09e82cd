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
	"testing"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	fakepipelineclient "github.com/tektoncd/pipeline/pkg/client/injection/client/fake"
	pipelinefiltered "github.com/tektoncd/pipeline/pkg/client/injection/informers/factory/filtered"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	fakekubeclient "knative.dev/pkg/client/injection/kube/client/fake"
	kubefiltered "knative.dev/pkg/client/injection/kube/informers/factory/filtered"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	rtesting "knative.dev/pkg/reconciler/testing"
	"knative.dev/pkg/system"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	fakeservingclient "knative.dev/serving/pkg/client/injection/client/fake"
	servingfiltered "knative.dev/serving/pkg/client/injection/informers/factory/filtered"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/children"
	fakekilnclient "github.com/kiln-dev/kiln/pkg/client/injection/client/fake"

	// Register the fakes of what the controller is made of.
	_ "github.com/kiln-dev/kiln/pkg/client/injection/informers/serverless/v1alpha1/function/fake"
	"github.com/kiln-dev/kiln/pkg/fairqueue"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
	"github.com/kiln-dev/kiln/pkg/slim"
	_ "github.com/tektoncd/pipeline/pkg/client/injection/informers/factory/filtered/fake"
	_ "github.com/tektoncd/pipeline/pkg/client/injection/informers/pipeline/v1/taskrun/filtered/fake"
	_ "knative.dev/networking/pkg/client/injection/client/fake"
	_ "knative.dev/pkg/client/injection/kube/informers/batch/v1/job/filtered/fake"
	_ "knative.dev/pkg/client/injection/kube/informers/core/v1/configmap/filtered/fake"
	_ "knative.dev/pkg/client/injection/kube/informers/core/v1/pod/filtered/fake"
	_ "knative.dev/pkg/client/injection/kube/informers/factory/filtered/fake"
	_ "knative.dev/serving/pkg/client/injection/informers/factory/filtered/fake"
	_ "knative.dev/serving/pkg/client/injection/informers/serving/v1/service/filtered/fake"
)

func systemConfigMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system.Namespace(), Name: name}, Data: data}
}

// fakeContext returns a context with the fakes of what a controller is made of.
func fakeContext(t *testing.T) (context.Context, context.CancelFunc, []controller.Informer) {
	return rtesting.SetupFakeContextWithCancel(t, func(ctx context.Context) context.Context {
		ctx = kubefiltered.WithSelectors(ctx, children.LabelSelector)
		ctx = pipelinefiltered.WithSelectors(ctx, children.LabelSelector)
		return servingfiltered.WithSelectors(ctx, children.LabelSelector)
	})
}

// startController starts the informers of a controller that never works off
// its queue.
func startController(t *testing.T) (context.Context, *controller.Impl, *configmap.ManualWatcher) {
	t.Helper()
	ctx, cancel, informers := fakeContext(t)
	watcher := &configmap.ManualWatcher{Namespace: system.Namespace()}
	impl := NewController(ctx, watcher)
	for _, cm := range []*corev1.ConfigMap{
		systemConfigMap(config.FunctionsConfigName, nil),
		systemConfigMap(config.RuntimesConfigName, nil),
		systemConfigMap(config.BuildConfigName, map[string]string{"kaniko-image": "registry.example.com/kaniko", "compose-image": "registry.example.com/compose"}),
		systemConfigMap(config.RegistryConfigName, nil),
	} {
		watcher.OnChange(cm)
	}
	wait, err := rtesting.RunAndSyncInformers(ctx, informers...)
	if err != nil {
		cancel()
		t.Fatal("Failed to start the informers:", err)
	}
	t.Cleanup(func() { cancel(); wait() })
	return ctx, impl, watcher
}

// next returns the next key in the queue.
func next(ctx context.Context, t *testing.T, impl *controller.Impl) types.NamespacedName {
	t.Helper()
	queue := impl.WorkQueue()
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		return queue.Len() > 0, nil
	}); err != nil {
		t.Fatal("Nothing was queued:", err)
	}
	item, _ := queue.Get()
	queue.Done(item)
	queue.Forget(item)
	key := item.(types.NamespacedName)
	impl.Reconciler.(*fairqueue.Queue).Done(key)
	return key
}

func TestNewController(t *testing.T) {
	ctx, impl, watcher := startController(t)
	// The kinds that the informers list and watch.
	wantAllowed(t, fakekilnclient.Get(ctx).Actions())
	wantAllowed(t, fakekubeclient.Get(ctx).Actions())
	wantAllowed(t, fakepipelineclient.Get(ctx).Actions())
	wantAllowed(t, fakeservingclient.Get(ctx).Actions())
	want := types.NamespacedName{Namespace: namespace, Name: name}
	expect := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("Failed to make that %s: %v", what, err)
		}
		if got := next(ctx, t, impl); got != want {
			t.Errorf("Since %s, %s is queued, want %s", what, got, want)
		}
	}

	fn := function()
	_, err := fakekilnclient.Get(ctx).ServerlessV1alpha1().Functions(namespace).Create(ctx, fn, metav1.CreateOptions{})
	expect("a Function was created", err)
	_, err = fakekubeclient.Get(ctx).CoreV1().ConfigMaps(namespace).Create(ctx, configMap(fn), metav1.CreateOptions{})
	expect("its ConfigMap was created", err)
	_, err = fakepipelineclient.Get(ctx).TektonV1().TaskRuns(namespace).Create(ctx, firstRun, metav1.CreateOptions{})
	expect("its TaskRun was created", err)
	_, err = fakeservingclient.Get(ctx).ServingV1().Services(namespace).Create(ctx, svc1, metav1.CreateOptions{})
	expect("its Service was created", err)

	orphan := configMap(fn)
	orphan.OwnerReferences = nil
	_, err = fakekubeclient.Get(ctx).CoreV1().ConfigMaps(namespace).Update(ctx, orphan, metav1.UpdateOptions{})
	expect("its ConfigMap has lost its owner reference", err)

	unnamed := svc1.DeepCopy()
	delete(unnamed.Labels, serverless.FunctionNameLabelKey)
	_, err = fakeservingclient.Get(ctx).ServingV1().Services(namespace).Update(ctx, unnamed, metav1.UpdateOptions{})
	expect("its Service has lost a label", err)

	err = fakepipelineclient.Get(ctx).TektonV1().TaskRuns(namespace).Delete(ctx, firstRun.Name, metav1.DeleteOptions{})
	expect("its TaskRun was deleted", err)

	crashing := pod(fn, "greeter-00001", crashed2)
	_, err = fakekubeclient.Get(ctx).CoreV1().Pods(namespace).Create(ctx, crashing, metav1.CreateOptions{})
	expect("its pod crashes", err)
	_, err = fakekubeclient.Get(ctx).CoreV1().Events(namespace).Create(ctx, mountFailed(crashing, 2), metav1.CreateOptions{})
	expect("its pod lacks a folder", err)

	watcher.OnChange(systemConfigMap(config.RegistryConfigName, map[string]string{"push": "registry.example.com:5000"}))
	expect("the configuration has changed", nil)
}

func TestWithoutManagedFields(t *testing.T) {
	managed := []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	for _, test := range []struct {
		object    metav1.Object
		transform cache.TransformFunc
	}{
		{&v1alpha1.Function{}, slim.Function}, {&corev1.ConfigMap{}, slim.ConfigMap}, {&pipelinev1.TaskRun{}, tekton.Slim},
		{&servingv1.Service{}, knative.Slim}, {&corev1.Pod{}, pods.Slim(knative.RevisionLabelKey)},
	} {
		test.object.SetManagedFields(managed)
		got, err := test.transform(test.object)
		if err != nil {
			t.Fatalf("%T: %v", test.object, err)
		}
		if kept := got.(metav1.Object).GetManagedFields(); kept != nil {
			t.Errorf("%T keeps %v", test.object, kept)
		}
	}
}
