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
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/controller"
	servingconfig "knative.dev/serving/pkg/apis/config"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// deploy sees to it that the Function's image runs as the Function says, and
// says in the status how it is doing.
func (r *Reconciler) deploy(ctx context.Context, fn *v1alpha1.Function) error {
	desired := makeService(ctx, fn)
	missing, err := r.missingRevisions(ctx, fn, desired)
	if err != nil {
		return err
	}
	if missing != "" {
		return r.hold(ctx, fn, desired, missing)
	}
	svc, from, err := r.getOrCreateService(ctx, fn, desired)
	if err != nil {
		return markRefused(fn, err, "Service %s cannot be created", desired.Name)
	}
	switch ownershipOf(svc, fn) {
	case foreign:
		fn.Status.MarkRunningFailed(v1alpha1.ReasonNotOwned, notOwned, "Service", svc.Name)
		return awaitName()
	case leaving:
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonWaitingForDeletion, "Service %s is being deleted.", svc.Name)
		return from.awaitDeletion("Service", svc.Name)
	}
	if from == created {
		propagateService(fn, svc)
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceCreated, "Service %s was created.", svc.Name)
		return nil
	}
	merged, change := resources.MergeService(desired, svc, fn.Status.TemplateHash)
	if heal(merged, desired, fn) || change != resources.NoChange {
		updated, err := r.updateService(ctx, fn, merged)
		if isRejected(err) {
			// What was deployed last is not to suffer from that.
			err = errors.Join(err, r.hold(ctx, fn, desired, ""))
		}
		if err != nil {
			return markRefused(fn, err, "Service %s cannot be updated", svc.Name)
		}
		fn.Status.TemplateHash = resources.Remember(updated)
		if updated.ResourceVersion != svc.ResourceVersion {
			propagateService(fn, updated)
			fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceUpdated, "Service %s was updated.", updated.Name)
			return nil
		}
		// Nothing has changed, or something undoes the change on its way: the Service
		// is as it can be, and no event would tell of it.
	}
	propagateService(fn, svc)
	return r.markService(ctx, fn, svc)
}

// makeService returns the Service that is to run the Function's image.
func makeService(ctx context.Context, fn *v1alpha1.Function) *servingv1.Service {
	if hasOwnDockerfile(ctx, fn) {
		return resources.MakeListeningService(fn, fn.Status.Image, pullSecrets(ctx)...)
	}
	return resources.MakeService(fn, fn.Status.Image, pullSecrets(ctx)...)
}

// hasOwnDockerfile says whether the Function's image is made by a Dockerfile of its
// author: what is in it need know nothing of Kiln.
func hasOwnDockerfile(ctx context.Context, fn *v1alpha1.Function) bool {
	runtime, _ := config.FromContextOrDefaults(ctx).Runtimes[fn.Spec.Runtime].Find()
	return runtime.IsOwnDockerfile()
}

// keepServing keeps the last image there was serving while the next is built,
// or cannot be. Requests reach it as the Function says, unless the spec is
// refused; of how the Service is doing otherwise it says nothing.
func (r *Reconciler) keepServing(ctx context.Context, fn *v1alpha1.Function) error {
	desired := makeService(ctx, fn)
	if !isAccepted(fn) {
		return r.hold(ctx, fn, desired, "")
	}
	missing, err := r.missingRevisions(ctx, fn, desired)
	if err != nil {
		return err
	}
	return r.hold(ctx, fn, desired, missing)
}

