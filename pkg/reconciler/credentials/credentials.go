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

// Package credentials copies the registry credentials, a Secret in Kiln's namespace, to
// the namespaces of Functions that have no Secret of its name.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/kmap"
	pkgreconciler "knative.dev/pkg/reconciler"
	"knative.dev/pkg/system"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/children"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
)

// The reasons of events.
const (
	// reasonIgnored: the Secret in Kiln's namespace cannot be used.
	reasonIgnored = "CredentialsIgnored"

	// reasonMissing: a copy has lost its source. Kiln deletes it after the grace period.
	reasonMissing = "CredentialsMissing"

	// reasonReferenced: an object names the Secret, so its namespace gets no copy.
	reasonReferenced = "CredentialsReferenced"
)

// gracePeriod is how long a copy outlives its source. Nodes that pull images need it, so
// an administrator's mistake must not delete all copies at once.
const gracePeriod = time.Hour

// copyLabels mark Kiln's copies. A user adopts a copy by removing one of them.
var copyLabels = map[string]string{
	"app.kubernetes.io/managed-by": "kiln",
	serverless.CredentialsLabelKey: "copy",
}

// Reconciler reconciles the copies. Its keys are the names of namespaces.
type Reconciler struct {
	pkgreconciler.LeaderAwareFuncs

	secrets        *Secrets
	functionLister listers.FunctionLister
	store          pkgreconciler.ConfigStore
	recorder       record.EventRecorder
	now            func() time.Time

	// told is the last event about the Secret in Kiln's namespace, so each is emitted once.
	// Only the reconcile of that namespace uses it.
	told string
}

var (
	_ controller.Reconciler     = (*Reconciler)(nil)
	_ pkgreconciler.LeaderAware = (*Reconciler)(nil)
)

// Reconcile implements controller.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, key string) error {
	_, namespace, err := cache.SplitMetaNamespaceKey(key)
	if err != nil || !r.IsLeaderFor(types.NamespacedName{Name: namespace}) {
		return controller.NewSkipKey(key)
	}
	ctx, cancel := context.WithTimeout(r.store.ToContext(ctx), pkgreconciler.DefaultTimeout)
	defer cancel()

	// Copies may exist although no credentials are configured any more. Their events enqueue
	// their namespaces.
	r.secrets.watch(config.DefaultCredentials)
	current := config.FromContextOrDefaults(ctx).Registry.Credentials
	if namespace == system.Namespace() {
		return r.checkSource(ctx, current)
	}
	fns, err := r.functionLister.Functions(namespace).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("failed to list Functions: %w", err)
	}
	errs := []error{r.reconcileCopy(ctx, current, namespace, len(fns) > 0)}
	for _, name := range r.secrets.Names() {
		if name != current {
			errs = append(errs, r.reconcileFormer(ctx, name, namespace, len(fns) > 0))
		}
	}
	return first(errs)
}

func first(errs []error) error {
	var soonest error
	var least time.Duration
	failed := slices.DeleteFunc(slices.Clone(errs), func(err error) bool {
		requeue, after := controller.IsRequeueKey(err)
		if requeue && (soonest == nil || after < least) {
			soonest, least = err, after
		}
		return requeue
	})
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return soonest
}

func (r *Reconciler) checkSource(ctx context.Context, name string) error {
	source, err := r.secrets.get(ctx, name, system.Namespace())
	if err != nil {
		return err
	}
	wrong := ""
	if source != nil {
		if err := Check(source); err != nil {
			wrong = err.Error()
		}
	}
	if wrong != "" && wrong != r.told {
		r.recorder.Eventf(source, corev1.EventTypeWarning, reasonIgnored,
			"It is not used, and copies of what it was before stay: %s", wrong)
	}
	r.told = wrong
	return nil
}

// reconcileCopy creates, refreshes or deletes the copy in a namespace. It leaves other
// Secrets alone.
func (r *Reconciler) reconcileCopy(ctx context.Context, name, namespace string, wanted bool) error {
	existing, err := r.secrets.get(ctx, name, namespace)
	if err != nil || existing != nil && !isCopy(existing) {
		return err
	}
	source, err := r.secrets.get(ctx, name, system.Namespace())
	if err != nil {
		return err
	}
	switch {
	case existing == nil && (!wanted || source == nil):
		return nil
	case !wanted:
		return r.delete(ctx, existing)
	case source == nil:
		return r.expire(ctx, existing, fmt.Sprintf("Secret %s/%s does not exist any more.", system.Namespace(), name))
	case Check(source) != nil:
		return nil
	case existing == nil:
		_, err := r.secrets.create(ctx, makeCopy(source, namespace))
		return r.reportReference(ignoreLeaving(err))
	}
	return r.reportReference(r.refresh(ctx, existing, source))
}

