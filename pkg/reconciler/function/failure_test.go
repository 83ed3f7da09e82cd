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
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgotesting "k8s.io/client-go/testing"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// ended makes it that long ago that the TaskRun ended.
func ended(ago time.Duration) taskRunOption {
	at := metav1.NewTime(time.Now().Add(-ago))
	return func(tr *pipelinev1.TaskRun) { tr.Status.CompletionTime = &at }
}

// buildUnexplained describes a failed build whose log cannot be read yet.
func buildUnexplained(tr *pipelinev1.TaskRun) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Status.Build = buildStatus(fn, tr)
		fn.Status.Build.CompletionTime = nil
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s has failed. Its log cannot be read yet.", tr.Name)
	}
}

func withBuildEnv(name, value string) functionOption {
	return func(fn *v1alpha1.Function) {
		if fn.Spec.Build == nil {
			fn.Spec.Build = &v1alpha1.BuildSpec{}
		}
		fn.Spec.Build.Env = append(fn.Spec.Build.Env, v1alpha1.BuildEnvVar{Name: name, Value: value})
	}
}

// buildPod returns the pod that runs the TaskRun.
func buildPod(tr *pipelinev1.TaskRun, options ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: tr.Status.PodName, Namespace: namespace, Labels: tr.Labels}}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func podDeleting(pod *corev1.Pod) {
	pod.DeletionTimestamp = &noon
	pod.Finalizers = []string{"example.com/other"}
}

func podDisrupted(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
	}}
}

func withLog(failure v1alpha1.BuildFailure, log string) v1alpha1.BuildFailure {
	failure.Log = strings.TrimSpace(log)
	return failure
}

