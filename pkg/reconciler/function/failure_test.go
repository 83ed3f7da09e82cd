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
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
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
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s has failed; its log cannot be read yet.", tr.Name)
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
		Message: `The build's log could not be read. "step-install" exited with code 1`,
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
		WantEvents:        []string{"Normal TaskRunRunning TaskRun " + justNow.Name + " has failed; its log cannot be read yet."},
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
		WantStatusUpdates: statusUpdate(function(observed(configured, buildFailed(longAgo, noLogFailure)))),
		WantEvents:        []string{"Warning TaskRunFailed " + noLogFailure.Message},
	}, {
		Name:              "the log is gone with its pod: the Function does without at once",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), justNow},
		OtherTestData:     map[string]any{logKey: "gone:"},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildFailed(justNow, noLogFailure)))),
		WantEvents:        []string{"Warning TaskRunFailed " + noLogFailure.Message},
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
			"Normal ConfigMapCreated ConfigMap " + configMap(secretive).Name + " holds what the build needs.",
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
		propagateService(fn, svc)
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