// reconcileFormer deletes the copy of a name that is no longer configured. The default name
// stays reserved, so its copy can wait. Functions may use any other name at once.
func (r *Reconciler) reconcileFormer(ctx context.Context, name, namespace string, inUse bool) error {
	existing, err := r.secrets.get(ctx, name, namespace)
	if err != nil || existing == nil || !isCopy(existing) {
		return err
	}
	if inUse && name == config.DefaultCredentials {
		return r.expire(ctx, existing, "The ConfigMap "+config.RegistryConfigName+" does not name this Secret any more.")
	}
	return r.delete(ctx, existing)
}

// refresh gives the copy the content of the source. New credentials do not get into a
// namespace where code of an author could read them.
func (r *Reconciler) refresh(ctx context.Context, existing, source *corev1.Secret) error {
	changed := !equality.Semantic.DeepEqual(existing.Data, source.Data)
	if !changed && existing.Annotations[serverless.DeleteAfterAnnotationKey] == "" {
		return nil
	}
	if changed {
		if err := r.secrets.checkReferences(ctx, existing.Name, existing.Namespace); err != nil {
			return err
		}
	}
	refreshed := existing.DeepCopy()
	refreshed.Data = source.Data
	delete(refreshed.Annotations, serverless.DeleteAfterAnnotationKey)
	return r.update(ctx, refreshed)
}

// expire deletes the copy once the grace period is over. An annotation of the copy
// remembers the end, also across restarts.
func (r *Reconciler) expire(ctx context.Context, existing *corev1.Secret, why string) error {
	now := r.now()
	end, err := time.Parse(time.RFC3339, existing.Annotations[serverless.DeleteAfterAnnotationKey])
	if left := end.Sub(now); err == nil && left <= gracePeriod {
		if left > 0 {
			return controller.NewRequeueAfter(left)
		}
		return r.delete(ctx, existing)
	}
	end = now.Add(gracePeriod)
	marked := existing.DeepCopy()
	marked.Annotations = kmap.Union(existing.Annotations, map[string]string{
		serverless.DeleteAfterAnnotationKey: end.UTC().Format(time.RFC3339),
	})
	if err := r.update(ctx, marked); err != nil {
		return err
	}
	r.recorder.Eventf(existing, corev1.EventTypeWarning, reasonMissing,
		"%s Kiln deletes this copy at %s. Builds cannot push, and nodes may be unable to pull, from then on.", why, end.UTC().Format(time.RFC3339))
	return controller.NewRequeueAfter(gracePeriod)
}

func (r *Reconciler) update(ctx context.Context, secret *corev1.Secret) error {
	if _, err := r.secrets.kube.CoreV1().Secrets(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("failed to update Secret: %w", err)
	}
	return nil
}

func (r *Reconciler) delete(ctx context.Context, existing *corev1.Secret) error {
	conditions := metav1.NewUIDPreconditions(string(existing.UID))
	conditions.ResourceVersion = &existing.ResourceVersion
	err := r.secrets.kube.CoreV1().Secrets(existing.Namespace).Delete(ctx, existing.Name, metav1.DeleteOptions{Preconditions: conditions})
	if err != nil && !children.IsGone(err) {
		return fmt.Errorf("failed to delete Secret: %w", err)
	}
	return nil
}

func (r *Reconciler) reportReference(err error) error {
	referenced := IsReferenced(err)
	if referenced == nil {
		return err
	}
	r.recorder.Event(&referenced.By, corev1.EventTypeWarning, reasonReferenced, referenced.Error())
	return controller.NewRequeueAfter(RecheckPeriod)
}

func ignoreLeaving(err error) error {
	if apierrs.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

func makeCopy(source *corev1.Secret, namespace string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:      source.Name,
			Namespace: namespace,
			Labels:    maps.Clone(copyLabels),
		},
		Type: source.Type,
		Data: source.Data,
	}
}

func isCopy(secret *corev1.Secret) bool {
	for key, value := range copyLabels {
		if secret.Labels[key] != value {
			return false
		}
	}
	return true
}
