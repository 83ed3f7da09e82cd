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
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgotesting "k8s.io/client-go/testing"
	pkgreconciler "knative.dev/pkg/reconciler"
	rtesting "knative.dev/pkg/reconciler/testing"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/fairqueue"
	"github.com/kiln-dev/kiln/pkg/images"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

// checkingRegistry says that the registry has not answered yet.
func checkingRegistry(fn *v1alpha1.Function) {
	fn.Status.MarkBuildUnknown(v1alpha1.ReasonCheckingRegistry, "Kiln looks up image %s:%s and its base image.", repo, request(fn).Tag)
}

// found describes an image that was in the registry already.
func found(digest string) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Status.Image, fn.Status.ImageTag = repo+"@"+digest, request(fn).Tag
		recordedBuild(digest)(fn)
		reused(fn)
	}
}

func versionTagged(tag string) functionOption {
	return func(fn *v1alpha1.Function) { fn.Status.VersionTag = tag }
}

func TestReconcileReuse(t *testing.T) {
	holds := map[string]any{registryKey: fakeRegistry{digest: digestA}}
	slow := map[string]any{registryKey: fakeRegistry{slow: true}}

	// B runs, with version 2, and is edited back to A.
	runB := taskRun(edited(withSource(sourceB)), builds.ReasonSourceChanged, taskRunSucceeded(digestB))
	recordedA := func(fn *v1alpha1.Function) {
		fn.Status.BuiltImages = []v1alpha1.BuiltImage{{Tag: request(function()).Tag, Digest: digestA}}
	}
	runningB := edited(withSource(sourceB), recordedA, observed(reconfigured, built(runB, digestB), running, versionTagged("g2")))
	svcB := service(runningB, serviceReady)
	backToA := func(options ...functionOption) *v1alpha1.Function {
		fn := runningB.DeepCopy()
		fn.Generation = 3
		fn.Spec.Source = sourceA
		for _, option := range options {
			option(fn)
		}
		return fn
	}
	reusedA := backToA(observed(reconfigured, found(digestA), versionTagged(""), serviceUpdated))

	building := function(observed(configured, buildRunning(taskRun(function(), builds.ReasonFirstBuild, taskRunRunning))))
	rebuild := edited(withSource(sourceB), withRebuild("1"))
	rebuildRun := taskRun(rebuild, builds.ReasonRebuildRequested, uponBase(digestC))
	failedRun := taskRun(function(), builds.ReasonFirstBuild, taskRunFailed("StepFailed", "x"))
	failed := function(observed(configured, buildFailed(failedRun, v1alpha1.BuildFailure{Reason: v1alpha1.ReasonTaskRunFailed, Message: "x"})))
	failed.Generation = 2
	retryRun := taskRun(failed, builds.ReasonPreviousBuildFailed, uponBase(digestC))
	retried := failed.DeepCopy()
	observed(configured, buildCreated(retryRun))(retried)
	withDeps := function(func(fn *v1alpha1.Function) { fn.Spec.Deps = `{"dependencies": {"ms": "2.1.3"}}` }, observed(configured))
	unrecordedDeps := withDeps.DeepCopy()
	lookup := planOf(withDeps).lookup
	withDeps.Status.DependencyImages = []v1alpha1.DependencyImage{{Tag: lookup.DependenciesTag(digestC), Digest: digestB, PackagesDigest: digestA}}
	depsPlan := planOf(withDeps)
	depsRun := tekton.MakeTaskRun(withDeps, testConfig(), builds.Spec{
		Request: depsPlan.request, Reason: builds.ReasonFirstBuild, Attempt: 1, BaseImage: depsPlan.lookup.Base + "@" + digestC, Files: depsPlan.files, InstallFiles: depsPlan.installFiles,
		Dependencies: builds.Dependencies{Tag: depsPlan.lookup.DependenciesTag(digestC), Digest: digestB, Packages: digestA},
	})
	withDepsBuilding := withDeps.DeepCopy()
	observed(configured, buildCreated(depsRun))(withDepsBuilding)
	vanishedRun := depsRun.DeepCopy()
	taskRunFailed("StepFailed", "x")(vanishedRun)
	ended(11 * time.Second)(vanishedRun)
	vanished := withDeps.DeepCopy()
	observed(configured, buildRetrying(vanishedRun, v1alpha1.BuildFailure{Reason: v1alpha1.ReasonImagePullFailed, Message: "x", Transient: true}, 10*time.Second))(vanished)
	installRun := tekton.MakeTaskRun(withDeps, testConfig(), builds.Spec{
		Request: depsPlan.request, Reason: builds.ReasonFirstBuild, Attempt: 2, BaseImage: depsPlan.lookup.Base + "@" + digestC, Files: depsPlan.files, InstallFiles: depsPlan.installFiles,
		Dependencies: builds.Dependencies{Tag: depsPlan.lookup.DependenciesTag(digestC)},
	})
	installing := withDeps.DeepCopy()
	observed(configured, buildCreated(installRun))(installing)
	configuredEvent := "Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context."

	firstDepsRun := tekton.MakeTaskRun(unrecordedDeps, testConfig(), builds.Spec{
		Request: depsPlan.request, Reason: builds.ReasonFirstBuild, Attempt: 1, BaseImage: depsPlan.lookup.Base + "@" + digestC, Files: depsPlan.files, InstallFiles: depsPlan.installFiles,
		Dependencies: builds.Dependencies{Tag: depsPlan.lookup.DependenciesTag(digestC)},
	})
	installingFirst := unrecordedDeps.DeepCopy()
	observed(configured, buildCreated(firstDepsRun))(installingFirst)
	buildingAgain := building.DeepCopy()
	againRun := attempt(function(), builds.ReasonFirstBuild, 2)
	observed(configured, buildCreated(againRun))(buildingAgain)

	rtesting.TableTest{{
		Name:              "the registry holds an image that the status does not record: it is not used",
		Key:               key,
		Objects:           []runtime.Object{function()},
		OtherTestData:     holds,
		WantCreates:       []runtime.Object{configMap(function()), firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
		WantEvents:        []string{configuredEvent, "Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run."},
	}, {
		Name:              "the registry holds dependencies that the status does not record: they are not used",
		Key:               key,
		Objects:           []runtime.Object{unrecordedDeps, configMap(withDeps)},
		OtherTestData:     map[string]any{registryKey: fakeRegistry{base: digestC, dependencies: digestB}},
		WantCreates:       []runtime.Object{firstDepsRun},
		WantStatusUpdates: statusUpdate(installingFirst),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + firstDepsRun.Name + " is about to run."},
	}, {
		Name:    "a reused image runs: nothing happens",
		Key:     key,
		Objects: []runtime.Object{function(observed(configured, found(digestA), running)), configMap(function()), svc1},
	}, {
		Name:          "the source was edited back: no build, and the TaskRun of the other source goes",
		Key:           key,
		Objects:       []runtime.Object{backToA(), configMap(runningB), runB, svcB},
		OtherTestData: holds,
		WantCreates:   []runtime.Object{configMap(backToA())},
		WantDeletes: []clientgotesting.DeleteActionImpl{
			deletion("configmaps", configMap(runningB)), deletion("taskruns", runB),
		},
		WantUpdates:       update(merged(reusedA, svcB)),
		WantStatusUpdates: statusUpdate(reusedA),
		WantEvents: []string{
			"Normal ConfigMapUpdated ConfigMap " + configMap(backToA()).Name + " holds the build context.",
			"Normal ImageReused " + repo + "@" + digestA + " was built before.",
			"Normal ServiceUpdated Service greeter was updated.",
		},
	}, {
		Name:              "the registry has not answered yet: that is waited for, and no news",
		Key:               key,
		Objects:           []runtime.Object{function()},
		OtherTestData:     slow,
		WantCreates:       []runtime.Object{configMap(function())},
		WantStatusUpdates: statusUpdate(function(observed(configured, checkingRegistry))),
		WantEvents:        []string{configuredEvent},
	}, {
		Name:          "the registry has still not answered: nothing to write",
		Key:           key,
		Objects:       []runtime.Object{function(observed(configured, checkingRegistry)), configMap(function())},
		OtherTestData: slow,
	}, {
		Name:              "the registry does not hold the image, or does not answer: it is built",
		Key:               key,
		Objects:           []runtime.Object{function(observed(configured, checkingRegistry)), configMap(function())},
		WantCreates:       []runtime.Object{firstRun},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(firstRun)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run."},
	}, {
		Name:              "the registry holds the dependencies: they are not installed again",
		Key:               key,
		Objects:           []runtime.Object{withDeps, configMap(withDeps)},
		OtherTestData:     map[string]any{registryKey: fakeRegistry{base: digestC, dependencies: digestB}},
		WantCreates:       []runtime.Object{depsRun},
		WantStatusUpdates: statusUpdate(withDepsBuilding),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + depsRun.Name + " is about to run."},
	}, {
		Name:              "the registry has lost the dependencies since the build began, which failed: they are installed",
		Key:               key,
		Objects:           []runtime.Object{vanished, configMap(withDeps)},
		OtherTestData:     map[string]any{registryKey: fakeRegistry{base: digestC}},
		WantCreates:       []runtime.Object{installRun},
		WantStatusUpdates: statusUpdate(installing),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + installRun.Name + " is about to run."},
	}, {
		Name:          "the registry holds the image, but the cache shows an older Function: nothing is done",
		Key:           key,
		Objects:       []runtime.Object{function(observed(configured)), configMap(function())},
		WithReactors:  []clientgotesting.ReactionFunc{fail("get", "functions", apierrs.NewNotFound(v1alpha1.Resource("functions"), name))},
		OtherTestData: holds,
	}, {
		Name:    "the registry holds the image, as its TaskRun has just pushed it: that is followed",
		Key:     key,
		Objects: []runtime.Object{function(observed(configured)), configMap(function())},
		OtherTestData: map[string]any{
			registryKey:       holds[registryKey],
			ktesting.Unlisted: []runtime.Object{taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)},
			queueKey:          knowingQueue(taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)),
		},
		WantStatusUpdates: statusUpdate(building),
		WantEvents:        []string{"Normal TaskRunRunning TaskRun " + firstRun.Name + " runs."},
	}, {
		Name:              "TaskRun was deleted by hand after it had pushed the image: nobody vouches for that image",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(function())},
		OtherTestData:     holds,
		WantCreates:       []runtime.Object{againRun},
		WantStatusUpdates: statusUpdate(buildingAgain),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + againRun.Name + " is about to run."},
	}, {
		Name:              "who asks for a rebuild does not want what the registry holds but the base image",
		Key:               key,
		Objects:           []runtime.Object{rebuild, configMap(rebuild), svc1},
		OtherTestData:     map[string]any{registryKey: fakeRegistry{base: digestC, digest: digestA}},
		WantCreates:       []runtime.Object{rebuildRun},
		WantStatusUpdates: statusUpdate(edited(withSource(sourceB), withRebuild("1"), observed(reconfigured, buildCreated(rebuildRun), stillServing))),
		WantEvents: []string{
			"Normal ConfigMapUpdated ConfigMap " + configMap(rebuild).Name + " holds the build context.",
			"Normal TaskRunCreated TaskRun " + rebuildRun.Name + " is about to run.",
		},
	}, {
		Name:              "what a failed build has left in the registry is not used",
		Key:               key,
		Objects:           []runtime.Object{failed, configMap(failed)},
		OtherTestData:     map[string]any{registryKey: fakeRegistry{base: digestC, digest: digestA}},
		WantCreates:       []runtime.Object{retryRun},
		WantStatusUpdates: statusUpdate(retried),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + retryRun.Name + " is about to run."},
	}}.Test(t, factory())
}

