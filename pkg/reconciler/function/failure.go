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
	"fmt"
	"path"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/observe"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
	"github.com/kiln-dev/kiln/pkg/redact"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	// logPatience is how long after the end of a build its log is asked for.
	logPatience = time.Minute
	// logRetry is how long it takes until a log is asked for again.
	logRetry = 2 * time.Second
)

// followFailure says in the status why the build has failed. The log is read
// once, as the status keeps what it says.
func (r *Reconciler) followFailure(ctx context.Context, fn *v1alpha1.Function, want *plan, tr *pipelinev1.TaskRun) error {
	if fn.Status.Build.Failure != nil {
		return markBuildFailed(fn)
	}
	failure, err := r.findFailure(ctx, tr)
	if err != nil {
		logging.FromContext(ctx).Infow("Failed to read the log of a failed build", "taskRun", tr.Name, "error", err)
		if failure.Cause == builds.StepFailed && isWorthwhile(err, tr) {
			// The build has not ended before it is known how.
			fn.Status.Build.CompletionTime = nil
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s has failed; its log cannot be read yet.", tr.Name)
			return controller.NewRequeueAfter(logRetry)
		}
	}
	failure.Secrets, failure.DependencyFile = secretsOf(fn), fetchedDependencies(fn, want.runtime)
	failure.OwnDockerfile = want.runtime.IsOwnDockerfile()
	fn.Status.Build.Failure = failure.Describe(want.runtime.ExplainBuildFailure)
	return markBuildFailed(fn)
}

// fetchedDependencies tells which file of a source that is fetched lists the
// dependencies, as far as the runtime knows. There is none in the Function, then.
func fetchedDependencies(fn *v1alpha1.Function, runtime runtimes.Runtime) string {
	switch {
	case fn.Spec.IsFetched() && runtime.DependencyFile == "":
		return "the source"
	case fn.Spec.Git != nil:
		return path.Join(fn.Spec.Git.ContextDir, runtime.DependencyFile) + " of the repository"
	case fn.Spec.Archive != nil:
		return runtime.DependencyFile + " of the archive"
	}
	return ""
}

// markBuildFailed says that the build has failed, and whether it is started
// again. The error has the Function looked at when that is due.
func markBuildFailed(fn *v1alpha1.Function) error {
	failure := fn.Status.Build.Failure
	last := describe(fn.Status.Build)
	last.State = builds.Failed
	at, again := last.RetryAt()
	switch {
	case again:
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonBuildRetrying, "Attempt %d of %d failed, the next starts at %s: %s: %s",
			last.Attempt, builds.MaxAttempts, at.UTC().Format(time.TimeOnly+" MST"), failure.Reason, failure.Message)
		return controller.NewRequeueAfter(time.Until(at))
	case failure.Transient:
		fn.Status.MarkBuildFailed(failure.Reason, "All of %d attempts failed. Set the Function's annotation %s to build again. %s",
			last.Attempt, serverless.RebuildAnnotationKey, failure.Message)
	default:
		fn.Status.MarkBuildFailed(failure.Reason, "%s", failure.Message)
	}
	return nil
}

// giveUp says that the build was deleted each time that it was started.
func giveUp(fn *v1alpha1.Function, want *plan) error {
	failure := builds.Failure{Cause: builds.Deleted, Message: fmt.Sprintf("TaskRun %s is gone.", fn.Status.Build.BuildName())}
	fn.Status.Build.Failure = failure.Describe(want.runtime.ExplainBuildFailure)
	return markBuildFailed(fn)
}

// isWorthwhile says whether a log that could not be read may be read soon. It
// goes with its pod, and that with its node.
func isWorthwhile(err error, tr *pipelinev1.TaskRun) bool {
	if apierrs.IsNotFound(err) || apierrs.IsForbidden(err) {
		return false
	}
	return tr.Status.CompletionTime != nil && time.Since(tr.Status.CompletionTime.Time) < logPatience
}

// installationLog returns the end of the log of what the build has installed. It
// is tried once: what waits for the build does not wait for its log.
func (r *Reconciler) installationLog(ctx context.Context, fn *v1alpha1.Function, tr *pipelinev1.TaskRun) string {
	for _, step := range tr.Status.Steps {
		if step.Name != resources.InstallStepName {
			continue
		}
		log, err := r.logs.Tail(ctx, tr.Namespace, tr.Status.PodName, step.Container)
		if err != nil {
			logging.FromContext(ctx).Infow("Failed to read the log of a build", "taskRun", tr.Name, "error", err)
		}
		return builds.Excerpt(log, secretsOf(fn)...)
	}
	return ""
}

// findFailure collects what is known of a failed build. With an error, it is all
// but the log, or the end of it.
func (r *Reconciler) findFailure(ctx context.Context, tr *pipelinev1.TaskRun) (builds.Failure, error) {
	condition := tr.Status.GetCondition(apis.ConditionSucceeded)
	if condition.IsTrue() {
		_, err := digestOf(tr)
		return builds.Failure{Message: fmt.Sprintf("TaskRun %s succeeded, but does not tell what it has built: %v", tr.Name, err)}, nil
	}
	container, code := failedContainer(tr)
	failure := builds.Failure{
		Cause:   causes[pipelinev1.TaskRunReason(condition.Reason)],
		Pushing: container == pushContainer,
		Message: condition.Message,
	}
	if container == fetchContainer {
		failure.Fetching = code
	}
	if container == "" {
		// Tekton knows of steps once a node has taken the pod.
		failure.Unscheduled = failure.Cause == builds.TimedOut && len(tr.Status.Steps) == 0
		if failure.Cause == builds.StepFailed {
			// The pod failed as a whole: its node would not have it, or was shut down.
			failure.Cause = builds.NotRun
		}
		return failure, nil
	}
	var err error
	failure.Log, err = r.logs.Tail(ctx, tr.Namespace, tr.Status.PodName, container)
	r.findLoss(&failure, tr, err)
	return failure, err
}

