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

// Package knative serves Functions with Knative Services.
package knative

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	networkingclientset "knative.dev/networking/pkg/client/clientset/versioned"
	networkingclient "knative.dev/networking/pkg/client/injection/client"
	"knative.dev/pkg/controller"
	servingconfig "knative.dev/serving/pkg/apis/config"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingclientset "knative.dev/serving/pkg/client/clientset/versioned"
	servingclient "knative.dev/serving/pkg/client/injection/client"
	serviceinformer "knative.dev/serving/pkg/client/injection/informers/serving/v1/service/filtered"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// API is the API of Knative Services.
var API = servingv1.SchemeGroupVersion.WithResource("services")

// Server serves Functions with Knative Services.
type Server struct {
	// Client writes Services and reads Revisions.
	Client servingclientset.Interface

	// Networking reads ServerlessServices.
	Networking networkingclientset.Interface

	// Services lists the Services with Kiln's label, as Slim leaves them.
	Services servinglisters.ServiceLister

	// Pods lists the Pods with Kiln's label.
	Pods corev1listers.PodLister

	// MountEvents lists the events of failed mounts.
	MountEvents corev1listers.EventLister

	// CheckCurrent returns an error if the cached Function is stale. Server calls it
	// before it updates a Service.
	CheckCurrent func(ctx context.Context, fn *v1alpha1.Function) error

	recent recent
}

// NewServer returns a Server. The context must carry an informer of Services that
// children.LabelSelector filters.
func NewServer(ctx context.Context, pods corev1listers.PodLister, mountEvents corev1listers.EventLister, checkCurrent func(context.Context, *v1alpha1.Function) error) *Server {
	return &Server{
		Client:       servingclient.Get(ctx),
		Networking:   networkingclient.Get(ctx),
		Services:     serviceinformer.Get(ctx, children.LabelSelector).Lister(),
		Pods:         pods,
		MountEvents:  mountEvents,
		CheckCurrent: checkCurrent,
		recent:       newRecent(),
	}
}

// Watch calls wake with each Service that changes.
func (s *Server) Watch(ctx context.Context, wake func(any)) {
	services := serviceinformer.Get(ctx, children.LabelSelector).Informer()
	slim.Watch(ctx, services, Slim, s.recent.noteDeletions())
	slim.Watch(ctx, services, Slim, controller.HandleAll(wake))
}

// Name returns the server's value of the key serving in config-functions.
func (*Server) Name() config.Server { return config.KnativeServer }

// Serves reports whether the Function has a Service, as far as the cache shows.
func (s *Server) Serves(fn *v1alpha1.Function) (bool, error) {
	svc, err := s.Services.Services(fn.Namespace).Get(children.ServiceName(fn))
	if apierrs.IsNotFound(err) {
		return false, nil
	}
	return err == nil && children.OwnershipOf(svc, fn) == children.Owned, err
}

// Apply makes the Service run the Function's image as its spec says, and reports the
// state of the Service in the status.
func (s *Server) Apply(ctx context.Context, fn *v1alpha1.Function) error {
	desired := desiredService(ctx, fn)
	if fn.Spec.Replicas != nil {
		fn.Status.MarkRunningFailed(v1alpha1.ReasonReplicasUnsupported,
			"Knative scales this Function. Remove spec.replicas, and set minReplicas and maxReplicas. What serves stays.")
		if !fn.Status.IsDeployed() {
			return nil
		}
		return s.hold(ctx, fn, desired, "")
	}
	missing, err := s.missingRevisions(ctx, fn, desired)
	if err != nil {
		return err
	}
	if missing != "" {
		return s.hold(ctx, fn, desired, missing)
	}
	svc, from, err := s.getOrCreate(ctx, fn, desired)
	if left, ok := errors.AsType[*leftoverError](err); ok {
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonWaitingForDeletion,
			"%s %s of the deleted Service %s still exists. The Service is created again when the garbage collector has deleted it.",
			left.Kind, left.Name, desired.Name)
		return err
	}
	if err != nil {
		return markRejected(fn, err, "Service %s cannot be created", desired.Name)
	}
	switch children.OwnershipOf(svc, fn) {
	case children.Foreign:
		fn.Status.MarkRunningFailed(v1alpha1.ReasonNotOwned, children.NotOwnedFormat, "Service", svc.Name)
		return children.RetryName()
	case children.Leaving:
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonWaitingForDeletion, "Service %s is being deleted.", svc.Name)
		return from.AwaitDeletion("Service", svc.Name)
	}
	if from == children.Created {
		PropagateStatus(fn, svc)
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceCreated, "Service %s was created.", svc.Name)
		return nil
	}
	if changed, err := s.applyChange(ctx, fn, desired, svc); changed || err != nil {
		return err
	}
	PropagateStatus(fn, svc)
	return s.markState(ctx, fn, svc)
}