// uponBase sets the digest of the TaskRun's base image.
func uponBase(digest string) taskRunOption {
	return func(tr *pipelinev1.TaskRun) {
		for i := range tr.Spec.TaskSpec.Steps {
			args := tr.Spec.TaskSpec.Steps[i].Args
			for j, arg := range args {
				if strings.HasPrefix(arg, "--base=") {
					args[j] += "@" + digest
				}
			}
		}
	}
}

func TestReconcileVersionTag(t *testing.T) {
	tagged := func(tag string) map[string]any { return map[string]any{registryKey: fakeRegistry{tagged: tag}} }
	withVersion := function(func(fn *v1alpha1.Function) { *fn = *running1.DeepCopy() }, versionTagged("g1"))
	envEdited := func(options ...functionOption) *v1alpha1.Function {
		return edited(append([]functionOption{versionTagged("g1"), withEnv("A", "1")}, options...)...)
	}
	hashed := func(fn *v1alpha1.Function) *v1alpha1.Function {
		fn = fn.DeepCopy()
		fn.Status.VersionHash = versionHash(fn)
		return fn
	}
	deploying := function(observed(configured, built(tr1, digestA), serviceCreated))
	serviceUnobserved := func(svc *servingv1.Service) { svc.Status.ObservedGeneration = 0 }
	again := withVersion.DeepCopy()
	withRebuild("1")(again)
	rebuildRun := taskRun(again, builds.ReasonRebuildRequested, taskRunSucceeded(digestB))
	rebuilding, rebuilt := again.DeepCopy(), again.DeepCopy()
	observed(buildCreated(taskRun(again, builds.ReasonRebuildRequested)))(rebuilding)
	observed(versionTagged(""), built(rebuildRun, digestB), serviceUpdated)(rebuilt)

	rtesting.TableTest{{
		Name:              "the image has its tag: the status says so",
		Key:               key,
		Objects:           []runtime.Object{running1, configMap(running1), tr1, svc1},
		OtherTestData:     tagged("g1"),
		WantStatusUpdates: statusUpdate(hashed(withVersion)),
	}, {
		Name:    "the image cannot get its tag: the Function runs",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, svc1},
	}, {
		Name:          "the image has its tag while the service is on its way: that is for the next write",
		Key:           key,
		Objects:       []runtime.Object{deploying, configMap(running1), tr1, service(running1, serviceUnobserved)},
		OtherTestData: tagged("g1"),
	}, {
		Name:              "a generation without a build gets its tag, too, with the write that is due",
		Key:               key,
		Objects:           []runtime.Object{envEdited(), configMap(running1), tr1, svc1},
		OtherTestData:     tagged("g2"),
		WantUpdates:       update(merged(envEdited(), svc1)),
		WantStatusUpdates: statusUpdate(hashed(envEdited(observed(configured, built(tr1, digestA), serviceUpdated, versionTagged("g2"))))),
		WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
	}, {
		Name:              "another image of the same generation gets the tag again",
		Key:               key,
		Objects:           []runtime.Object{rebuilding, configMap(running1), rebuildRun, svc1},
		WantUpdates:       update(merged(rebuilt, svc1)),
		WantStatusUpdates: statusUpdate(rebuilt),
		WantEvents: []string{
			"Normal TaskRunSucceeded TaskRun " + rebuildRun.Name + " built " + repo + "@" + digestB + ".",
			"Normal ServiceUpdated Service greeter was updated.",
		},
	}}.Test(t, factory())
}

