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

	"k8s.io/apimachinery/pkg/runtime"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

// TestReconcilePodMetadata checks Functions that were accepted under a longer list of allowed
// labels and annotations, or before there was such a list.
func TestReconcilePodMetadata(t *testing.T) {
	with := func(labels, annotations map[string]string) *v1alpha1.Function {
		fn := running1.DeepCopy()
		fn.Spec.Labels, fn.Spec.Annotations = labels, annotations
		running(fn)
		return fn
	}
	earlier := with(
		map[string]string{"azure.workload.identity/use": "true", "app.kubernetes.io/name": "greeter", "team": "a"},
		map[string]string{"sidecar.istio.io/userVolume": "[]", "autoscaling.knative.dev/target": "5", "note": "b"},
	)
	allowed := with(
		map[string]string{"app.kubernetes.io/name": "greeter", "team": "a"},
		map[string]string{"autoscaling.knative.dev/target": "5", "note": "b"},
	)
	earlierService, allowedService := service(earlier, serviceReady), service(allowed, serviceReady)
	updated := earlier.DeepCopy()
	updated.Status = *allowed.Status.DeepCopy()
	updated.Status.MarkRunningUnknown(v1alpha1.ReasonServiceUpdated, "Service greeter was updated.")
	updated.Status.UpdatePhase()
	steady := earlier.DeepCopy()
	steady.Status = *allowed.Status.DeepCopy()

	wide := testConfig(func(cfg *config.Config) {
		cfg.Functions.AllowedAnnotations = config.KeyPatterns{"sidecar.istio.io/*"}
		cfg.Functions.AllowedLabels = config.KeyPatterns{"azure.workload.identity/use", "app.kubernetes.io/*"}
	})
	const forbidden = "annotations sidecar.istio.io/userVolume, which allowed-pod-annotations of the ConfigMap config-functions does not allow, " +
		"and labels azure.workload.identity/use, which allowed-pod-labels of the ConfigMap config-functions does not allow"
	back := v1alpha1.TrafficTarget{RevisionName: "greeter-00001", Percent: new(int64(100))}
	refused := "spec.traffic names revision greeter-00001, whose pods have " + forbidden + ". Name another revision. The previous traffic stays in effect."
	rolledBack := allowed.DeepCopy()
	rolledBack.Generation = 2
	withTraffic(back)(rolledBack)
	kept := rolledBack.DeepCopy()
	observed(configured, built(tr1, digestA), stillServing, marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkRunningFailed(v1alpha1.ReasonRevisionMissing, "%s", refused)
	}))(kept)

	rtesting.TableTest{{
		Name:              "a new revision lacks what is not allowed",
		Key:               key,
		Objects:           []runtime.Object{earlier, configMap(running1), tr1, earlierService},
		WantUpdates:       update(merged(allowed, earlierService)),
		WantStatusUpdates: statusUpdate(updated),
		WantEvents: []string{
			"Warning PodMetadataNotAllowed The new revision has no " + forbidden + ". Remove them from the spec, or ask an administrator to allow them.",
			"Normal ServiceUpdated Service greeter was updated.",
		},
	}, {
		Name:    "steady state",
		Key:     key,
		Objects: []runtime.Object{steady, configMap(running1), tr1, allowedService},
	}, {
		Name:          "what is allowed stays",
		Key:           key,
		Objects:       []runtime.Object{earlier, configMap(running1), tr1, earlierService},
		OtherTestData: map[string]any{configKey: wide},
	}, {
		Name:              "traffic does not go back to a revision with what is not allowed",
		Key:               key,
		Objects:           []runtime.Object{rolledBack, configMap(running1), tr1, allowedService},
		OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{revisionOf(earlierService, "greeter-00001")}},
		WantStatusUpdates: statusUpdate(kept),
		WantEvents:        []string{"Warning RevisionMissing " + refused},
	}}.Test(t, factory())
}
