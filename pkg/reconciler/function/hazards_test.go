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
	"fmt"
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
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// These are known faults of earlier function controllers. Each must be impossible here.

// They crashed if a TaskRun was deleted while its image was deployed.
func TestHazardTaskRunGoneWhileDeploying(t *testing.T) {
	deploying := function(observed(configured, built(tr1, digestA), serviceCreated))
	built2 := edited(withEnv("A", "1"))
	rtesting.TableTest{{
		Name:              "the Service becomes ready all the same",
		Key:               key,
		Objects:           []runtime.Object{deploying, configMap(deploying), svc1},
		WantStatusUpdates: statusUpdate(running1),
		WantEvents:        []string{"Normal ServiceReady Revision greeter-00001 serves."},
	}, {
		Name:              "the Service is created all the same",
		Key:               key,
		Objects:           []runtime.Object{function(observed(configured, built(tr1, digestA))), configMap(deploying)},
		WantCreates:       []runtime.Object{knative.MakeService(deploying, deploying.Status.Image)},
		WantStatusUpdates: statusUpdate(deploying),
		WantEvents:        []string{"Normal ServiceCreated Service greeter was created."},
	}, {
		Name:              "the next revision is deployed all the same",
		Key:               key,
		Objects:           []runtime.Object{built2, configMap(running1), svc1},
		WantUpdates:       update(merged(built2, svc1)),
		WantStatusUpdates: statusUpdate(edited(withEnv("A", "1"), observed(configured, built(tr1, digestA), serviceUpdated))),
		WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
	}}.Test(t, factory())
}

// A Function failed if a stale cache showed two TaskRuns.
func TestHazardTwoTaskRunsListed(t *testing.T) {
	fn := edited(withSource(sourceB))
	second := taskRun(fn, builds.ReasonSourceChanged, taskRunRunning)
	planned := edited(withSource(sourceB), observed(reconfigured, buildPlanned(builds.ReasonSourceChanged, tr1), stillServing))
	following := edited(withSource(sourceB), observed(reconfigured, buildRunning(second), stillServing))
	again := attempt(following, builds.ReasonSourceChanged, 2)
	rtesting.TableTest{{
		Name:              "the earlier one is gone already: the newer is followed",
		Key:               key,
		Objects:           []runtime.Object{planned, configMap(fn), tr1, second, svc1},
		WithReactors:      []clientgotesting.ReactionFunc{fail("delete", "taskruns", apierrs.NewNotFound(pipelinev1.Resource("taskruns"), tr1.Name))},
		WantDeletes:       []clientgotesting.DeleteActionImpl{deletion("taskruns", tr1)},
		WantStatusUpdates: statusUpdate(following),
		WantEvents:        []string{"Normal TaskRunRunning TaskRun " + second.Name + " runs."},
	}, {
		Name:        "two for the same image: the one that the status names is followed, the other goes",
		Key:         key,
		Objects:     []runtime.Object{following, configMap(fn), second, again, svc1},
		WantDeletes: []clientgotesting.DeleteActionImpl{deletion("taskruns", again)},
	}}.Test(t, factory())
}

// Objects were listed in the whole cluster.
func TestHazardNamespacesAreApart(t *testing.T) {
	elsewhere := func() []runtime.Object {
		cm, tr, svc := configMap(running1), taskRun(function(), builds.ReasonFirstBuild, taskRunRunning), service(running1, serviceReady)
		cm.Namespace, tr.Namespace, svc.Namespace = "elsewhere", "elsewhere", "elsewhere"
		return []runtime.Object{cm, tr, svc}
	}
	fn := edited(withSource(sourceB))
	planned := edited(withSource(sourceB), observed(reconfigured, buildPlanned(builds.ReasonSourceChanged, tr1), stillServing))
	rtesting.TableTest{{
		Name:    "what is ours by name, label and owner in another namespace does not count",
		Key:     key,
		Objects: append(elsewhere(), running1, configMap(running1), tr1, svc1),
	}, {
		Name:        "nor does it stand in for what is missing",
		Key:         key,
		Objects:     append(elsewhere(), function()),
		WantCreates: []runtime.Object{configMap(function()), firstRun},
		WantStatusUpdates: statusUpdate(function(observed(
			configured, buildCreated(firstRun)))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run.",
		},
	}, {
		Name:        "and is not deleted with what is obsolete",
		Key:         key,
		Objects:     append(elsewhere(), fn, configMap(running1), tr1, svc1),
		WantCreates: []runtime.Object{configMap(fn)},
		WantDeletes: []clientgotesting.DeleteActionImpl{
			deletion("configmaps", configMap(running1)), deletion("taskruns", tr1),
		},
		WantStatusUpdates: statusUpdate(planned),
		WantEvents: []string{
			"Normal ConfigMapUpdated ConfigMap " + configMap(fn).Name + " holds the build context.",
			"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + tr1.Name + ".",
		},
	}}.Test(t, factory())
}