// recorder keeps what was asked for last, and answers nothing.
type recorder[Request, Answer any] struct {
	asked        *Request
	awaited      bool
	acknowledged bool
}

func (r *recorder[Request, Answer]) Ask(_ types.NamespacedName, request Request) { r.asked = &request }
func (r *recorder[Request, Answer]) Forget(types.NamespacedName)                 { r.asked = nil }

func (r *recorder[Request, Answer]) Acknowledge(types.NamespacedName) { r.acknowledged = true }

func (r *recorder[Request, Answer]) ForgetAll(isMeant func(types.NamespacedName) bool) {
	if isMeant(children.KeyOf(function())) {
		r.asked = nil
	}
}

func (r *recorder[Request, Answer]) Answer(_ types.NamespacedName, _ Request, await bool) (answer Answer, ok bool) {
	r.awaited = r.awaited || await
	return answer, false
}

var pushedTo = images.Repository{Name: repo, Namespace: namespace}

// TestLookAhead checks that the lookup starts before the build.
func TestLookAhead(t *testing.T) {
	runs := taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)
	building := function(observed(configured, buildRunning(runs)))
	recordedAs := func(options ...functionOption) *v1alpha1.Function {
		return function(append(options, recordedBuild(digestA))...)
	}
	planned := function(observed(configured))
	planned.Status.Build = &v1alpha1.BuildStatus{Reason: builds.ReasonSourceChanged, Generation: 1, ImageTag: request(planned).Tag}
	recordedBuild(digestA)(planned)
	plannedRebuild := recordedAs(withRebuild("1"), observed(configured))
	plannedRebuild.Status.Build = &v1alpha1.BuildStatus{Reason: builds.ReasonRebuildRequested, Generation: 1, ImageTag: request(planned).Tag, Rebuild: "1"}
	lookup := &images.Lookup{Repository: pushedTo, Image: v1alpha1.BuiltImage{Tag: request(function()).Tag, Digest: digestA}, Base: "node:24"}
	fresh := &images.Lookup{Repository: pushedTo, Base: "node:24"}
	for name, tc := range map[string]struct {
		fn       *v1alpha1.Function
		taskRuns []*pipelinev1.TaskRun
		want     *images.Lookup
	}{
		"new":                           {fn: function(), want: fresh},
		"built before":                  {fn: recordedAs(), want: lookup},
		"building":                      {fn: building, taskRuns: []*pipelinev1.TaskRun{runs}},
		"building, the TaskRun is gone": {fn: building, want: fresh},
		"running":                       {fn: running1},
		"rebuild requested":             {fn: recordedAs(withRebuild("1")), want: fresh},
		"planned":                       {fn: planned, want: lookup},
		"planned, rebuild requested":    {fn: plannedRebuild, want: fresh},
	} {
		t.Run(name, func(t *testing.T) {
			lookups := &recorder[images.Lookup, images.Found]{}
			r := &Reconciler{lookups: lookups}
			r.lookAhead(tc.fn, planOf(tc.fn), gather(tc.fn, runsOf(tc.taskRuns...)))
			if diff := cmp.Diff(tc.want, lookups.asked); diff != "" {
				t.Errorf("asked for (-want, +got):\n%s", diff)
			}
		})
	}
}

