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

// Package kubernetes serves Functions with Deployments, Services and
// HorizontalPodAutoscalers.
package kubernetes

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/kmap"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// The kinds of the objects of a Function.
const (
	deploymentKind = "Deployment"
	serviceKind    = "Service"
	scalerKind     = "HorizontalPodAutoscaler"
	budgetKind     = "PodDisruptionBudget"
	ingressKind    = "Ingress"
)

// Server serves each Function with a Deployment, which it updates in place.
type Server struct {
	// Client reads and writes the objects.
	Client kubernetes.Interface

	// Pods lists the Pods with Kiln's label.
	Pods corev1listers.PodLister

	// MountEvents lists the events of failed mounts.
	MountEvents corev1listers.EventLister

	// CheckCurrent returns an error if the cached Function is stale. Server calls it before it
	// updates a Deployment.
	CheckCurrent func(ctx context.Context, fn *v1alpha1.Function) error

	// Stores are the caches of the objects, as Slim leaves them.
	Stores Stores
}

// Stores has a cache for each kind of object.
type Stores struct {
	Deployments, Services, Scalers, Budgets, Ingresses cache.Store
}

// NewServer returns a Server. The context must carry the informers of this package.
func NewServer(ctx context.Context, pods corev1listers.PodLister, mountEvents corev1listers.EventLister, checkCurrent func(context.Context, *v1alpha1.Function) error) *Server {
	return &Server{
		Client:       kubeclient.Get(ctx),
		Pods:         pods,
		MountEvents:  mountEvents,
		CheckCurrent: checkCurrent,
		Stores:       storesOf(ctx),
	}
}

// Watch calls wake with each object that changes.
func (*Server) Watch(ctx context.Context, wake func(any)) {
	for kind := range kinds {
		slim.Watch(ctx, informerOf(ctx, kind), Slim, WakeOnChange(wake))
	}
}

// Name returns the server's value of the key serving in config-functions.
func (*Server) Name() config.Server { return config.KubernetesServer }

// Serves reports whether the Function has a Deployment, as far as the cache shows.
func (s *Server) Serves(fn *v1alpha1.Function) (bool, error) {
	deployment, err := s.cached(fn)
	return err == nil && deployment != nil && children.OwnershipOf(deployment, fn) == children.Owned, err
}

// Apply makes the objects serve the Function's image as its spec says, and reports their
// state in the status.
func (s *Server) Apply(ctx context.Context, fn *v1alpha1.Function) error {
	if refuse(fn) {
		return s.hold(ctx, fn)
	}
	deployment, changed, err := s.applyDeployment(ctx, fn)
	if err != nil || deployment == nil {
		return err
	}
	if err := s.applyOthers(ctx, fn); err != nil {
		return markUnapplied(fn, err)
	}
	propagate(ctx, fn, deployment)
	if changed {
		return nil
	}
	return s.markState(ctx, fn, deployment)
}

func (s *Server) cached(fn *v1alpha1.Function) (*appsv1.Deployment, error) {
	deployment, err := cached[appsv1.Deployment](s.Stores.Deployments, types.NamespacedName{Namespace: fn.Namespace, Name: children.ServiceName(fn)})
	if err != nil {
		return nil, fmt.Errorf("failed to get Deployment: %w", err)
	}
	return deployment, nil
}

// refuse reports fields that a Deployment cannot honour. It reports whether there are any.
func refuse(fn *v1alpha1.Function) bool {
	targets := fn.Spec.Traffic
	if len(targets) > 1 || len(targets) == 1 && targets[0].Tag != "" {
		fn.Status.MarkRunningFailed(v1alpha1.ReasonTrafficUnsupported,
			"spec.traffic has tags or more than one target. A Deployment serves one revision at a time: name one with 100 percent. What serves stays.")
		return true
	}
	return false
}

// applyDeployment makes the Deployment run the wanted revision. It returns nil if the status
// reports why there is none, and whether the Deployment has just changed.
func (s *Server) applyDeployment(ctx context.Context, fn *v1alpha1.Function) (*appsv1.Deployment, bool, error) {
	existing, err := s.cached(fn)
	if err != nil {
		return nil, false, err
	}
	desired, err := s.wanted(ctx, fn, existing)
	if desired == nil || err != nil {
		return nil, false, err
	}
	from := children.Listed
	if existing == nil {
		existing, from, err = children.CreateOrGet(ctx, s.Client.AppsV1().Deployments(fn.Namespace), deploymentKind, desired)
		if err != nil {
			return nil, false, markRejected(fn, err, "created")
		}
	}
	if ownership := children.OwnershipOf(existing, fn); ownership != children.Owned {
		return nil, false, markUnapplied(fn, &blocked{kind: deploymentKind, name: existing.Name, ownership: ownership, from: from})
	}
	switch from {
	case children.Created:
		fn.Status.TemplateHash = remember(existing)
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonDeploymentCreated, "Deployment %s was created.", existing.Name)
		return existing, true, nil
	case children.Unlisted:
		// The number of the next revision follows from the Deployment.
		if desired, err = s.wanted(ctx, fn, existing); desired == nil || err != nil {
			return nil, false, err
		}
	}
	return s.update(ctx, fn, existing, desired)
}

