//go:build controlplane

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

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	clientv1alpha1 "github.com/kiln-dev/kiln/pkg/client/clientset/versioned/typed/serverless/v1alpha1"
)

// TestDeployments serves a Function with a Deployment on a real API server. Its validation,
// its defaults, Kiln's roles and Kiln's admission policy apply. The test checks that Kiln
// writes each object once, restores its metadata, and deletes what the spec no longer needs.
func TestDeployments(t *testing.T) {
	t.Chdir("../..")
	binaries, err := Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	options := Options{Config: map[string]map[string]string{config.FunctionsConfigName: {"serving": "kubernetes", "public-domain": "fn.example.com"}}}
	err = Run(t.Context(), binaries, options, func(ctx context.Context, k *Kiln) error {
		if err := k.StartController(); err != nil {
			return err
		}
		fn := &v1alpha1.Function{
			ObjectMeta: metav1.ObjectMeta{Name: "greeter"},
			Spec: v1alpha1.FunctionSpec{
				Source: "exports.main = () => 1;\n", MinReplicas: new(int32(2)), Visibility: v1alpha1.VisibilityPublic,
			},
		}
		if _, err := k.functions().Create(ctx, fn, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("failed to create Function: %w", err)
		}
		if err := k.served(ctx, "the first time"); err != nil {
			return err
		}
		if err := k.settles(ctx, t); err != nil {
			return err
		}
		if err := k.restores(ctx); err != nil {
			return err
		}
		return k.shrinks(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// settles checks that a new revision is one write of the Deployment, and that Kiln leaves the
// API server's defaults and somebody else's annotations alone.
func (k *Kiln) settles(ctx context.Context, t *testing.T) error {
	before, err := k.children(ctx)
	if err != nil {
		return err
	}
	for kind := range before {
		if err := k.Kubectl(ctx, nil, "annotate", kind, "greeter", "example.com/touched=yes"); err != nil {
			return err
		}
	}
	if before, err = k.children(ctx); err != nil {
		return err
	}
	if err := k.patch(ctx, `{"spec": {"env": [{"name": "A", "value": "1"}]}}`); err != nil {
		return err
	}
	if err := k.served(ctx, "with a variable"); err != nil {
		return err
	}
	after, err := k.children(ctx)
	if err != nil {
		return err
	}
	for kind := range before {
		switch {
		case kind == "deployment" && after[kind].GetGeneration() != before[kind].GetGeneration()+1:
			t.Errorf("a new revision writes the Deployment %d times", after[kind].GetGeneration()-before[kind].GetGeneration())
		case kind != "deployment" && after[kind].GetResourceVersion() != before[kind].GetResourceVersion():
			t.Errorf("a new revision writes the %s", kind)
		}
	}
	return nil
}

// restores checks that labels and owners come back that somebody has removed.
func (k *Kiln) restores(ctx context.Context) error {
	objects, err := k.children(ctx)
	if err != nil {
		return err
	}
	for kind := range objects {
		patch := `{"metadata": {"ownerReferences": null, "labels": {"app.kubernetes.io/managed-by": null}}}`
		if err := k.Kubectl(ctx, nil, "patch", kind, "greeter", "--type=merge", "--patch="+patch); err != nil {
			return err
		}
	}
	return k.await(ctx, "the metadata is restored", func() (bool, error) {
		objects, err := k.children(ctx)
		for _, object := range objects {
			if metav1.GetControllerOf(object) == nil || object.GetLabels()["app.kubernetes.io/managed-by"] != "kiln" {
				return false, nil
			}
		}
		return err == nil, err
	})
}

// shrinks checks that the autoscaler, the budget and the Ingress go with what needs them.
func (k *Kiln) shrinks(ctx context.Context) error {
	if err := k.patch(ctx, `{"spec": {"replicas": 1, "visibility": null}}`); err != nil {
		return err
	}
	if err := k.served(ctx, "with one replica"); err != nil {
		return err
	}
	for _, kind := range []string{"horizontalpodautoscaler", "poddisruptionbudget", "ingress"} {
		if err := k.Kubectl(ctx, nil, "wait", "--for=delete", "--timeout=1m", kind, "greeter"); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kiln) functions() clientv1alpha1.FunctionInterface {
	return k.Admin.Kiln.ServerlessV1alpha1().Functions(metav1.NamespaceDefault)
}

func (k *Kiln) patch(ctx context.Context, patch string) error {
	if _, err := k.functions().Patch(ctx, "greeter", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("failed to patch Function: %w", err)
	}
	return nil
}

// children returns the objects of the Function, by kind.
func (k *Kiln) children(ctx context.Context) (map[string]metav1.Object, error) {
	kube := k.Admin.Kube
	objects := map[string]metav1.Object{}
	var failed error
	get := func(kind string, object metav1.Object, err error) {
		objects[kind], failed = object, errors.Join(failed, err)
	}
	deployment, err := kube.AppsV1().Deployments(metav1.NamespaceDefault).Get(ctx, "greeter", metav1.GetOptions{})
	get("deployment", deployment, err)
	service, err := kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "greeter", metav1.GetOptions{})
	get("service", service, err)
	scaler, err := kube.AutoscalingV2().HorizontalPodAutoscalers(metav1.NamespaceDefault).Get(ctx, "greeter", metav1.GetOptions{})
	get("horizontalpodautoscaler", scaler, err)
	budget, err := kube.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Get(ctx, "greeter", metav1.GetOptions{})
	get("poddisruptionbudget", budget, err)
	ingress, err := kube.NetworkingV1().Ingresses(metav1.NamespaceDefault).Get(ctx, "greeter", metav1.GetOptions{})
	get("ingress", ingress, err)
	if failed != nil {
		return nil, fmt.Errorf("failed to get the objects of the Function: %w", failed)
	}
	return objects, nil
}

// served returns once the Function serves its generation.
func (k *Kiln) served(ctx context.Context, what string) error {
	seen := ""
	err := k.await(ctx, "the Function serves "+what, func() (bool, error) {
		fn, err := k.functions().Get(ctx, "greeter", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
		if running == nil {
			return false, nil
		}
		seen = fmt.Sprintf("generation %d of %d, %s %s: %s", fn.Status.ObservedGeneration, fn.Generation, running.Status, running.GetReason(), running.GetMessage())
		return fn.Status.ObservedGeneration == fn.Generation && running.IsTrue(), nil
	})
	if err != nil {
		return fmt.Errorf("%w: the Function is at %s", err, seen)
	}
	return nil
}

// await polls until done returns true.
func (k *Kiln) await(ctx context.Context, what string, done func() (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second/5, time.Minute, true, func(context.Context) (bool, error) {
		select {
		case err := <-k.Failed:
			return false, err
		default:
			return done()
		}
	})
	if err != nil {
		return fmt.Errorf("failed to wait until %s: %w", what, err)
	}
	return nil
}
