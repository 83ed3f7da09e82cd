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
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources/names"
)

// deploy sees to it that the Function's image runs as the Function says, and
// says in the status how it is doing.
func (r *Reconciler) deploy(ctx context.Context, fn *v1alpha1.Function) error {
	desired := resources.MakeService(fn, fn.Status.Image)
	svc, from, err := r.getOrCreateService(ctx, fn, desired)
	if err != nil {
		return markRefused(fn, err, "Service %s cannot be created", desired.Name)
	}
	switch ownershipOf(svc, fn) {
	case foreign:
		fn.Status.MarkRunningFailed(v1alpha1.ReasonNotOwned, notOwned, "Service", svc.Name)
		return fmt.Errorf("function %s does not own Service %s", fn.Name, svc.Name)
	case leaving:
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonWaitingForDeletion, "Service %s is being deleted.", svc.Name)
		return from.awaitDeletion("Service", svc.Name)
	}
	if from == created {
		propagateService(fn, svc)
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceCreated, "Service %s was created.", svc.Name)
		return nil
	}
	merged, changed := resources.MergeService(desired, svc)
	if heal(merged, desired, fn) || changed {
		updated, err := r.updateService(ctx, merged)
		if err != nil {
			return markRefused(fn, err, "Service %s cannot be updated", svc.Name)
		}
		if updated.ResourceVersion != svc.ResourceVersion {
			propagateService(fn, updated)
			fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceUpdated, "Service %s was updated.", updated.Name)
			return nil
		}
		// Something undoes the change on its way: the Service is as it can be, and
		// no event would tell of it.
	}
	propagateService(fn, svc)
	return r.markService(ctx, fn, svc)
}

// keepServing keeps the last image there was serving while the next is built,
// or cannot be. It puts right what is not of the revisions; these stay as they
// are, as the Function may ask for one that only the next image can run. Of how
// the Service is doing it says nothing.
func (r *Reconciler) keepServing(ctx context.Context, fn *v1alpha1.Function) error {
	svc, from, err := r.getLastService(ctx, fn)
	if svc == nil || err != nil {
		return err
	}
	switch ownershipOf(svc, fn) {
	case foreign:
		// The Function is told when it comes to deploy.
		return nil
	case leaving:
		return from.awaitDeletion("Service", svc.Name)
	}
	desired := resources.MakeService(fn, fn.Status.Image)
	merged, changed := resources.MergeRouting(desired, svc)
	if heal(merged, desired, fn) || changed {
		if svc, err = r.updateService(ctx, merged); err != nil {
			return err
		}
	}
	if from != created {
		propagateService(fn, svc)
	}
	return nil
}

// getLastService returns the Service, and creates it with the last image there
// was. Where there was none, the Service is nil if it does not exist.
func (r *Reconciler) getLastService(ctx context.Context, fn *v1alpha1.Function) (*servingv1.Service, origin, error) {
	if fn.Status.Image != "" {
		return r.getOrCreateService(ctx, fn, resources.MakeService(fn, fn.Status.Image))
	}
	svc, err := r.serviceLister.Services(fn.Namespace).Get(names.Service(fn))
	if err != nil && !apierrs.IsNotFound(err) {
		return nil, listed, fmt.Errorf("failed to get Service: %w", err)
	}
	if err != nil {
		return nil, listed, nil
	}
	return svc, listed, nil
}

// getOrCreateService returns the Service of the desired name. One that the
// lister does not show may exist all the same, without our label.
func (r *Reconciler) getOrCreateService(ctx context.Context, fn *v1alpha1.Function, desired *servingv1.Service) (*servingv1.Service, origin, error) {
	svc, err := r.serviceLister.Services(fn.Namespace).Get(desired.Name)
	if err == nil {
		return svc, listed, nil
	}
	if !apierrs.IsNotFound(err) {
		return nil, listed, fmt.Errorf("failed to get Service: %w", err)
	}
	svc, err = r.serving.ServingV1().Services(fn.Namespace).Create(ctx, desired, metav1.CreateOptions{})
	if err == nil {
		return svc, created, nil
	}
	if !apierrs.IsAlreadyExists(err) {
		return nil, created, retry(fmt.Errorf("failed to create Service: %w", err))
	}
	if svc, err = r.serving.ServingV1().Services(fn.Namespace).Get(ctx, desired.Name, metav1.GetOptions{}); err != nil {
		return nil, unlisted, fmt.Errorf("failed to get Service: %w", err)
	}
	return svc, unlisted, nil
}

func (r *Reconciler) updateService(ctx context.Context, svc *servingv1.Service) (*servingv1.Service, error) {
	updated, err := r.serving.ServingV1().Services(svc.Namespace).Update(ctx, svc, metav1.UpdateOptions{})
	if err != nil {
		return nil, retry(fmt.Errorf("failed to update Service: %w", err))
	}
	return updated, nil
}

// markRefused returns the error of a write of the Service. Where the API server
// will not have it, the status says so.
func markRefused(fn *v1alpha1.Function, err error, what, name string) error {
	if refusal, ok := errors.AsType[*apierrs.StatusError](err); ok && isRejected(refusal) {
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, what+": %v", name, refusal)
	}
	return err
}

