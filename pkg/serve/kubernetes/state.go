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

package kubernetes

import (
	"cmp"
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

// markState reports the state of the Deployment, whose spec is as desired.
func (s *Server) markState(ctx context.Context, fn *v1alpha1.Function, deployment *appsv1.Deployment) error {
	revision := revisionOf(deployment)
	if deployment.Status.ObservedGeneration != deployment.Generation {
		markWaiting(fn, v1alpha1.ReasonDeploymentWaiting, "Kubernetes has not observed the last change of Deployment %s yet.", deployment.Name)
		return nil
	}
	state, err := s.podState(fn, revision)
	if err != nil {
		return err
	}
	least := leastReplicas(fn)
	status := &deployment.Status
	isNew := status.Replicas == status.UpdatedReplicas
	wasReady := servesAlready(fn, revision)
	switch failure := failureOf(ctx, fn, deployment, state); {
	case isRolledOut(fn, deployment):
		markServing(ctx, fn, revision)
	case failure != "" && !wasReady:
		fn.Status.MarkRunningFailed(v1alpha1.ReasonDeploymentFailed, "Revision %s: %s", revision, failure)
	case wasReady && int32(state.Ready) < least, state.Unscheduled != "":
		why := "."
		if reason := cmp.Or(failure, state.Unscheduled); reason != "" {
			why = ": " + reason
		}
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonMinimumReplicasUnavailable, "Revision %s has %d of %d replicas%s", revision, state.Ready, least, why)
	default:
		others := "."
		if !isNew {
			others = fmt.Sprintf(", and %d of other revisions still run.", status.Replicas-status.UpdatedReplicas)
		}
		markWaiting(fn, v1alpha1.ReasonDeploymentWaiting, "Revision %s has %d of %d replicas%s", revision, state.Ready, least, others)
		if state.Ready == 0 && podspec.HasOwnDockerfile(ctx, fn) {
			return podspec.AwaitPort(fn, v1alpha1.ReasonDeploymentWaiting, revision, state.RunningSince)
		}
	}
	return nil
}

// isRolledOut reports whether all pods are of the Deployment's revision, and enough of them
// are available.
func isRolledOut(fn *v1alpha1.Function, deployment *appsv1.Deployment) bool {
	status := &deployment.Status
	return status.ObservedGeneration == deployment.Generation && status.Replicas == status.UpdatedReplicas && status.AvailableReplicas >= leastReplicas(fn)
}

// markServing reports that the revision serves as the spec says.
func markServing(ctx context.Context, fn *v1alpha1.Function, revision string) {
	switch {
	case fn.Spec.Visibility == v1alpha1.VisibilityPublic && publicHost(ctx, fn) == "":
		fn.Status.MarkRunningFailed(v1alpha1.ReasonVisibilityUnsupported,
			"The Function serves inside the cluster only: the ConfigMap config-functions has no public-domain. Set it, or remove spec.visibility.")
	default:
		fn.Status.MarkRunningWithReason(v1alpha1.ReasonDeploymentReady, "%s", describeServing(fn, revision))
	}
}

// describeServing reports that the revision serves, and what a Deployment does not do.
func describeServing(fn *v1alpha1.Function, revision string) string {
	message := fmt.Sprintf("Revision %s serves.", revision)
	if fn.Spec.Replicas == nil && fn.DesiredMinReplicas() == 0 {
		message = "One pod stays although minReplicas is 0: a Deployment does not scale to zero."
	}
	if limit := fn.Spec.Concurrency; limit != nil && *limit != 0 {
		message += " Nothing enforces spec.concurrency: a Deployment does not limit concurrent requests."
	}
	return message
}

// markWaiting reports a wait, unless the status already reports what the wait is for.
func markWaiting(fn *v1alpha1.Function, reason, format string, args ...any) {
	switch fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).GetReason() {
	case v1alpha1.ReasonDeploymentCreated, v1alpha1.ReasonDeploymentUpdated:
	default:
		fn.Status.MarkRunningUnknown(reason, format, args...)
	}
}

// servesAlready reports whether the revision has served all requests before.
func servesAlready(fn *v1alpha1.Function, revision string) bool {
	return len(fn.Status.Traffic) == 1 && fn.Status.Traffic[0].RevisionName == revision
}

func (s *Server) podState(fn *v1alpha1.Function, revision string) (pods.State, error) {
	of := labels.Set{serverless.RevisionLabelKey: revision, serverless.FunctionUIDLabelKey: string(fn.UID)}
	all, err := s.Pods.Pods(fn.Namespace).List(labels.SelectorFromSet(of))
	if err != nil {
		return pods.State{}, fmt.Errorf("failed to list Pods: %w", err)
	}
	events, err := s.MountEvents.Events(fn.Namespace).List(labels.Everything())
	if err != nil {
		return pods.State{}, fmt.Errorf("failed to list Events: %w", err)
	}
	return pods.StateOf(all, events), nil
}

// failureOf returns why the newest pods do not become ready, or "".
func failureOf(ctx context.Context, fn *v1alpha1.Function, deployment *appsv1.Deployment, state pods.State) string {
	for _, c := range deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	if state.Trouble != "" {
		return state.Trouble
	}
	for _, c := range deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			late := "its pods were not ready in time: " + c.Message
			if podspec.HasOwnDockerfile(ctx, fn) {
				late += " If its pods started: " + podspec.ListenAdvice
			}
			return late
		}
	}
	return ""
}

// propagate copies the addresses, the revisions and the number of pods into the status. An
// invalid spec changes no address.
func propagate(ctx context.Context, fn *v1alpha1.Function, deployment *appsv1.Deployment) {
	fn.Status.LatestCreatedRevisionName = revisionName(fn, newestOf(fn, deployment))
	fn.Status.Replicas = deployment.Status.Replicas
	fn.Status.Selector = metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: podLabels(fn)})
	if !fn.IsAccepted() {
		return
	}
	fn.Status.URL = address(fn)
	fn.Status.Address = &duckv1.Addressable{URL: address(fn)}
	if host := publicHost(ctx, fn); host != "" {
		fn.Status.URL = apis.HTTP(host)
	}
	switch {
	case isRolledOut(fn, deployment):
		recordReady(fn, revisionOf(deployment))
	case len(fn.Status.Traffic) == 1:
		setTraffic(fn, fn.Status.Traffic[0].RevisionName)
	}
}

// recordReady reports that the revision is ready, and gets all requests.
func recordReady(fn *v1alpha1.Function, revision string) {
	fn.Status.LatestReadyRevisionName = cmp.Or(fn.Status.LatestReadyRevisionName, revision)
	if numberOf(revision) > numberOf(fn.Status.LatestReadyRevisionName) || pinnedRevision(fn) == "" {
		fn.Status.LatestReadyRevisionName = revision
	}
	setTraffic(fn, revision)
}

// setTraffic reports that the revision gets all requests.
func setTraffic(fn *v1alpha1.Function, revision string) {
	fn.Status.Traffic = []v1alpha1.TrafficStatus{{RevisionName: revision, LatestRevision: new(pinnedRevision(fn) == ""), Percent: new(int64(100))}}
}
