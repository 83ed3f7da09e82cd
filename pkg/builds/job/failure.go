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

package job

import (
	"cmp"
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/observe"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/sources"
)

const (
	// unknownEnd is the kubelet's reason of a container that it does not find.
	unknownEnd = "ContainerStatusUnknown"

	// deadlineExceeded is the kubelet's reason of a pod that it ended at its deadline.
	deadlineExceeded = "DeadlineExceeded"

	// lostNode is the reason of the condition DisruptionTarget of a pod on a node that does
	// not respond.
	lostNode = "DeletionByTaintManager"
)

// Failure collects why a build failed. With an error, which comes from reading the
// log or the pod, the failure is incomplete.
func (b *Builder) Failure(ctx context.Context, run builds.Run) (builds.Failure, error) {
	of := buildOf(run)
	if run.Unfinished {
		why := of.obstacle()
		return builds.Failure{Cause: why.cause, Message: why.message}, nil
	}
	failed := of.condition(batchv1.JobFailed)
	if of.pod == nil && failed.Reason == batchv1.JobReasonDeadlineExceeded {
		return b.heldUp(of)
	}
	// StepFailed with an error: the cause may become known soon.
	unknown := builds.Failure{Cause: builds.StepFailed}
	if of.pod == nil {
		pod, err := b.livePod(ctx, of)
		if err != nil {
			return unknown, err
		}
		if pod == nil {
			return builds.Failure{Cause: builds.Deleted, Message: fmt.Sprintf("Job %s has no pod.", of.Name)}, nil
		}
		of.pod = pod
	}
	if of.is(batchv1.JobComplete) {
		if _, ok := of.record(); ok {
			return unknown, fmt.Errorf("failed to read pod %s: %w", of.pod.Name, builds.ErrBehind)
		}
		return builds.Failure{Message: fmt.Sprintf("Job %s is complete but does not report its image: %v", of.Name, of.missing())}, nil
	}
	if of.pod.Status.Phase != corev1.PodFailed && of.pod.DeletionTimestamp == nil {
		return unknown, fmt.Errorf("pod %s does not report yet why it ended", of.pod.Name)
	}
	return b.podFailure(ctx, of, failed)
}

// livePod returns the pod of a Job past the cache, which may be behind, or nil.
func (b *Builder) livePod(ctx context.Context, of build) (*corev1.Pod, error) {
	live, err := b.Client.CoreV1().Pods(of.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: batchv1.ControllerUidLabel + "=" + string(of.UID), Limit: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("failed to list Pods: %w", err)
	}
	if len(live.Items) == 0 {
		return nil, nil
	}
	return &live.Items[0], nil
}

// heldUp returns the failure of a build that ran out of time before its pod did.
func (b *Builder) heldUp(of build) (builds.Failure, error) {
	failure := builds.Failure{Cause: builds.TimedOut, Unscheduled: true, Message: of.overdue()}
	trouble, err := b.trouble(of)
	if trouble != "" {
		failure.Message += " Job " + of.Name + " " + trouble
	}
	return failure, err
}

// overdue returns the message of a build that took too long.
func (b build) overdue() string {
	if b.Spec.ActiveDeadlineSeconds == nil {
		return fmt.Sprintf("Job %s took too long.", b.Name) // Somebody has removed it since.
	}
	timeout := time.Duration(*b.Spec.ActiveDeadlineSeconds-deadlineGrace) * time.Second
	return fmt.Sprintf("Job %s did not finish within %s.", b.Name, timeout)
}

// podFailure returns the failure of a build whose pod has failed.
func (b *Builder) podFailure(ctx context.Context, of build, failed batchv1.JobCondition) (builds.Failure, error) {
	status := of.pod.Status
	disrupted := observe.PodCondition(of.pod, corev1.DisruptionTarget)
	switch {
	case status.Reason == pods.Evicted:
		return builds.Failure{Cause: builds.Evicted, Message: status.Message}, nil
	case disrupted.Status == corev1.ConditionTrue:
		return builds.Failure{Cause: builds.Evicted, Message: disrupted.Message}, nil
	case status.Reason == deadlineExceeded && of.hasStarted():
		return builds.Failure{Cause: builds.TimedOut, Message: of.overdue()}, nil
	case status.Reason == deadlineExceeded:
		return b.heldUp(of)
	case failed.Reason == batchv1.JobReasonDeadlineExceeded:
		return b.heldUp(of)
	}
	return b.containerFailure(ctx, of, failed)
}

// containerFailure returns the failure of the first container that failed, with its log.
func (b *Builder) containerFailure(ctx context.Context, of build, failed batchv1.JobCondition) (builds.Failure, error) {
	name, end := of.failed()
	switch {
	case end == nil && of.pod.DeletionTimestamp != nil:
		return builds.Failure{Cause: builds.Deleted, Message: fmt.Sprintf("Pod %s was deleted.", of.pod.Name)}, nil
	case end == nil:
		// The whole pod failed: its node rejected it or was shut down.
		return builds.Failure{Cause: builds.NotRun, Message: cmp.Or(of.pod.Status.Message, of.pod.Status.Reason, failed.Message)}, nil
	}
	failure := builds.Failure{
		Cause:   builds.StepFailed,
		Pushing: name == steps.Push,
		Message: fmt.Sprintf("Container %s exited with code %d: %s", name, end.ExitCode, end.Reason),
	}
	if name == steps.Fetch {
		failure.Fetching = end.ExitCode
	}
	switch {
	case end.Reason == pods.OOMKilled:
		failure.Cause = builds.OutOfMemory
	case of.pod.DeletionTimestamp != nil:
		failure.Cause = builds.Deleted
	}
	var err error
	failure.Log, err = b.Logs.Tail(ctx, of.Namespace, of.pod.Name, name)
	if failure.Cause == builds.StepFailed && apierrs.IsNotFound(err) {
		failure.Cause = builds.Deleted
	}
	return failure, err
}

// failed returns the first container that failed, and its end. The push step reports a
// failed installation with an exit code of its own.
func (b build) failed() (string, *corev1.ContainerStateTerminated) {
	for _, status := range b.containers() {
		end := status.State.Terminated
		switch {
		case end == nil, end.ExitCode == 0, end.Reason == unknownEnd:
		case status.Name == steps.Push && end.ExitCode == sources.ExitNotInstalled:
			return steps.Install, end
		default:
			return status.Name, end
		}
	}
	return "", nil
}

// missing returns why the results of a complete Job do not count.
func (b build) missing() error {
	end := b.container(steps.Push).State.Terminated
	if end == nil {
		return fmt.Errorf("its container %s has not ended", steps.Push)
	}
	results, err := parse(end.Message)
	if err != nil {
		return err
	}
	_, err = results.Digest()
	return err
}
