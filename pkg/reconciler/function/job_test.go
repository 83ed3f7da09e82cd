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
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgotesting "k8s.io/client-go/testing"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/job"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// jobOf returns the first attempt at the build that the Function asks for, as a Job.
func jobOf(fn *v1alpha1.Function, reason string, options ...func(*batchv1.Job)) *batchv1.Job {
	want := planOf(fn)
	j := job.MakeJob(fn, testConfig(), builds.Spec{
		Request: want.request, Reason: reason, Attempt: 1, BaseImage: want.lookup.Base,
		Files: want.files, InstallFiles: want.installFiles, Runtime: want.runtime,
	})
	for _, option := range options {
		option(j)
	}
	return j
}

// begun is a Job that the Job controller has seen.
func begun(j *batchv1.Job) {
	j.UID, j.CreationTimestamp = "job-uid", noon
	j.Status.StartTime = &noon
}

// jobPod returns the pod of a Job, whose push step is in that state.
func jobPod(j *batchv1.Job, push corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: j.Name + "-abcde", Namespace: j.Namespace,
			Labels: map[string]string{
				serverless.FunctionNameLabelKey: name, serverless.FunctionUIDLabelKey: string(function().UID),
				batchv1.JobNameLabel: j.Name, batchv1.ControllerUidLabel: string(j.UID),
			},
		},
		Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			ContainerStatuses: []corev1.ContainerStatus{{Name: steps.Push, State: push}},
		},
	}
}

// pushed is the end of a push step that has pushed the image.
var pushed = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
	FinishedAt: noon, Message: fmt.Sprintf(`{"IMAGE_DIGEST": %q}`, digestA),
}}

// waits is a container that waits for that reason.
func waits(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such image"}}
}

// jobStatus returns the status that describes the build of the Job.
func jobStatus(fn *v1alpha1.Function, j *batchv1.Job, pod *corev1.Pod) *v1alpha1.BuildStatus {
	return statusOf(fn, new(job.RunOf(j, pod)))
}

func jobCreated(j *batchv1.Job) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Status.Build = jobStatus(fn, j, nil)
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonJobCreated, "Job %s is about to run.", j.Name)
	}
}

func jobBuilt(j *batchv1.Job) functionOption {
	return func(fn *v1alpha1.Function) {
		built(tr1, digestA)(fn)
		fn.Status.Build = jobStatus(fn, j, jobPod(j, pushed))
		fn.Status.MarkBuildReady(v1alpha1.ReasonJobFinished, "Job %s built %s.", j.Name, fn.Status.Image)
	}
}

// jobPulls describes a build whose image cannot be pulled.
func jobPulls(j *batchv1.Job) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Status.Build = jobStatus(fn, j, jobPod(j, waits("ImagePullBackOff")))
		fn.Status.Build.CompletionTime = new(metav1.NewTime(time.Now().Add(time.Hour)))
		fn.Status.Build.Failure = &v1alpha1.BuildFailure{Reason: v1alpha1.ReasonImagePullFailed, Message: "No image.", Transient: true}
		_ = markBuildFailed(fn)
	}
}