func TestReconcileFailure(t *testing.T) {
	failedRun := func(options ...taskRunOption) *pipelinev1.TaskRun {
		options = append([]taskRunOption{taskRunFailed("StepFailed", `"step-install" exited with code 1`), withFailedStep}, options...)
		return taskRun(function(), builds.ReasonFirstBuild, options...)
	}
	justNow, longAgo := failedRun(ended(time.Second)), failedRun(ended(time.Hour))
	building := function(observed(configured, buildCreated(firstRun)))
	unexplained := function(observed(configured, buildCreated(firstRun)), observed(buildUnexplained(justNow)))

	const npmLog = "npm error code ETARGET\nnpm error notarget No matching version found for ms@99.0.0.\n"
	npmFailure := v1alpha1.BuildFailure{
		Reason:  v1alpha1.ReasonTaskRunFailed,
		Message: "A dependency was not found. Correct it in spec.deps.\ncode ETARGET\nnotarget No matching version found for ms@99.0.0.",
		Log:     "npm error code ETARGET\nnpm error notarget No matching version found for ms@99.0.0.",
	}
	noLogFailure := v1alpha1.BuildFailure{
		Reason:  v1alpha1.ReasonTaskRunFailed,
		Message: `The build's log could not be read. "step-install" exited with code 1`, Transient: true,
	}
	deletedFailure := v1alpha1.BuildFailure{
		Reason:  v1alpha1.ReasonPodDeleted,
		Message: `The build's pod was deleted, or lost with its node, before Kiln read the result. "step-install" exited with code 1`, Transient: true,
	}
	evictedFailure := v1alpha1.BuildFailure{
		Reason:  v1alpha1.ReasonPodEvicted,
		Message: "The build's pod was evicted from its node. Eviction API: evicting", Transient: true,
	}
	lost := taskRun(function(), builds.ReasonFirstBuild, taskRunFailed("TaskRunTimeout", `failed to finish within "15m0s"`), withFailedStep, ended(time.Second))
	timeoutFailure := v1alpha1.BuildFailure{
		Reason:  v1alpha1.ReasonBuildTimeout,
		Message: `The build took too long. Raise spec.build.timeout, up to the max-timeout in config-build. failed to finish within "15m0s"`,
	}
	unmade := taskRun(function(), builds.ReasonFirstBuild, taskRunFailed("CreateContainerConfigError", "Failed to create pod due to config error"))
	unmadeAt := new(unmade.Status.GetCondition(apis.ConditionSucceeded).LastTransitionTime.Inner)
	unmade.Status.CompletionTime = nil
	unmadeFailure := v1alpha1.BuildFailure{
		Reason:  v1alpha1.ReasonTaskRunFailed,
		Message: "The builder failed, not the build. Failed to create pod due to config error", Transient: true,
	}
	secretive := function(withEnv("DB_PASSWORD", "hunter2"), withBuildEnv("NPM_TOKEN", "swordfish"))
	secretiveFailure := v1alpha1.BuildFailure{
		Reason:  v1alpha1.ReasonTaskRunFailed,
		Message: "code E403\nGET https://npm.example.com/ms with [redacted] and [redacted]",
		Log:     "npm error code E403\nnpm error GET https://npm.example.com/ms with [redacted] and [redacted]",
	}
	secretiveFailure.Message = "The package registry refused the build. Name a Secret with credentials for it in spec.build.secretName.\n" + secretiveFailure.Message

	rtesting.TableTest{{
		Name:              "the log cannot be read for now: it is asked for again",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), justNow},
		OtherTestData:     map[string]any{logKey: "error:connection refused"},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(unexplained),
		WantEvents:        []string{"Normal TaskRunRunning TaskRun " + justNow.Name + " has failed. Its log cannot be read yet."},
	}, {
		Name:              "the log is being read in the background: the status waits for it",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), justNow},
		OtherTestData:     map[string]any{logKey: "reading:"},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(unexplained),
		WantEvents:        []string{"Normal TaskRunRunning TaskRun " + justNow.Name + " has failed. Its log cannot be read yet."},
	}, {
		Name:          "the log is still being read: nothing to write",
		Key:           key,
		Objects:       []runtime.Object{unexplained, configMap(building), justNow},
		OtherTestData: map[string]any{logKey: "reading:"},
		WantErr:       true,
	}, {
		Name:          "the log still cannot be read: nothing to write",
		Key:           key,
		Objects:       []runtime.Object{unexplained, configMap(building), justNow},
		OtherTestData: map[string]any{logKey: "error:connection refused"},
		WantErr:       true,
	}, {
		Name:              "the log can be read at last",
		Key:               key,
		Objects:           []runtime.Object{unexplained, configMap(building), justNow},
		OtherTestData:     map[string]any{logKey: npmLog},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildFailed(justNow, npmFailure)))),
		WantEvents:        []string{"Warning TaskRunFailed " + npmFailure.Message},
	}, {
		Name:              "the log cannot be read for too long: the Function does without",
		Key:               key,
		Objects:           []runtime.Object{unexplained, configMap(building), longAgo},
		OtherTestData:     map[string]any{logKey: "error:connection refused"},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(function(observed(configured, buildRetrying(longAgo, noLogFailure, 10*time.Second)))),
		WantEvents:        []string{"Warning BuildRetrying " + retryMessage(longAgo, noLogFailure, 10*time.Second)},
	}, {
		Name:              "the pod is gone: so the build was ended with it",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), justNow},
		OtherTestData:     map[string]any{logKey: "gone:"},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(function(observed(configured, buildRetrying(justNow, deletedFailure, 10*time.Second)))),
		WantEvents:        []string{"Warning BuildRetrying " + retryMessage(justNow, deletedFailure, 10*time.Second)},
	}, {
		Name:              "the pod is being deleted: the build was ended with it, whatever its log says",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), justNow, buildPod(justNow, podDeleting)},
		OtherTestData:     map[string]any{logKey: npmLog},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(function(observed(configured, buildRetrying(justNow, withLog(deletedFailure, npmLog), 10*time.Second)))),
		WantEvents:        []string{"Warning BuildRetrying " + retryMessage(justNow, deletedFailure, 10*time.Second)},
	}, {
		Name:              "the pod is being evicted: the words of who evicts it are told",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), justNow, buildPod(justNow, podDeleting, podDisrupted)},
		OtherTestData:     map[string]any{logKey: "gone:"},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(function(observed(configured, buildRetrying(justNow, evictedFailure, 10*time.Second)))),
		WantEvents:        []string{"Warning BuildRetrying " + retryMessage(justNow, evictedFailure, 10*time.Second)},
	}, {
		Name:              "the node is lost: the build is not told to take too long",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), lost, buildPod(lost, podDeleting, podDisrupted)},
		OtherTestData:     map[string]any{logKey: "error:no route to host"},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(function(observed(configured, buildRetrying(lost, evictedFailure, 10*time.Second)))),
		WantEvents:        []string{"Warning BuildRetrying " + retryMessage(lost, evictedFailure, 10*time.Second)},
	}, {
		Name:              "the build took too long: Tekton has deleted its pod, and its log is not waited for",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), lost, buildPod(lost, podDeleting)},
		OtherTestData:     map[string]any{logKey: "gone:"},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildFailed(lost, timeoutFailure)))),
		WantEvents:        []string{"Warning BuildTimeout " + timeoutFailure.Message},
	}, {
		Name:    "a container cannot be made: Tekton does not say when that was",
		Key:     key,
		Objects: []runtime.Object{building, configMap(building), unmade},
		WantErr: true,
		WantStatusUpdates: statusUpdate(function(observed(configured, buildRetrying(unmade, unmadeFailure, 10*time.Second), func(fn *v1alpha1.Function) {
			fn.Status.Build.CompletionTime = unmadeAt
		}))),
		WantEvents: []string{"Warning BuildRetrying " + retryMessage(unmade, unmadeFailure, 10*time.Second)},
	}, {
		Name:              "the pod stays: its log has the cause",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), justNow, buildPod(justNow)},
		OtherTestData:     map[string]any{logKey: npmLog},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildFailed(justNow, npmFailure)))),
		WantEvents:        []string{"Warning TaskRunFailed " + npmFailure.Message},
	}, {
		Name:    "the log has secrets of the Function's: nobody gets to see them",
		Key:     key,
		Objects: []runtime.Object{secretive, configMap(secretive), justNow},
		OtherTestData: map[string]any{
			logKey: "npm error code E403\nnpm error GET https://npm.example.com/ms with hunter2 and swordfish\n",
		},
		WantStatusUpdates: statusUpdate(function(withEnv("DB_PASSWORD", "hunter2"), withBuildEnv("NPM_TOKEN", "swordfish"),
			observed(reconfigured, configured, buildFailed(justNow, secretiveFailure)))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(secretive).Name + " holds the build context.",
			"Warning TaskRunFailed " + secretiveFailure.Message,
		},
	}}.Test(t, factory())
}

