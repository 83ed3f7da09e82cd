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

package knative

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/pkg/apis"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

const (
	// RevisionLabelKey is the label with the revision of a pod that serves.
	RevisionLabelKey = serving.RevisionLabelKey

	// domainConfigName is Serving's ConfigMap of public domains.
	domainConfigName = "config-domain"

	// outOfDate is the reason of a Service whose Configuration has not observed its
	// last change.
	outOfDate = "OutOfDate"
)

// markState reports the state of the Service, whose spec is as desired.
func (s *Server) markState(ctx context.Context, fn *v1alpha1.Function, svc *servingv1.Service) error {
	if !isObserved(svc) {
		// The conditions are of an earlier revision. ServiceCreated and ServiceUpdated
		// already report the wait.
		switch fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).GetReason() {
		case v1alpha1.ReasonServiceCreated, v1alpha1.ReasonServiceUpdated:
		default:
			fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Serving has not observed the last change of Service %s yet.", svc.Name)
		}
		return nil
	}
	if isLocal(svc) && fn.Spec.Visibility == v1alpha1.VisibilityPublic {
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting,
			"Service %s has no public URL yet. If it gets none, add a domain to Serving's ConfigMap %s.", svc.Name, domainConfigName)
		return nil
	}
	state, err := s.podState(fn, svc)
	if err != nil {
		return err
	}
	want := fn.DesiredMinReplicas()
	ready := svc.Status.GetCondition(servingv1.ServiceConditionReady).IsTrue() &&
		svc.Status.LatestCreatedRevisionName == svc.Status.LatestReadyRevisionName
	switch {
	case ready && isRouted(svc) && state.Ready < want:
		markShort(fn, svc, state, want)
	case ready:
		fn.Status.MarkRunning()
	case state.Trouble != "":
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "Revision %s: %s", svc.Status.LatestCreatedRevisionName, state.Trouble)
	case state.Unscheduled != "":
		// Serving starts at least one pod.
		markShort(fn, svc, state, max(want, 1))
	default:
		return s.markNotReady(ctx, fn, svc, state)
	}
	return nil
}

func (s *Server) podState(fn *v1alpha1.Function, svc *servingv1.Service) (pods.State, error) {
	ofRevision := labels.SelectorFromSet(labels.Set{
		serverless.FunctionUIDLabelKey: string(fn.UID),
		RevisionLabelKey:               svc.Status.LatestCreatedRevisionName,
	})
	all, err := s.Pods.Pods(fn.Namespace).List(ofRevision)
	if err != nil {
		return pods.State{}, fmt.Errorf("failed to list Pods: %w", err)
	}
	events, err := s.MountEvents.Events(fn.Namespace).List(labels.Everything())
	if err != nil {
		return pods.State{}, fmt.Errorf("failed to list Events: %w", err)
	}
	return pods.StateOf(all, events), nil
}

// isRouted reports whether requests can reach the newest revision. Serving keeps no
// pods of an unreachable revision.
func isRouted(svc *servingv1.Service) bool {
	return slices.ContainsFunc(svc.Status.Traffic, func(target servingv1.TrafficTarget) bool {
		return target.RevisionName == svc.Status.LatestCreatedRevisionName
	})
}

// markShort reports that the newest revision has too few ready pods.
func markShort(fn *v1alpha1.Function, svc *servingv1.Service, state pods.State, want int) {
	why := "."
	if reason := cmp.Or(state.Trouble, state.Unscheduled); reason != "" {
		why = ": " + reason
	}
	fn.Status.MarkRunningUnknown(v1alpha1.ReasonMinimumReplicasUnavailable, "Revision %s has %d of %d replicas%s",
		svc.Status.LatestCreatedRevisionName, state.Ready, want, why)
}

// isObserved reports whether the conditions of the Service are of its last change. The
// Service can observe a change before its Configuration does. A change of visibility
// is a label, which the generation does not count.
func isObserved(svc *servingv1.Service) bool {
	return svc.Generation == svc.Status.ObservedGeneration &&
		svc.Status.GetCondition(servingv1.ServiceConditionConfigurationsReady).GetReason() != outOfDate &&
		(isLocal(svc) || svc.Labels[netapi.VisibilityLabelKey] != serving.VisibilityClusterLocal)
}