// applyChange updates the Service where it differs from the desired one. It reports
// whether that has changed the stored Service.
func (s *Server) applyChange(ctx context.Context, fn *v1alpha1.Function, desired, svc *servingv1.Service) (bool, error) {
	merged, change := MergeService(desired, svc, fn.Status.TemplateHash)
	if !children.RestoreMeta(merged, desired, fn) && change == NoChange {
		return false, nil
	}
	updated, err := s.update(ctx, fn, merged)
	if children.IsRejected(err) {
		// The last deployed revision must not suffer from the rejection.
		err = errors.Join(err, s.hold(ctx, fn, desired, ""))
	}
	if err != nil {
		return false, markRejected(fn, err, "Service %s cannot be updated", svc.Name)
	}
	fn.Status.TemplateHash = Remember(updated)
	if updated.ResourceVersion == svc.ResourceVersion {
		// The write had no effect, because a webhook undoes the change. No event will
		// follow, so the state is reported now.
		return false, nil
	}
	if change == RevisionChange {
		podspec.ReportDropped(ctx, fn)
	}
	PropagateStatus(fn, updated)
	fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceUpdated, "Service %s was updated.", updated.Name)
	return true, nil
}

// desiredService returns the Service that runs the Function's image.
func desiredService(ctx context.Context, fn *v1alpha1.Function) *servingv1.Service {
	fn = podspec.WithAllowedMetadata(ctx, fn)
	if podspec.HasOwnDockerfile(ctx, fn) {
		return MakeListeningService(fn, fn.Status.Image, podspec.PullSecrets(ctx)...)
	}
	return MakeService(fn, fn.Status.Image, podspec.PullSecrets(ctx)...)
}

// Hold keeps the last deployed image serving while no newer image is available. It
// applies the Function's traffic and visibility, unless the spec is invalid.
func (s *Server) Hold(ctx context.Context, fn *v1alpha1.Function) error {
	desired := desiredService(ctx, fn)
	if !fn.IsAccepted() {
		return s.hold(ctx, fn, desired, "")
	}
	missing, err := s.missingRevisions(ctx, fn, desired)
	if err != nil {
		return err
	}
	return s.hold(ctx, fn, desired, missing)
}

// hold keeps the last deployed revision template. The new one may only work with the
// next image. Where named revisions are missing, the traffic stays and the status
// reports them. Where the spec is invalid, traffic and visibility stay.
func (s *Server) hold(ctx context.Context, fn *v1alpha1.Function, desired *servingv1.Service, missing string) error {
	if missing != "" {
		fn.Status.MarkRunningFailed(v1alpha1.ReasonRevisionMissing, "%s", missing)
	}
	svc, from, err := s.getLast(ctx, fn, desired, missing == "" && fn.IsAccepted() && fn.Status.Image != "")
	if svc == nil || err != nil {
		return err
	}
	switch children.OwnershipOf(svc, fn) {
	case children.Foreign:
		// Apply reports it.
		return nil
	case children.Leaving:
		return from.AwaitDeletion("Service", svc.Name)
	}
	if from == children.Created {
		return nil
	}
	switch {
	case !fn.IsAccepted():
		KeepRoute(desired, svc)
	case missing != "":
		desired.Spec.RouteSpec = svc.Spec.RouteSpec
	}
	merged, change := MergeRoute(desired, svc)
	restored := false
	if IsTemplateEdited(svc, fn.Status.TemplateHash) {
		if restored, err = s.restoreTemplate(ctx, fn, merged); err != nil {
			return err
		}
	}
	if children.RestoreMeta(merged, desired, fn) || restored || change != NoChange {
		if svc, err = s.update(ctx, fn, merged); err != nil {
			return err
		}
	}
	if restored {
		// Serving may have new defaults.
		fn.Status.TemplateHash = Remember(svc)
	}
	PropagateStatus(fn, svc)
	return nil
}

