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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"knative.dev/pkg/controller"
	pkgreconciler "knative.dev/pkg/reconciler"
	"knative.dev/pkg/system"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
)

// reasonIgnored is the reason of the event of a Secret in Kiln's namespace that
// cannot be used.
const reasonIgnored = "CredentialsIgnored"

// copyLabels mark Kiln's copies. A user adopts a copy by removing one of them.
var copyLabels = map[string]string{
	"app.kubernetes.io/managed-by": "kiln",
	serverless.CredentialsLabelKey: "copy",
}

// Reconciler looks after the copies, a namespace at a time. Its keys are names
// of namespaces.
type Reconciler struct {
	pkgreconciler.LeaderAwareFuncs

	secrets        *Secrets
	functionLister listers.FunctionLister
	store          pkgreconciler.ConfigStore
	recorder       record.EventRecorder

	// told is what was said last of the Secret in Kiln's namespace: it is told once.
	// Only the reconcile of that namespace, of which there is one at a time, uses it.
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

	current := config.FromContextOrDefaults(ctx).Registry.Credentials
	if namespace == system.Namespace() {
		return r.checkSource(ctx, current)
	}
	fns, err := r.functionLister.Functions(namespace).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("failed to list Functions: %w", err)
	}
	errs := []error{r.reconcileCopy(ctx, current, namespace, len(fns) > 0)}
	for _, name := range r.secrets.names() {
		if name != current {
			errs = append(errs, r.reconcileCopy(ctx, name, namespace, false))
		}
	}
	return errors.Join(errs...)
}

// checkSource emits an event if the Secret in Kiln's namespace is invalid.
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

// reconcileCopy creates, refreshes or deletes the copy in a namespace. A Secret
// that is no copy is left alone.
func (r *Reconciler) reconcileCopy(ctx context.Context, name, namespace string, wanted bool) error {
	existing, err := r.secrets.get(ctx, name, namespace)
	if err != nil || existing != nil && !isCopy(existing) {
		return err
	}
	source, err := r.secrets.get(ctx, name, system.Namespace())
	if err != nil {
		return err
	}
	client := r.secrets.kube.CoreV1().Secrets(namespace)
	switch {
	case existing == nil && (!wanted || source == nil):
		return nil
	case !wanted || source == nil:
		err := client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(existing.UID))})
		// A conflict means that another Secret has the name now.
		if err != nil && !apierrs.IsNotFound(err) && !apierrs.IsConflict(err) {
			return fmt.Errorf("failed to delete Secret: %w", err)
		}
		return nil
	case Check(source) != nil:
		return nil
	case existing == nil:
		_, err := r.secrets.create(ctx, makeCopy(source, namespace))
		return ignoreLeaving(err)
	case equality.Semantic.DeepEqual(existing.Data, source.Data):
		return nil
	}
	refreshed := existing.DeepCopy()
	refreshed.Data = source.Data
	if _, err := client.Update(ctx, refreshed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("failed to update Secret: %w", err)
	}
	return nil
}

// ignoreLeaving drops the error of a namespace that is being deleted, with all
// that is in it.
func ignoreLeaving(err error) error {
	if apierrs.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// makeCopy returns the copy for a namespace.
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
