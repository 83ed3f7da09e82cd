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

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgotesting "k8s.io/client-go/testing"
	"knative.dev/pkg/apis"
	rtesting "knative.dev/pkg/reconciler/testing"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

func TestReconcileService(t *testing.T) {
	created := function(observed(configured, built(tr1, digestA), serviceCreated))
	waiting := service(running1, serviceStatus(corev1.ConditionUnknown, "RevisionMissing", "Configuration \"greeter\" is waiting for a Revision to become ready.", "greeter-00001", ""))
	crashed := service(running1, serviceStatus(corev1.ConditionFalse, "RevisionFailed", `Revision "greeter-00002" failed with message: Container failed with: handler.js:1: SyntaxError: Unexpected token '}'.`, "greeter-00002", "greeter-00001"))
	firstFailed := service(running1, serviceStatus(corev1.ConditionFalse, "RevisionFailed", `Revision "greeter-00001" failed with message: no.`, "greeter-00001", ""), func(svc *servingv1.Service) {
		for i := range svc.Status.Conditions {
			if c := &svc.Status.Conditions[i]; c.Type == apis.ConditionReady {
				c.Reason, c.Message = "RevisionMissing", `Configuration "greeter" does not have any ready Revision.`
			}
		}
	})
	denied := func(fn *v1alpha1.Function) { fn.Spec.ServiceAccountName = "denied" }
	creating := corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	withPublicURL := func(svc *servingv1.Service) {
		svc.Status.URL = &apis.URL{Scheme: "http", Host: "greeter.default.example.com"}
	}
	published := service(running1, serviceReady, withPublicURL)
	public := func(svc *servingv1.Service, options ...functionOption) *v1alpha1.Function {
		fn := running1.DeepCopy()
		fn.Spec.Visibility = v1alpha1.VisibilityPublic
		knative.PropagateStatus(fn, svc)
		for _, option := range options {
			option(fn)
		}
		fn.Status.UpdatePhase()
		return fn
	}
	unpublished := service(public(svc1), serviceReady)
	unschedulable := revision(corev1.ConditionFalse, corev1.ConditionFalse, "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")
	lagging := service(running1, routeFailed("ConfigurationMissing", `Configuration "greeter" referenced in traffic not found.`))
	unrouted := service(running1, routeFailed("IngressFailed", "no ingress"))
	stale := service(running1, serviceReady, func(svc *servingv1.Service) { svc.Generation = 2 })
	lateConfiguration := service(running1, serviceReady, func(svc *servingv1.Service) { svc.Status.MarkConfigurationNotReconciled() })
	halfway := service(running1, serviceStatus(corev1.ConditionTrue, "", "", "greeter-00002", "greeter-00001"))
	foreignService := service(running1, serviceReady, func(svc *servingv1.Service) {
		svc.Labels, svc.OwnerReferences = nil, nil
		svc.Spec.Template.Spec.Containers[0].Image = "nginx"
	})
	drifted := service(running1, serviceReady, func(svc *servingv1.Service) {
		svc.Spec.Template.Spec.Containers[0].Env = append(svc.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "EVIL", Value: "1"})
	})
	noLabel := service(running1, serviceReady, func(svc *servingv1.Service) { svc.Labels = nil })
	quota := apierrs.NewForbidden(servingv1.Resource("services"), name, nil)
	rejected := apierrs.NewBadRequest("denied")
	featuresOff := apierrs.NewBadRequest("must not set the field(s): spec.template.spec.nodeSelector, spec.template.spec.tolerations")
	featuresAdvice := ". Enable kubernetes.podspec-nodeselector and kubernetes.podspec-tolerations in Serving's ConfigMap config-features. Kiln keeps retrying."
	withUpdated := func(fn *v1alpha1.Function) { serviceUpdated(fn) }
	svcStatus := func(svc *servingv1.Service, mark func(*v1alpha1.FunctionStatus)) *v1alpha1.Function {
		fn := running1.DeepCopy()
		knative.PropagateStatus(fn, svc)
		mark(&fn.Status)
		fn.Status.UpdatePhase()
		return fn
	}

	rtesting.TableTest{{
		Name:    "steady state: nothing is written",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, svc1},
	}, {
		Name:              "Service became ready",
		Key:               key,
		Objects:           []runtime.Object{created, configMap(running1), tr1, svc1},
		WantStatusUpdates: statusUpdate(running1),
		WantEvents:        []string{"Normal ServiceReady Revision greeter-00001 serves."},
	}, {
		Name:    "Service is not ready yet",
		Key:     key,
		Objects: []runtime.Object{created, configMap(running1), tr1, waiting},
		WantStatusUpdates: statusUpdate(svcStatus(waiting, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, `RevisionMissing: Configuration "greeter" is waiting for a Revision to become ready.`)
		})),
		WantEvents: []string{`Normal ServiceWaiting RevisionMissing: Configuration "greeter" is waiting for a Revision to become ready.`},
	}, {
		Name:    "Serving has not seen the last change: what it says does not count",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, stale},
		WantStatusUpdates: statusUpdate(svcStatus(stale, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Serving has not observed the last change of Service greeter yet.")
		})),
		WantEvents: []string{"Normal ServiceWaiting Serving has not observed the last change of Service greeter yet."},
	}, {
		Name:    "the Service's configuration has not seen the last change: the newest revision, and its crash, are of an earlier one",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, lateConfiguration, pod(running1, "greeter-00001", crashed2)},
		WantStatusUpdates: statusUpdate(svcStatus(lateConfiguration, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Serving has not observed the last change of Service greeter yet.")
		})),
		WantEvents: []string{"Normal ServiceWaiting Serving has not observed the last change of Service greeter yet."},
	}, {
		Name:    "Serving has not seen the change of ours: that is no news",
		Key:     key,
		Objects: []runtime.Object{function(observed(configured, built(tr1, digestA), serviceUpdated)), configMap(running1), tr1, stale},
	}, {
		Name:    "Service is ready with an earlier revision: that is not Running",
		Key:     key,
		Objects: []runtime.Object{created, configMap(running1), tr1, halfway},
		WantStatusUpdates: statusUpdate(svcStatus(halfway, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Service greeter is not ready yet.")
		})),
		WantEvents: []string{"Normal ServiceWaiting Service greeter is not ready yet."},
	}, {
		Name:    "the function does not start: the container says why",
		Key:     key,
		Objects: []runtime.Object{created, configMap(running1), tr1, crashed},
		WantStatusUpdates: statusUpdate(svcStatus(crashed, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, `RevisionFailed: Revision "greeter-00002" failed with message: Container failed with: handler.js:1: SyntaxError: Unexpected token '}'.`)
		})),
		WantEvents: []string{`Warning ServiceFailed RevisionFailed: Revision "greeter-00002" failed with message: Container failed with: handler.js:1: SyntaxError: Unexpected token '}'.`},
	}, {
		Name:    "the first revision has failed: its words are said, not that there is none",
		Key:     key,
		Objects: []runtime.Object{created, configMap(running1), tr1, firstFailed},
		WantStatusUpdates: statusUpdate(svcStatus(firstFailed, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, `RevisionFailed: Revision "greeter-00001" failed with message: no.`)
		})),
		WantEvents: []string{`Warning ServiceFailed RevisionFailed: Revision "greeter-00001" failed with message: no.`},
	}, {
		Name:    "the function crashes, and Serving has not noticed: its pod says why",
		Key:     key,
		Objects: []runtime.Object{created, configMap(running1), tr1, waiting, pod(running1, "greeter-00001", crashed2), pod(running1, "greeter-00000", crashed1)},
		WantStatusUpdates: statusUpdate(svcStatus(waiting, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "Revision greeter-00001: Container failed with: handler.js:1: SyntaxError")
		})),
		WantEvents: []string{"Warning ServiceFailed Revision greeter-00001: Container failed with: handler.js:1: SyntaxError"},
	}, {
		Name:    "a Secret to be mounted does not exist: an event of its pod says so",
		Key:     key,
		Objects: []runtime.Object{created, configMap(running1), tr1, waiting, pod(running1, "greeter-00001", creating), mountFailed(pod(running1, "greeter-00001"), 2)},
		WantStatusUpdates: statusUpdate(svcStatus(waiting, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, `Revision greeter-00001: FailedMount: MountVolume.SetUp failed for volume "secret-0" : secret "late" not found`)
		})),
		WantEvents: []string{`Warning ServiceFailed Revision greeter-00001: FailedMount: MountVolume.SetUp failed for volume "secret-0" : secret "late" not found`},
	}, {
		Name:          "no node has room for a pod: the Function has not failed",
		Key:           key,
		Objects:       []runtime.Object{created, configMap(running1), tr1, firstFailed},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{unschedulable}},
		WantStatusUpdates: statusUpdate(svcStatus(firstFailed, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonMinimumReplicasUnavailable, "Revision greeter-00001: 0/1 nodes are available: 1 Insufficient cpu.")
		})),
		WantEvents: []string{"Normal MinimumReplicasUnavailable Revision greeter-00001: 0/1 nodes are available: 1 Insufficient cpu."},
	}, {
		Name:          "the Service has not noticed that there is room now",
		Key:           key,
		Objects:       []runtime.Object{created, configMap(running1), tr1, firstFailed},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{revision(corev1.ConditionUnknown, corev1.ConditionUnknown, "Deploying", "")}},
		WantStatusUpdates: statusUpdate(svcStatus(firstFailed, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Revision greeter-00001 is not ready yet.")
		})),
		WantEvents: []string{"Normal ServiceWaiting Revision greeter-00001 is not ready yet."},
	}, {
		Name:          "a revision that has failed is not excused",
		Key:           key,
		Objects:       []runtime.Object{created, configMap(running1), tr1, firstFailed},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{revision(corev1.ConditionFalse, corev1.ConditionFalse, "ExceededQuota", "no")}},
		WantStatusUpdates: statusUpdate(svcStatus(firstFailed, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, `RevisionFailed: Revision "greeter-00001" failed with message: no.`)
		})),
		WantEvents: []string{`Warning ServiceFailed RevisionFailed: Revision "greeter-00001" failed with message: no.`},
	}, {
		Name:              "the revision cannot be read",
		Key:               key,
		Objects:           []runtime.Object{running1, configMap(running1), tr1, firstFailed},
		WithReactors:      []clientgotesting.ReactionFunc{rtesting.InduceFailure("get", "revisions")},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(svcStatus(firstFailed, func(*v1alpha1.FunctionStatus) {})),
	}, {
		Name:    "a pod that crashes when the Service is ready is Kubernetes' to restart",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, svc1, pod(running1, "greeter-00001", crashed2)},
	}, {
		Name:    "the route's cache lags behind: that is no failure",
		Key:     key,
		Objects: []runtime.Object{created, configMap(running1), tr1, lagging},
		WantStatusUpdates: statusUpdate(svcStatus(lagging, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, `ConfigurationMissing: Configuration "greeter" referenced in traffic not found.`)
		})),
		WantEvents: []string{`Normal ServiceWaiting ConfigurationMissing: Configuration "greeter" referenced in traffic not found.`},
	}, {
		Name:    "the Service must become cluster-local, and Serving has not observed it: the generation does not change",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, published},
		WantStatusUpdates: statusUpdate(svcStatus(published, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Serving has not observed the last change of Service greeter yet.")
		})),
		WantEvents: []string{"Normal ServiceWaiting Serving has not observed the last change of Service greeter yet."},
	}, {
		Name:    "the Service must become public, and Serving has not observed it, or has no domain",
		Key:     key,
		Objects: []runtime.Object{public(svc1), configMap(running1), tr1, unpublished},
		WantStatusUpdates: statusUpdate(public(svc1, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Service greeter has no public URL yet. If it gets none, add a domain to Serving's ConfigMap config-domain.")
		}))),
		WantEvents: []string{"Normal ServiceWaiting Service greeter has no public URL yet. If it gets none, add a domain to Serving's ConfigMap config-domain."},
	}, {
		Name:              "the Service is public",
		Key:               key,
		Objects:           []runtime.Object{public(svc1), configMap(running1), tr1, service(public(svc1), serviceReady, withPublicURL)},
		WantStatusUpdates: statusUpdate(public(service(public(svc1), serviceReady, withPublicURL))),
	}, {
		Name:    "the route has failed",
		Key:     key,
		Objects: []runtime.Object{created, configMap(running1), tr1, unrouted},
		WantStatusUpdates: statusUpdate(svcStatus(unrouted, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "IngressFailed: no ingress")
		})),
		WantEvents: []string{"Warning ServiceFailed IngressFailed: no ingress"},
	}, {
		Name:          "a Service of that name is not ours: it is left alone",
		Key:           key,
		Objects:       []runtime.Object{function(observed(configured, built(tr1, digestA))), configMap(running1), tr1},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{foreignService}},
		WantErr:       true,
		WantCreates:   []runtime.Object{knative.MakeService(running1, running1.Status.Image)},
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonNotOwned, children.NotOwnedFormat, "Service", "greeter")
		})))),
		WantEvents: []string{
			"Warning NotOwned Service greeter exists and does not belong to this Function. Delete it, or give the Function another name.",
		},
	}, {
		Name:    "the Service of a deleted Function of the same name is waited for",
		Key:     key,
		Objects: []runtime.Object{created, configMap(running1), tr1, predecessorsService()},
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), deployed, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonWaitingForDeletion, "Service greeter is being deleted.")
		})))),
		WantEvents: []string{"Normal WaitingForDeletion Service greeter is being deleted."},
	}, {
		Name:          "the Service of a deleted Function that nobody watches is asked for again",
		Key:           key,
		Objects:       []runtime.Object{created, configMap(running1), tr1},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{predecessorsService()}},
		WantErr:       true,
		WantCreates:   []runtime.Object{knative.MakeService(running1, running1.Status.Image)},
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), deployed, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonWaitingForDeletion, "Service greeter is being deleted.")
		})))),
		WantEvents: []string{
			"Normal WaitingForDeletion Service greeter is being deleted.",
		},
	}, {
		Name:              "Service deleted by hand: created again",
		Key:               key,
		Objects:           []runtime.Object{running1, configMap(running1), tr1},
		WantCreates:       []runtime.Object{knative.MakeService(running1, running1.Status.Image)},
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), serviceCreated))),
		WantEvents:        []string{"Normal ServiceCreated Service greeter was created."},
	}, {
		Name:        "Service deleted by hand while the next image is built: comes back with the last one",
		Key:         key,
		Objects:     []runtime.Object{nextBuilding(), configMap(nextBuilding()), nextRun()},
		WantCreates: []runtime.Object{knative.MakeService(nextBuilding(), running1.Status.Image)},
	}, {
		Name:         "a change of the Service that something undoes is not waited for, and not tried again",
		Key:          key,
		Objects:      []runtime.Object{running1, configMap(running1), tr1, drifted},
		WithReactors: []clientgotesting.ReactionFunc{answer("update", "services", drifted)},
		WantUpdates:  update(merged(running1, drifted)),
		WantStatusUpdates: statusUpdate(svcStatus(svc1, func(fs *v1alpha1.FunctionStatus) {
			fs.TemplateHash = knative.Remember(drifted)
		})),
	}, {
		Name:              "Kiln has died after it wrote the Service: what is stored is learnt again, and nothing changes",
		Key:               key,
		Objects:           []runtime.Object{svcStatus(svc1, func(fs *v1alpha1.FunctionStatus) { fs.TemplateHash = "" }), configMap(running1), tr1, svc1},
		WithReactors:      []clientgotesting.ReactionFunc{answer("update", "services", svc1)},
		WantUpdates:       update(merged(svcStatus(svc1, func(fs *v1alpha1.FunctionStatus) { fs.TemplateHash = "" }), svc1)),
		WantStatusUpdates: statusUpdate(running1),
	}, {
		Name:    "env edited, and once more, of which the cache has not heard: the Service is left to that",
		Key:     key,
		Objects: []runtime.Object{edited(withEnv("A", "1")), configMap(running1), tr1, svc1},
		WithReactors: []clientgotesting.ReactionFunc{answer("get", "functions", edited(withEnv("A", "2"), func(fn *v1alpha1.Function) {
			fn.ResourceVersion = "newer"
		}))},
	}, {
		Name:              "Service edited by hand: put right",
		Key:               key,
		Objects:           []runtime.Object{running1, configMap(running1), tr1, drifted},
		WantUpdates:       update(merged(running1, drifted)),
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), withUpdated))),
		WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
	}, {
		Name:              "Service without our label is found and restored",
		Key:               key,
		Objects:           []runtime.Object{running1, configMap(running1), tr1},
		OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{noLabel}},
		WantCreates:       []runtime.Object{knative.MakeService(running1, running1.Status.Image)},
		WantUpdates:       update(merged(running1, noLabel)),
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), withUpdated))),
		WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
	}, {
		Name:         "Service cannot be created for now",
		Key:          key,
		Objects:      []runtime.Object{function(observed(configured, built(tr1, digestA))), configMap(running1), tr1},
		WithReactors: []clientgotesting.ReactionFunc{rtesting.InduceFailure("create", "services")},
		WantErr:      true,
		WantCreates:  []runtime.Object{knative.MakeService(running1, running1.Status.Image)},
	}, {
		Name:         "Service is refused",
		Key:          key,
		Objects:      []runtime.Object{function(observed(configured, built(tr1, digestA))), configMap(running1), tr1},
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "services", rejected)},
		WantErr:      true,
		WantCreates:  []runtime.Object{knative.MakeService(running1, running1.Status.Image)},
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "Service greeter cannot be created: denied")
		})))),
		WantEvents: []string{
			"Warning ServiceFailed Service greeter cannot be created: denied",
		},
	}, {
		Name:         "Serving's features are off that the Function needs: it is told which",
		Key:          key,
		Objects:      []runtime.Object{function(observed(configured, built(tr1, digestA))), configMap(running1), tr1},
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "services", featuresOff)},
		WantErr:      true,
		WantCreates:  []runtime.Object{knative.MakeService(running1, running1.Status.Image)},
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "Service greeter cannot be created: %s%s", featuresOff, featuresAdvice)
		})))),
		WantEvents: []string{
			"Warning ServiceFailed Service greeter cannot be created: " + featuresOff.Error() + featuresAdvice,
		},
	}, {
		Name:         "the namespace is being deleted: the Service is not tried again",
		Key:          key,
		Objects:      []runtime.Object{function(observed(configured, built(tr1, digestA))), configMap(running1), tr1},
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "services", namespaceTerminating())},
		WantErr:      true,
		WantCreates:  []runtime.Object{knative.MakeService(running1, running1.Status.Image)},
	}, {
		Name:          "Serving rejects the revision: the last one is restored, and serves as the Function says",
		Key:           key,
		Objects:       []runtime.Object{public(svc1, denied), configMap(running1), tr1, drifted},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{revisionOf(svc1, "greeter-00001")}},
		WithReactors: []clientgotesting.ReactionFunc{func(action clientgotesting.Action) (bool, runtime.Object, error) {
			if !action.Matches("update", "services") {
				return false, nil, nil
			}
			svc := action.(clientgotesting.UpdateAction).GetObject().(*servingv1.Service)
			return svc.Spec.Template.Spec.ServiceAccountName == "denied", nil, rejected
		}},
		WantErr: true,
		WantUpdates: append(update(merged(public(svc1, denied), drifted)), update(service(running1, serviceReady, func(svc *servingv1.Service) {
			delete(svc.Labels, "networking.knative.dev/visibility")
		}))...),
		WantStatusUpdates: statusUpdate(public(svc1, denied, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "Service greeter cannot be updated: denied")
		}))),
		WantEvents: []string{
			"Warning ServiceFailed Service greeter cannot be updated: denied",
		},
	}, {
		Name:         "Service exceeds a quota",
		Key:          key,
		Objects:      []runtime.Object{running1, configMap(running1), tr1, drifted},
		WithReactors: []clientgotesting.ReactionFunc{fail("update", "services", quota)},
		WantErr:      true,
		WantUpdates:  update(merged(running1, drifted)),
		WantStatusUpdates: statusUpdate(svcStatus(svc1, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "Service greeter cannot be updated: %v", quota)
		})),
		WantEvents: []string{
			"Warning ServiceFailed Service greeter cannot be updated: " + quota.Error(),
		},
	}, {
		Name:         "Service was changed meanwhile: tried again without ado",
		Key:          key,
		Objects:      []runtime.Object{running1, configMap(running1), tr1, drifted},
		WithReactors: []clientgotesting.ReactionFunc{fail("update", "services", apierrs.NewConflict(servingv1.Resource("services"), name, nil))},
		WantErr:      true,
		WantUpdates:  update(merged(running1, drifted)),
	}, {
		Name:              "the status shows a TaskRun's image even where somebody edited it",
		Key:               key,
		Objects:           []runtime.Object{withImage("registry.evil.example/x@" + digestB), configMap(running1), tr1, svc1},
		WantStatusUpdates: statusUpdate(running1),
	}, {
		Name:    "the nodes reach the registry by another name: a new revision, no build",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, svc1},
		OtherTestData: map[string]any{configKey: testConfig(func(cfg *config.Config) {
			cfg.Registry.Pull = "pull.example.com"
		})},
		WantUpdates:       update(merged(pulledFrom("pull.example.com"), svc1)),
		WantStatusUpdates: statusUpdate(pulledFrom("pull.example.com", observed(withUpdated))),
		WantEvents: []string{
			"Normal TaskRunSucceeded TaskRun " + tr1.Name + " built pull.example.com/functions/default/greeter@" + digestA + ".",
			"Normal ServiceUpdated Service greeter was updated.",
		},
	}}.Test(t, factory())
}