// getLast returns the Service, or nil. Where it is missing and create is true, it
// creates the Service from the last deployed template, if a revision still has it.
func (s *Server) getLast(ctx context.Context, fn *v1alpha1.Function, desired *servingv1.Service, create bool) (*servingv1.Service, children.Origin, error) {
	svc, err := s.Services.Services(fn.Namespace).Get(desired.Name)
	if err == nil {
		return svc, children.Listed, nil
	}
	if !apierrs.IsNotFound(err) {
		return nil, children.Listed, fmt.Errorf("failed to get Service: %w", err)
	}
	if !create {
		return nil, children.Listed, nil
	}
	// The garbage collector deletes the revisions some time after the Service.
	restored, err := s.restoreTemplate(ctx, fn, desired)
	if err != nil {
		return nil, children.Listed, err
	}
	svc, from, err := s.getOrCreate(ctx, fn, desired)
	if _, waits := errors.AsType[*leftoverError](err); waits && restored {
		s.keepTemplate(fn, desired)
	}
	return svc, from, err
}

// getOrCreate returns the Service of the desired name. A Service that the lister does
// not show may exist without Kiln's label.
func (s *Server) getOrCreate(ctx context.Context, fn *v1alpha1.Function, desired *servingv1.Service) (*servingv1.Service, children.Origin, error) {
	svc, err := s.Services.Services(fn.Namespace).Get(desired.Name)
	if err == nil {
		return svc, children.Listed, nil
	}
	if !apierrs.IsNotFound(err) {
		return nil, children.Listed, fmt.Errorf("failed to get Service: %w", err)
	}
	if svc, err = s.checkLeftovers(ctx, fn, desired.Name); svc != nil || err != nil {
		return svc, children.Unlisted, err
	}
	svc, from, err := children.CreateOrGet(ctx, s.Client.ServingV1().Services(fn.Namespace), "Service", desired)
	switch {
	case from != children.Created:
		return svc, from, err
	case err != nil:
		return nil, from, retryError(fmt.Errorf("failed to create Service: %w", err))
	}
	fn.Status.TemplateHash = Remember(svc)
	return svc, from, nil
}

// update updates the Service. A shortened revision template is replaced by the live
// one; if somebody has changed that meanwhile, the resource versions conflict. A new
// leader may see an old Function, which must not undo a newer deployment.
func (s *Server) update(ctx context.Context, fn *v1alpha1.Function, svc *servingv1.Service) (*servingv1.Service, error) {
	if err := s.CheckCurrent(ctx, fn); err != nil {
		return nil, err
	}
	if !HasTemplate(svc) {
		live, err := s.Client.ServingV1().Services(svc.Namespace).Get(ctx, svc.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("failed to get Service: %w", err)
		}
		svc.Spec.Template = live.Spec.Template
	}
	updated, err := s.Client.ServingV1().Services(svc.Namespace).Update(ctx, svc, metav1.UpdateOptions{})
	if err != nil {
		return nil, retryError(fmt.Errorf("failed to update Service: %w", err))
	}
	return updated, nil
}

// retryError is children.RetryError for Services. What Serving rejects depends on its
// configuration, whose changes wake nobody, so such a write is retried with back-off.
func retryError(err error) error {
	if children.IsNamespaceTerminating(err) {
		return children.RetryError(err)
	}
	return err
}

// markRejected reports in the status that the API server rejected a write of the
// Service. It returns the error.
func markRejected(fn *v1alpha1.Function, err error, what, name string) error {
	if refusal, ok := errors.AsType[*apierrs.StatusError](err); ok && children.IsRejected(refusal) {
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, what+": %v%s", name, refusal, adviceOn(refusal))
	}
	return err
}

// featureFlags are the feature flags of Serving that lift its rejections, by the words of
// these.
var featureFlags = map[string]string{
	"spec.template.spec.nodeSelector":             servingconfig.FeaturePodSpecNodeSelector,
	"spec.template.spec.tolerations":              servingconfig.FeaturePodSpecTolerations,
	"Persistent volume claim support is disabled": servingconfig.FeaturePodSpecPVClaim,
	"Persistent volume write support is disabled": "kubernetes.podspec-persistent-volume-write",
}

// adviceOn returns what an administrator can do about Serving's rejection, or "".
func adviceOn(refusal error) string {
	var flags []string
	for words, flag := range featureFlags {
		if strings.Contains(refusal.Error(), words) {
			flags = append(flags, flag)
		}
	}
	if len(flags) == 0 {
		return ""
	}
	slices.Sort(flags)
	return fmt.Sprintf(". Enable %s in Serving's ConfigMap %s. Kiln keeps retrying.",
		strings.Join(flags, " and "), servingconfig.FeaturesConfigName)
}