func TestReconcileHidesSecretsOfCrashes(t *testing.T) {
	tr := taskRun(function(), builds.ReasonFirstBuild, taskRunSucceeded(digestA))
	status := []functionOption{configured, built(tr, digestA)}
	secret := withEnv("API_KEY", "hunter2")
	fn := function(secret, observed(append(status, serviceCreated)...))
	svc := service(fn, serviceStatus(corev1.ConditionUnknown, "", "", "greeter-00001", ""))
	crashed := corev1.ContainerStatus{
		Name: "function", RestartCount: 1,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: exited(1, "Error: cannot log in: { API_KEY: 'hunter2', URL: 'https://bob:swordfish@example.com' }")},
	}
	failed := function(secret, observed(append(status, deployed, func(fn *v1alpha1.Function) {
		knative.PropagateStatus(fn, svc)
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed,
			"Revision greeter-00001: Container failed with: Error: cannot log in: { API_KEY: '[redacted]', URL: 'https://bob:[redacted]@example.com' }")
	})...))

	rtesting.TableTest{{
		Name:              "the crashed function has printed its environment",
		Key:               key,
		Objects:           []runtime.Object{fn, configMap(fn), tr, svc, pod(fn, "greeter-00001", crashed)},
		WantStatusUpdates: statusUpdate(failed),
		WantEvents: []string{
			"Warning ServiceFailed " + failed.Status.GetCondition(v1alpha1.FunctionConditionRunning).Message,
		},
	}, {
		Name:    "what is hidden stays so: nothing to write",
		Key:     key,
		Objects: []runtime.Object{failed, configMap(fn), tr, svc, pod(fn, "greeter-00001", crashed)},
	}}.Test(t, factory())
}