// TestSameImageInAnotherCluster checks that the tag does not depend on the UID, the history
// or the age of a Function, and that other inputs have other tags.
func TestSameImageInAnotherCluster(t *testing.T) {
	want, tag := planOf(function()).lookup, planOf(function()).request.Tag
	there := function(withUID("uid-in-another-cluster"), withEnv("CLUSTER", "b"), withLabels(map[string]string{"cluster": "b"}))
	there.Generation, there.ResourceVersion, there.CreationTimestamp = 17, "4711", noon
	if diff := cmp.Diff(want, planOf(there).lookup); diff != "" {
		t.Errorf("another cluster asks for another image (-want, +got):\n%s", diff)
	}
	for what, other := range map[string]functionOption{
		"of another namespace": func(fn *v1alpha1.Function) { fn.Namespace = "other" },
		"of another name":      func(fn *v1alpha1.Function) { fn.Name = "other" },
		"of another source":    withSource(sourceB),
		"of another runtime":   withRuntime("nodejs22"),
	} {
		got := planOf(function(other))
		if got.lookup.Repository == want.Repository && got.request.Tag == tag {
			t.Errorf("a Function %s asks for the same image", what)
		}
	}
}

// scaled returns the next generation of the Function, with other numbers of pods and a cached
// source.
func scaled(fn *v1alpha1.Function, edits ...functionOption) *v1alpha1.Function {
	fn.Status.VersionHash = versionHash(fn)
	if fn.Status.VersionTag == "" {
		fn.Status.VersionHash = ""
	}
	fn.Generation, fn.Spec.Source = 3, ""
	fn.Spec.Replicas, fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(7)), new(int32(1)), new(int32(9))
	for _, edit := range edits {
		edit(fn)
	}
	return fn
}

