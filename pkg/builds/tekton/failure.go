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

package tekton

import (
	"context"
	"fmt"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/observe"
)

// The containers of the steps that run no code of the author's.
const (
	pushContainer  = StepContainerPrefix + PushStepName
	fetchContainer = StepContainerPrefix + FetchStepName
)

// causes maps Tekton's reasons to causes. A failure of Tekton's own containers, or of
// injected ones, is not a failure of the build.
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

// Failure collects why a build failed. With an error, which comes from reading the
// log, the log is missing or incomplete and the rest is there.
func (b *Builder) Failure(ctx context.Context, run builds.Run) (builds.Failure, error) {
	tr := taskRunOf(run)
	condition := tr.Status.GetCondition(apis.ConditionSucceeded)
	if condition.IsTrue() {
		_, err := digestOf(tr)
		return builds.Failure{Message: fmt.Sprintf("TaskRun %s succeeded but does not report its image: %v", tr.Name, err)}, nil
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
		// Tekton reports steps only once a node has taken the pod.
		failure.Unscheduled = failure.Cause == builds.TimedOut && len(tr.Status.Steps) == 0
		if failure.Cause == builds.StepFailed {
			// The whole pod failed: its node rejected it or was shut down.
			failure.Cause = builds.NotRun
		}
		return failure, nil
	}
	var err error
	failure.Log, err = b.Logs.Tail(ctx, tr.Namespace, tr.Status.PodName, container)
	b.detectLoss(&failure, tr, err)
	return failure, err
}

// detectLoss detects that the build failed because it lost its pod. Tekton does not
// report that: a step that ends with its pod has an exit code too, and a pod on a lost
// node runs until its timeout. logErr is the error of reading the log.
func (b *Builder) detectLoss(failure *builds.Failure, tr *pipelinev1.TaskRun, logErr error) {
	if failure.Cause != builds.StepFailed && failure.Cause != builds.TimedOut {
		return
	}
	pod, notCached := b.Pods.Pods(tr.Namespace).Get(tr.Status.PodName)
	switch {
	case notCached == nil && observe.PodCondition(pod, corev1.DisruptionTarget).Status == corev1.ConditionTrue:
		failure.Cause, failure.Message = builds.Evicted, observe.PodCondition(pod, corev1.DisruptionTarget).Message
	case failure.Cause == builds.TimedOut:
		// Tekton itself has deleted the pod.
	case notCached == nil && pod.DeletionTimestamp != nil, apierrs.IsNotFound(logErr):
		failure.Cause = builds.Deleted
	}
}

// failedContainer returns the first container that failed, and its exit code.
func failedContainer(tr *pipelinev1.TaskRun) (string, int32) {
	for _, step := range tr.Status.Steps {
		if step.Terminated != nil && step.Terminated.ExitCode != 0 {
			return step.Container, step.Terminated.ExitCode
		}
	}
	return "", 0
}

// InstallLog returns the end of the log of the step that installs dependencies, or ""
// if the build has no such step.
func (b *Builder) InstallLog(ctx context.Context, run builds.Run) (string, error) {
	tr := taskRunOf(run)
	for _, step := range tr.Status.Steps {
		if step.Name == InstallStepName {
			return b.Logs.Tail(ctx, tr.Namespace, tr.Status.PodName, step.Container)
		}
	}
	return "", nil
}