// isLocal reports whether the Service has only its cluster-local URL.
func isLocal(svc *servingv1.Service) bool {
	return svc.Status.URL == nil || svc.Status.Address == nil || svc.Status.Address.URL == nil ||
		svc.Status.URL.Host == svc.Status.Address.URL.Host
}

func (s *Server) markNotReady(ctx context.Context, fn *v1alpha1.Function, svc *servingv1.Service, state pods.State) error {
	ready, failed := svc.Status.GetCondition(servingv1.ServiceConditionReady), failureOf(svc)
	if failed != nil && failed.Reason == revisionFailed {
		excused, err := s.excuse(ctx, fn, svc.Status.LatestCreatedRevisionName, state)
		switch {
		case err != nil:
			return err
		case excused:
			return awaitPort(ctx, fn, svc, state)
		}
	}
	switch {
	case failed != nil && failed.Reason == v1alpha1.ReasonRevisionMissing:
		fn.Status.MarkRunningFailed(v1alpha1.ReasonRevisionMissing, "%s The previous traffic stays in effect.", failed.Message)
	case failed != nil && isTooLate(failed) && podspec.HasOwnDockerfile(ctx, fn):
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "%s: %s. If its pods started: %s", failed.Reason, strings.TrimSuffix(failed.Message, "."), podspec.ListenAdvice)
	case failed != nil:
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "%s: %s", failed.Reason, failed.Message)
	case isStarting(svc):
		markWaiting(fn, ready, svc.Name)
		return awaitPort(ctx, fn, svc, state)
	default:
		markWaiting(fn, ready, svc.Name)
	}
	return nil
}

// awaitPort waits for an image without Kiln's wrapper to listen.
func awaitPort(ctx context.Context, fn *v1alpha1.Function, svc *servingv1.Service, state pods.State) error {
	if state.Ready > 0 || !podspec.HasOwnDockerfile(ctx, fn) {
		return nil
	}
	return podspec.AwaitPort(fn, v1alpha1.ReasonServiceWaiting, svc.Status.LatestCreatedRevisionName, state.RunningSince)
}

// markWaiting reports Serving's reason for a Service that is not ready yet.
func markWaiting(fn *v1alpha1.Function, ready *apis.Condition, service string) {
	if ready.GetReason() == "" || ready.IsTrue() {
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Service %s is not ready yet.", service)
		return
	}
	fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "%s: %s", ready.Reason, ready.Message)
}

// isStarting reports whether the Service waits for the pods of its newest revision.
func isStarting(svc *servingv1.Service) bool {
	return svc.Status.GetCondition(servingv1.ServiceConditionConfigurationsReady).IsUnknown()
}

// isTooLate reports whether a revision failed because no pod became ready before the
// progress deadline. Serving reports that only in the message.
func isTooLate(failed *apis.Condition) bool {
	return strings.Contains(failed.Message, "Initial scale was never achieved")
}

// failureOf returns the condition that reports why the Service has failed, or nil. A
// Route without its Configuration or a ready revision still waits, and the
// Configuration reports a failure. A revision that the Function names is different.
func failureOf(svc *servingv1.Service) *apis.Condition {
	if c := svc.Status.GetCondition(servingv1.ServiceConditionConfigurationsReady); c.IsFalse() {
		return c
	}
	c := svc.Status.GetCondition(servingv1.ServiceConditionRoutesReady)
	if !c.IsFalse() || strings.HasSuffix(c.Reason, "Missing") && (c.Reason != v1alpha1.ReasonRevisionMissing || len(namedRevisions(svc)) == 0) {
		return nil
	}
	return c
}

// PropagateStatus copies the URLs, the revisions and the traffic into the Function's status.
func PropagateStatus(fn *v1alpha1.Function, svc *servingv1.Service) {
	fn.Status.URL = svc.Status.URL
	fn.Status.Address = svc.Status.Address
	fn.Status.LatestCreatedRevisionName = svc.Status.LatestCreatedRevisionName
	fn.Status.LatestReadyRevisionName = svc.Status.LatestReadyRevisionName
	fn.Status.Traffic = nil
	for _, target := range svc.Status.Traffic {
		fn.Status.Traffic = append(fn.Status.Traffic, v1alpha1.TrafficStatus{
			RevisionName:   target.RevisionName,
			LatestRevision: target.LatestRevision,
			Percent:        target.Percent,
			Tag:            target.Tag,
			URL:            target.URL,
		})
	}
}
