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
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/redact"
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
		markBuildFailed(fn)
		return nil
	}
	failure, err := r.findFailure(ctx, tr)
	if err != nil {
		logging.FromContext(ctx).Infow("Failed to read the log of a failed build", "taskRun", tr.Name, "error", err)
		if isWorthwhile(err, tr) {
			// The build has not ended before it is known how.
			fn.Status.Build.CompletionTime = nil
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s has failed; its log cannot be read yet.", tr.Name)
			return controller.NewRequeueAfter(logRetry)
		}
	}
	failure.Secrets = secretsOf(fn)
	fn.Status.Build.Failure = failure.Describe(want.runtime.ExplainBuildFailure)
	markBuildFailed(fn)
	return nil
}

func markBuildFailed(fn *v1alpha1.Function) {
	failure := fn.Status.Build.Failure
	fn.Status.MarkBuildFailed(failure.Reason, "%s", failure.Message)
}

// isWorthwhile says whether a log that could not be read may be read soon. It
// goes with its pod, and that with its node.
func isWorthwhile(err error, tr *pipelinev1.TaskRun) bool {
	if apierrs.IsNotFound(err) || apierrs.IsForbidden(err) {
		return false
	}
	return tr.Status.CompletionTime != nil && time.Since(tr.Status.CompletionTime.Time) < logPatience
}

// findFailure collects what is known of a failed build. With an error, it is all
// but the log, or the end of it.
func (r *Reconciler) findFailure(ctx context.Context, tr *pipelinev1.TaskRun) (builds.Failure, error) {
	condition := tr.Status.GetCondition(apis.ConditionSucceeded)
	if condition.IsTrue() {
		_, err := digestOf(tr)
		return builds.Failure{Message: fmt.Sprintf("TaskRun %s succeeded, but does not tell what it has built: %v", tr.Name, err)}, nil
	}
	failure := builds.Failure{Cause: causeOf(condition.Reason), Message: condition.Message}
	container := failedContainer(tr)
	if container == "" {
		return failure, nil
	}
	var err error
	failure.Log, err = r.logs.Tail(ctx, tr.Namespace, tr.Status.PodName, container)
	return failure, err
}

func failedContainer(tr *pipelinev1.TaskRun) string {
	for _, step := range tr.Status.Steps {
		if step.Terminated != nil && step.Terminated.ExitCode != 0 {
			return step.Container
		}
	}
	return ""
}

var causes = map[pipelinev1.TaskRunReason]builds.Cause{
	pipelinev1.TaskRunReasonFailed:           builds.StepFailed,
	pipelinev1.TaskRunReasonStepFailed:       builds.StepFailed,
	pipelinev1.TaskRunReasonTimedOut:         builds.TimedOut,
	pipelinev1.TaskRunReasonStepOOM:          builds.OutOfMemory,
	pipelinev1.TaskRunReasonInitContainerOOM: builds.OutOfMemory,
	pipelinev1.TaskRunReasonSidecarOOM:       builds.OutOfMemory,
	pipelinev1.TaskRunReasonCancelled:        builds.Cancelled,
	pipelinev1.TaskRunReasonImagePullFailed:  builds.ImagePull,
	pipelinev1.TaskRunReasonPodEvicted:       builds.Evicted,
}

func causeOf(reason string) builds.Cause {
	return causes[pipelinev1.TaskRunReason(reason)]
}

// secretsOf returns the values in the Function that nobody is to see in a log or
// a message.
func secretsOf(fn *v1alpha1.Function) []string {
	var secrets []string
	for _, variable := range fn.Spec.Env {
		if redact.IsSecretName(variable.Name) {
			secrets = append(secrets, variable.Value)
		}
	}
	if fn.Spec.Build == nil {
		return secrets
	}
	for _, variable := range fn.Spec.Build.Env {
		if redact.IsSecretName(variable.Name) {
			secrets = append(secrets, variable.Value)
		}
	}
	return secrets
}

// hideSecrets takes secrets out of what the conditions say: a function that
// crashes may print its environment.
func hideSecrets(fn *v1alpha1.Function) {
	secrets := secretsOf(fn)
	for i := range fn.Status.Conditions {
		condition := &fn.Status.Conditions[i]
		condition.Message = redact.Text(condition.Message, secrets...)
	}
}
