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

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// The worlds that most rows begin in, or end in.
var (
	firstRun = taskRun(function(), builds.ReasonFirstBuild)

	// running1 is a Function of generation 1 that runs, with all its children.
	running1 = function(observed(configured, built(taskRun(function(), builds.ReasonFirstBuild, taskRunSucceeded(digestA)), digestA), running))
	tr1      = taskRun(function(), builds.ReasonFirstBuild, taskRunSucceeded(digestA))
	svc1     = service(running1, serviceReady)
)

// edited returns the running Function after an edit that no reconcile has seen.
func edited(options ...functionOption) *v1alpha1.Function {
	fn := running1.DeepCopy()
	fn.Generation = 2
	for _, option := range options {
		option(fn)
	}
	return fn
}

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
		Name:    "each edit that slips past the webhook is looked at, whatever was accepted before",
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
		Name:              "a spec that was accepted stays so even where its ConfigMap is to be written again",
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
		Name:          "ConfigMap without our label is found and healed",
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
		Name:              "ConfigMap cannot be created for now: nothing is claimed, and it is tried again",
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

func TestReconcileBuild(t *testing.T) {
	runningRun := taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)
	stuckRun := taskRun(function(), builds.ReasonFirstBuild, succeededCondition(corev1.ConditionUnknown, "ExceededNodeResources", "TaskRun Pod exceeded available resources"))
	failedRun := taskRun(function(), builds.ReasonFirstBuild, taskRunFailed("StepFailed", `"step-install" exited with code 1`), withFailedStep)
	timedOut := taskRun(function(), builds.ReasonFirstBuild, taskRunFailed("TaskRunTimeout", `TaskRun "x" failed to finish within "15m0s"`))
	timedOut.Status.Steps = []pipelinev1.StepState{{Name: "install"}}
	withoutResult := taskRun(function(), builds.ReasonFirstBuild, succeededCondition(corev1.ConditionTrue, "Succeeded", ""))
	withBadResult := taskRun(function(), builds.ReasonFirstBuild, taskRunSucceeded("latest"))

	npmLog := "\x1b[36mINFO\x1b[0m[0003] RUN npm install\nnpm error code ETARGET\nnpm error notarget No matching version found for ms@99.0.0.\nerror building image: error building stage: failed to execute command: waiting for process to exit: exit status 1\n"
	npmFailure := builds.Failure{Cause: builds.StepFailed, Log: npmLog}.Describe(planOf(function()).runtime.ExplainBuildFailure)
	timeout := v1alpha1.BuildFailure{
		Reason:  v1alpha1.ReasonBuildTimeout,
		Message: `The build took too long. Raise spec.build.timeout, up to the max-timeout in config-build. TaskRun "x" failed to finish within "15m0s"`,
	}
	noResult := v1alpha1.BuildFailure{
		Reason:  v1alpha1.ReasonTaskRunFailed,
		Message: "TaskRun " + firstRun.Name + " succeeded but does not report its image: the result IMAGE_DIGEST is missing",
	}
	badResult := v1alpha1.BuildFailure{
		Reason:  v1alpha1.ReasonTaskRunFailed,
		Message: "TaskRun " + firstRun.Name + ` succeeded but does not report its image: the result IMAGE_DIGEST is not a digest: cannot parse hash: "latest"`,
	}

	building := function(observed(configured, buildCreated(firstRun)))
	failed := function(observed(configured, buildFailed(failedRun, *npmFailure)))
	sourceEdited := edited(withSource(sourceB))
	secondRun := taskRun(sourceEdited, builds.ReasonSourceChanged)
	planned := edited(withSource(sourceB), observed(reconfigured, buildPlanned(builds.ReasonSourceChanged, tr1), stillServing))
	envFixed := func(options ...functionOption) *v1alpha1.Function {
		fn := failed.DeepCopy()
		fn.Generation = 2
		withEnv("A", "1")(fn)
		for _, option := range options {
			option(fn)
		}
		return fn
	}
	retryRun := taskRun(envFixed(), builds.ReasonPreviousBuildFailed)
	again := func(options ...functionOption) *v1alpha1.Function {
		fn := running1.DeepCopy()
		withRebuild("1")(fn)
		for _, option := range options {
			option(fn)
		}
		return fn
	}
	rebuildRun := taskRun(again(), builds.ReasonRebuildRequested)
	secondAttempt := attempt(building, builds.ReasonFirstBuild, 2)
	leavingRun := taskRun(building, builds.ReasonFirstBuild, taskRunRunning, taskRunDeleting)
	plannedAgain := func(fn *v1alpha1.Function) {
		buildPlanned(builds.ReasonFirstBuild, leavingRun)(fn)
		fn.Status.Build.Attempts = 1
	}

	rejected := apierrs.NewBadRequest(`admission webhook "validation.webhook.pipeline.tekton.dev" denied the request`)
	newBase := testConfig(func(cfg *config.Config) {
		cfg.Runtimes["nodejs24"] = config.Runtime{BaseImage: "node:24.1", Language: "nodejs"}
	})

	rtesting.TableTest{{
		Name:    "TaskRun has not begun: nothing to write",
		Key:     key,
		Objects: []runtime.Object{building, configMap(building), firstRun},
	}, {
		Name:              "TaskRun runs",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), runningRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildRunning(runningRun)))),
		WantEvents:        []string{"Normal TaskRunRunning TaskRun " + firstRun.Name + " runs."},
	}, {
		Name:    "TaskRun runs still: nothing to write",
		Key:     key,
		Objects: []runtime.Object{function(observed(configured, buildRunning(runningRun))), configMap(building), runningRun},
	}, {
		Name:    "TaskRun is held up: the status says by what",
		Key:     key,
		Objects: []runtime.Object{function(observed(configured, buildRunning(runningRun))), configMap(building), stuckRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildRunning(runningRun), marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s has not ended: ExceededNodeResources: TaskRun Pod exceeded available resources", firstRun.Name)
		})))),
	}, {
		Name:        "TaskRun succeeded: its image is deployed by digest",
		Key:         key,
		Objects:     []runtime.Object{building, configMap(building), tr1},
		WantCreates: []runtime.Object{knative.MakeService(running1, repo+"@"+digestA)},
		WantStatusUpdates: statusUpdate(function(observed(
			configured, built(tr1, digestA), serviceCreated))),
		WantEvents: []string{
			"Normal TaskRunSucceeded TaskRun " + tr1.Name + " built " + repo + "@" + digestA + ".",
			"Normal ServiceCreated Service greeter was created.",
		},
	}, {
		Name:              "TaskRun succeeded without the digest",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), withoutResult},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildFailed(withoutResult, noResult)))),
		WantEvents:        []string{"Warning TaskRunFailed " + noResult.Message},
	}, {
		Name:              "TaskRun succeeded with something that is no digest",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), withBadResult},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildFailed(withBadResult, badResult)))),
		WantEvents:        []string{"Warning TaskRunFailed " + badResult.Message},
	}, {
		Name:              "TaskRun failed: npm says why",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), failedRun},
		OtherTestData:     map[string]any{logKey: npmLog},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildFailed(failedRun, *npmFailure)))),
		WantEvents:        []string{"Warning TaskRunFailed " + npmFailure.Message},
	}, {
		Name:    "a failed build is not tried again, nor its log read again",
		Key:     key,
		Objects: []runtime.Object{failed, configMap(failed), failedRun},
	}, {
		Name:    "a failed build is not tried again when its TaskRun is deleted",
		Key:     key,
		Objects: []runtime.Object{failed, configMap(failed)},
	}, {
		Name:              "TaskRun timed out",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), timedOut},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildFailed(timedOut, timeout)))),
		WantEvents:        []string{"Warning BuildTimeout " + timeout.Message},
	}, {
		Name:              "the Function of a failed build was updated: the failed TaskRun goes first",
		Key:               key,
		Objects:           []runtime.Object{envFixed(), configMap(failed), failedRun},
		WantDeletes:       []clientgotesting.DeleteActionImpl{deletion("taskruns", failedRun)},
		WantStatusUpdates: statusUpdate(envFixed(observed(configured, buildPlanned(builds.ReasonPreviousBuildFailed, failedRun)))),
		WantEvents:        []string{"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + failedRun.Name + "."},
	}, {
		Name:              "the Function of a failed build was updated: it is built again",
		Key:               key,
		Objects:           []runtime.Object{envFixed(observed(configured, buildPlanned(builds.ReasonPreviousBuildFailed, failedRun))), configMap(failed)},
		WantCreates:       []runtime.Object{retryRun},
		WantStatusUpdates: statusUpdate(envFixed(observed(configured, buildCreated(retryRun)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + retryRun.Name + " is about to run."},
	}, {
		Name:        "source edited: earlier TaskRuns are deleted, the Service goes on",
		Key:         key,
		Objects:     []runtime.Object{sourceEdited, configMap(running1), tr1, svc1},
		WantCreates: []runtime.Object{configMap(sourceEdited)},
		WantDeletes: []clientgotesting.DeleteActionImpl{
			deletion("configmaps", configMap(running1)), deletion("taskruns", tr1),
		},
		WantStatusUpdates: statusUpdate(planned),
		WantEvents: []string{
			"Normal ConfigMapUpdated ConfigMap " + configMap(sourceEdited).Name + " holds the build context.",
			"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + tr1.Name + ".",
		},
	}, {
		Name:              "source edited: the earlier TaskRuns are gone, the build starts",
		Key:               key,
		Objects:           []runtime.Object{planned, configMap(sourceEdited), svc1},
		WantCreates:       []runtime.Object{secondRun},
		WantStatusUpdates: statusUpdate(edited(withSource(sourceB), observed(reconfigured, stillServing, buildCreated(secondRun)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + secondRun.Name + " is about to run."},
	}, {
		Name: "an earlier TaskRun cannot go yet: it is waited for",
		Key:  key,
		Objects: []runtime.Object{
			planned, configMap(sourceEdited), svc1,
			taskRun(function(), builds.ReasonFirstBuild, taskRunSucceeded(digestA), taskRunDeleting),
		},
	}, {
		Name:              "source edited back before the build is done: its image is used, the TaskRun goes",
		Key:               key,
		Objects:           []runtime.Object{editedBack(), configMap(running1), secondRun, svc1},
		WantDeletes:       []clientgotesting.DeleteActionImpl{deletion("taskruns", secondRun)},
		WantStatusUpdates: statusUpdate(editedBack(observed(reconfigured, reused, running))),
		WantEvents: []string{
			"Normal ConfigMapUpdated ConfigMap " + configMap(running1).Name + " holds the build context.",
			"Normal ImageReused " + repo + "@" + digestA + " was built before.",
			"Normal ServiceReady Revision greeter-00001 serves.",
		},
	}, {
		Name:              "env edited: a new revision, no build",
		Key:               key,
		Objects:           []runtime.Object{edited(withEnv("A", "1")), configMap(running1), tr1, svc1},
		WantUpdates:       update(merged(edited(withEnv("A", "1")), svc1)),
		WantStatusUpdates: statusUpdate(edited(withEnv("A", "1"), observed(configured, built(tr1, digestA), serviceUpdated))),
		WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
	}, {
		Name:    "labels of the Function edited: nothing happens",
		Key:     key,
		Objects: []runtime.Object{labelled(), configMap(running1), tr1, svc1},
	}, {
		Name:              "rebuild requested: the earlier TaskRun goes first",
		Key:               key,
		Objects:           []runtime.Object{again(), configMap(running1), tr1, svc1},
		WantDeletes:       []clientgotesting.DeleteActionImpl{deletion("taskruns", tr1)},
		WantStatusUpdates: statusUpdate(again(observed(configured, buildPlanned(builds.ReasonRebuildRequested, tr1), stillServing))),
		WantEvents:        []string{"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + tr1.Name + "."},
	}, {
		Name:              "rebuild requested: the build starts",
		Key:               key,
		Objects:           []runtime.Object{again(), configMap(running1), svc1},
		WantCreates:       []runtime.Object{rebuildRun},
		WantStatusUpdates: statusUpdate(again(observed(configured, buildCreated(rebuildRun), stillServing))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + rebuildRun.Name + " is about to run."},
	}, {
		Name:    "rebuild was answered: nothing happens",
		Key:     key,
		Objects: []runtime.Object{again(observed(configured, built(taskRun(again(), builds.ReasonRebuildRequested, taskRunSucceeded(digestA)), digestA), running)), configMap(running1), svc1},
	}, {
		Name:          "base image changed: built again, though nobody edited the Function",
		Key:           key,
		OtherTestData: map[string]any{configKey: newBase},
		Objects:       []runtime.Object{running1, configMap(running1), tr1, svc1},
		WantCreates:   []runtime.Object{configMapIn(newBase, running1)},
		WantDeletes: []clientgotesting.DeleteActionImpl{
			deletion("configmaps", configMap(running1)), deletion("taskruns", tr1),
		},
		WantStatusUpdates: statusUpdate(rebased(newBase)),
		WantEvents: []string{
			"Normal ConfigMapUpdated ConfigMap " + configMapIn(newBase, running1).Name + " holds the build context.",
			"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + tr1.Name + ".",
		},
	}, {
		Name:              "TaskRun deleted by hand while it runs: created again",
		Key:               key,
		Objects:           []runtime.Object{function(observed(configured, buildRunning(runningRun))), configMap(building)},
		WantCreates:       []runtime.Object{secondAttempt},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(secondAttempt)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + secondAttempt.Name + " is about to run."},
	}, {
		Name:              "TaskRun deleted by hand while it runs, but not gone yet: it is waited for",
		Key:               key,
		Objects:           []runtime.Object{function(observed(configured, buildRunning(runningRun))), configMap(building), leavingRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, plannedAgain))),
		WantEvents:        []string{"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + leavingRun.Name + "."},
	}, {
		Name:    "TaskRun deleted by hand is still not gone: nothing to write",
		Key:     key,
		Objects: []runtime.Object{function(observed(configured, plannedAgain)), configMap(building), leavingRun},
	}, {
		Name:              "TaskRun deleted by hand is gone at last: the next attempt has another name",
		Key:               key,
		Objects:           []runtime.Object{function(observed(configured, plannedAgain)), configMap(building)},
		WantCreates:       []runtime.Object{secondAttempt},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(secondAttempt)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + secondAttempt.Name + " is about to run."},
	}, {
		Name:    "the status has lost the build, but not the image: that is used",
		Key:     key,
		Objects: []runtime.Object{edited(func(fn *v1alpha1.Function) { *fn = *running1.DeepCopy(); fn.Status.Build = nil }), configMap(running1), svc1},
		WantStatusUpdates: statusUpdate(edited(func(fn *v1alpha1.Function) {
			*fn = *running1.DeepCopy()
			reused(fn)
		})),
		WantEvents: []string{"Normal ImageReused " + repo + "@" + digestA + " was built before."},
	}, {
		Name:    "TaskRun deleted by hand after it succeeded: nothing happens",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), svc1},
	}, {
		Name:          "TaskRun that has lost its label while it runs is found and healed",
		Key:           key,
		Objects:       []runtime.Object{function(observed(configured, buildRunning(runningRun))), configMap(building)},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{unlabelled(runningRun)}},
		WantUpdates:   update(runningRun),
	}, {
		Name:        "TaskRun that has lost its owner reference and a label is adopted again",
		Key:         key,
		Objects:     []runtime.Object{function(observed(configured, buildRunning(runningRun))), configMap(building), orphaned(runningRun)},
		WantUpdates: update(runningRun),
	}, {
		Name:         "TaskRun cannot be adopted again for now",
		Key:          key,
		Objects:      []runtime.Object{function(observed(configured, buildRunning(runningRun))), configMap(building), orphaned(runningRun)},
		WithReactors: []clientgotesting.ReactionFunc{rtesting.InduceFailure("update", "taskruns")},
		WantErr:      true,
		WantUpdates:  update(runningRun),
	}, {
		Name:    "what somebody else has labelled as ours is left alone",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, svc1, labelledTaskRun(), labelledConfigMap()},
	}, {
		Name:              "status was lost: the TaskRun there is counts",
		Key:               key,
		Objects:           []runtime.Object{function(), configMap(function()), runningRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildRunning(runningRun)))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Normal TaskRunRunning TaskRun " + firstRun.Name + " runs.",
		},
	}, {
		Name:              "the cache does not show the TaskRun yet: no second one",
		Key:               key,
		Objects:           []runtime.Object{function(), configMap(function())},
		OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{runningRun}, queueKey: knowingQueue(runningRun)},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildRunning(runningRun)))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Normal TaskRunRunning TaskRun " + firstRun.Name + " runs.",
		},
	}, {
		Name:         "the cache does not show that the Function is gone: no build, no status",
		Key:          key,
		Objects:      []runtime.Object{function(), configMap(function())},
		WithReactors: []clientgotesting.ReactionFunc{fail("get", "functions", apierrs.NewNotFound(v1alpha1.Resource("functions"), name))},
	}, {
		Name:    "the cache shows an older Function: no build, no status",
		Key:     key,
		Objects: []runtime.Object{function(), configMap(function())},
		WithReactors: []clientgotesting.ReactionFunc{func(action clientgotesting.Action) (bool, runtime.Object, error) {
			newer := function()
			newer.ResourceVersion = "2"
			return action.Matches("get", "functions"), newer, nil
		}},
	}, {
		Name:              "a TaskRun of that name was created since: it is ours",
		Key:               key,
		Objects:           []runtime.Object{function(), configMap(function())},
		WithReactors:      race(firstRun),
		WantCreates:       []runtime.Object{firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run.",
		},
	}, {
		Name:              "a TaskRun of that name is ours, and has lost its labels",
		Key:               key,
		Objects:           []runtime.Object{function(observed(configured)), configMap(function())},
		OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{unlabelled(firstRun)}},
		WantCreates:       []runtime.Object{firstRun},
		WantUpdates:       update(firstRun),
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run."},
	}, {
		Name:         "a TaskRun of that name is being deleted: nobody tells when it is gone, so it is tried again",
		Key:          key,
		Objects:      []runtime.Object{function(observed(configured)), configMap(function())},
		WithReactors: race(taskRun(function(), builds.ReasonFirstBuild, taskRunDeleting)),
		WantErr:      true,
		WantCreates:  []runtime.Object{firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkBuildUnknown(v1alpha1.ReasonWaitingForDeletion, "TaskRun %s is being deleted.", firstRun.Name)
		})))),
		WantEvents: []string{
			"Normal WaitingForDeletion TaskRun " + firstRun.Name + " is being deleted.",
		},
	}, {
		Name:         "a TaskRun of that name is not ours",
		Key:          key,
		Objects:      []runtime.Object{function(observed(configured)), configMap(function())},
		WithReactors: race(foreignTaskRun()),
		WantErr:      true,
		WantCreates:  []runtime.Object{firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkBuildFailed(v1alpha1.ReasonNotOwned, children.NotOwnedFormat, "TaskRun", firstRun.Name)
		})))),
		WantEvents: []string{
			"Warning NotOwned TaskRun " + firstRun.Name + " exists and does not belong to this Function. Delete it, or give the Function another name.",
		},
	}, {
		Name:         "TaskRun is refused",
		Key:          key,
		Objects:      []runtime.Object{function(observed(configured)), configMap(function())},
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "taskruns", rejected)},
		WantErr:      true,
		WantCreates:  []runtime.Object{firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkBuildFailed(v1alpha1.ReasonTaskRunFailed, "TaskRun %s cannot be created: %v", firstRun.Name, rejected)
		})))),
		WantEvents: []string{
			"Warning TaskRunFailed TaskRun " + firstRun.Name + " cannot be created: " + rejected.Error(),
		},
	}, {
		Name:              "TaskRun cannot be created for now",
		Key:               key,
		Objects:           []runtime.Object{function(observed(configured)), configMap(function())},
		WithReactors:      []clientgotesting.ReactionFunc{rtesting.InduceFailure("create", "taskruns")},
		WantErr:           true,
		WantCreates:       []runtime.Object{firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildNotCreated(firstRun)))),
		WantEvents: []string{
			"Warning TaskRunNotCreated TaskRun " + firstRun.Name + " cannot be created. Kiln keeps retrying: inducing failure for create taskruns",
		},
	}, {
		Name:         "TaskRun still cannot be created: nothing to write",
		Key:          key,
		Objects:      []runtime.Object{function(observed(configured, buildNotCreated(firstRun))), configMap(function())},
		WithReactors: []clientgotesting.ReactionFunc{rtesting.InduceFailure("create", "taskruns")},
		WantErr:      true,
		WantCreates:  []runtime.Object{firstRun},
	}, {
		Name:              "TaskRun can be created at last",
		Key:               key,
		Objects:           []runtime.Object{function(observed(configured, buildNotCreated(firstRun))), configMap(function())},
		WantCreates:       []runtime.Object{firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run."},
	}, {
		Name:          "a TaskRun that the cache does not show yet cannot be read: no other",
		Key:           key,
		Objects:       []runtime.Object{function(observed(configured)), configMap(function())},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{runningRun}, queueKey: knowingQueue(runningRun)},
		WithReactors:  []clientgotesting.ReactionFunc{rtesting.InduceFailure("get", "taskruns")},
		WantErr:       true,
	}, {
		Name:         "Function cannot be read",
		Key:          key,
		Objects:      []runtime.Object{function(observed(configured)), configMap(function())},
		WithReactors: []clientgotesting.ReactionFunc{rtesting.InduceFailure("get", "functions")},
		WantErr:      true,
	}, {
		Name:         "an earlier TaskRun cannot be deleted",
		Key:          key,
		Objects:      []runtime.Object{again(), configMap(running1), tr1, svc1},
		WithReactors: []clientgotesting.ReactionFunc{rtesting.InduceFailure("delete", "taskruns")},
		WantErr:      true,
		WantDeletes:  []clientgotesting.DeleteActionImpl{deletion("taskruns", tr1)},
	}, {
		Name:    "a TaskRun of a newer generation than the cache shows is left alone",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, svc1, secondRun},
	}}.Test(t, factory())
}

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
		Name:          "there is no room for a pod: that is no failure of the Function",
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
		Name:    "the Service is to be cluster-local, and Serving has not seen that: its generation does not tell",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, published},
		WantStatusUpdates: statusUpdate(svcStatus(published, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Serving has not observed the last change of Service greeter yet.")
		})),
		WantEvents: []string{"Normal ServiceWaiting Serving has not observed the last change of Service greeter yet."},
	}, {
		Name:    "the Service is to be public, and Serving has not seen that, or has no domain for it",
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
		Name:              "Service without our label is found and healed",
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
		Name:          "Serving refuses the revision: the last one heals, and is reached as the Function says",
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

// TestReconcileKeepsServing is about the Service while there is no image of the
// Function as it is now.
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
	envNext := edited(withSource(sourceB), withEnv("A", "1"))
	envNext = edited(withSource(sourceB), withEnv("A", "1"), observed(reconfigured, buildRunning(taskRun(envNext, builds.ReasonSourceChanged, taskRunRunning)), stillServing))
	redeployed := knative.MakeService(envNext, running1.Status.Image)
	redeployed.Spec.Template, redeployed.Annotations = svc1.Spec.Template, knative.MakeService(running1, running1.Status.Image).Annotations
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
		Name:          "Service deleted by hand, while its revisions are still there: it is as it was deployed last",
		Key:           key,
		Objects:       []runtime.Object{envNext, configMap(envNext), taskRun(envNext, builds.ReasonSourceChanged, taskRunRunning)},
		OtherTestData: map[string]any{ktesting.Unlisted: []runtime.Object{revisionOf(svc1, "greeter-00001")}},
		WantCreates:   []runtime.Object{redeployed},
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
		Name:         "Service cannot be healed, either, while a quota forbids the TaskRun",
		Key:          key,
		Objects:      []runtime.Object{noTaskRun, configMap(wanted), public},
		WithReactors: []clientgotesting.ReactionFunc{fail("create", "taskruns", quota), rtesting.InduceFailure("update", "services")},
		WantErr:      true,
		WantCreates:  []runtime.Object{wantedRun},
		WantUpdates:  update(svc1),
	}, {
		Name:          "Service without our labels is found and healed",
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
		Name:         "Service is refused: the build goes on",
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

// TestReconcileTraffic is about the revisions that requests are sent to.
func TestReconcileTraffic(t *testing.T) {
	old := v1alpha1.TrafficTarget{RevisionName: "greeter-00001", Percent: new(int64(100)), Tag: "old"}
	typo := v1alpha1.TrafficTarget{RevisionName: "greeter-00009", Percent: new(int64(100))}
	rev1 := revisionOf(svc1, "greeter-00001")
	others := revisionOf(svc1, "greeter-00009")
	others.Labels["serving.knative.dev/serviceUID"] = "of a Service before, or of another"
	leaving := revisionOf(svc1, "greeter-00009")
	leaving.DeletionTimestamp, leaving.Finalizers = &noon, []string{"x"}
	revisions := map[string]any{ktesting.Unlisted: []runtime.Object{rev1, others}}

	rolledBack := func(fn *v1alpha1.Function) *v1alpha1.Function { withTraffic(old)(fn); return fn }
	split := service(rolledBack(running1.DeepCopy()), serviceReady, func(svc *servingv1.Service) {
		svc.Status.LatestCreatedRevisionName, svc.Status.LatestReadyRevisionName = "greeter-00002", "greeter-00002"
		svc.Status.Traffic = []servingv1.TrafficTarget{
			{RevisionName: "greeter-00001", LatestRevision: new(false), Percent: new(int64(90)), Tag: "old", URL: &apis.URL{Scheme: "http", Host: "old-greeter.default.svc.cluster.local"}},
			{RevisionName: "greeter-00002", LatestRevision: new(true), Percent: new(int64(10))},
		}
	})
	splitting := rolledBack(running1.DeepCopy())
	knative.PropagateStatus(splitting, split)
	splitting.Status.MarkRunning()
	missing := "spec.traffic names revisions that the Function does not have: greeter-00009; it has greeter-00001. " +
		"Name one of these, or set latestRevision: true. The previous traffic stays in effect."
	none := "spec.traffic names revisions that the Function does not have: greeter-00009; it has none yet, and gets none until spec.traffic is corrected. " +
		"Remove spec.traffic, or set latestRevision: true."
	isMissing := func(message string) functionOption {
		return marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonRevisionMissing, "%s", message)
		})
	}
	gone := service(rolledBack(running1.DeepCopy()), serviceReady, routeFailed("RevisionMissing", `Revision "greeter-00001" referenced in traffic not found.`))
	drifted := service(running1, serviceReady, func(svc *servingv1.Service) {
		svc.Spec.Template.Spec.Containers[0].Image = "evil"
		delete(svc.Labels, "networking.knative.dev/visibility")
	})
	failedRun := taskRun(edited(withSource(sourceB)), builds.ReasonSourceChanged, taskRunFailed("StepFailed", "no"))
	buildHasFailed := buildFailed(failedRun, v1alpha1.BuildFailure{Reason: v1alpha1.ReasonTaskRunFailed, Message: "no"})
	failed := edited(withSource(sourceB), observed(reconfigured, stillServing, buildHasFailed))

	rtesting.TableTest{{
		Name:              "traffic goes back to an earlier revision: neither a build nor a revision",
		Key:               key,
		Objects:           []runtime.Object{edited(withTraffic(old)), configMap(running1), tr1, svc1},
		OtherTestData:     revisions,
		WantUpdates:       update(merged(rolledBack(running1.DeepCopy()), svc1)),
		WantStatusUpdates: statusUpdate(edited(withTraffic(old), observed(configured, built(tr1, digestA), serviceUpdated))),
		WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
	}, {
		Name:              "traffic is split: the status tells how, and the URL of the tag",
		Key:               key,
		Objects:           []runtime.Object{rolledBack(running1.DeepCopy()), configMap(running1), tr1, split},
		WantStatusUpdates: statusUpdate(splitting),
		WantEvents:        []string{"Normal ServiceReady Revisions greeter-00001 (90%), greeter-00002 (10%) serve."},
	}, {
		Name:    "traffic is split still: nothing to write, nothing to look up",
		Key:     key,
		Objects: []runtime.Object{splitting, configMap(running1), tr1, split},
	}, {
		Name:              "traffic names what is no revision: nothing of the edit is applied",
		Key:               key,
		Objects:           []runtime.Object{edited(withTraffic(typo), withEnv("A", "1")), configMap(running1), tr1, svc1},
		OtherTestData:     revisions,
		WantStatusUpdates: statusUpdate(edited(withTraffic(typo), withEnv("A", "1"), observed(configured, built(tr1, digestA), stillServing, isMissing(missing)))),
		WantEvents:        []string{"Warning RevisionMissing " + missing},
	}, {
		Name:          "traffic still names what is no revision: nothing to write",
		Key:           key,
		Objects:       []runtime.Object{edited(withTraffic(typo), observed(configured, built(tr1, digestA), stillServing, isMissing(missing))), configMap(running1), tr1, svc1},
		OtherTestData: revisions,
	}, {
		Name:          "traffic names what is no revision: the Service heals",
		Key:           key,
		Objects:       []runtime.Object{edited(withTraffic(typo), observed(configured, built(tr1, digestA), stillServing, isMissing(missing))), configMap(running1), tr1, drifted},
		OtherTestData: revisions,
		WantUpdates:   update(svc1),
	}, {
		Name:              "traffic names a revision that is being deleted",
		Key:               key,
		Objects:           []runtime.Object{edited(withTraffic(typo)), configMap(running1), tr1, svc1},
		OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{rev1, leaving}},
		WantStatusUpdates: statusUpdate(edited(withTraffic(typo), observed(configured, built(tr1, digestA), stillServing, isMissing(missing)))),
		WantEvents:        []string{"Warning RevisionMissing " + missing},
	}, {
		Name:              "a new Function names a revision: there is no Service until that is mended, and what one before has left does not count",
		Key:               key,
		Objects:           []runtime.Object{function(withTraffic(typo), observed(configured, built(tr1, digestA))), configMap(running1), tr1},
		OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{others}},
		WantStatusUpdates: statusUpdate(function(withTraffic(typo), observed(configured, built(tr1, digestA), isMissing(none)))),
		WantEvents:        []string{"Warning RevisionMissing " + none},
	}, {
		Name:    "a revision that requests were sent to is gone: Serving says so",
		Key:     key,
		Objects: []runtime.Object{splitting, configMap(running1), tr1, gone},
		WantStatusUpdates: statusUpdate(func() *v1alpha1.Function {
			fn := splitting.DeepCopy()
			knative.PropagateStatus(fn, gone)
			fn.Status.MarkRunningFailed(v1alpha1.ReasonRevisionMissing, `Revision "greeter-00001" referenced in traffic not found. The previous traffic stays in effect.`)
			fn.Status.UpdatePhase()
			return fn
		}()),
		WantEvents: []string{`Warning RevisionMissing Revision "greeter-00001" referenced in traffic not found. The previous traffic stays in effect.`},
	}, {
		Name:          "traffic goes back to an earlier revision after the build has failed",
		Key:           key,
		Objects:       []runtime.Object{rolledBack(failed.DeepCopy()), configMap(failed), failedRun, svc1},
		OtherTestData: revisions,
		WantUpdates:   update(merged(rolledBack(running1.DeepCopy()), svc1)),
	}, {
		Name:              "traffic names what is no revision after the build has failed",
		Key:               key,
		Objects:           []runtime.Object{edited(withSource(sourceB), withTraffic(typo), observed(reconfigured, stillServing, buildHasFailed)), configMap(failed), failedRun, svc1},
		OtherTestData:     revisions,
		WantStatusUpdates: statusUpdate(edited(withSource(sourceB), withTraffic(typo), observed(reconfigured, stillServing, buildHasFailed, isMissing(missing)))),
		WantEvents:        []string{"Warning RevisionMissing " + missing},
	}, {
		Name:          "traffic names what is no revision while the build fails still: nothing to write",
		Key:           key,
		Objects:       []runtime.Object{edited(withSource(sourceB), withTraffic(typo), observed(reconfigured, stillServing, buildHasFailed, isMissing(missing))), configMap(failed), failedRun, svc1},
		OtherTestData: revisions,
	}, {
		Name:              "the revisions cannot be read",
		Key:               key,
		Objects:           []runtime.Object{edited(withTraffic(old)), configMap(running1), tr1, svc1},
		WithReactors:      []clientgotesting.ReactionFunc{rtesting.InduceFailure("list", "revisions")},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(edited(withTraffic(old), observed(configured, built(tr1, digestA), stillServing))),
	}, {
		Name:         "the revisions cannot be read while the next image is built",
		Key:          key,
		Objects:      []runtime.Object{rolledBack(failed.DeepCopy()), configMap(failed), failedRun, svc1},
		WithReactors: []clientgotesting.ReactionFunc{rtesting.InduceFailure("list", "revisions")},
		WantErr:      true,
	}}.Test(t, factory())
}