// TestTagVersion checks that a Ready Function costs nothing once its image has its tag, and
// that the tag wakes it only if nothing else will.
func TestTagVersion(t *testing.T) {
	insecure := pushedTo
	insecure.Insecure, insecure.Credentials = true, "pushers"
	for name, tc := range map[string]struct {
		fn      *v1alpha1.Function
		config  *config.Config
		want    *images.Tagging
		awaited bool

		acknowledged bool
	}{
		"deploying": {fn: function(observed(configured, built(tr1, digestA), serviceCreated)), want: &images.Tagging{Repository: pushedTo, Digest: digestA, Tag: "g1"}},
		"ready":     {fn: running1, want: &images.Tagging{Repository: pushedTo, Digest: digestA, Tag: "g1"}, awaited: true},
		"ready and tagged: what the registry owes of earlier versions goes on": {
			fn:   function(func(fn *v1alpha1.Function) { *fn = *running1.DeepCopy() }, versionTagged("g1")),
			want: &images.Tagging{Tag: "earlier"}, acknowledged: true,
		},
		"ready and tagged by an earlier generation": {
			fn:   edited(versionTagged("g1"), withEnv("A", "1"), observed(running)),
			want: &images.Tagging{Repository: pushedTo, Digest: digestA, Tag: "g2"}, awaited: true,
		},
		"only an autoscaler has changed it since": {
			fn:   scaled(edited(versionTagged("g1"), withEnv("A", "1"), observed(running))),
			want: &images.Tagging{Tag: "earlier"}, acknowledged: true,
		},
		"scaled and edited since": {
			fn:   scaled(edited(versionTagged("g1"), observed(running)), withEnv("A", "1")),
			want: &images.Tagging{Repository: pushedTo, Digest: digestA, Tag: "g3"}, awaited: true,
		},
		"scaled, and another image": {
			fn:   scaled(edited(versionTagged("g1"), observed(running)), func(fn *v1alpha1.Function) { fn.Status.ImageTag = "other" }),
			want: &images.Tagging{Repository: pushedTo, Digest: digestA, Tag: "g3"}, awaited: true,
		},
		"scaled before it had its tag": {
			fn:   scaled(edited(observed(running))),
			want: &images.Tagging{Repository: pushedTo, Digest: digestA, Tag: "g3"}, awaited: true,
		},
		"tagged by an earlier Kiln, and scaled": {
			fn:   scaled(edited(versionTagged("g1"), observed(running)), func(fn *v1alpha1.Function) { fn.Status.VersionHash = "" }),
			want: &images.Tagging{Repository: pushedTo, Digest: digestA, Tag: "g3"}, awaited: true,
		},
		"plain HTTP and credentials": {
			fn: running1,
			config: testConfig(func(cfg *config.Config) {
				cfg.Registry.Insecure, cfg.Registry.Credentials = []string{"registry.example.com:5000"}, "pushers"
			}),
			want: &images.Tagging{Repository: insecure, Digest: digestA, Tag: "g1"}, awaited: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := tc.config
			if cfg == nil {
				cfg = testConfig()
			}
			taggings := &recorder[images.Tagging, struct{}]{asked: &images.Tagging{Tag: "earlier"}}
			r := &Reconciler{taggings: taggings}
			r.tagVersion(config.ToContext(context.Background(), cfg), tc.fn.DeepCopy(), &v1alpha1.FunctionStatus{})
			if diff := cmp.Diff(tc.want, taggings.asked); diff != "" {
				t.Errorf("asked for (-want, +got):\n%s", diff)
			}
			if taggings.acknowledged != tc.acknowledged {
				t.Errorf("acknowledged is %t, want %t", taggings.acknowledged, tc.acknowledged)
			}
			if taggings.awaited != tc.awaited {
				t.Errorf("awaited is %t, want %t", taggings.awaited, tc.awaited)
			}
		})
	}
}

