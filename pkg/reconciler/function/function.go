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

// Package function reconciles Functions: it writes what a build needs, has a
// TaskRun build the image, and has a Knative Service run it.
package function

import (
	"context"
	"errors"
	"fmt"

	pipelineclientset "github.com/tektoncd/pipeline/pkg/client/clientset/versioned"
	pipelinelisters "github.com/tektoncd/pipeline/pkg/client/listers/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/controller"
	pkgreconciler "knative.dev/pkg/reconciler"
	servingclientset "knative.dev/serving/pkg/client/clientset/versioned"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	clientset "github.com/kiln-dev/kiln/pkg/client/clientset/versioned"
	functionreconciler "github.com/kiln-dev/kiln/pkg/client/injection/reconciler/serverless/v1alpha1/function"
	"github.com/kiln-dev/kiln/pkg/images"
)

// Reconciler brings Functions to life. What has no lister of its own is read
// from the API server, and seldom.
type Reconciler struct {
	kiln    clientset.Interface
	kube    kubernetes.Interface
	tekton  pipelineclientset.Interface
	serving servingclientset.Interface

	// These list what carries Kiln's label, and nothing else.
	configMapLister corev1listers.ConfigMapLister
	taskRunLister   pipelinelisters.TaskRunLister
	serviceLister   servinglisters.ServiceLister
	podLister       corev1listers.PodLister

	// mountEventLister lists the events of failed mounts, and nothing else.
	mountEventLister corev1listers.EventLister

	secrets credentialSecrets

	logs logReader

	replaced replaced

	queue    *queue.Queue
	lookups  registry[images.Lookup, images.Found]
	taggings registry[images.Tagging, struct{}]
	follower follower
}

var (
	_ functionreconciler.Interface      = (*Reconciler)(nil)
	_ pkgreconciler.OnDeletionInterface = (*Reconciler)(nil)
)

// ReconcileKind implements functionreconciler.Interface.
func (r *Reconciler) ReconcileKind(ctx context.Context, fn *v1alpha1.Function) pkgreconciler.Event {
	ctx, cancel := context.WithTimeout(ctx, pkgreconciler.DefaultTimeout)
	defer cancel()

	if r.replaced.has(fn) {
		return nil
	}
	original := fn.DeepCopy()
	pkgreconciler.PreProcessReconcile(ctx, fn)
	err := r.reconcile(ctx, fn)
	if errors.Is(err, errStale) {
		return nil
	}
	if err != nil || !isQueued(fn) {
		// What was granted and has not become a build is somebody else's turn. The
		// status tells since when the Function waits, should it go on to.
		r.queue.Release(keyOf(fn))
	}
	fn.Status.UpdatePhase()
	hideSecrets(fn)
	pkgreconciler.PostProcessReconcile(ctx, fn, original)
	if err := r.writeStatus(ctx, original, fn); err != nil {
		return err
	}
	return hideSecretsIn(err, fn)
}

// reconcile takes the Function through its phases, as far as it gets, and says
// in the status how far that is.
func (r *Reconciler) reconcile(ctx context.Context, fn *v1alpha1.Function) error {
	before := fn.Status.DeepCopy()
	if fn.Generation != fn.Status.ObservedGeneration {
		// Whatever fails below, a new generation keeps nothing that was true, or
		// false, of an earlier one.
		fn.Status.ResetConditions()
	}

	err := r.prepare(ctx, fn, before)
	switch {
	case errors.Is(err, errStale):
		return err
	case err != nil, !fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).IsTrue():
		return either(err, r.keepServing(ctx, fn))
	}
	if err := r.deploy(ctx, fn); err != nil {
		return err
	}
	r.tagVersion(ctx, fn, before)
	return nil
}

// prepare sees to it that there is an image to deploy, as far as it gets:
// BuildReady is true when there is.
func (r *Reconciler) prepare(ctx context.Context, fn *v1alpha1.Function, before *v1alpha1.FunctionStatus) error {
	want, ok := makePlan(ctx, fn)
	if !ok {
		r.follower.Forget(keyOf(fn))
		return nil
	}
	taskRuns, err := r.taskRunsOf(fn)
	if err != nil {
		return err
	}
	if r.follow(ctx, fn, want, taskRuns) {
		return nil
	}
	r.lookAhead(fn, want, taskRuns)
	if err := r.configure(ctx, fn, want, before); err != nil {
		return err
	}
	if !fn.Status.GetCondition(v1alpha1.FunctionConditionConfigurationReady).IsTrue() {
		return nil
	}
	if err := r.provideCredentials(ctx, fn, want); err != nil {
		return err
	}
	return r.build(ctx, fn, want, taskRuns)
}

