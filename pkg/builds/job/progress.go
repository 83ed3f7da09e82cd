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
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/observe"
	"github.com/kiln-dev/kiln/pkg/pods"
)

// exceededQuota is in the message of a pod that a ResourceQuota does not allow.
const exceededQuota = "exceeded quota"

// mostRefusals is how often the API server may refuse a pod before its build fails. A
// new namespace refuses pods until it has a service account.
const mostRefusals = 3

// starting are the reasons of containers that wait for nothing but their turn.
var starting = []string{"", "PodInitializing", "ContainerCreating"}

// Progress reports how far a build is that has not ended.
func (b *Builder) Progress(run builds.Run) (builds.Progress, error) {
	of := buildOf(run)
	started := func(text string) (builds.Progress, error) {
		return builds.Progress{Stage: builds.Started, Message: fmt.Sprintf("Job %s %s", of.Name, text)}, nil
	}
	if c := of.condition(batchv1.JobFailureTarget); c.Status == corev1.ConditionTrue {
		return started(fmt.Sprintf("has not ended: %s: %s", c.Reason, c.Message))
	}
	if of.hasStarted() {
		return started("runs.")
	}
	if of.pod == nil {
		event, _, err := b.failedCreate(of.Job)
		if err != nil {
			return builds.Progress{}, err
		}
		if isOverQuota(event) {
			return builds.Progress{Stage: builds.OverQuota, Message: event.Message}, nil
		}
	}
	trouble, err := b.trouble(of)
	switch {
	case err != nil:
		return builds.Progress{}, err
	case trouble != "":
		return started(trouble)
	default:
		return builds.Progress{Stage: builds.Created, Message: fmt.Sprintf("Job %s is about to run.", of.Name)}, nil
	}
}

// trouble returns why no container of the build has started, or "". It continues a
// sentence about the Job.
func (b *Builder) trouble(of build) (string, error) {
	if of.pod == nil {
		event, _, err := b.failedCreate(of.Job)
		if err != nil || event == nil {
			return "", err
		}
		return "has no pod: " + event.Message, nil
	}
	if why := observe.Unscheduled(of.pod); why != "" {
		return "waits for a node: " + why, nil
	}
	for _, status := range of.containers() {
		if waiting := status.State.Waiting; waiting != nil && !slices.Contains(starting, waiting.Reason) {
			return fmt.Sprintf("waits for its pod to start: %s: %s", waiting.Reason, waiting.Message), nil
		}
	}
	why, err := pods.FailedMount(b.Pods, b.MountEvents, of.Namespace, of.pod.Name)
	if why == "" {
		return "", err
	}
	return "waits for its pod to start: " + why, nil
}

// failedCreate returns the newest event about a pod of the Job that could not be created,
// or nil, and how often that happened.
func (b *Builder) failedCreate(job *batchv1.Job) (newest *corev1.Event, times int32, err error) {
	events, err := b.CreateEvents.Events(job.Namespace).List(labels.Everything())
	if err != nil {
		return nil, 0, fmt.Errorf("failed to list Events: %w", err)
	}
	for _, event := range events {
		if event.InvolvedObject.UID != job.UID || event.Reason != failedCreate {
			continue
		}
		times += max(event.Count, 1)
		if newest == nil || isNewer(event, newest) {
			newest = event
		}
	}
	return newest, times, nil
}

// refusal returns why the API server keeps refusing the pod of the Job, or "". The Job
// controller goes on trying; Tekton would fail the TaskRun at the first refusal.
func (b *Builder) refusal(job *batchv1.Job) (string, error) {
	event, times, err := b.failedCreate(job)
	if err != nil || times < mostRefusals || isOverQuota(event) {
		return "", err
	}
	return event.Message, nil
}

func isOverQuota(event *corev1.Event) bool {
	return event != nil && strings.Contains(event.Message, exceededQuota)
}

// isNewer reports whether event a is newer than b. The names of events with the same time
// decide, so that the result does not depend on the order of a list.
func isNewer(a, b *corev1.Event) bool {
	if a.LastTimestamp.Equal(&b.LastTimestamp) {
		return a.Name > b.Name
	}
	return b.LastTimestamp.Before(&a.LastTimestamp)
}