// TestHideSecretsInErrors checks that errors without secrets do not change, and that others
// keep their kind.
func TestHideSecretsInErrors(t *testing.T) {
	fn := function(withEnv("API_KEY", "hunter2"))
	conflict := apierrs.NewConflict(corev1.Resource("services"), "greeter", errors.New("hunter2 is not what it was"))
	skip := fmt.Errorf("env hunter2: %w", controller.NewSkipKey("default/greeter"))
	plain := errors.New("failed to get Service: timeout")

	if got := hideSecretsIn(nil, fn); got != nil {
		t.Errorf("of nil: %v", got)
	}
	if got := hideSecretsIn(plain, fn); !errors.Is(got, plain) || got.Error() != plain.Error() {
		t.Errorf("of what has no secret: %v", got)
	}
	for _, err := range []error{conflict, skip} {
		got := hideSecretsIn(err, fn)
		if strings.Contains(got.Error(), "hunter2") || !strings.Contains(got.Error(), "[redacted]") {
			t.Errorf("of %v: %v", err, got)
		}
		if apierrs.IsConflict(got) != apierrs.IsConflict(err) || controller.IsSkipKey(got) != controller.IsSkipKey(err) {
			t.Errorf("of %v: an error of another kind", err)
		}
	}
}

// TestReconcileHidesSecretsOfErrors checks that neither a condition nor the controller's log
// shows what Serving quotes when it rejects a Service.
func TestReconcileHidesSecretsOfErrors(t *testing.T) {
	tr := taskRun(function(), builds.ReasonFirstBuild, taskRunSucceeded(digestA))
	fn := function(withEnv("API_KEY", "hunter2"), observed(configured, built(tr, digestA)))
	core, logs := observer.New(zap.InfoLevel)
	row := &rtesting.TableRow{
		Key:     key,
		Objects: []runtime.Object{fn, configMap(fn), tr},
		WithReactors: []clientgotesting.ReactionFunc{
			fail("create", "services", apierrs.NewBadRequest("admission webhook denied the request: invalid value: hunter2")),
		},
	}
	reconciler, _, _ := factory()(t, row)
	err := reconciler.Reconcile(logging.WithLogger(row.Ctx, zap.New(core).Sugar()), key)
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Reconcile() = %v", err)
	}
	if logs.FilterMessage("Returned an error").Len() != 1 {
		t.Errorf("the error is not logged: %v", logs.All())
	}
	for _, entry := range logs.All() {
		if text := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(text, "hunter2") {
			t.Errorf("logged: %s", text)
		}
	}
}

// TestHideSecrets checks that quoted texts are redacted, and that no secret redacts Kiln's own
// words.
func TestHideSecrets(t *testing.T) {
	fn := function(withEnv("API_KEY", "serves"), withEnv("AUTH_ENABLED", "true"), withEnv("MONKEY", "Service"), observed(configured, built(tr1, digestA), running))
	hideSecrets(fn)
	if got := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).Message; got != "Revision greeter-00001 serves." {
		t.Errorf("what Kiln says: %q", got)
	}
	fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "Service greeter: it serves true things")
	hideSecrets(fn)
	if got := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).Message; got != "Service greeter: it [redacted] true things" {
		t.Errorf("what the function says: %q", got)
	}
}