// wanted returns the Deployment of the revision that must serve, or nil if the status
// reports why there is none.
func (s *Server) wanted(ctx context.Context, fn *v1alpha1.Function, existing *appsv1.Deployment) (*appsv1.Deployment, error) {
	desired, missing, err := s.desired(ctx, fn, existing)
	if err != nil || missing == "" {
		return desired, err
	}
	fn.Status.MarkRunningFailed(v1alpha1.ReasonRevisionMissing, "%s", missing)
	return nil, s.hold(ctx, fn)
}

// update writes the Deployment where it differs from the desired one. It reports whether that
// has changed the stored Deployment.
func (s *Server) update(ctx context.Context, fn *v1alpha1.Function, existing, desired *appsv1.Deployment) (*appsv1.Deployment, bool, error) {
	keeps := isOf(existing, desired) && remember(existing) == fn.Status.TemplateHash
	merged := existing.DeepCopy()
	if !children.RestoreMeta(merged, desired, fn) && keeps && !differs(existing, desired) {
		return existing, false, nil
	}
	if err := s.CheckCurrent(ctx, fn); err != nil {
		return nil, false, err
	}
	deployments := s.Client.AppsV1().Deployments(fn.Namespace)
	live, err := deployments.Get(ctx, existing.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("failed to get Deployment: %w", err)
	case live.ResourceVersion != existing.ResourceVersion:
		// A newer Deployment can have another number of pods, or be of somebody else.
		return nil, false, controller.NewRequeueAfter(staleRetry)
	}
	children.RestoreMeta(live, desired, fn)
	live.Annotations, live.Spec = kmap.Union(live.Annotations, desired.Annotations), *specOf(live, desired, keeps)
	updated, err := deployments.Update(ctx, live, metav1.UpdateOptions{})
	if children.IsRejected(err) {
		// The last deployed revision must not suffer from the rejection.
		err = errors.Join(err, s.hold(ctx, fn))
	}
	if err != nil {
		return nil, false, markRejected(fn, err, "updated")
	}
	fn.Status.TemplateHash = remember(updated)
	if updated.ResourceVersion == existing.ResourceVersion {
		// No event will follow.
		return updated, false, nil
	}
	if keeps {
		return updated, false, nil
	}
	podspec.ReportDropped(ctx, fn)
	fn.Status.MarkRunningUnknown(v1alpha1.ReasonDeploymentUpdated, "Deployment %s was updated to revision %s.", updated.Name, revisionOf(updated))
	return updated, true, nil
}

// markRejected reports in the status that the API server rejected a write of the Deployment.
// It returns the error.
func markRejected(fn *v1alpha1.Function, err error, verb string) error {
	if refusal, ok := errors.AsType[*apierrs.StatusError](err); ok && children.IsRejected(refusal) {
		fn.Status.MarkRunningFailed(v1alpha1.ReasonDeploymentFailed, "Deployment %s cannot be %s: %v", children.ServiceName(fn), verb, refusal)
	}
	return retryError(fmt.Errorf("failed to write Deployment: %w", err))
}

// retryError is children.RetryError for what serves. Admission webhooks and policies reject
// writes with the same errors, and their changes wake nobody. So such a write is retried.
func retryError(err error) error {
	if children.IsNamespaceTerminating(err) {
		return children.RetryError(err)
	}
	return err
}

// markUnapplied reports in the status why a child is not as desired: another object has its
// name, or the API server rejects it. It returns the error that retries.
func markUnapplied(fn *v1alpha1.Function, err error) error {
	b, ok := errors.AsType[*blocked](err)
	switch refusal, rejected := errors.AsType[*apierrs.StatusError](err); {
	case ok && b.ownership == children.Foreign:
		fn.Status.MarkRunningFailed(v1alpha1.ReasonNotOwned, children.NotOwnedFormat, b.kind, b.name)
		return children.RetryName()
	case ok:
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonWaitingForDeletion, "%s %s is being deleted.", b.kind, b.name)
		return b.from.AwaitDeletion(b.kind, b.name)
	case rejected && children.IsRejected(refusal):
		fn.Status.MarkRunningFailed(v1alpha1.ReasonDeploymentFailed, "Kiln %v. It keeps retrying.", err)
	}
	return retryError(err)
}