// TestReconcileJobs checks what a reconcile does with Jobs.
func TestReconcileJobs(t *testing.T) {
	withJobs := map[string]any{configKey: testConfig(func(cfg *config.Config) { cfg.Build.Builder = config.JobBuilder })}
	onlyJobs := map[string]any{withoutTekton: true}
	first := jobOf(function(), builds.ReasonFirstBuild)
	seen := jobOf(function(), builds.ReasonFirstBuild, begun)
	recorded := jobOf(function(), builds.ReasonFirstBuild, begun, func(j *batchv1.Job) {
		j.Annotations[serverless.BuildResultsAnnotationKey] = fmt.Sprintf(`{"IMAGE_DIGEST":%q,"completionTime":"2026-06-01T12:00:00Z"}`, digestA)
	})
	waiting := function(observed(configured))
	building := function(observed(configured, jobCreated(seen)))
	done := function(observed(configured, jobBuilt(seen)))
	serving := service(done, serviceReady)
	ready := function(observed(configured, jobBuilt(seen), running))
	stuck := function(observed(configured, jobPulls(seen)))
	taskRunBuilding := function(observed(configured, buildCreated(firstRun)))
	patch := clientgotesting.PatchActionImpl{
		ActionImpl: clientgotesting.ActionImpl{Namespace: namespace}, Name: seen.Name,
		Patch: fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"{\"IMAGE_DIGEST\":\"%s\",\"completionTime\":\"2026-06-01T12:00:00Z\"}"},"uid":"job-uid"}}`,
			serverless.BuildResultsAnnotationKey, digestA),
	}

	rtesting.TableTest{{
		Name:              "a Job is created",
		Key:               key,
		Objects:           []runtime.Object{waiting, configMap(waiting)},
		OtherTestData:     withJobs,
		WantCreates:       []runtime.Object{first},
		WantStatusUpdates: statusUpdate(function(observed(configured, jobCreated(first)))),
		WantEvents:        []string{"Normal JobCreated Job " + first.Name + " is about to run."},
	}, {
		Name:              "auto creates a Job in a cluster without Tekton",
		Key:               key,
		Objects:           []runtime.Object{waiting, configMap(waiting)},
		OtherTestData:     onlyJobs,
		WantCreates:       []runtime.Object{first},
		WantStatusUpdates: statusUpdate(function(observed(configured, jobCreated(first)))),
		WantEvents:        []string{"Normal JobCreated Job " + first.Name + " is about to run."},
	}, {
		Name:    "a chosen builder without its API is never replaced",
		Key:     key,
		Objects: []runtime.Object{waiting, configMap(waiting)},
		OtherTestData: map[string]any{
			withoutTekton: true,
			configKey:     testConfig(func(cfg *config.Config) { cfg.Build.Builder = config.TektonBuilder }),
		},
		WantStatusUpdates: statusUpdate(function(observed(configured, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkBuildFailed(v1alpha1.ReasonBuilderUnavailable,
				`The ConfigMap config-build sets builder to "tekton", and this cluster does not have its API. Install it, or set another builder.`)
		})))),
		WantEvents: []string{`Warning BuilderUnavailable The ConfigMap config-build sets builder to "tekton", and this cluster does not have its API. Install it, or set another builder.`},
	}, {
		Name:          "the Job has not begun: nothing to write",
		Key:           key,
		Objects:       []runtime.Object{building, configMap(building), seen},
		OtherTestData: withJobs,
	}, {
		Name:          "a TaskRun that runs is followed, although new builds are Jobs",
		Key:           key,
		Objects:       []runtime.Object{taskRunBuilding, configMap(taskRunBuilding), firstRun},
		OtherTestData: withJobs,
	}, {
		Name:    "a Job that runs is followed, although new builds are TaskRuns",
		Key:     key,
		Objects: []runtime.Object{building, configMap(building), seen},
	}, {
		Name:              "the image was pushed: it is deployed, and the Job keeps the results",
		Key:               key,
		Objects:           []runtime.Object{building, configMap(building), seen, jobPod(seen, pushed)},
		OtherTestData:     withJobs,
		WantPatches:       []clientgotesting.PatchActionImpl{patch},
		WantCreates:       []runtime.Object{knative.MakeService(done, repo+"@"+digestA)},
		WantStatusUpdates: statusUpdate(function(observed(configured, jobBuilt(seen), serviceCreated))),
		WantEvents: []string{
			"Normal JobFinished Job " + seen.Name + " built " + repo + "@" + digestA + ".",
			"Normal ServiceCreated Service greeter was created.",
		},
	}, {
		Name:          "steady state, also without the pod: nothing to write",
		Key:           key,
		Objects:       []runtime.Object{ready, configMap(ready), recorded, serving},
		OtherTestData: withJobs,
	}, {
		Name:          "a Job that may still run goes once the status has its failure",
		Key:           key,
		Objects:       []runtime.Object{stuck, configMap(stuck), seen, jobPod(seen, waits("ImagePullBackOff"))},
		OtherTestData: withJobs,
		WantDeletes:   []clientgotesting.DeleteActionImpl{deletion("jobs", seen)},
		WantErr:       true,
	}, {
		Name:          "a Job that runs after all goes, too",
		Key:           key,
		Objects:       []runtime.Object{stuck, configMap(stuck), seen, jobPod(seen, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})},
		OtherTestData: withJobs,
		WantDeletes:   []clientgotesting.DeleteActionImpl{deletion("jobs", seen)},
		WantErr:       true,
	}, {
		Name:          "the cache is behind a Job that has failed: it stays as history",
		Key:           key,
		Objects:       []runtime.Object{stuck, configMap(stuck), seen},
		OtherTestData: withJobs,
		WithReactors: []clientgotesting.ReactionFunc{func(action clientgotesting.Action) (bool, runtime.Object, error) {
			return action.Matches("get", "jobs"), jobEnded(seen, batchv1.JobFailed), nil
		}},
		WantErr: true,
	}, {
		Name:          "the cache does not show the pod of a Job that is complete: nothing is decided",
		Key:           key,
		Objects:       []runtime.Object{building, configMap(building), jobEnded(seen, batchv1.JobComplete)},
		OtherTestData: map[string]any{configKey: withJobs[configKey], ktesting.Unlisted: []runtime.Object{jobPod(seen, pushed)}},
		WantStatusUpdates: statusUpdate(function(observed(configured, jobCreated(seen), marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkBuildUnknown(v1alpha1.ReasonJobRunning, "Job %s has ended. Its log cannot be read yet.", seen.Name)
		})))),
		WantEvents: []string{"Normal JobRunning Job " + seen.Name + " has ended. Its log cannot be read yet."},
		WantErr:    true,
	}, {
		Name:          "the Job of a failed build is gone, and its next attempt is not due",
		Key:           key,
		Objects:       []runtime.Object{stuck, configMap(stuck)},
		OtherTestData: withJobs,
		WantErr:       true,
	}, {
		Name:          "an outdated Job that may still run is deleted, and is no history",
		Key:           key,
		Objects:       []runtime.Object{ready, configMap(ready), recorded, serving, stale(seen), jobPod(stale(seen), waits("InvalidImageName"))},
		OtherTestData: withJobs,
		WantDeletes:   []clientgotesting.DeleteActionImpl{deletion("jobs", stale(seen))},
	}}.Test(t, factory())
}

// jobEnded returns the Job after its end.
func jobEnded(j *batchv1.Job, how batchv1.JobConditionType) *batchv1.Job {
	j = j.DeepCopy()
	j.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue, LastTransitionTime: noon}}
	return j
}

// stale returns a Job of another image of the Function.
func stale(j *batchv1.Job) *batchv1.Job {
	j = j.DeepCopy()
	j.Name, j.UID = name+"-stale", "stale-uid"
	j.Labels[serverless.ImageTagLabelKey] = "stale"
	return j
}