func TestReconcileRetries(t *testing.T) {
	const log = "failed to push image r.example.com/x:1: Get \"https://r.example.com/v2/\": dial tcp: connect: connection refused"
	failure := v1alpha1.BuildFailure{
		Reason:  v1alpha1.ReasonRegistryUnavailable,
		Message: "The registry to push to could not be reached, or failed. Check push in config-registry, and that builds can reach it. " + log,
		Log:     log, Transient: true,
	}
	failedRun := func(n int32, ago time.Duration) *pipelinev1.TaskRun {
		return attempt(function(), builds.ReasonFirstBuild, n, taskRunFailed("StepFailed", `"step-push" exited with code 1`), ended(ago), func(tr *pipelinev1.TaskRun) {
			withFailedStep(tr)
			tr.Status.Steps[0].Terminated.ExitCode = 1
		})
	}
	// The delays after the first attempt and the third are 10 and 40 seconds.
	first, third := failedRun(1, 5*time.Second), failedRun(3, 35*time.Second)
	firstDue, last := failedRun(1, 11*time.Second), failedRun(7, time.Hour)
	second := attempt(function(), builds.ReasonFirstBuild, 2)
	building := function(observed(configured, buildCreated(first)))
	retrying := func(tr *pipelinev1.TaskRun, delay time.Duration) *v1alpha1.Function {
		return function(observed(configured, buildRetrying(tr, failure, delay)))
	}
	waiting, due := retrying(first, 10*time.Second), retrying(firstDue, 10*time.Second)
	planned := function(observed(configured, buildPlanned(builds.ReasonFirstBuild, firstDue), func(fn *v1alpha1.Function) { fn.Status.Build.Attempts = 1 }))
	gone := function(observed(configured, buildCreated(second)))
	gaveUp := function(observed(configured, buildFailed(last, failure), marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkBuildFailed(failure.Reason, "All 7 attempts failed. To build again, set the Function's annotation serverless.kiln.dev/rebuild. "+failure.Message)
	})))
	edited := waiting.DeepCopy()
	edited.Generation = 2
	withEnv("GREETING", "hello")(edited)
	editedPlanned := edited.DeepCopy()
	observed(configured, buildPlanned(builds.ReasonPreviousBuildFailed, first))(editedPlanned)

	running := taskRun(function(withSource("before")), builds.ReasonFirstBuild, taskRunSucceeded(digestA))
	serving := function(observed(configured, func(fn *v1alpha1.Function) {
		built(running, digestA)(fn)
		deployed(fn)
		stillServing(fn)
	}, buildRetrying(first, failure, 10*time.Second)))
	seventh := attempt(function(), builds.ReasonFirstBuild, 7, taskRunRunning)
	deletedEachTime := function(observed(configured, buildRunning(seventh)))
	deletedFailure := builds.Failure{Cause: builds.Deleted, Message: "TaskRun " + deletedEachTime.Status.Build.BuildName() + " was deleted."}.Describe(v1alpha1.ReasonTaskRunFailed, nil)

	rtesting.TableTest{{
		Name:              "the first attempt failed",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), first},
		OtherTestData:     map[string]any{logKey: log},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(waiting),
		WantEvents:        []string{"Warning BuildRetrying " + retryMessage(first, failure, 10*time.Second)},
	}, {
		Name:    "the time has not come: nothing to write",
		Key:     key,
		Objects: []runtime.Object{waiting, configMap(building), first},
		WantErr: true,
	}, {
		Name:    "the time has not come for the fourth: nothing to write",
		Key:     key,
		Objects: []runtime.Object{retrying(third, 40*time.Second), configMap(building), third},
		WantErr: true,
	}, {
		Name:    "the time has not come, and the TaskRun is gone: nothing to write",
		Key:     key,
		Objects: []runtime.Object{waiting, configMap(building)},
		WantErr: true,
	}, {
		Name:    "the retry is not due: the Service keeps serving",
		Key:     key,
		Objects: []runtime.Object{serving, configMap(building), first, service(serving, serviceReady)},
		WantErr: true,
	}, {
		Name:              "the time has come: the failed TaskRun goes first",
		Key:               key,
		Objects:           []runtime.Object{due, configMap(building), firstDue},
		WantDeletes:       []clientgotesting.DeleteActionImpl{deletion("taskruns", firstDue)},
		WantStatusUpdates: statusUpdate(planned),
		WantEvents:        []string{"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + firstDue.Name + "."},
	}, {
		Name:        "the failed TaskRun cannot go yet: nothing to write",
		Key:         key,
		Objects:     []runtime.Object{planned, configMap(building), failedRun(1, 12*time.Second).DeepCopy()},
		WantDeletes: []clientgotesting.DeleteActionImpl{deletion("taskruns", firstDue)},
	}, {
		Name:              "the failed TaskRun is gone: the next attempt starts",
		Key:               key,
		Objects:           []runtime.Object{planned, configMap(building)},
		WantCreates:       []runtime.Object{second},
		WantStatusUpdates: statusUpdate(gone),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + second.Name + " is about to run."},
	}, {
		Name:              "the controller died after it had started the next attempt",
		Key:               key,
		Objects:           []runtime.Object{planned, configMap(building), second},
		WantStatusUpdates: statusUpdate(gone),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + second.Name + " is about to run."},
	}, {
		Name:              "the time has come, and the TaskRun is gone",
		Key:               key,
		Objects:           []runtime.Object{due, configMap(building)},
		WantCreates:       []runtime.Object{second},
		WantStatusUpdates: statusUpdate(gone),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + second.Name + " is about to run."},
	}, {
		Name:              "all attempts have failed",
		Key:               key,
		Objects:           []runtime.Object{function(observed(configured, buildCreated(last))), configMap(building), last},
		OtherTestData:     map[string]any{logKey: log},
		WantStatusUpdates: statusUpdate(gaveUp),
		WantEvents:        []string{"Warning RegistryUnavailable " + gaveUp.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).Message},
	}, {
		Name:    "all attempts have failed: nothing to write",
		Key:     key,
		Objects: []runtime.Object{gaveUp, configMap(building), last},
	}, {
		Name:              "the Function was edited: it is built at once, and attempts count from 1 again",
		Key:               key,
		Objects:           []runtime.Object{edited, configMap(building), first},
		WantDeletes:       []clientgotesting.DeleteActionImpl{deletion("taskruns", first)},
		WantStatusUpdates: statusUpdate(editedPlanned),
		WantEvents:        []string{"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + first.Name + "."},
	}, {
		Name:        "all TaskRuns but the last were deleted, and the cache misses it: its build continues",
		Key:         key,
		Objects:     []runtime.Object{deletedEachTime, configMap(building), unlabelled(seventh)},
		WantUpdates: update(seventh),
	}, {
		Name:    "TaskRuns were deleted as often as they were started",
		Key:     key,
		Objects: []runtime.Object{deletedEachTime, configMap(building)},
		WantStatusUpdates: statusUpdate(function(observed(configured, func(fn *v1alpha1.Function) {
			fn.Status.Build = deletedEachTime.Status.Build.DeepCopy()
			fn.Status.Build.Failure = deletedFailure
			fn.Status.MarkBuildFailed(v1alpha1.ReasonPodDeleted, "All 7 attempts failed. To build again, set the Function's annotation serverless.kiln.dev/rebuild. "+deletedFailure.Message)
		}))),
		WantEvents: []string{
			"Warning PodDeleted All 7 attempts failed. To build again, set the Function's annotation serverless.kiln.dev/rebuild. " + deletedFailure.Message,
		},
	}}.Test(t, factory())
}

