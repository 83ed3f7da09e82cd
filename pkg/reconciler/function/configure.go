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
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// configure creates the ConfigMap that the build reads, and deletes those of earlier
// builds.
func (r *Reconciler) configure(ctx context.Context, fn *v1alpha1.Function, want plan, before *v1alpha1.FunctionStatus) error {
	desired := MakeConfigMap(fn, want.request.Tag, nil)
	existing, from, err := r.getOrCreateConfigMap(ctx, fn, want, desired)
	if err != nil {
		return err
	}
	switch children.OwnershipOf(existing, fn) {
	case children.Foreign:
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonNotOwned, children.NotOwnedFormat, "ConfigMap", existing.Name)
		return children.RetryName()
	case children.Leaving:
		fn.Status.MarkConfigurationUnknown(v1alpha1.ReasonWaitingForDeletion, "ConfigMap %s is being deleted.", existing.Name)
		return from.AwaitDeletion("ConfigMap", existing.Name)
	}
	if slim.ContentDigest(existing) != slim.ContextDigest(want.files) {
		// Kiln's ConfigMaps are immutable, so somebody else has made this one under
		// Kiln's name. Its deletion wakes the Function.
		if err := r.deleteConfigMap(ctx, existing); err != nil {
			return err
		}
		fn.Status.MarkConfigurationUnknown(v1alpha1.ReasonWaitingForDeletion, "ConfigMap %s was changed and is being replaced.", existing.Name)
		return nil
	}
	if _, err = children.RestoreCached(ctx, r.kube.CoreV1().ConfigMaps(fn.Namespace), "ConfigMap", existing, desired, fn); err != nil {
		return err
	}
	if err := r.deleteOtherConfigMaps(ctx, fn, existing.Name); err != nil {
		return err
	}
	markConfigured(fn, existing.Name, want.request.Tag, before)
	return nil
}

// MakeConfigMap returns the ConfigMap with the files of the image of the tag. It is
// immutable and there is one per tag, so no build can make another image than its tag
// names.
func MakeConfigMap(fn *v1alpha1.Function, tag string, files map[string]string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		ObjectMeta: children.ObjectMeta(fn, children.ConfigMapName(fn, tag)),
		Immutable:  new(true),
		Data:       files,
	}
	cm.Labels[serverless.ImageTagLabelKey] = tag
	return cm
}

// getOrCreateConfigMap returns the ConfigMap of the desired name, and adds the files to one
// that it creates. A ConfigMap that has lost Kiln's label exists, but no lister shows it.
func (r *Reconciler) getOrCreateConfigMap(ctx context.Context, fn *v1alpha1.Function, want plan, desired *corev1.ConfigMap) (*corev1.ConfigMap, children.Origin, error) {
	existing, err := r.configMapLister.ConfigMaps(fn.Namespace).Get(desired.Name)
	if err == nil {
		return existing, children.Listed, nil
	}
	if !apierrs.IsNotFound(err) {
		return nil, children.Listed, fmt.Errorf("failed to get ConfigMap: %w", err)
	}
	if err := r.fill(ctx, fn, want, desired); err != nil {
		return nil, children.Listed, err
	}
	existing, from, err := children.CreateOrGet(ctx, r.kube.CoreV1().ConfigMaps(fn.Namespace), "ConfigMap", desired)
	if err == nil || from != children.Created {
		return existing, from, err
	}
	if children.IsRejected(err) {
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonConfigMapFailed, "ConfigMap %s cannot be created: %v", desired.Name, err)
	}
	return nil, from, children.RetryError(fmt.Errorf("failed to create ConfigMap: %w", err))
}

// fill adds the files of the build context to the ConfigMap.
func (r *Reconciler) fill(ctx context.Context, fn *v1alpha1.Function, want plan, cm *corev1.ConfigMap) (err error) {
	if err := r.complete(ctx, fn); err != nil {
		return err
	}
	if cm.Data, err = want.buildContext(fn); err != nil {
		return fmt.Errorf("failed to make build context: %w", err)
	}
	if slim.ContentDigest(cm) != slim.ContextDigest(want.files) {
		// No image may contain other files than its tag names.
		return fmt.Errorf("failed to make build context: the files differ from those of image tag %s", want.request.Tag)
	}
	return nil
}

func (r *Reconciler) deleteOtherConfigMaps(ctx context.Context, fn *v1alpha1.Function, name string) error {
	all, err := r.configMapLister.ConfigMaps(fn.Namespace).List(children.SelectorOf(fn))
	if err != nil {
		return fmt.Errorf("failed to list ConfigMaps: %w", err)
	}
	for _, cm := range all {
		if cm.Name == name || cm.DeletionTimestamp != nil || !metav1.IsControlledBy(cm, fn) {
			continue
		}
		if err := r.deleteConfigMap(ctx, cm); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) deleteConfigMap(ctx context.Context, cm *corev1.ConfigMap) error {
	err := r.kube.CoreV1().ConfigMaps(cm.Namespace).Delete(ctx, cm.Name, children.DeleteOptions(cm))
	if err != nil && !children.IsGone(err) {
		return fmt.Errorf("failed to delete ConfigMap: %w", err)
	}
	return nil
}

// markConfigured marks the configuration as ready. The reason stays for as long as the
// ConfigMap does. It derives from the earlier status, because the earlier ConfigMap may
// be gone already.
func markConfigured(fn *v1alpha1.Function, name, tag string, before *v1alpha1.FunctionStatus) {
	reason, message := v1alpha1.ReasonConfigMapCreated, fmt.Sprintf("ConfigMap %s holds the build context.", name)
	switch was := before.GetCondition(v1alpha1.FunctionConditionConfigurationReady); {
	case was.IsTrue() && was.Message == message:
		reason = was.Reason
	case was.IsTrue(), before.Build != nil && before.Build.ImageTag != tag:
		reason = v1alpha1.ReasonConfigMapUpdated
	}
	fn.Status.MarkConfigurationReady(reason, "%s", message)
}
