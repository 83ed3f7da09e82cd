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

// Package function reconciles Functions: it writes the inputs of a build, builds the
// image and serves it.
package function

import (
	"context"
	"errors"
	"fmt"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"knative.dev/pkg/controller"
	pkgreconciler "knative.dev/pkg/reconciler"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/children"
	clientset "github.com/kiln-dev/kiln/pkg/client/clientset/versioned"
	functionreconciler "github.com/kiln-dev/kiln/pkg/client/injection/reconciler/serverless/v1alpha1/function"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/sources/poll"
)

// Reconciler builds the images of Functions and serves them.
type Reconciler struct {
	kiln clientset.Interface
	kube kubernetes.Interface

	configMapLister corev1listers.ConfigMapLister

	builders Builders
	servers  Servers
	choices  choices
	secrets  Secrets

	queue    *queue.Queue
	lookups  Background[images.Lookup, images.Found]
	taggings Background[images.Tagging, struct{}]
	polls    Background[poll.Branch, poll.Found]
	checks   Background[images.Check, images.Checked]
	contents Contents

	replaced replaced
}

var (
	_ functionreconciler.Interface      = (*Reconciler)(nil)
	_ pkgreconciler.OnDeletionInterface = (*Reconciler)(nil)
)

// ReconcileKind implements functionreconciler.Interface.
func (r *Reconciler) ReconcileKind(ctx context.Context, fn *v1alpha1.Function) pkgreconciler.Event {
	ctx, cancel := context.WithTimeout(withLive(ctx), pkgreconciler.DefaultTimeout)
	defer cancel()

	if r.replaced.has(fn) {
		return nil
	}
	original := fn.DeepCopy()
	pkgreconciler.PreProcessReconcile(ctx, fn)
	if err := r.completeNew(ctx, fn); err != nil {
		return unlessStale(err)
	}
	err := r.reconcile(ctx, fn)
	if errors.Is(err, errStale) {
		return nil
	}
	if err != nil || !isQueued(fn) {
		// Release a granted slot that was not used. If the Function still waits,
		// status.build.queuedTime keeps its place.
		r.queue.Release(children.KeyOf(fn))
	}
	fn.Status.UpdatePhase()
	hideSecrets(fn)
	pkgreconciler.PostProcessReconcile(ctx, fn, original)
	if err := r.writeStatus(ctx, original, fn); err != nil {
		return err
	}
	return hideSecretsIn(err, fn)
}

// reconcile takes the Function through its phases, and reports in the status how far it
// got.
func (r *Reconciler) reconcile(ctx context.Context, fn *v1alpha1.Function) error {
	before := fn.Status.DeepCopy()
	if fn.Generation != fn.Status.ObservedGeneration {
		// No condition of an earlier generation may survive, whatever fails below.
		fn.Status.ResetConditions()
	}

	err := r.prepare(ctx, fn, before)
	switch {
	case errors.Is(err, errStale):
		return err
	case err != nil, !fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).IsTrue():
		return either(err, r.hold(ctx, fn))
	}
	if r.followContents(fn) {
		return nil
	}
	server, ok, err := r.serverOf(ctx, fn)
	if err != nil || !ok || fn.Status.Serving != before.Serving {
		// The status has the choice before an object exists. Its write wakes the Function.
		return err
	}
	if err := server.Apply(ctx, fn); err != nil {
		return err
	}
	r.tagVersion(ctx, fn, before)
	return nil
}

// hold keeps what serves the Function, if anything does.
func (r *Reconciler) hold(ctx context.Context, fn *v1alpha1.Function) error {
	original := fn.Status.Serving
	server, ok, err := r.serverOf(ctx, fn)
	if err != nil || !ok || fn.Status.Serving != original {
		fn.Status.Serving = original
		return err
	}
	return server.Hold(ctx, fn)
}

