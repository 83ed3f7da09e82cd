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

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clientgotesting "k8s.io/client-go/testing"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

func TestReconcileBuild(t *testing.T) {
	runningRun := taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)
	stuckRun := taskRun(function(), builds.ReasonFirstBuild, succeededCondition(corev1.ConditionUnknown, "ExceededNodeResources", "TaskRun Pod exceeded available resources"))
	failedRun := taskRun(function(), builds.ReasonFirstBuild, taskRunFailed("StepFailed", `"step-install" exited with code 1`), withFailedStep)
	timedOut := taskRun(function(), builds.ReasonFirstBuild, taskRunFailed("TaskRunTimeout", `TaskRun "x" failed to finish within "15m0s"`))
	timedOut.Status.Steps = []pipelinev1.StepState{{Name: "install"}}
	withoutResult := taskRun(function(), builds.ReasonFirstBuild, succeededCondition(corev1.ConditionTrue, "Succeeded", ""))
	withBadResult := taskRun(function(), builds.ReasonFirstBuild, taskRunSucceeded("latest"))

	npmLog := "\x1b[36mINFO\x1b[0m[0003] RUN npm install\nnpm error code ETARGET\nnpm error notarget No matching version found for ms@99.0.0.\nerror building image: error building stage: failed to execute command: waiting for process to exit: exit status 1\n"
	npmFailure := builds.Failure{Cause: builds.StepFailed, Log: npmLog}.Describe(v1alpha1.ReasonTaskRunFailed, planOf(function()).runtime.ExplainBuildFailure)
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
		Name:        "source edited: earlier TaskRuns are deleted, the Service keeps serving",
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
		Name:          "TaskRun that has lost its label while it runs is found and restored",
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
		Name:         "a TaskRun of that name is being deleted: no event reports its deletion, so it is retried",
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
