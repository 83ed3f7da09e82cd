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
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/job"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
)

// nothing stands for the kind of a build that has no object.
const nothing = "nothing"

// TestWithoutTekton starts Kiln on an API server without TaskRuns. It checks that Kiln
// builds with Jobs, that an absent builder is reported, and that Kiln builds with TaskRuns
// within a minute of Tekton's installation.
func TestWithoutTekton(t *testing.T) {
	t.Chdir("../..")
	binaries, err := Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = Run(t.Context(), binaries, Options{WithoutTekton: true}, func(ctx context.Context, k *Kiln) error {
		if err := k.StartController(); err != nil {
			return err
		}
		stop := make(chan struct{})
		defer close(stop)
		go k.restart(stop)
		if err := k.built(ctx, 1, job.Kind, v1alpha1.ReasonJobFinished); err != nil {
			return err
		}
		if err := k.choose(ctx, config.TektonBuilder); err != nil {
			return err
		}
		if err := k.built(ctx, 2, nothing, v1alpha1.ReasonBuilderUnavailable); err != nil {
			return err
		}
		if err := k.InstallTekton(ctx); err != nil {
			return err
		}
		installed := time.Now()
		if err := k.built(ctx, 2, tekton.Kind, v1alpha1.ReasonTaskRunSucceeded); err != nil {
			return err
		}
		t.Logf("The first TaskRun has succeeded %.0f s after Tekton's installation.", time.Since(installed).Seconds())
		return k.choose(ctx, config.AutoBuilder)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// restart starts the controller again whenever it ends, as the kubelet does.
func (k *Kiln) restart(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-k.Controller.Ended:
			if err := k.StartController(); err != nil {
				k.Fail(err)
				return
			}
		}
	}
}

// choose sets the builder.
func (k *Kiln) choose(ctx context.Context, builder config.Builder) error {
	patch := fmt.Sprintf(`{"data": {"builder": %q}}`, builder)
	return k.Kubectl(ctx, nil, "--namespace=kiln-system", "patch", "configmap", config.BuildConfigName, "--type=merge", "--patch="+patch)
}

// built applies a version of a Function. It returns once BuildReady has the reason, and the
// kind has run the last build. That may take a minute.
func (k *Kiln) built(ctx context.Context, version int, kind, reason string) error {
	fns := k.Admin.Kiln.ServerlessV1alpha1().Functions(metav1.NamespaceDefault)
	source := fmt.Sprintf("exports.main = () => %d;\n", version)
	fn, err := fns.Get(ctx, "greeter", metav1.GetOptions{})
	if err != nil {
		fn = &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "greeter"}, Spec: v1alpha1.FunctionSpec{Source: source}}
		if _, err := fns.Create(ctx, fn, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("failed to create Function: %w", err)
		}
	} else if fn.Spec.Source != source {
		fn.Spec.Source = source
		if _, err := fns.Update(ctx, fn, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("failed to update Function: %w", err)
		}
	}
	seen := ""
	err = wait.PollUntilContextTimeout(ctx, time.Second/5, time.Minute, true, func(ctx context.Context) (bool, error) {
		fn, err := fns.Get(ctx, "greeter", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		select {
		case err := <-k.Failed:
			return false, err
		default:
		}
		ready, by := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady), nothing
		if fn.Status.Build != nil && fn.Status.Build.Ref != nil {
			by = fn.Status.Build.Ref.Kind
		}
		seen = fmt.Sprintf("generation %d of %d, built by %s: %s: %s", fn.Status.ObservedGeneration, fn.Generation, by, ready.GetReason(), ready.GetMessage())
		return fn.Status.ObservedGeneration == fn.Generation && by == kind && ready.GetReason() == reason, nil
	})
	if err != nil {
		return fmt.Errorf("failed to wait for version %d, built by a %s, with the reason %s: %w: the Function is at %s", version, kind, reason, err, seen)
	}
	return nil
}