// TestReconcileKeepsServing checks the Service of a Function whose current version has no
// image yet.
func TestReconcileKeepsServing(t *testing.T) {
	building := nextBuilding()
	buildingObjects := func(svc ...runtime.Object) []runtime.Object {
		return append(svc, building, configMap(building), nextRun())
	}
	failedRun := taskRun(edited(withSource(sourceB)), builds.ReasonSourceChanged, taskRunFailed("StepFailed", "no"))
	failed := edited(withSource(sourceB), observed(reconfigured, stillServing, buildFailed(failedRun, v1alpha1.BuildFailure{Reason: v1alpha1.ReasonTaskRunFailed, Message: "no"})))
	first := function(observed(configured, buildRunning(taskRun(function(), builds.ReasonFirstBuild, taskRunRunning))))

	public := service(running1, serviceReady, func(svc *servingv1.Service) { delete(svc.Labels, "networking.knative.dev/visibility") })
	orphan := service(running1, serviceReady, func(svc *servingv1.Service) { svc.OwnerReferences = nil })
	pinned := service(running1, serviceReady, func(svc *servingv1.Service) {
		svc.Spec.Traffic[0].LatestRevision, svc.Spec.Traffic[0].RevisionName = new(false), "greeter-00001"
	})
	publicAndPinned := public.DeepCopy()
	publicAndPinned.Spec.Traffic = pinned.Spec.Traffic
	noLabel := service(running1, serviceReady, func(svc *servingv1.Service) { svc.Labels = nil })
	foreignService := service(running1, serviceReady, func(svc *servingv1.Service) { svc.Labels, svc.OwnerReferences = nil, nil })
	last := knative.MakeService(building, running1.Status.Image)
	drifted := service(running1, serviceReady, func(svc *servingv1.Service) {
		svc.Spec.Template.Spec.Containers[0].Image = "evil"
	})
	defaulted := service(running1, serviceReady, func(svc *servingv1.Service) {
		svc.Spec.Template.Spec.TimeoutSeconds = new(int64(301))
	})
	remembered := nextBuilding()
	remembered.Status.TemplateHash = knative.Remember(defaulted)
	unremembered := service(edited(withEnv("A", "1")), serviceReady)
	unknown := edited(withRuntime("cobol"), observed(marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkConfigurationFailed(v1alpha1.ReasonRuntimeUnknown, `Runtime "cobol" is not in config-runtimes, which has: nodejs22, nodejs24.`)
	})))
	unknown.Status.AcceptedGeneration = unknown.Generation
	refusal := func(fs *v1alpha1.FunctionStatus) {
		fs.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "must not be blank: spec.source")
	}
	refused := []functionOption{withSource(" "), func(fn *v1alpha1.Function) {
		fn.Spec.Visibility = v1alpha1.VisibilityPublic
		fn.Spec.Traffic = []v1alpha1.TrafficTarget{{RevisionName: "greeter-00001", Percent: new(int64(100))}}
	}}
	invalid := edited(withSource(" "), observed(marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "must not be blank: spec.source")
	})))
	noRegistry := edited(observed(marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkConfigurationFailed(v1alpha1.ReasonRegistryNotConfigured, "No registry is configured. Set push in the ConfigMap config-registry.")
	})))
	rejected := apierrs.NewBadRequest("denied")

	wanted := edited(withSource(sourceB))
	quota := apierrs.NewForbidden(schema.GroupResource{Resource: "things"}, "it", nil)
	noConfigMap := edited(withSource(sourceB), observed(marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkConfigurationFailed(v1alpha1.ReasonConfigMapFailed, "ConfigMap %s cannot be created: %v", configMap(wanted).Name, quota)
	}), stillServing))
	notOurs := configMap(wanted, func(cm *corev1.ConfigMap) { cm.OwnerReferences, cm.Labels = nil, nil })
	inTheWay := edited(withSource(sourceB), observed(marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkConfigurationFailed(v1alpha1.ReasonNotOwned, children.NotOwnedFormat, "ConfigMap", notOurs.Name)
	}), stillServing))
	wantedRun := taskRun(wanted, builds.ReasonSourceChanged)
	noTaskRun := edited(withSource(sourceB), observed(reconfigured, marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkBuildFailed(v1alpha1.ReasonTaskRunFailed, "TaskRun %s cannot be created: %v", wantedRun.Name, quota)
	}), stillServing))

	rtesting.TableTest{{
		Name:    "steady state: the template of the last image stays",
		Key:     key,
		Objects: buildingObjects(svc1),
	}, {
		Name:        "Service made public by hand",
		Key:         key,
		Objects:     buildingObjects(public),
		WantUpdates: update(svc1),
	}, {
		Name:        "Service has lost its owner reference",
		Key:         key,
		Objects:     buildingObjects(orphan),
		WantUpdates: update(svc1),
	}, {
		Name:        "traffic of the Service edited by hand",
		Key:         key,
		Objects:     buildingObjects(pinned),
		WantUpdates: update(svc1),
	}, {
		Name:          "the template of the Service edited by hand: it is that of the last deployed revision again",
		Key:           key,
		Objects:       buildingObjects(drifted),
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{revisionOf(drifted, "greeter-00002"), revisionOf(svc1, "greeter-00001")}},
		WantUpdates:   update(svc1),
	}, {
		Name:              "the template of the Service edited by hand, and Serving has another default by now: that is remembered",
		Key:               key,
		Objects:           buildingObjects(drifted),
		OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{revisionOf(svc1, "greeter-00001")}},
		WithReactors:      []clientgotesting.ReactionFunc{answer("update", "services", defaulted)},
		WantUpdates:       update(svc1),
		WantStatusUpdates: statusUpdate(remembered),
	}, {
		Name:          "Kiln has died after it wrote another template: that stays",
		Key:           key,
		Objects:       buildingObjects(unremembered),
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{revisionOf(svc1, "greeter-00001")}},
	}, {
		Name:          "the template of the Service edited by hand, and the last deployed revision is gone: that is for later",
		Key:           key,
		Objects:       buildingObjects(drifted),
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{revisionOf(drifted, "greeter-00002")}},
	}, {
		Name:         "the template of the Service edited by hand, and the revisions cannot be read",
		Key:          key,
		Objects:      buildingObjects(drifted),
		WithReactors: []clientgotesting.ReactionFunc{rtesting.InduceFailure("list", "revisions")},
		WantErr:      true,
	}, {
		Name:        "Service made public by hand after the build has failed",
		Key:         key,
		Objects:     []runtime.Object{failed, configMap(failed), failedRun, public},
		WantUpdates: update(svc1),
	}, {
		Name:        "Service deleted by hand after the build has failed",
		Key:         key,
		Objects:     []runtime.Object{failed, configMap(failed), failedRun},
		WantCreates: []runtime.Object{last},
	}, {
		Name:        "Service made public by hand while the runtime is unknown",
		Key:         key,
		Objects:     []runtime.Object{unknown, configMap(running1), tr1, public},
		WantUpdates: update(svc1),
	}, {
		Name:        "Service deleted by hand while the runtime is unknown",
		Key:         key,
		Objects:     []runtime.Object{unknown, configMap(running1), tr1},
		WantCreates: []runtime.Object{knative.MakeService(unknown, running1.Status.Image)},
		WantStatusUpdates: statusUpdate(edited(func(fn *v1alpha1.Function) {
			*fn = *unknown.DeepCopy()
			deployed(fn)
		})),
	}, {
		Name:              "an invalid spec says nothing about who can call, nor where requests go",
		Key:               key,
		Objects:           []runtime.Object{edited(refused...), configMap(running1), tr1, svc1},
		WantStatusUpdates: statusUpdate(edited(append(refused, observed(marked(refusal), stillServing))...)),
		WantEvents:        []string{"Warning InvalidSpec must not be blank: spec.source"},
	}, {
		Name:    "a public Service with requests pinned stays so while the spec is invalid",
		Key:     key,
		Objects: []runtime.Object{invalid, configMap(running1), tr1, publicAndPinned},
	}, {
		Name:    "a Service that was deleted is not made of an invalid spec",
		Key:     key,
		Objects: []runtime.Object{invalid, configMap(running1), tr1},
	}, {
		Name:        "Service without its labels while the spec is invalid",
		Key:         key,
		Objects:     []runtime.Object{invalid, configMap(running1), tr1, service(running1, serviceReady, func(svc *servingv1.Service) { delete(svc.Labels, serverless.FunctionNameLabelKey) })},
		WantUpdates: update(svc1),
	}, {
		Name:          "Service deleted by hand while there is no registry",
		Key:           key,
		Objects:       []runtime.Object{noRegistry, configMap(running1), tr1},
		OtherTestData: map[string]any{configKey: testConfig(func(cfg *config.Config) { cfg.Registry = &config.Registry{} })},
		WantCreates:   []runtime.Object{knative.MakeService(running1, running1.Status.Image)},
	}, {
		Name:         "Service deleted by hand while a quota forbids the ConfigMap",
		Key:          key,
		Objects:      []runtime.Object{noConfigMap},
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "configmaps", quota)},
		WantErr:      true,
		WantCreates:  []runtime.Object{configMap(wanted), last},
	}, {
		Name:          "traffic of the Service edited by hand while a ConfigMap is in the way",
		Key:           key,
		Objects:       []runtime.Object{inTheWay, pinned},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{notOurs}},
		WantErr:       true,
		WantCreates:   []runtime.Object{configMap(wanted)},
		WantUpdates:   update(svc1),
	}, {
		Name:         "Service made public by hand while a quota forbids the TaskRun",
		Key:          key,
		Objects:      []runtime.Object{noTaskRun, configMap(wanted), public},
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "taskruns", quota)},
		WantErr:      true,
		WantCreates:  []runtime.Object{wantedRun},
		WantUpdates:  update(svc1),
	}, {
		Name:         "the Service cannot be restored either, while a quota forbids the TaskRun",
		Key:          key,
		Objects:      []runtime.Object{noTaskRun, configMap(wanted), public},
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "taskruns", quota), rtesting.InduceFailure("update", "services")},
		WantErr:      true,
		WantCreates:  []runtime.Object{wantedRun},
		WantUpdates:  update(svc1),
	}, {
		Name:          "Service without our labels is found and restored",
		Key:           key,
		Objects:       buildingObjects(),
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{noLabel}},
		WantCreates:   []runtime.Object{last},
		WantUpdates:   update(svc1),
	}, {
		Name:          "a Service of that name is not ours: that is for later",
		Key:           key,
		Objects:       buildingObjects(),
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{foreignService}},
		WantCreates:   []runtime.Object{last},
	}, {
		Name:          "the Service of a deleted Function that nobody watches is asked for again",
		Key:           key,
		Objects:       buildingObjects(),
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{predecessorsService()}},
		WantErr:       true,
		WantCreates:   []runtime.Object{last},
	}, {
		Name:         "the Service is rejected: the build continues",
		Key:          key,
		Objects:      buildingObjects(),
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "services", rejected)},
		WantErr:      true,
		WantCreates:  []runtime.Object{last},
	}, {
		Name:         "Service cannot be read",
		Key:          key,
		Objects:      buildingObjects(),
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "services", apierrs.NewAlreadyExists(servingv1.Resource("services"), name)), rtesting.InduceFailure("get", "services")},
		WantErr:      true,
		WantCreates:  []runtime.Object{last},
	}, {
		Name:         "Service cannot be updated for now",
		Key:          key,
		Objects:      buildingObjects(public),
		WithReactors: []clientgotesting.ReactionFunc{rtesting.InduceFailure("update", "services")},
		WantErr:      true,
		WantUpdates:  update(svc1),
	}, {
		Name:    "there was no image yet: no Service is made",
		Key:     key,
		Objects: []runtime.Object{first, configMap(first), taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)},
	}}.Test(t, factory())
}