// errStale says that the Function was found to be out of date. Nothing is said
// in its status then; the watch will tell of the change.
var errStale = errors.New("the Function is not as the API server has it")

// writeStatus writes the status where it has changed, and emits an event for
// each condition that has. The status remembers what was built, so it never
// takes the place of one that this reconcile has not seen: that is a conflict,
// and has the Function tried again. This is why the generated reconciler, which
// insists, leaves the status to us.
func (r *Reconciler) writeStatus(ctx context.Context, original, fn *v1alpha1.Function) error {
	if equality.Semantic.DeepEqual(original.Status, fn.Status) {
		return nil
	}
	updated := original.DeepCopy()
	updated.Status = fn.Status
	updated, err := r.kiln.ServerlessV1alpha1().Functions(fn.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	switch {
	case apierrs.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("failed to update status: %w", err)
	}
	r.replaced.note(original, updated)
	report(ctx, fn, &original.Status)
	return nil
}

// report emits an event for each condition that has changed.
func report(ctx context.Context, fn *v1alpha1.Function, before *v1alpha1.FunctionStatus) {
	recorder := controller.GetEventRecorder(ctx)
	for _, t := range []apis.ConditionType{
		v1alpha1.FunctionConditionConfigurationReady,
		v1alpha1.FunctionConditionSourceFollowed,
		v1alpha1.FunctionConditionBuildReady,
		v1alpha1.FunctionConditionRunning,
	} {
		now := fn.Status.GetCondition(t)
		if !isEdge(before.GetCondition(t), now) {
			continue
		}
		eventType := corev1.EventTypeNormal
		if now.IsFalse() || isTrouble(now.Reason) {
			eventType = corev1.EventTypeWarning
		}
		recorder.Event(fn, eventType, now.Reason, now.Message)
	}
}

// isTrouble says whether a reason of a condition that is Unknown tells of a
// failure, which may pass.
func isTrouble(reason string) bool {
	return reason == v1alpha1.ReasonBuildRetrying || reason == v1alpha1.ReasonTaskRunNotCreated
}

// isEdge says whether there is news for the user. That one condition waits for
// another, or for the registry, is none.
func isEdge(before, now *apis.Condition) bool {
	switch now.GetReason() {
	case "", v1alpha1.ReasonWaitingForConfiguration, v1alpha1.ReasonCheckingRegistry, v1alpha1.ReasonWaitingForBuild:
		return false
	}
	if before.GetReason() != now.GetReason() {
		return true
	}
	return !now.IsUnknown() && before.GetMessage() != now.GetMessage()
}

// isRejected says whether the API server, or an admission policy, will not have
// an object. That is for somebody to fix, and is told by a condition.
func isRejected(err error) bool {
	return isInvalid(err) || apierrs.IsForbidden(err) && !isNamespaceLeaving(err)
}

// isNamespaceLeaving says whether an object is refused since its namespace is
// being deleted, with the Function.
func isNamespaceLeaving(err error) bool {
	return apierrs.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// isInvalid says whether an object is refused for what it is, so that it is
// useless to try again. Unlike that, what is forbidden today, by a quota for
// one, may be allowed tomorrow.
func isInvalid(err error) bool {
	return apierrs.IsInvalid(err) || apierrs.IsBadRequest(err) || apierrs.IsRequestEntityTooLargeError(err)
}

// either returns the error that has the Function tried again the soonest. One
// that is useless to try again, or that is to be looked at later, must not keep the
// other from it.
func either(first, second error) error {
	switch later, _ := controller.IsRequeueKey(first); {
	case first == nil:
		return second
	case second == nil, controller.IsPermanentError(second):
		return first
	case controller.IsPermanentError(first), later && !controller.IsSkipKey(second):
		return second
	default:
		return errors.Join(first, second)
	}
}

// retry returns the error of a write in the form that has it tried again only
// where that can help.
func retry(err error) error {
	switch {
	case isNamespaceLeaving(err):
		return controller.NewSkipKey(err.Error())
	case isInvalid(err):
		return controller.NewPermanentError(err)
	default:
		return err
	}
}