// After a failure between the writes of the ConfigMap and the TaskRun, the next generation
// took another path.
func TestHazardFailureBetweenConfigMapAndTaskRun(t *testing.T) {
	halfway := function(observed(configured, buildNotCreated(firstRun)))
	fn := halfway.DeepCopy()
	fn.Generation = 2
	withSource(sourceB)(fn)
	run := taskRun(fn, builds.ReasonFirstBuild)
	replaced := edited(withSource(sourceB))
	rtesting.TableTest{{
		Name:              "the ConfigMap is written, the TaskRun is not",
		Key:               key,
		Objects:           []runtime.Object{function()},
		WithReactors:      []clientgotesting.ReactionFunc{rtesting.InduceFailure("create", "taskruns")},
		WantErr:           true,
		WantCreates:       []runtime.Object{configMap(function()), firstRun},
		WantStatusUpdates: statusUpdate(halfway),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Warning TaskRunNotCreated " + halfway.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).Message,
		},
	}, {
		Name:              "the controller continues where it was",
		Key:               key,
		Objects:           []runtime.Object{halfway, configMap(halfway)},
		WantCreates:       []runtime.Object{firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run."},
	}, {
		Name:              "the controller died before it could say so",
		Key:               key,
		Objects:           []runtime.Object{function(), configMap(function())},
		WantCreates:       []runtime.Object{firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run.",
		},
	}, {
		Name:        "nor that it had replaced the ConfigMap of an earlier build",
		Key:         key,
		Objects:     []runtime.Object{replaced, configMap(replaced), tr1, svc1},
		WantDeletes: []clientgotesting.DeleteActionImpl{deletion("taskruns", tr1)},
		WantStatusUpdates: statusUpdate(edited(withSource(sourceB),
			observed(reconfigured, buildPlanned(builds.ReasonSourceChanged, tr1), stillServing))),
		WantEvents: []string{
			"Normal ConfigMapUpdated ConfigMap " + configMap(replaced).Name + " holds the build context.",
			"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + tr1.Name + ".",
		},
	}, {
		Name:        "an edit meanwhile is a first build as any",
		Key:         key,
		Objects:     []runtime.Object{fn, configMap(function())},
		WantCreates: []runtime.Object{configMap(fn), run},
		WantDeletes: []clientgotesting.DeleteActionImpl{deletion("configmaps", configMap(function()))},
		WantStatusUpdates: statusUpdate(func() *v1alpha1.Function {
			fn := fn.DeepCopy()
			observed(reconfigured, buildCreated(run))(fn)
			return fn
		}()),
		WantEvents: []string{
			"Normal ConfigMapUpdated ConfigMap " + configMap(fn).Name + " holds the build context.",
			"Normal TaskRunCreated TaskRun " + run.Name + " is about to run.",
		},
	}}.Test(t, factory())
}

// Conditions were appended without end.
func TestHazardConditionsGrow(t *testing.T) {
	fn := function()
	for generation := range int64(100) {
		fn.Generation = generation + 1
		failure := v1alpha1.BuildFailure{Reason: v1alpha1.ReasonTaskRunFailed, Message: fmt.Sprint("failure ", generation)}
		observed(configured, buildRunning(tr1))(fn)
		observed(configured, buildFailed(tr1, failure))(fn)
		observed(reconfigured, built(tr1, digestA), running)(fn)
	}
	seen := map[string]int{}
	for _, condition := range fn.Status.Conditions {
		seen[string(condition.Type)]++
	}
	if len(seen) != 4 || len(fn.Status.Conditions) != 4 {
		t.Errorf("after 100 generations there are %d conditions of %d types, want 4: %v", len(fn.Status.Conditions), len(seen), seen)
	}
}

// Environment was compared without valueFrom, and without case.
func TestHazardEnvironmentNotCompared(t *testing.T) {
	fromSecret := func(name, key string) functionOption {
		return func(fn *v1alpha1.Function) {
			fn.Spec.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key},
			}}}
		}
	}
	fromConfigMap := func(fn *v1alpha1.Function) {
		fn.Spec.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}, Key: "k"},
		}}}
	}
	noEnv := func(fn *v1alpha1.Function) { fn.Spec.Env = nil }
	var table rtesting.TableTest
	for name, change := range map[string]struct{ before, after functionOption }{
		"a value gets capitals":          {withEnv("A", "yes"), withEnv("A", "Yes")},
		"a name gets small letters":      {withEnv("A", "yes"), withEnv("a", "yes")},
		"a value becomes blank":          {withEnv("A", "yes"), withEnv("A", "")},
		"the last variable is removed":   {withEnv("A", "yes"), noEnv},
		"another Secret":                 {fromSecret("a", "k"), fromSecret("b", "k")},
		"another key of the Secret":      {fromSecret("a", "k"), fromSecret("a", "l")},
		"a ConfigMap in place of it":     {fromSecret("a", "k"), fromConfigMap},
		"a value in place of the Secret": {fromSecret("a", "k"), func(fn *v1alpha1.Function) { noEnv(fn); withEnv("TOKEN", "k")(fn) }},
	} {
		before := function(change.before, observed(configured, built(tr1, digestA), running))
		svc := service(before, serviceReady)
		after := before.DeepCopy()
		after.Generation, after.Spec.Env = 2, nil
		change.after(after)
		updated := after.DeepCopy()
		observed(configured, built(tr1, digestA), serviceUpdated)(updated)
		table = append(table, rtesting.TableRow{
			Name:              name,
			Key:               key,
			Objects:           []runtime.Object{after, configMap(after), tr1, svc},
			WantUpdates:       update(merged(after, svc)),
			WantStatusUpdates: statusUpdate(updated),
			WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
		})
	}
	table.Test(t, factory())
}