// TestReconcileReplicas checks Functions with a minimum number of pods.
func TestReconcileReplicas(t *testing.T) {
	two := func(options ...functionOption) *v1alpha1.Function {
		return function(append([]functionOption{withMinReplicas(2)}, options...)...)
	}
	fn := two(observed(configured, built(tr1, digestA), running))
	svc := service(fn, serviceReady)
	waiting := service(fn, serviceStatus(corev1.ConditionUnknown, "", "", "greeter-00001", ""))
	unrouted := service(fn, serviceReady, func(svc *servingv1.Service) { svc.Status.Traffic[0].RevisionName = "greeter-00000" })
	readyPod := podWith("a", corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	otherPod := podWith("b", corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	leavingPod := podWith("b", corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	leavingPod.DeletionTimestamp, leavingPod.Finalizers = &noon, []string{"x"}
	startingPod := podWith("b", corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse})
	homelessPod := podWith("b", corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient cpu.",
	})
	short := func(svc *servingv1.Service, message string) *v1alpha1.Function {
		return two(observed(configured, built(tr1, digestA), running, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonMinimumReplicasUnavailable, "%s", message)
		}), func(fn *v1alpha1.Function) { knative.PropagateStatus(fn, svc) }))
	}

	rtesting.TableTest{{
		Name:    "as many as wanted: nothing to write",
		Key:     key,
		Objects: []runtime.Object{fn, configMap(fn), tr1, svc, readyPod, otherPod},
	}, {
		Name:              "a pod is about to start: have and want",
		Key:               key,
		Objects:           []runtime.Object{fn, configMap(fn), tr1, svc, readyPod, startingPod},
		WantStatusUpdates: statusUpdate(short(svc, "Revision greeter-00001 has 1 of 2 replicas.")),
		WantEvents:        []string{"Normal MinimumReplicasUnavailable Revision greeter-00001 has 1 of 2 replicas."},
	}, {
		Name:              "a pod is about to go",
		Key:               key,
		Objects:           []runtime.Object{fn, configMap(fn), tr1, svc, readyPod, leavingPod},
		WantStatusUpdates: statusUpdate(short(svc, "Revision greeter-00001 has 1 of 2 replicas.")),
		WantEvents:        []string{"Normal MinimumReplicasUnavailable Revision greeter-00001 has 1 of 2 replicas."},
	}, {
		Name:              "there is no node for a pod of a Function that has served",
		Key:               key,
		Objects:           []runtime.Object{fn, configMap(fn), tr1, svc, readyPod, homelessPod},
		WantStatusUpdates: statusUpdate(short(svc, "Revision greeter-00001 has 1 of 2 replicas: 0/1 nodes are available: 1 Insufficient cpu.")),
		WantEvents:        []string{"Normal MinimumReplicasUnavailable Revision greeter-00001 has 1 of 2 replicas: 0/1 nodes are available: 1 Insufficient cpu."},
	}, {
		Name:              "there is no node for a pod of a Function that has not served yet",
		Key:               key,
		Objects:           []runtime.Object{fn, configMap(fn), tr1, waiting, readyPod, homelessPod},
		WantStatusUpdates: statusUpdate(short(waiting, "Revision greeter-00001 has 1 of 2 replicas: 0/1 nodes are available: 1 Insufficient cpu.")),
		WantEvents:        []string{"Normal MinimumReplicasUnavailable Revision greeter-00001 has 1 of 2 replicas: 0/1 nodes are available: 1 Insufficient cpu."},
	}, {
		Name:    "one that wants none starts with one",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, service(running1, serviceStatus(corev1.ConditionUnknown, "", "", "greeter-00001", "")), homelessPod},
		WantStatusUpdates: statusUpdate(function(observed(configured, built(tr1, digestA), running, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonMinimumReplicasUnavailable, "Revision greeter-00001 has 0 of 1 replicas: 0/1 nodes are available: 1 Insufficient cpu.")
		}), func(fn *v1alpha1.Function) { knative.PropagateStatus(fn, waiting) }))),
		WantEvents: []string{"Normal MinimumReplicasUnavailable Revision greeter-00001 has 0 of 1 replicas: 0/1 nodes are available: 1 Insufficient cpu."},
	}, {
		Name:              "pods crash that are wanted",
		Key:               key,
		Objects:           []runtime.Object{fn, configMap(fn), tr1, svc, readyPod, pod(fn, "greeter-00001", crashed2)},
		WantStatusUpdates: statusUpdate(short(svc, "Revision greeter-00001 has 1 of 2 replicas: Container failed with: handler.js:1: SyntaxError")),
		WantEvents:        []string{"Normal MinimumReplicasUnavailable Revision greeter-00001 has 1 of 2 replicas: Container failed with: handler.js:1: SyntaxError"},
	}, {
		Name:    "Serving keeps no pods of a revision that gets no requests",
		Key:     key,
		Objects: []runtime.Object{short(unrouted, ""), configMap(fn), tr1, unrouted},
		WantStatusUpdates: statusUpdate(two(observed(configured, built(tr1, digestA), running, func(fn *v1alpha1.Function) {
			knative.PropagateStatus(fn, unrouted)
			fn.Status.MarkRunning()
		}))),
		WantEvents: []string{"Normal ServiceReady Revision greeter-00000 serves."},
	}}.Test(t, factory())
}

// podWith returns a pod of the first revision.