// findLoss finds out whether the build failed since its pod was taken away, which
// Tekton does not tell: a step that is ended with its pod has an exit code, too,
// and a pod on a node that is lost runs until its time is over. err is the one of
// reading the step's log.
func (r *Reconciler) findLoss(failure *builds.Failure, tr *pipelinev1.TaskRun, err error) {
	if failure.Cause != builds.StepFailed && failure.Cause != builds.TimedOut {
		return
	}
	pod, notCached := r.podLister.Pods(tr.Namespace).Get(tr.Status.PodName)
	switch {
	case notCached == nil && observe.PodCondition(pod, corev1.DisruptionTarget).Status == corev1.ConditionTrue:
		failure.Cause, failure.Message = builds.Evicted, observe.PodCondition(pod, corev1.DisruptionTarget).Message
	case failure.Cause == builds.TimedOut:
		// Tekton itself has deleted the pod.
	case notCached == nil && pod.DeletionTimestamp != nil, apierrs.IsNotFound(err):
		failure.Cause = builds.Deleted
	}
}

// The containers of the steps that run nothing of the Function's.
const (
	pushContainer  = resources.StepContainerPrefix + resources.PushStepName
	fetchContainer = resources.StepContainerPrefix + resources.FetchStepName
)

// failedContainer returns the container that has failed first, and its exit code.
func failedContainer(tr *pipelinev1.TaskRun) (string, int32) {
	for _, step := range tr.Status.Steps {
		if step.Terminated != nil && step.Terminated.ExitCode != 0 {
			return step.Container, step.Terminated.ExitCode
		}
	}
	return "", 0
}

// causes are what Tekton's reasons mean. What is of its own containers, and of
// those that others put into its pods, is not the build's.
var causes = map[pipelinev1.TaskRunReason]builds.Cause{
	pipelinev1.TaskRunReasonFailed:                     builds.StepFailed,
	pipelinev1.TaskRunReasonStepFailed:                 builds.StepFailed,
	pipelinev1.TaskRunReasonTimedOut:                   builds.TimedOut,
	pipelinev1.TaskRunReasonStepOOM:                    builds.OutOfMemory,
	pipelinev1.TaskRunReasonCancelled:                  builds.Cancelled,
	pipelinev1.TaskRunReasonImagePullFailed:            builds.ImagePull,
	pipelinev1.TaskRunReasonPodEvicted:                 builds.Evicted,
	pipelinev1.TaskRunReasonPodCreationFailed:          builds.NotRun,
	pipelinev1.TaskRunReasonCreateContainerConfigError: builds.NotRun,
	pipelinev1.TaskRunReasonInitContainerFailed:        builds.NotRun,
	pipelinev1.TaskRunReasonInitContainerOOM:           builds.NotRun,
	pipelinev1.TaskRunReasonSidecarFailed:              builds.NotRun,
	pipelinev1.TaskRunReasonSidecarOOM:                 builds.NotRun,
	pipelinev1.TaskRunReasonStopSidecarFailed:          builds.NotRun,
}

// secretsOf returns the values in the Function that nobody is to see in a log or
// a message. What its pods read from Secrets is not known here.
func secretsOf(fn *v1alpha1.Function) []string {
	var secrets []string
	for _, variable := range fn.Spec.Env {
		if redact.IsSecret(variable.Name, variable.Value) {
			secrets = append(secrets, variable.Value)
		}
	}
	if fn.Spec.Build == nil {
		return secrets
	}
	for _, variable := range fn.Spec.Build.Env {
		if redact.IsSecret(variable.Name, variable.Value) {
			secrets = append(secrets, variable.Value)
		}
	}
	return secrets
}

// hideSecrets takes secrets out of what the conditions say: a function that
// crashes may print its environment. Of a condition that is True all words are
// Kiln's own.
func hideSecrets(fn *v1alpha1.Function) {
	secrets := secretsOf(fn)
	for i := range fn.Status.Conditions {
		if condition := &fn.Status.Conditions[i]; !condition.IsTrue() {
			condition.Message = redact.Text(condition.Message, secrets...)
		}
	}
}

// hideSecretsIn takes secrets out of what is logged of an error: who refuses an
// object may quote it.
func hideSecretsIn(err error, fn *v1alpha1.Function) error {
	if err == nil {
		return nil
	}
	text := redact.Text(err.Error(), secretsOf(fn)...)
	if text == err.Error() {
		return err
	}
	return redactedError{error: err, text: text}
}

// redactedError is an error in other words.
type redactedError struct {
	error
	text string
}

func (e redactedError) Error() string { return e.text }
func (e redactedError) Unwrap() error { return e.error }
