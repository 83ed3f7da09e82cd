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
	"context"
	"errors"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

// Hold keeps the last deployed image serving while no newer image is available. It applies
// what needs none: the number of pods, the autoscaler, and the address. An invalid spec
// changes nothing.
func (s *Server) Hold(ctx context.Context, fn *v1alpha1.Function) error {
	if fn.IsAccepted() {
		refuse(fn)
	}
	return s.hold(ctx, fn)
}

func (s *Server) hold(ctx context.Context, fn *v1alpha1.Function) error {
	deployment, err := s.cached(fn)
	if err == nil && deployment == nil {
		deployment, err = s.recreate(ctx, fn)
	}
	// Apply reports a Deployment of somebody else.
	if err != nil || deployment == nil || children.OwnershipOf(deployment, fn) != children.Owned {
		return err
	}
	if deployment, err = s.restore(ctx, fn, deployment); err != nil {
		return err
	}
	propagate(ctx, fn, deployment)
	if !fn.IsAccepted() {
		return nil
	}
	err = s.applyOthers(ctx, fn)
	if b, ok := errors.AsType[*blocked](err); ok {
		if b.ownership == children.Foreign {
			return nil
		}
		return b.from.AwaitDeletion(b.kind, b.name)
	}
	return err
}

// recreate creates a deleted Deployment with its last template. Without its ReplicaSet, the
// template is that of the spec. It returns the Deployment that has the name, or nil.
func (s *Server) recreate(ctx context.Context, fn *v1alpha1.Function) (*appsv1.Deployment, error) {
	if fn.Status.TemplateHash == "" || fn.Status.Image == "" || !fn.IsAccepted() {
		return nil, nil
	}
	// The garbage collector deletes the ReplicaSets some time after the Deployment.
	sets, err := s.allReplicaSets(ctx, fn)
	if err != nil {
		return nil, err
	}
	desired := MakeDeployment(ctx, fn)
	desired.Spec.Replicas = new(desiredReplicas(ctx, fn, nil))
	last := lastTemplate(ctx, fn, sets)
	switch {
	case last != nil:
		desired.Spec.Template = *last
	case pinnedRevision(fn) != "":
		return nil, nil
	default:
		setRevision(&desired.Spec.Template, revisionName(fn, newestOf(fn, desired)+1))
	}
	desired.Annotations = map[string]string{revisionAnnotation: strconv.Itoa(newestOf(fn, desired))}
	created, from, err := children.CreateOrGet(ctx, s.Client.AppsV1().Deployments(fn.Namespace), deploymentKind, desired)
	switch {
	case err != nil:
		return nil, retryError(fmt.Errorf("failed to create Deployment: %w", err))
	case from != children.Created:
		// The cache is stale, or somebody has removed the label.
		return created, nil
	}
	fn.Status.TemplateHash = remember(created)
	return created, nil
}

// lastTemplate returns the remembered template, if a ReplicaSet still has it and pods may
// have it now, or nil.
func lastTemplate(ctx context.Context, fn *v1alpha1.Function, sets []appsv1.ReplicaSet) *corev1.PodTemplateSpec {
	for i := range sets {
		template := sets[i].Spec.Template.DeepCopy()
		delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		if wishOf(template)+"."+podspec.Hash(*template) == fn.Status.TemplateHash && describeRefused(ctx, template) == "" {
			return template
		}
	}
	return nil
}

// restore gives the Deployment the last template and the metadata that somebody else has
// changed, and the number of pods of the spec. It returns the Deployment as it is afterwards.
func (s *Server) restore(ctx context.Context, fn *v1alpha1.Function, existing *appsv1.Deployment) (*appsv1.Deployment, error) {
	desired := &appsv1.Deployment{ObjectMeta: objectMeta(fn)}
	replicas := replicasOf(existing)
	if fn.IsAccepted() {
		replicas = desiredReplicas(ctx, fn, existing)
	}
	var last *corev1.PodTemplateSpec
	if isEdited(existing, fn.Status.TemplateHash) {
		sets, err := s.replicaSets(ctx, fn, existing)
		if err != nil {
			return nil, err
		}
		last = lastTemplate(ctx, fn, sets)
	}
	if !children.RestoreMeta(existing.DeepCopy(), desired, fn) && last == nil && replicas == replicasOf(existing) {
		return existing, nil
	}
	if err := s.CheckCurrent(ctx, fn); err != nil {
		return nil, err
	}
	deployments := s.Client.AppsV1().Deployments(fn.Namespace)
	live, err := deployments.Get(ctx, existing.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to get Deployment: %w", err)
	}
	if live.ResourceVersion != existing.ResourceVersion {
		// The watch will wake the Function.
		return existing, nil
	}
	children.RestoreMeta(live, desired, fn)
	live.Spec.Replicas = &replicas
	if last != nil {
		live.Spec.Template = *last
	}
	restored, err := deployments.Update(ctx, live, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to update Deployment: %w", err)
	}
	if last != nil {
		fn.Status.TemplateHash = remember(restored)
	}
	return restored, nil
}