func (r *Reconciler) prepare(ctx context.Context, fn *v1alpha1.Function, before *v1alpha1.FunctionStatus) error {
	if !r.acceptSecrets(ctx, fn) {
		r.polls.Forget(children.KeyOf(fn))
		r.contents.Forget(children.KeyOf(fn))
		return nil
	}
	if !fn.IsAccepted() {
		// The validation reads the texts.
		if err := r.complete(ctx, fn); err != nil {
			return err
		}
	}
	want, ok := makePlan(ctx, fn)
	if !ok {
		r.polls.Forget(children.KeyOf(fn))
		r.contents.Forget(children.KeyOf(fn))
		return nil
	}
	runs, err := r.builders.List(fn)
	if err != nil {
		return err
	}
	current := gather(fn, runs)
	want, moved := r.poll(ctx, fn, want, current)
	if moved {
		return nil
	}
	if r.checkImage(ctx, fn, want, current) {
		return nil
	}
	r.lookAhead(fn, want, current)
	if err := r.configure(ctx, fn, want, before); err != nil {
		return err
	}
	if !fn.Status.GetCondition(v1alpha1.FunctionConditionConfigurationReady).IsTrue() {
		return nil
	}
	if want, err = r.provideCredentials(ctx, fn, want); err != nil {
		return err
	}
	return r.build(ctx, fn, want, current)
}

// errStale reports that the cached Function is stale. The reconcile then ends without a
// status: the watch will deliver the newer Function.
var errStale = errors.New("the cached Function is stale")

func unlessStale(err error) error {
	if errors.Is(err, errStale) {
		return nil
	}
	return err
}

// checkCurrent returns errStale unless the cached Function is the live one. The live
// status may name a build that the cache does not show yet.
func (r *Reconciler) checkCurrent(ctx context.Context, fn *v1alpha1.Function) error {
	live, err := r.getLive(ctx, fn)
	if err == nil && live.ResourceVersion != fn.ResourceVersion {
		return errStale
	}
	return err
}

// complete adds the texts that the cache has dropped. It returns errStale if the spec has
// changed since.
func (r *Reconciler) complete(ctx context.Context, fn *v1alpha1.Function) error {
	if fn.Digests == nil {
		return nil
	}
	live, err := r.getLive(ctx, fn)
	switch {
	case err != nil:
		return err
	case live.Generation != fn.Generation:
		return errStale
	}
	fn.Spec.Source, fn.Spec.Deps, fn.Digests = live.Spec.Source, live.Spec.Deps, nil
	return nil
}

// completeNew completes a Function whose spec is not validated yet. If the texts cannot be
// read, the status stays: the API server is unavailable, and the reconcile is retried.
func (r *Reconciler) completeNew(ctx context.Context, fn *v1alpha1.Function) error {
	if fn.IsAccepted() {
		return nil
	}
	err := r.complete(ctx, fn)
	if err != nil {
		r.queue.Release(children.KeyOf(fn))
	}
	return err
}

// liveKey is the key of the live Function that a reconcile has read.
type liveKey struct{}

// withLive returns the context of a reconcile, which reads the live Function at most once.
func withLive(ctx context.Context) context.Context {
	return context.WithValue(ctx, liveKey{}, new(*v1alpha1.Function))
}

// getLive returns the live Function, as read during this reconcile and thus after the
// cached one. Later writes do not depend on its age: they have fixed names or resource
// versions. It returns errStale if the Function is deleted or another one.
func (r *Reconciler) getLive(ctx context.Context, fn *v1alpha1.Function) (*v1alpha1.Function, error) {
	read, _ := ctx.Value(liveKey{}).(**v1alpha1.Function)
	if read != nil && *read != nil {
		return *read, nil
	}
	live, err := r.kiln.ServerlessV1alpha1().Functions(fn.Namespace).Get(ctx, fn.Name, metav1.GetOptions{})
	switch {
	case apierrs.IsNotFound(err), err == nil && live.DeletionTimestamp != nil:
		r.queue.Release(children.KeyOf(fn))
		return nil, errStale
	case err != nil:
		return nil, fmt.Errorf("failed to get Function: %w", err)
	case live.UID != fn.UID:
		return nil, errStale
	}
	if read != nil {
		*read = live
	}
	return live, nil
}

// either returns the error that retries the Function the soonest. A permanent error, or
// a later requeue, must not hide the other one.
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