// hold has the revision that was deployed last go on, as the Function may ask for
// one that only the next image can run. Where revisions are missing that requests
// are to be sent to, requests go on as well as they did, and the status says so.
// Where the spec is refused nothing of it is done: who can call the function, and
// which revisions get the requests, stays as it is.
func (r *Reconciler) hold(ctx context.Context, fn *v1alpha1.Function, desired *servingv1.Service, missing string) error {
	if missing != "" {
		fn.Status.MarkRunningFailed(v1alpha1.ReasonRevisionMissing, "%s", missing)
	}
	svc, from, err := r.getLastService(ctx, fn, desired, missing == "" && isAccepted(fn) && fn.Status.Image != "")
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
	if from == created {
		return nil
	}
	switch {
	case !isAccepted(fn):
		resources.KeepRoute(desired, svc)
	case missing != "":
		desired.Spec.RouteSpec = svc.Spec.RouteSpec
	}
	merged, change := resources.MergeRoute(desired, svc)
	restored := false
	if resources.IsTemplateEdited(svc, fn.Status.TemplateHash) {
		if restored, err = r.restoreTemplate(ctx, fn, merged); err != nil {
			return err
		}
	}
	if heal(merged, desired, fn) || restored || change != resources.NoChange {
		if svc, err = r.updateService(ctx, fn, merged); err != nil {
			return err
		}
	}
	if restored {
		// Serving may have added a default since.
		fn.Status.TemplateHash = resources.Remember(svc)
	}
	propagateService(fn, svc)
	return nil
}

// getLastService returns the Service, or nil. Where it is missing and may be
// created, it is, of what was deployed last if that can be told.
func (r *Reconciler) getLastService(ctx context.Context, fn *v1alpha1.Function, desired *servingv1.Service, create bool) (*servingv1.Service, origin, error) {
	svc, err := r.serviceLister.Services(fn.Namespace).Get(desired.Name)
	if err == nil {
		return svc, listed, nil
	}
	if !apierrs.IsNotFound(err) {
		return nil, listed, fmt.Errorf("failed to get Service: %w", err)
	}
	if !create {
		return nil, listed, nil
	}
	// Its revisions go soon after the Service, but not at once.
	if _, err := r.restoreTemplate(ctx, fn, desired); err != nil {
		return nil, listed, err
	}
	return r.getOrCreateService(ctx, fn, desired)
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
	svc, from, err := createOrGet(ctx, r.serving.ServingV1().Services(fn.Namespace), "Service", desired)
	switch {
	case from != created:
		return svc, from, err
	case err != nil:
		return nil, from, retryService(fmt.Errorf("failed to create Service: %w", err))
	}
	fn.Status.TemplateHash = resources.Remember(svc)
	return svc, from, nil
}

// updateService updates the Service. Where its revision template is to stay as it is,
// the cache knows it by its hash only: if somebody has changed it meanwhile, the
// versions of the Service are in conflict. Who has just come to lead may have the
// Function as it was before somebody else deployed it: that must not come back.
func (r *Reconciler) updateService(ctx context.Context, fn *v1alpha1.Function, svc *servingv1.Service) (*servingv1.Service, error) {
	if err := r.checkCurrent(ctx, fn); err != nil {
		return nil, err
	}
	if !resources.HasTemplate(svc) {
		live, err := r.serving.ServingV1().Services(svc.Namespace).Get(ctx, svc.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("failed to get Service: %w", err)
		}
		svc.Spec.Template = live.Spec.Template
	}
	updated, err := r.serving.ServingV1().Services(svc.Namespace).Update(ctx, svc, metav1.UpdateOptions{})
	if err != nil {
		return nil, retryService(fmt.Errorf("failed to update Service: %w", err))
	}
	return updated, nil
}

// retryService is retry for Services. What Serving refuses depends on its
// configuration, of which nothing tells when it changes, so that it is tried
// again, less and less often.
func retryService(err error) error {
	if isNamespaceLeaving(err) {
		return retry(err)
	}
	return err
}

// markRefused returns the error of a write of the Service. Where the API server
// will not have it, the status says so.
func markRefused(fn *v1alpha1.Function, err error, what, name string) error {
	if refusal, ok := errors.AsType[*apierrs.StatusError](err); ok && isRejected(refusal) {
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, what+": %v%s", name, refusal, adviceOn(refusal))
	}
	return err
}

// domainConfigName is the ConfigMap of Serving's with the domains of what is public.
const domainConfigName = "config-domain"

// features are the flags of Serving without which it takes no such fields.
var features = map[string]string{
	"spec.template.spec.nodeSelector": servingconfig.FeaturePodSpecNodeSelector,
	"spec.template.spec.tolerations":  servingconfig.FeaturePodSpecTolerations,
}

