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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgotesting "k8s.io/client-go/testing"
	networkingv1alpha1 "knative.dev/networking/pkg/apis/networking/v1alpha1"
	rtesting "knative.dev/pkg/reconciler/testing"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// TestReconcileLeftovers checks how Kiln treats objects of a deleted Service, whose names
// Serving would use again.
func TestReconcileLeftovers(t *testing.T) {
	of := func(service string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: "greeter-00001", Namespace: namespace,
			Labels: map[string]string{"serving.knative.dev/service": service},
		}
	}
	noLabel := service(running1, serviceReady, func(svc *servingv1.Service) { svc.Labels = nil })
	created := knative.MakeService(running1, running1.Status.Image)
	var listed []clientgotesting.ReactionFunc
	for _, resource := range []string{"configurations", "revisions", "podautoscalers", "metrics", "serverlessservices"} {
		listed = append(listed, rtesting.InduceFailure("list", resource))
	}

	table := rtesting.TableTest{{
		Name:              "nothing of the deleted Service is left",
		Key:               key,
		Objects:           []runtime.Object{running1, configMap(running1), tr1},
		OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{&servingv1.Revision{ObjectMeta: of("other")}}},
		WantCreates:       []runtime.Object{created},
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), serviceCreated))),
		WantEvents:        []string{"Normal ServiceCreated Service greeter was created."},
	}, {
		Name:              "the first Service needs no look",
		Key:               key,
		Objects:           []runtime.Object{function(observed(configured, built(tr1, digestA))), configMap(running1), tr1},
		WithReactors:      listed,
		WantCreates:       []runtime.Object{created},
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), serviceCreated))),
		WantEvents:        []string{"Normal ServiceCreated Service greeter was created."},
	}, {
		Name:         "steady state needs no look",
		Key:          key,
		Objects:      []runtime.Object{running1, configMap(running1), tr1, svc1},
		WithReactors: listed,
	}, {
		Name:    "the Service exists without the label: its objects are no leftovers",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{
			noLabel, &servingv1.Revision{ObjectMeta: of(name)},
		}},
		WantUpdates:       update(merged(running1, noLabel)),
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), serviceUpdated))),
		WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
	}, {
		Name:          "the Service cannot be read",
		Key:           key,
		Objects:       []runtime.Object{running1, configMap(running1), tr1},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{&servingv1.Revision{ObjectMeta: of(name)}}},
		WithReactors:  []clientgotesting.ReactionFunc{rtesting.InduceFailure("get", "services")},
		WantErr:       true,
	}, {
		Name:          "while the next image is built",
		Key:           key,
		Objects:       []runtime.Object{nextBuilding(), configMap(nextBuilding()), nextRun()},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{&servingv1.Revision{ObjectMeta: of(name)}}},
		WantErr:       true,
	}}
	for kind, left := range map[string]runtime.Object{
		"Configuration":     &servingv1.Configuration{ObjectMeta: of(name)},
		"Revision":          &servingv1.Revision{ObjectMeta: of(name)},
		"PodAutoscaler":     &autoscalingv1alpha1.PodAutoscaler{ObjectMeta: of(name)},
		"Metric":            &autoscalingv1alpha1.Metric{ObjectMeta: of(name)},
		"ServerlessService": &networkingv1alpha1.ServerlessService{ObjectMeta: of(name)},
	} {
		message := kind + " greeter-00001 of the deleted Service greeter still exists. The Service is created again when the garbage collector has deleted it."
		waiting := running1.DeepCopy()
		waiting.Status.MarkRunningUnknown(v1alpha1.ReasonWaitingForDeletion, "%s", message)
		waiting.Status.UpdatePhase()
		table = append(table, rtesting.TableRow{
			Name:              "the " + kind + " of the deleted Service is left",
			Key:               key,
			Objects:           []runtime.Object{running1, configMap(running1), tr1},
			OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{left}},
			WantErr:           true,
			WantStatusUpdates: statusUpdate(waiting),
			WantEvents:        []string{"Normal WaitingForDeletion " + message},
		})
	}
	table.Test(t, factory())
}
