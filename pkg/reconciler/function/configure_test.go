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
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

func TestReconcileConfiguration(t *testing.T) {
	unknownRuntime := function(withRuntime("cobol"))
	const badMount = "invalid value: /a:b: spec.secretMounts[0].mountPath\n" +
		"use an absolute path such as /etc/tls, without a colon, and with nothing to shorten"
	invalidObserved := function(withSource(" "), observed(marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "must not be blank: spec.source")
	})))
	tooLargeObserved := function(observed(marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "source and deps together are too large: spec.source")
	})))
	replacing := function(observed(marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkConfigurationUnknown(v1alpha1.ReasonWaitingForDeletion, "ConfigMap was changed and is being replaced.")
	})))
	foreignConfigMap := configMap(function(), func(cm *corev1.ConfigMap) { cm.OwnerReferences = nil; cm.Labels = nil })
	predecessors := configMap(function(withUID("uid-0")))
	orphaned := configMap(function(), func(cm *corev1.ConfigMap) { cm.OwnerReferences = nil })
	changed := configMap(function(), func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"Dockerfile": "FROM evil"} })
	rejected := apierrs.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, configMap(function()).Name, nil)
	quota := apierrs.NewForbidden(corev1.Resource("configmaps"), configMap(function()).Name, nil)

	runtimeAway := running1.DeepCopy()
	runtimeAway.Status.MarkConfigurationFailed(v1alpha1.ReasonRuntimeUnknown, "Runtime \"nodejs24\" is away.")
	runtimeAway.Status.UpdatePhase()

	rtesting.TableTest{{
		Name: "bad workqueue key",
		Key:  "too/many/parts",
	}, {
		Name: "key not found",
		Key:  "default/nobody",
	}, {
		Name:    "deleting: owner references do the rest",
		Key:     key,
		Objects: []runtime.Object{function(deleting)},
	}, {
		Name:        "first reconcile: the ConfigMap and the TaskRun are created",
		Key:         key,
		Objects:     []runtime.Object{function()},
		WantCreates: []runtime.Object{configMap(function()), firstRun},
		WantStatusUpdates: statusUpdate(function(observed(
			configured, buildCreated(firstRun)))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run.",
		},
	}, {
		Name:    "unknown runtime",
		Key:     key,
		Objects: []runtime.Object{unknownRuntime},
		WantStatusUpdates: statusUpdate(function(withRuntime("cobol"), observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonRuntimeUnknown, `Runtime "cobol" is not in config-runtimes, which has: nodejs22, nodejs24.`)
		})))),
		WantEvents: []string{`Warning RuntimeUnknown Runtime "cobol" is not in config-runtimes, which has: nodejs22, nodejs24.`},
	}, {
		Name:    "invalid spec that has slipped past the webhook",
		Key:     key,
		Objects: []runtime.Object{function(withSource(" "))},
		WantStatusUpdates: statusUpdate(function(withSource(" "), observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "must not be blank: spec.source")
		})))),
		WantEvents: []string{"Warning InvalidSpec must not be blank: spec.source"},
	}, {
		Name:    "each edit that bypasses the webhook is validated, whatever was accepted before",
		Key:     key,
		Objects: []runtime.Object{edited(withMount("/a:b")), tr1, svc1, configMap(function())},
		WantStatusUpdates: statusUpdate(edited(withMount("/a:b"), observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "%s", badMount)
		}), stillServing))),
		WantEvents: []string{"Warning InvalidSpec " + badMount},
	}, {
		Name:    "steady state: an invalid spec is not told of again",
		Key:     key,
		Objects: []runtime.Object{invalidObserved},
	}, {
		Name:              "an invalid spec is accepted once the configuration allows it",
		Key:               key,
		Objects:           []runtime.Object{tooLargeObserved},
		WantCreates:       []runtime.Object{configMap(function()), firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run.",
		},
	}, {
		Name:              "an accepted spec stays accepted when its ConfigMap must be written again",
		Key:               key,
		Objects:           []runtime.Object{replacing},
		OtherTestData:     map[string]any{configKey: testConfig(func(cfg *config.Config) { cfg.Functions.MaxSourceBytes = 1 })},
		WantCreates:       []runtime.Object{configMap(function()), firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run.",
		},
	}, {
		Name:          "registry not configured",
		Key:           key,
		Objects:       []runtime.Object{function()},
		OtherTestData: map[string]any{configKey: testConfig(func(cfg *config.Config) { cfg.Registry = &config.Registry{} })},
		WantStatusUpdates: statusUpdate(function(observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonRegistryNotConfigured, "No registry is configured. Set push in the ConfigMap config-registry.")
		})))),
		WantEvents: []string{"Warning RegistryNotConfigured No registry is configured. Set push in the ConfigMap config-registry."},
	}, {
		Name:          "the language of the runtime is unknown",
		Key:           key,
		Objects:       []runtime.Object{function()},
		OtherTestData: map[string]any{configKey: testConfig(func(cfg *config.Config) { cfg.Runtimes["nodejs24"] = config.Runtime{Language: "cobol"} })},
		WantStatusUpdates: statusUpdate(function(observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonRuntimeUnknown, `Runtime "nodejs24" in config-runtimes has the language "cobol", which Kiln does not support. Kiln supports: nodejs, python, custom, dockerfile.`)
		})))),
		WantEvents: []string{`Warning RuntimeUnknown Runtime "nodejs24" in config-runtimes has the language "cobol", which Kiln does not support. Kiln supports: nodejs, python, custom, dockerfile.`},
	}, {
		Name:    "a new generation keeps nothing of an earlier one",
		Key:     key,
		Objects: []runtime.Object{edited(withRuntime("cobol")), configMap(function()), tr1, svc1},
		WantStatusUpdates: statusUpdate(edited(withRuntime("cobol"), observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonRuntimeUnknown, `Runtime "cobol" is not in config-runtimes, which has: nodejs22, nodejs24.`)
		})))),
		WantEvents: []string{`Warning RuntimeUnknown Runtime "cobol" is not in config-runtimes, which has: nodejs22, nodejs24.`},
	}, {
		Name:          "a spec that was accepted stays so when the configuration becomes stricter",
		Key:           key,
		Objects:       []runtime.Object{running1, configMap(running1), tr1, svc1},
		OtherTestData: map[string]any{configKey: testConfig(func(cfg *config.Config) { cfg.Functions.MaxSourceBytes = 1 })},
	}, {
		Name:              "nor does it matter that its runtime was away meanwhile",
		Key:               key,
		Objects:           []runtime.Object{runtimeAway, configMap(running1), tr1, svc1},
		OtherTestData:     map[string]any{configKey: testConfig(func(cfg *config.Config) { cfg.Functions.MaxSourceBytes = 1 })},
		WantStatusUpdates: statusUpdate(running1),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(running1).Name + " holds the build context.",
			"Normal TaskRunSucceeded TaskRun " + tr1.Name + " built " + running1.Status.Image + ".",
			"Normal ServiceReady Revision greeter-00001 serves.",
		},
	}, {
		Name:          "ConfigMap exists and is not ours",
		Key:           key,
		Objects:       []runtime.Object{function()},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{foreignConfigMap}},
		WantErr:       true,
		WantCreates:   []runtime.Object{configMap(function())},
		WantStatusUpdates: statusUpdate(function(observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonNotOwned, children.NotOwnedFormat, "ConfigMap", foreignConfigMap.Name)
		})))),
		WantEvents: []string{
			"Warning NotOwned ConfigMap " + foreignConfigMap.Name + " exists and does not belong to this Function. Delete it, or give the Function another name.",
		},
	}, {
		Name:    "ConfigMap of a deleted Function of the same name is waited for",
		Key:     key,
		Objects: []runtime.Object{function(), predecessors},
		WantStatusUpdates: statusUpdate(function(observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationUnknown(v1alpha1.ReasonWaitingForDeletion, "ConfigMap %s is being deleted.", predecessors.Name)
		})))),
		WantEvents: []string{"Normal WaitingForDeletion ConfigMap " + predecessors.Name + " is being deleted."},
	}, {
		Name:          "ConfigMap of a deleted Function that nobody watches is asked for again",
		Key:           key,
		Objects:       []runtime.Object{function()},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{predecessors}},
		WantErr:       true,
		WantCreates:   []runtime.Object{configMap(function())},
		WantStatusUpdates: statusUpdate(function(observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationUnknown(v1alpha1.ReasonWaitingForDeletion, "ConfigMap %s is being deleted.", predecessors.Name)
		})))),
		WantEvents: []string{
			"Normal WaitingForDeletion ConfigMap " + predecessors.Name + " is being deleted.",
		},
	}, {
		Name:          "ConfigMap without our label is found and restored",
		Key:           key,
		Objects:       []runtime.Object{running1, tr1, svc1},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{configMap(function(), func(cm *corev1.ConfigMap) { cm.Labels = nil })}},
		WantCreates:   []runtime.Object{configMap(function())},
		WantUpdates:   update(configMap(function())),
	}, {
		Name:        "ConfigMap without its owner reference is adopted",
		Key:         key,
		Objects:     []runtime.Object{running1, orphaned, tr1, svc1},
		WantUpdates: update(configMap(function())),
	}, {
		Name:        "ConfigMap deleted by hand comes back, and nothing else happens",
		Key:         key,
		Objects:     []runtime.Object{running1, tr1, svc1},
		WantCreates: []runtime.Object{configMap(function())},
	}, {
		Name:        "ConfigMap with other content is replaced",
		Key:         key,
		Objects:     []runtime.Object{function(), changed},
		WantDeletes: []clientgotesting.DeleteActionImpl{deletion("configmaps", changed)},
		WantStatusUpdates: statusUpdate(function(observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationUnknown(v1alpha1.ReasonWaitingForDeletion, "ConfigMap %s was changed and is being replaced.", changed.Name)
		})))),
		WantEvents: []string{"Normal WaitingForDeletion ConfigMap " + changed.Name + " was changed and is being replaced."},
	}, {
		Name:              "ConfigMap cannot be created for now: nothing is claimed, and it is retried",
		Key:               key,
		Objects:           []runtime.Object{function()},
		WithReactors:      []clientgotesting.ReactionFunc{rtesting.InduceFailure("create", "configmaps")},
		WantErr:           true,
		WantCreates:       []runtime.Object{configMap(function())},
		WantStatusUpdates: statusUpdate(function(observed())),
	}, {
		Name:         "ConfigMap is refused",
		Key:          key,
		Objects:      []runtime.Object{function()},
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "configmaps", rejected)},
		WantErr:      true,
		WantCreates:  []runtime.Object{configMap(function())},
		WantStatusUpdates: statusUpdate(function(observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonConfigMapFailed, "ConfigMap %s cannot be created: %v", configMap(function()).Name, rejected)
		})))),
		WantEvents: []string{
			"Warning ConfigMapFailed ConfigMap " + configMap(function()).Name + " cannot be created: " + rejected.Error(),
		},
	}, {
		Name:         "ConfigMap exceeds a quota",
		Key:          key,
		Objects:      []runtime.Object{function()},
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "configmaps", quota)},
		WantErr:      true,
		WantCreates:  []runtime.Object{configMap(function())},
		WantStatusUpdates: statusUpdate(function(observed(marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonConfigMapFailed, "ConfigMap %s cannot be created: %v", configMap(function()).Name, quota)
		})))),
		WantEvents: []string{
			"Warning ConfigMapFailed ConfigMap " + configMap(function()).Name + " cannot be created: " + quota.Error(),
		},
	}, {
		Name:              "the namespace is being deleted: nothing is said, and it is not tried again",
		Key:               key,
		Objects:           []runtime.Object{function()},
		WithReactors:      []clientgotesting.ReactionFunc{fail("create", "configmaps", namespaceTerminating())},
		WantErr:           true,
		WantCreates:       []runtime.Object{configMap(function())},
		WantStatusUpdates: statusUpdate(function(observed())),
	}, {
		Name:         "ConfigMap cannot be updated",
		Key:          key,
		Objects:      []runtime.Object{running1, orphaned, tr1, svc1},
		WithReactors: []clientgotesting.ReactionFunc{rtesting.InduceFailure("update", "configmaps")},
		WantErr:      true,
		WantUpdates:  update(configMap(function())),
	}, {
		Name:         "ConfigMap of an earlier build cannot be deleted",
		Key:          key,
		Objects:      []runtime.Object{running1, configMap(running1), configMap(function(withSource(sourceB))), tr1, svc1},
		WithReactors: []clientgotesting.ReactionFunc{rtesting.InduceFailure("delete", "configmaps")},
		WantErr:      true,
		WantDeletes:  []clientgotesting.DeleteActionImpl{deletion("configmaps", configMap(function(withSource(sourceB))))},
	}, {
		Name:              "status was written meanwhile: it is not overwritten, and nothing is told yet",
		Key:               key,
		Objects:           []runtime.Object{function()},
		WithReactors:      []clientgotesting.ReactionFunc{failOnce("update", "functions", apierrs.NewConflict(v1alpha1.Resource("functions"), name, nil))},
		WantErr:           true,
		WantCreates:       []runtime.Object{configMap(function()), firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
	}, {
		Name:              "status cannot be written as the Function is gone",
		Key:               key,
		Objects:           []runtime.Object{function()},
		WithReactors:      []clientgotesting.ReactionFunc{failOnce("update", "functions", apierrs.NewNotFound(v1alpha1.Resource("functions"), name))},
		WantCreates:       []runtime.Object{configMap(function()), firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
	}, {
		Name:              "status cannot be written",
		Key:               key,
		Objects:           []runtime.Object{function()},
		WithReactors:      []clientgotesting.ReactionFunc{rtesting.InduceFailure("update", "functions")},
		WantErr:           true,
		WantCreates:       []runtime.Object{configMap(function()), firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
	}}.Test(t, factory())
}