// TestReconcileReplicas is about Functions that want a number of pods at any time.
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
func podWith(name string, conditions ...corev1.PodCondition) *corev1.Pod {
	p := pod(running1, "greeter-00001")
	p.Name = name
	p.Status.Conditions = conditions
	return p
}

// answer makes the API server answer the verb on the resource with the object.
func answer(verb, resource string, obj runtime.Object) clientgotesting.ReactionFunc {
	return func(action clientgotesting.Action) (bool, runtime.Object, error) {
		return action.Matches(verb, resource), obj, nil
	}
}

// fail makes the verb on the resource fail with the error.
func fail(verb, resource string, err error) clientgotesting.ReactionFunc {
	return func(action clientgotesting.Action) (bool, runtime.Object, error) {
		return action.Matches(verb, resource) && action.GetSubresource() == "", nil, err
	}
}

// failOnce makes the verb fail the first time, of a subresource too.
func failOnce(verb, resource string, err error) clientgotesting.ReactionFunc {
	failed := false
	return func(action clientgotesting.Action) (bool, runtime.Object, error) {
		if failed || !action.Matches(verb, resource) {
			return false, nil, nil
		}
		failed = true
		return true, nil, err
	}
}

func namespaceTerminating() error {
	err := apierrs.NewForbidden(corev1.Resource("configmaps"), "x", nil)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// race makes a TaskRun appear just before ours is created.
func race(winner *pipelinev1.TaskRun) []clientgotesting.ReactionFunc {
	return []clientgotesting.ReactionFunc{
		fail("create", "taskruns", apierrs.NewAlreadyExists(pipelinev1.Resource("taskruns"), winner.Name)),
		func(action clientgotesting.Action) (bool, runtime.Object, error) {
			return action.Matches("get", "taskruns"), winner, nil
		},
	}
}

func foreignTaskRun() *pipelinev1.TaskRun {
	tr := firstRun.DeepCopy()
	tr.OwnerReferences, tr.Labels = nil, nil
	return tr
}

func orphaned(tr *pipelinev1.TaskRun) *pipelinev1.TaskRun {
	tr = tr.DeepCopy()
	tr.OwnerReferences = nil
	delete(tr.Labels, serverless.ImageTagLabelKey)
	return tr
}

// labelledTaskRun and labelledConfigMap carry the labels of the Function's own,
// as copies of these do.
func labelledTaskRun() *pipelinev1.TaskRun {
	tr := firstRun.DeepCopy()
	tr.Name, tr.OwnerReferences = "copy", nil
	return tr
}

func labelledConfigMap() *corev1.ConfigMap {
	cm := configMap(function())
	cm.Name, cm.OwnerReferences = "copy", nil
	return cm
}

func unlabelled(tr *pipelinev1.TaskRun) *pipelinev1.TaskRun {
	tr = tr.DeepCopy()
	tr.Labels = nil
	return tr
}

// merged returns what the existing Service becomes for the Function.
func merged(fn *v1alpha1.Function, existing *servingv1.Service) *servingv1.Service {
	svc, _ := knative.MergeService(knative.MakeService(fn, fn.Status.Image), existing, fn.Status.TemplateHash)
	return svc
}

func labelled() *v1alpha1.Function {
	fn := running1.DeepCopy()
	withLabels(map[string]string{"team": "a"})(fn)
	return fn
}

// editedBack returns the running Function after an edit of the source, and one
// that undid it while the build ran.
func editedBack(options ...functionOption) *v1alpha1.Function {
	fn := edited(withSource(sourceB), observed(reconfigured, buildCreated(taskRun(edited(withSource(sourceB)), builds.ReasonSourceChanged)), stillServing))
	fn.Generation = 3
	fn.Spec.Source = sourceA
	for _, option := range options {
		option(fn)
	}
	return fn
}

func reused(fn *v1alpha1.Function) {
	want := request(fn)
	fn.Status.Build = &v1alpha1.BuildStatus{Reason: builds.ReasonImageReused, Generation: fn.Generation, ImageTag: want.Tag, Inputs: want.Fingerprint}
	fn.Status.MarkBuildReady(v1alpha1.ReasonImageReused, "%s was built before.", fn.Status.Image)
}

func nextRun() *pipelinev1.TaskRun {
	return taskRun(edited(withSource(sourceB)), builds.ReasonSourceChanged, taskRunRunning)
}

func nextBuilding() *v1alpha1.Function {
	return edited(withSource(sourceB), observed(reconfigured, buildRunning(nextRun()), stillServing))
}

// revision returns the first revision of the Service.
func revision(ready, available corev1.ConditionStatus, reason, message string) *servingv1.Revision {
	r := &servingv1.Revision{ObjectMeta: metav1.ObjectMeta{Name: "greeter-00001", Namespace: namespace}}
	r.Status.SetConditions(apis.Conditions{
		{Type: servingv1.RevisionConditionReady, Status: ready, Reason: reason, Message: message},
		{Type: servingv1.RevisionConditionResourcesAvailable, Status: available, Reason: reason, Message: message},
	})
	return r
}

// revisionOf returns the revision that Serving makes of the Service.
func revisionOf(svc *servingv1.Service, name string) *servingv1.Revision {
	template := svc.Spec.Template.DeepCopy()
	r := &servingv1.Revision{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	r.Name, r.Namespace = name, svc.Namespace
	r.Labels["serving.knative.dev/service"] = svc.Name
	r.Labels["serving.knative.dev/serviceUID"] = string(svc.UID)
	r.Labels["serving.knative.dev/configurationGeneration"] = "1"
	r.Annotations["serving.knative.dev/creator"] = "someone"
	r.Annotations["serving.knative.dev/routingStateModified"] = "2026-06-01T12:00:00Z"
	return r
}

func predecessorsService() *servingv1.Service {
	fn := running1.DeepCopy()
	fn.UID = "uid-0"
	return service(fn, serviceReady)
}

func withImage(image string) *v1alpha1.Function {
	fn := running1.DeepCopy()
	fn.Status.Image = image
	return fn
}

func pulledFrom(host string, options ...functionOption) *v1alpha1.Function {
	fn := running1.DeepCopy()
	fn.Status.Image = host + "/functions/default/greeter@" + digestA
	fn.Status.MarkBuildReady(v1alpha1.ReasonTaskRunSucceeded, "TaskRun %s built %s.", tr1.Name, fn.Status.Image)
	for _, option := range options {
		option(fn)
	}
	return fn
}

func planIn(cfg *config.Config, fn *v1alpha1.Function) plan {
	want, ok := makePlan(config.ToContext(context.Background(), cfg), fn.DeepCopy())
	if !ok {
		panic("no plan")
	}
	return want
}

func configMapIn(cfg *config.Config, fn *v1alpha1.Function) *corev1.ConfigMap {
	want := planIn(cfg, fn)
	return MakeConfigMap(fn, want.request.Tag, want.files)
}

// rebased returns the running Function when its runtime has got a new base image.
func rebased(cfg *config.Config) *v1alpha1.Function {
	fn := running1.DeepCopy()
	want := planIn(cfg, fn)
	fn.Status.MarkConfigurationReady(v1alpha1.ReasonConfigMapUpdated, "ConfigMap %s holds the build context.", configMapIn(cfg, fn).Name)
	fn.Status.Build = &v1alpha1.BuildStatus{Reason: builds.ReasonRuntimeChanged, Generation: 1, ImageTag: want.request.Tag, Inputs: want.request.Fingerprint}
	fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunsDeleted, "The build starts when earlier ones are gone: %s.", tr1.Name)
	fn.Status.UpdatePhase()
	return fn
}
