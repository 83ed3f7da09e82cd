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
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/observe"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/sources"
)

const (
	pushContainer    = StepContainerPrefix + steps.Push
	fetchContainer   = StepContainerPrefix + steps.Fetch
	installContainer = SidecarContainerPrefix + steps.Install
)

// causes maps Tekton's reasons to causes. A failure of Tekton's own containers is not a
// failure of the build.
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
	pipelinev1.TaskRunReasonSidecarFailed:              builds.StepFailed,
	pipelinev1.TaskRunReasonSidecarOOM:                 builds.OutOfMemory,
	pipelinev1.TaskRunReasonStopSidecarFailed:          builds.NotRun,
}

// Failure collects why a build failed. With an error, which comes from reading the
// log, the log is missing or incomplete and the rest is there.
func (b *Builder) Failure(ctx context.Context, run builds.Run) (builds.Failure, error) {
	tr := taskRunOf(run)
	condition := tr.Status.GetCondition(apis.ConditionSucceeded)
	if condition.IsTrue() {
		results := resultsOf(tr)
		_, err := results.Digest()
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
	if container == installContainer && failure.Cause == builds.StepFailed {
		killed, err := isInstallOOMKilled(tr)
		if err != nil {
			return failure, err
		}
		if killed {
			failure.Cause = builds.OutOfMemory
		}
	}
	failure.Log, err = b.Logs.Tail(ctx, tr.Namespace, tr.Status.PodName, container)
	b.detectLoss(&failure, tr, err)
	if err == nil && failure.Cause == builds.StepFailed {
		err = b.awaitPod(tr)
	}
	return failure, err
}

// awaitPod returns an error until the pod has ended. The kubelet reports an eviction after
// the containers have ended, and Tekton may not wait for that.
func (b *Builder) awaitPod(tr *pipelinev1.TaskRun) error {
	pod, notCached := b.Pods.Pods(tr.Namespace).Get(tr.Status.PodName)
	if notCached == nil && pod.Status.Phase == corev1.PodRunning {
		return fmt.Errorf("pod %s does not report yet why it ended", pod.Name)
	}
	return nil
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
	case notCached == nil && pod.Status.Reason == pods.Evicted:
		failure.Cause, failure.Message = builds.Evicted, pod.Status.Message
	case notCached == nil && observe.PodCondition(pod, corev1.DisruptionTarget).Status == corev1.ConditionTrue:
		failure.Cause, failure.Message = builds.Evicted, observe.PodCondition(pod, corev1.DisruptionTarget).Message
	case failure.Cause == builds.TimedOut:
		// Tekton itself has deleted the pod.
	case notCached == nil && pod.DeletionTimestamp != nil, apierrs.IsNotFound(logErr):
		failure.Cause = builds.Deleted
	}
}

// failedContainer returns the first container that failed, and its exit code. The push
// step reports a failed sidecar with an exit code of its own.
func failedContainer(tr *pipelinev1.TaskRun) (string, int32) {
	for _, step := range tr.Status.Steps {
		switch {
		case step.Terminated == nil, step.Terminated.ExitCode == 0:
		case step.Container == pushContainer && step.Terminated.ExitCode == sources.ExitNotInstalled:
			return installContainer, step.Terminated.ExitCode
		default:
			return step.Container, step.Terminated.ExitCode
		}
	}
	return "", 0
}

// isInstallOOMKilled reports whether the sidecar exceeded its memory limit. The push step
// fails at the same moment as the sidecar, so Tekton may report the sidecar later.
func isInstallOOMKilled(tr *pipelinev1.TaskRun) (bool, error) {
	for _, sidecar := range tr.Status.Sidecars {
		if sidecar.Name == steps.Install && sidecar.Terminated != nil {
			return sidecar.Terminated.Reason == pods.OOMKilled, nil
		}
	}
	return false, fmt.Errorf("TaskRun %s does not report yet how its sidecar %s ended", tr.Name, steps.Install)
}

// InstallLog returns the end of the log of the installation of dependencies, or "" if
// the build has none.
func (b *Builder) InstallLog(ctx context.Context, run builds.Run) (string, error) {
	tr := taskRunOf(run)
	for _, sidecar := range tr.Status.Sidecars {
		if sidecar.Name == steps.Install {
			return b.Logs.Tail(ctx, tr.Namespace, tr.Status.PodName, sidecar.Container)
		}
	}
	for _, step := range tr.Status.Steps {
		if step.Name == steps.Install {
			return b.Logs.Tail(ctx, tr.Namespace, tr.Status.PodName, step.Container)
		}
	}
	return "", nil
}