// TestReconcileInstallationLog checks that the log of an installation stays readable, that
// Kiln reads it once, and that nothing waits for it.
func TestReconcileInstallationLog(t *testing.T) {
	secretive := func(options ...functionOption) *v1alpha1.Function {
		return function(append([]functionOption{withBuildEnv("NPM_TOKEN", "swordfish")}, options...)...)
	}
	installed := taskRun(secretive(), builds.ReasonFirstBuild, taskRunSucceeded(digestA), func(tr *pipelinev1.TaskRun) {
		tr.Status.Steps = []pipelinev1.StepState{{Name: "push", Container: "step-push"}}
		tr.Status.Sidecars = []pipelinev1.SidecarState{{Name: "install", Container: "sidecar-install"}}
	})
	building := secretive(observed(configured, buildCreated(installed), func(fn *v1alpha1.Function) { fn.Status.Build.CompletionTime = nil }))
	done := func(log string, options ...functionOption) *v1alpha1.Function {
		return secretive(observed(append([]functionOption{configured, built(installed, digestA), func(fn *v1alpha1.Function) { fn.Status.Build.Log = log }}, options...)...))
	}
	reading := secretive(observed(configured, buildCreated(installed), func(fn *v1alpha1.Function) {
		fn.Status.Build = buildStatus(fn, installed)
		fn.Status.Build.CompletionTime = nil
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s has succeeded. Its log cannot be read yet.", installed.Name)
	}))
	const log = "added 1 package with [redacted]"
	told, unread := done(log, serviceCreated), done("", serviceCreated)
	steady := done(log, running, func(fn *v1alpha1.Function) { fn.Status.VersionTag = "g1" })
	svc := knative.MakeService(told, repo+"@"+digestA)
	events := []string{
		"Normal TaskRunSucceeded TaskRun " + installed.Name + " built " + repo + "@" + digestA + ".",
		"Normal ServiceCreated Service greeter was created.",
	}
	rtesting.TableTest{{
		Name:              "the build has succeeded",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), installed},
		OtherTestData:     map[string]any{logKey: "added 1 package with \x1b[1mswordfish\x1b[0m\n"},
		WantCreates:       []runtime.Object{svc},
		WantStatusUpdates: statusUpdate(told),
		WantEvents:        events,
	}, {
		Name:              "the log cannot be read",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), installed},
		OtherTestData:     map[string]any{logKey: "error:connection refused"},
		WantCreates:       []runtime.Object{svc},
		WantStatusUpdates: statusUpdate(unread),
		WantEvents:        events,
	}, {
		Name:              "the log is being read in the background",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), installed},
		OtherTestData:     map[string]any{logKey: "reading:"},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(reading),
		WantEvents:        []string{"Normal TaskRunRunning TaskRun " + installed.Name + " has succeeded. Its log cannot be read yet."},
	}, {
		Name:          "the log is still being read: nothing to write",
		Key:           key,
		Objects:       []runtime.Object{reading, configMap(building), installed},
		OtherTestData: map[string]any{logKey: "reading:"},
		WantErr:       true,
	}, {
		Name:              "the log was being read and is there",
		Key:               key,
		Objects:           []runtime.Object{reading, configMap(building), installed},
		OtherTestData:     map[string]any{logKey: "added 1 package with swordfish\n"},
		WantCreates:       []runtime.Object{svc},
		WantStatusUpdates: statusUpdate(told),
		WantEvents:        events,
	}, {
		Name:    "the log was read: nothing to read, nothing to write",
		Key:     key,
		Objects: []runtime.Object{steady, configMap(steady), installed, service(steady, serviceReady)},
	}, {
		Name:    "the log was read, and the TaskRun is gone: nothing to write",
		Key:     key,
		Objects: []runtime.Object{steady, configMap(steady), service(steady, serviceReady)},
	}}.Test(t, factory())
}