// markService says how the Service, which is as desired, is doing.
func (r *Reconciler) markService(ctx context.Context, fn *v1alpha1.Function, svc *servingv1.Service) error {
	ready := svc.Status.GetCondition(servingv1.ServiceConditionReady)
	switch {
	case !isObserved(svc):
		// What it says is of an earlier revision. That it was created, or updated,
		// need not be said in other words.
		switch fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).GetReason() {
		case v1alpha1.ReasonServiceCreated, v1alpha1.ReasonServiceUpdated:
		default:
			fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Serving has not seen the last change of service %s yet.", svc.Name)
		}
	case ready.IsTrue() && svc.Status.LatestCreatedRevisionName == svc.Status.LatestReadyRevisionName:
		fn.Status.MarkRunning()
	default:
		return r.markUnready(ctx, fn, svc)
	}
	return nil
}

// outOfDate is the reason that a Service gives while its configuration has not
// seen its last change.
const outOfDate = "OutOfDate"

// isObserved says whether what the Service says of its newest revision is of its
// last change. The Service itself may have seen that before its configuration.
func isObserved(svc *servingv1.Service) bool {
	return svc.Generation == svc.Status.ObservedGeneration &&
		svc.Status.GetCondition(servingv1.ServiceConditionConfigurationsReady).GetReason() != outOfDate
}

// markUnready says why the Service is not ready.
func (r *Reconciler) markUnready(ctx context.Context, fn *v1alpha1.Function, svc *servingv1.Service) error {
	if trouble, err := r.findTrouble(fn, svc); err != nil {
		return err
	} else if trouble != "" {
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "Revision %s: %s", svc.Status.LatestCreatedRevisionName, trouble)
		return nil
	}
	ready, failed := svc.Status.GetCondition(servingv1.ServiceConditionReady), failureOf(svc)
	if failed != nil && failed.Reason == revisionFailed {
		excused, err := r.excuse(ctx, fn, svc.Status.LatestCreatedRevisionName)
		if err != nil || excused {
			return err
		}
	}
	switch {
	case failed != nil:
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "%s: %s", failed.Reason, failed.Message)
	case ready.GetReason() == "" || ready.IsTrue():
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Service %s is not ready yet.", svc.Name)
	default:
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "%s: %s", ready.Reason, ready.Message)
	}
	return nil
}

// revisionFailed is the reason that the configuration of a Service gives when
// its newest revision has failed.
const revisionFailed = "RevisionFailed"

// excuse says whether a revision that Serving calls failed has not. Serving
// takes a pod that waits for room on a node for a failure, which it is not, and
// the Service tells of that for a while after the pod has found some.
func (r *Reconciler) excuse(ctx context.Context, fn *v1alpha1.Function, name string) (bool, error) {
	revision, err := r.serving.ServingV1().Revisions(fn.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("failed to get Revision: %w", err)
	}
	available := revision.Status.GetCondition(servingv1.RevisionConditionResourcesAvailable)
	switch {
	case available.IsFalse() && available.Reason == corev1.PodReasonUnschedulable:
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonMinimumReplicasUnavailable, "Revision %s: %s", name, available.Message)
	case !revision.Status.GetCondition(servingv1.RevisionConditionReady).IsFalse():
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Revision %s is not ready yet.", name)
	default:
		return false, nil
	}
	return true, nil
}

// failureOf returns the condition that tells why the Service has failed. A route
// that misses its configuration, or a ready revision, waits for it: where none
// will come the configuration tells why.
func failureOf(svc *servingv1.Service) *apis.Condition {
	if c := svc.Status.GetCondition(servingv1.ServiceConditionConfigurationsReady); c.IsFalse() {
		return c
	}
	if c := svc.Status.GetCondition(servingv1.ServiceConditionRoutesReady); c.IsFalse() && !strings.HasSuffix(c.Reason, "Missing") {
		return c
	}
	return nil
}

// findTrouble says why the pods of the newest revision do not start, or "".
func (r *Reconciler) findTrouble(fn *v1alpha1.Function, svc *servingv1.Service) (string, error) {
	pods, err := r.podLister.Pods(fn.Namespace).List(podsOf(fn, svc.Status.LatestCreatedRevisionName))
	if err != nil {
		return "", fmt.Errorf("failed to list Pods: %w", err)
	}
	// The order of a list is not always the same; what is said should be.
	first := ""
	for _, pod := range pods {
		if trouble := troubleOf(pod); trouble != "" && (first == "" || trouble < first) {
			first = trouble
		}
	}
	return first, nil
}

// propagateService tells where the Function answers, and which revisions there are.
func propagateService(fn *v1alpha1.Function, svc *servingv1.Service) {
	fn.Status.URL = svc.Status.URL
	fn.Status.Address = svc.Status.Address
	fn.Status.LatestCreatedRevisionName = svc.Status.LatestCreatedRevisionName
	fn.Status.LatestReadyRevisionName = svc.Status.LatestReadyRevisionName
}