func TestObserveDeletion(t *testing.T) {
	lookups := &recorder[images.Lookup, images.Found]{asked: &images.Lookup{}}
	taggings := &recorder[images.Tagging, struct{}]{asked: &images.Tagging{}}
	r := &Reconciler{lookups: lookups, taggings: taggings, polls: fakePolls{}, checks: fakeChecks{}, contents: fakeContents{}, queue: openedQueue(queue.Limits{})}
	if err := r.ObserveDeletion(context.Background(), children.KeyOf(function())); err != nil {
		t.Fatal(err)
	}
	if lookups.asked != nil || taggings.asked != nil {
		t.Error("requests of a deleted Function are kept")
	}
}

// otherBucket has no Function.
type otherBucket struct{ pkgreconciler.Bucket }

func (otherBucket) Has(types.NamespacedName) bool { return false }

// TestDemote checks that a replica that no longer leads a Function drops only its image: the
// name may have another Function by then.
func TestDemote(t *testing.T) {
	lookups := &recorder[images.Lookup, images.Found]{asked: &images.Lookup{}}
	taggings := &recorder[images.Tagging, struct{}]{asked: &images.Tagging{}}
	r := &Reconciler{lookups: lookups, taggings: taggings, polls: fakePolls{}, checks: fakeChecks{}, contents: fakeContents{}, queue: openedQueue(queue.Limits{})}
	r.Demote(otherBucket{})
	if lookups.asked == nil || taggings.asked == nil {
		t.Error("requests of Functions that are still looked after are dropped")
	}
	r.Demote(pkgreconciler.UniversalBucket())
	if lookups.asked != nil || taggings.asked != nil {
		t.Error("requests of Functions that others look after are kept")
	}

	_, impl, _ := startController(t)
	measured := reflect.ValueOf(impl.Reconciler.(*fairqueue.Queue).Leader.(*queueLeader).Leader).Elem()
	generated := measured.FieldByName("leader").Elem().Elem()
	if generated.FieldByName("DemoteFunc").IsNil() {
		t.Error("the Reconciler does not learn that another replica leads")
	}
}
