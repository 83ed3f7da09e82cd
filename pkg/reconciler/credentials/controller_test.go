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
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgotesting "k8s.io/client-go/testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fakekubeclient "knative.dev/pkg/client/injection/kube/client/fake"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	pkgreconciler "knative.dev/pkg/reconciler"
	rtesting "knative.dev/pkg/reconciler/testing"
	"knative.dev/pkg/system"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	fakekilnclient "github.com/kiln-dev/kiln/pkg/client/injection/client/fake"

	// Register the fake of what the controller is made of.
	_ "github.com/kiln-dev/kiln/pkg/client/injection/informers/serverless/v1alpha1/function/fake"
)

// startController starts the informers of a controller that never works off
// its queue.
func startController(t *testing.T) (context.Context, *controller.Impl, *configmap.ManualWatcher) {
	t.Helper()
	ctx, cancel, informers := rtesting.SetupFakeContextWithCancel(t)
	watcher := &configmap.ManualWatcher{Namespace: system.Namespace()}
	impl := NewController(ctx, watcher)
	setName(watcher, secretName)
	wait, err := rtesting.RunAndSyncInformers(ctx, informers...)
	if err != nil {
		cancel()
		t.Fatal("Failed to start the informers:", err)
	}
	t.Cleanup(func() { cancel(); wait() })
	return ctx, impl, watcher
}

func setName(watcher *configmap.ManualWatcher, name string) {
	watcher.OnChange(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: system.Namespace(), Name: config.RegistryConfigName},
		Data:       map[string]string{"credentials": name},
	})
}

// drain waits until all of the namespaces were queued.
func drain(ctx context.Context, t *testing.T, impl *controller.Impl, want ...string) {
	t.Helper()
	missing := sets.New(want...)
	queue := impl.WorkQueue()
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		for queue.Len() > 0 {
			item, _ := queue.Get()
			queue.Done(item)
			missing.Delete(item.(types.NamespacedName).Name)
		}
		return missing.Len() == 0, nil
	}); err != nil {
		t.Fatalf("%v were not queued: %v", sets.List(missing), err)
	}
}

func TestNewController(t *testing.T) {
	ctx, impl, watcher := startController(t)
	drain(ctx, t, impl, system.Namespace())
	functions := fakekilnclient.Get(ctx).ServerlessV1alpha1().Functions(namespace)
	if _, err := functions.Create(ctx, function(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	drain(ctx, t, impl, namespace)

	if _, err := Get(ctx).Ensure(ctx, secretName, namespace); err != nil {
		t.Fatal(err)
	}
	kube := fakekubeclient.Get(ctx).CoreV1()
	if _, err := kube.Secrets("other").Create(ctx, secret("other", passwordA), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	drain(ctx, t, impl, "other")
	if _, err := kube.Secrets(system.Namespace()).Create(ctx, source(passwordA), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	drain(ctx, t, impl, "other", namespace, system.Namespace())

	setName(watcher, "another")
	drain(ctx, t, impl, "other", namespace, system.Namespace())
	if err := functions.Delete(ctx, function().Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	drain(ctx, t, impl, namespace)
}

// TestWatchesOneName checks that no Secret of another name is listed or watched:
// the role names the one that Kiln may see.
func TestWatchesOneName(t *testing.T) {
	ctx, _, _ := startController(t)
	kube := fakekubeclient.Get(ctx)
	if _, err := Get(ctx).Ensure(ctx, secretName, namespace); err != nil {
		t.Fatal(err)
	}
	roles, seen := controllerRoles(t), 0
	for _, action := range kube.Actions() {
		if action.GetResource().Resource != "secrets" {
			continue
		}
		seen++
		if err := roles.Check(action); err != nil {
			t.Error(err)
		}
	}
	if seen == 0 {
		t.Error("Nothing was listed.")
	}
}

// TestForbidden checks that a role without the name of the Secret causes an error instead of
// an endless wait, and that the reconciler works once the role has the name.
func TestForbidden(t *testing.T) {
	ctx, _, _ := startController(t)
	kube := fakekubeclient.Get(ctx)
	forbidden := make(chan struct{})
	kube.PrependReactor("list", "secrets", func(clientgotesting.Action) (bool, runtime.Object, error) {
		select {
		case <-forbidden:
			return false, nil, nil
		default:
			return true, nil, errors.New("secrets is forbidden")
		}
	})
	secrets := Get(ctx)
	if _, err := secrets.Ensure(ctx, secretName, namespace); err == nil {
		t.Fatal("Ensure succeeded, though Secrets cannot be listed")
	}
	close(forbidden)
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		_, err := secrets.Ensure(ctx, secretName, namespace)
		return err == nil, nil
	}); err != nil {
		t.Error("Ensure goes on to fail:", err)
	}
}

// TestFindsFormerCopies checks that a controller that starts without credentials finds the
// copies of an earlier configuration.
func TestFindsFormerCopies(t *testing.T) {
	ctx, impl, watcher := startController(t)
	if err := impl.Reconciler.(pkgreconciler.LeaderAware).Promote(pkgreconciler.UniversalBucket(), impl.MaybeEnqueueBucketKey); err != nil {
		t.Fatal(err)
	}
	setName(watcher, "")
	former := duplicate(passwordA)
	former.Namespace = "left"
	if _, err := fakekubeclient.Get(ctx).CoreV1().Secrets(former.Namespace).Create(ctx, former, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := impl.Reconciler.Reconcile(ctx, system.Namespace()); err != nil {
		t.Fatal(err)
	}
	drain(ctx, t, impl, former.Namespace)
}