// adviceOn says what an administrator can do about a refusal of Serving's, or "".
func adviceOn(refusal error) string {
	var flags []string
	for field, flag := range features {
		if strings.Contains(refusal.Error(), field) {
			flags = append(flags, flag)
		}
	}
	if len(flags) == 0 {
		return ""
	}
	slices.Sort(flags)
	return fmt.Sprintf(". Enable %s in the ConfigMap %s of Serving; Kiln tries again and again.",
		strings.Join(flags, " and "), servingconfig.FeaturesConfigName)
}

// markService says how the Service, which is as desired, is doing.
func (r *Reconciler) markService(ctx context.Context, fn *v1alpha1.Function, svc *servingv1.Service) error {
	if !isObserved(svc) {
		// What it says is of an earlier revision. That it was created, or updated,
		// need not be said in other words.
		switch fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).GetReason() {
		case v1alpha1.ReasonServiceCreated, v1alpha1.ReasonServiceUpdated:
		default:
			fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Serving has not seen the last change of service %s yet.", svc.Name)
		}
		return nil
	}
	if isLocal(svc) && fn.Spec.Visibility == v1alpha1.VisibilityPublic {
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting,
			"Serving gives service %s no public URL yet. If that lasts, its ConfigMap %s has no domain for it.", svc.Name, domainConfigName)
		return nil
	}
	pods, err := r.podLister.Pods(fn.Namespace).List(podsOf(fn, svc.Status.LatestCreatedRevisionName))
	if err != nil {
		return fmt.Errorf("failed to list Pods: %w", err)
	}
	events, err := r.mountEventLister.Events(fn.Namespace).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("failed to list Events: %w", err)
	}
	state, want := stateOfPods(pods, events), minReplicas(fn)
	ready := svc.Status.GetCondition(servingv1.ServiceConditionReady).IsTrue() &&
		svc.Status.LatestCreatedRevisionName == svc.Status.LatestReadyRevisionName
	switch {
	case ready && isRouted(svc) && state.ready < want:
		markShort(fn, svc, state, want)
	case ready:
		fn.Status.MarkRunning()
	case state.trouble != "":
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "Revision %s: %s", svc.Status.LatestCreatedRevisionName, state.trouble)
	case state.unscheduled != "":
		// Serving starts one pod at least.
		markShort(fn, svc, state, max(want, 1))
	default:
		return r.markUnready(ctx, fn, svc, state)
	}
	return nil
}

// minReplicas returns how many pods the Function wants to have at any time.
func minReplicas(fn *v1alpha1.Function) int {
	if fn.Spec.MinReplicas == nil {
		return 0
	}
	return int(*fn.Spec.MinReplicas)
}

// isRouted says whether requests can reach the newest revision. Of one that none
// can reach Serving keeps no pods.
func isRouted(svc *servingv1.Service) bool {
	return slices.ContainsFunc(svc.Status.Traffic, func(target servingv1.TrafficTarget) bool {
		return target.RevisionName == svc.Status.LatestCreatedRevisionName
	})
}

// markShort says that the newest revision has fewer pods than it wants.
func markShort(fn *v1alpha1.Function, svc *servingv1.Service, state podState, want int) {
	why := "."
	if reason := cmp.Or(state.trouble, state.unscheduled); reason != "" {
		why = ": " + reason
	}
	fn.Status.MarkRunningUnknown(v1alpha1.ReasonMinimumReplicasUnavailable, "Revision %s has %d of %d replicas%s",
		svc.Status.LatestCreatedRevisionName, state.ready, want, why)
}

// outOfDate is the reason that a Service gives while its configuration has not
// seen its last change.
const outOfDate = "OutOfDate"

// isObserved says whether what the Service says of its newest revision is of its
// last change. The Service itself may have seen that before its configuration. Its
// generation does not count changes of its visibility, which is a label.
func isObserved(svc *servingv1.Service) bool {
	return svc.Generation == svc.Status.ObservedGeneration &&
		svc.Status.GetCondition(servingv1.ServiceConditionConfigurationsReady).GetReason() != outOfDate &&
		(isLocal(svc) || svc.Labels[netapi.VisibilityLabelKey] != serving.VisibilityClusterLocal)
}