// Running and Failed were final: nobody looked again.
func TestHazardPhasesAreFinal(t *testing.T) {
	broken := service(running1, serviceStatus(corev1.ConditionFalse, "RevisionFailed", "The disk is gone.", "greeter-00001", "greeter-00001"))
	unsettled := service(running1, serviceStatus(corev1.ConditionUnknown, "Uninitialized", "Waiting for load balancer to be ready", "greeter-00001", "greeter-00001"))
	failed := running1.DeepCopy()
	failed.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "RevisionFailed: The disk is gone.")
	failed.Status.UpdatePhase()
	waiting := running1.DeepCopy()
	waiting.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Uninitialized: Waiting for load balancer to be ready")
	waiting.Status.UpdatePhase()
	runningRun := taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)
	building := function(observed(configured, buildRunning(runningRun)))
	again := attempt(building, builds.ReasonFirstBuild, 2)
	rtesting.TableTest{{
		Name:              "a Service that breaks later ends Running",
		Key:               key,
		Objects:           []runtime.Object{running1, configMap(running1), tr1, broken, revision(corev1.ConditionFalse, corev1.ConditionTrue, "", "")},
		WantStatusUpdates: statusUpdate(failed),
		WantEvents:        []string{"Warning ServiceFailed RevisionFailed: The disk is gone."},
	}, {
		Name:              "a Service that is unsettled later ends Running",
		Key:               key,
		Objects:           []runtime.Object{running1, configMap(running1), tr1, unsettled},
		WantStatusUpdates: statusUpdate(waiting),
		WantEvents:        []string{"Normal ServiceWaiting Uninitialized: Waiting for load balancer to be ready"},
	}, {
		Name:              "a Service that recovers ends Failed, without a new generation",
		Key:               key,
		Objects:           []runtime.Object{failed, configMap(running1), tr1, svc1},
		WantStatusUpdates: statusUpdate(running1),
		WantEvents:        []string{"Normal ServiceReady Revision greeter-00001 serves."},
	}, {
		Name:              "a TaskRun that is missing is made again",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building)},
		WantCreates:       []runtime.Object{again},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(again)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + again.Name + " is about to run."},
	}}.Test(t, factory())
}

// A changed runtime rebuilt nothing, and corrected credentials fixed nothing: see
// TestReconcileCredentials.
func TestHazardRuntimeChangesUnseen(t *testing.T) {
	var table rtesting.TableTest
	for name, changed := range map[string]config.Runtime{
		"another base image": {BaseImage: "node:24.1", Language: "nodejs"},
		"another Dockerfile": {BaseImage: "node:24", Language: "nodejs", Dockerfile: "FROM {{.BaseImage}}\nCOPY . /function\n"},
	} {
		cfg := testConfig(func(cfg *config.Config) { cfg.Runtimes["nodejs24"] = changed })
		table = append(table, rtesting.TableRow{
			Name:          name,
			Key:           key,
			OtherTestData: map[string]any{configKey: cfg},
			Objects:       []runtime.Object{running1, configMap(running1), tr1, svc1},
			WantCreates:   []runtime.Object{configMapIn(cfg, running1)},
			WantDeletes: []clientgotesting.DeleteActionImpl{
				deletion("configmaps", configMap(running1)), deletion("taskruns", tr1),
			},
			WantStatusUpdates: statusUpdate(rebased(cfg)),
			WantEvents: []string{
				"Normal ConfigMapUpdated ConfigMap " + configMapIn(cfg, running1).Name + " holds the build context.",
				"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + tr1.Name + ".",
			},
		})
	}
	other := testConfig(func(cfg *config.Config) {
		cfg.Runtimes["nodejs22"] = config.Runtime{BaseImage: "node:22.1", Language: "nodejs"}
	})
	table = append(table, rtesting.TableRow{
		Name:          "the runtime of others",
		Key:           key,
		OtherTestData: map[string]any{configKey: other},
		Objects:       []runtime.Object{running1, configMap(running1), tr1, svc1},
	})
	table.Test(t, factory())
}