// isLocal says whether the Service has no other URL than the one that is for
// callers inside the cluster.
func isLocal(svc *servingv1.Service) bool {
	return svc.Status.URL == nil || svc.Status.Address == nil || svc.Status.Address.URL == nil ||
		svc.Status.URL.Host == svc.Status.Address.URL.Host
}

// portPatience is how long an image runs before it is told that nothing in it
// listens: to start takes some of them a while.
const portPatience = 30 * time.Second

// noPort is what to do about an image in which nothing listens. Serving waits for
// that until its progress deadline, and says nothing of it then, either.
var noPort = fmt.Sprintf("Have what the Dockerfile starts listen on $PORT, which is %d.", runtimes.Port)

// markUnready says why the Service is not ready.
func (r *Reconciler) markUnready(ctx context.Context, fn *v1alpha1.Function, svc *servingv1.Service, state podState) error {
	ready, failed := svc.Status.GetCondition(servingv1.ServiceConditionReady), failureOf(svc)
	if failed != nil && failed.Reason == revisionFailed {
		excused, err := r.excuse(ctx, fn, svc.Status.LatestCreatedRevisionName)
		if err != nil || excused {
			return err
		}
	}
	switch {
	case failed != nil && failed.Reason == v1alpha1.ReasonRevisionMissing:
		fn.Status.MarkRunningFailed(v1alpha1.ReasonRevisionMissing, "%s Requests go where they went before.", failed.Message)
	case failed != nil && isTooLate(failed) && hasOwnDockerfile(ctx, fn):
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "%s: %s. If its pods did start: %s", failed.Reason, strings.TrimSuffix(failed.Message, "."), noPort)
	case failed != nil:
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "%s: %s", failed.Reason, failed.Message)
	case hasOwnDockerfile(ctx, fn) && isStarting(svc) && state.ready == 0:
		markWaiting(fn, ready, svc.Name)
		return awaitPort(fn, svc.Status.LatestCreatedRevisionName, state.waiting)
	default:
		markWaiting(fn, ready, svc.Name)
	}
	return nil
}

// markWaiting says what Serving says of a Service that is not ready yet.
func markWaiting(fn *v1alpha1.Function, ready *apis.Condition, service string) {
	if ready.GetReason() == "" || ready.IsTrue() {
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Service %s is not ready yet.", service)
		return
	}
	fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "%s: %s", ready.Reason, ready.Message)
}

// isStarting says whether the Service waits for pods of its last revision, until they
// are ready or Serving's progress deadline.
func isStarting(svc *servingv1.Service) bool {
	return svc.Status.GetCondition(servingv1.ServiceConditionConfigurationsReady).IsUnknown()
}

// isTooLate says whether a revision failed since none of its pods was ready in time,
// of which Serving has no other words.
func isTooLate(failed *apis.Condition) bool {
	return strings.Contains(failed.Message, "Initial scale was never achieved")
}

// awaitPort says what an image waits for that has run since then for long, if at all.
// Till then the error has the Function looked at again: of pods that run, and are not
// ready, nothing else tells.
func awaitPort(fn *v1alpha1.Function, revision string, since time.Time) error {
	left := portPatience
	if !since.IsZero() {
		left -= time.Since(since)
	}
	if left > 0 {
		return controller.NewRequeueAfter(left)
	}
	fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting,
		"Revision %s: its image runs, and nothing in it listens on port %d yet. %s The log of its pod tells what it does.",
		revision, runtimes.Port, noPort)
	return nil
}

// failureOf returns the condition that tells why the Service has failed. A route
// that misses its configuration, or a ready revision, waits for it: where none
// will come the configuration tells why. Not so where the Function names revisions.
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

// propagateService tells where the Function answers, and which revisions there are.
func propagateService(fn *v1alpha1.Function, svc *servingv1.Service) {
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
