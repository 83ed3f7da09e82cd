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
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

const (
	revisionAnnotation = serverless.RevisionAnnotationKey

	// staleRetry is how soon a Function looks again at a Deployment that the cache lacks.
	staleRetry = time.Second
)

// desired returns the Deployment of the revision that must serve, or why there is none. A
// new wish is a new revision, unless a ReplicaSet has it already. A revision that spec.traffic
// names keeps the template of its ReplicaSet.
func (s *Server) desired(ctx context.Context, fn *v1alpha1.Function, existing *appsv1.Deployment) (*appsv1.Deployment, string, error) {
	desired := MakeDeployment(ctx, fn)
	desired.Spec.Replicas = new(desiredReplicas(ctx, fn, existing))
	if existing == nil {
		existing = &appsv1.Deployment{}
	}
	newest := newestOf(fn, existing)
	pinned := pinnedRevision(fn)
	switch {
	case pinned == "" && wishOf(&existing.Spec.Template) == wishOf(&desired.Spec.Template) && revisionOf(existing) != "":
		setRevision(&desired.Spec.Template, revisionOf(existing))
	case pinned != "" && pinned == revisionOf(existing) && remember(existing) == fn.Status.TemplateHash:
		desired.Spec.Template = existing.Spec.Template
	default:
		sets, err := s.replicaSets(ctx, fn, existing)
		if err != nil {
			return nil, "", err
		}
		if pinned != "" {
			template, missing := templateOf(ctx, pinned, sets)
			if missing != "" {
				return nil, missing, nil
			}
			desired.Spec.Template = template
			break
		}
		revision := revisionWith(wishOf(&desired.Spec.Template), sets)
		if revision == "" {
			newest++
			revision = revisionName(fn, newest)
		}
		setRevision(&desired.Spec.Template, revision)
	}
	desired.Annotations = map[string]string{revisionAnnotation: strconv.Itoa(newest)}
	return desired, "", nil
}

// pinnedRevision returns the revision that spec.traffic names, or "".
func pinnedRevision(fn *v1alpha1.Function) string {
	if len(fn.Spec.Traffic) == 1 {
		return fn.Spec.Traffic[0].RevisionName
	}
	return ""
}

// isOf reports whether the Deployment runs the desired revision.
func isOf(existing, desired *appsv1.Deployment) bool {
	return revisionOf(existing) == revisionOf(desired) && wishOf(&existing.Spec.Template) == wishOf(&desired.Spec.Template)
}

// specOf returns the spec to write: the desired one, with the live template if that stays.
func specOf(live, desired *appsv1.Deployment, keeps bool) *appsv1.DeploymentSpec {
	spec := desired.Spec.DeepCopy()
	if keeps {
		spec.Template = live.Spec.Template
	}
	// It cannot change.
	spec.Selector = live.Spec.Selector
	return spec
}

// replicaSets returns the ReplicaSets of the Deployment, past any cache, the oldest first.
func (s *Server) replicaSets(ctx context.Context, fn *v1alpha1.Function, deployment *appsv1.Deployment) ([]appsv1.ReplicaSet, error) {
	if deployment.UID == "" {
		return nil, nil
	}
	all, err := s.allReplicaSets(ctx, fn)
	return slices.DeleteFunc(all, func(set appsv1.ReplicaSet) bool { return !metav1.IsControlledBy(&set, deployment) }), err
}

// allReplicaSets is replicaSets of all Deployments that the Function has had.
func (s *Server) allReplicaSets(ctx context.Context, fn *v1alpha1.Function) ([]appsv1.ReplicaSet, error) {
	list, err := s.Client.AppsV1().ReplicaSets(fn.Namespace).List(ctx, metav1.ListOptions{LabelSelector: children.SelectorOf(fn).String()})
	if err != nil {
		return nil, fmt.Errorf("failed to list ReplicaSets: %w", err)
	}
	all := slices.DeleteFunc(list.Items, func(set appsv1.ReplicaSet) bool { return set.Labels[serverless.RevisionLabelKey] == "" })
	slices.SortStableFunc(all, func(a, b appsv1.ReplicaSet) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return all, nil
}

// revisionWith returns the revision with that wish, or "".
func revisionWith(wish string, sets []appsv1.ReplicaSet) string {
	for i := range sets {
		if wishOf(&sets[i].Spec.Template) == wish {
			return sets[i].Labels[serverless.RevisionLabelKey]
		}
	}
	return ""
}

// templateOf returns the template of a revision, or why it cannot serve. Where somebody has
// edited the Deployment, the oldest ReplicaSet of the revision is Kiln's.
func templateOf(ctx context.Context, revision string, sets []appsv1.ReplicaSet) (corev1.PodTemplateSpec, string) {
	var names []string
	for i := range sets {
		name, template := sets[i].Labels[serverless.RevisionLabelKey], sets[i].Spec.Template.DeepCopy()
		if name != revision {
			names = append(names, name)
			continue
		}
		delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		if refused := describeRefused(ctx, template); refused != "" {
			return corev1.PodTemplateSpec{}, fmt.Sprintf("spec.traffic names revision %s, %s. Name another revision. The previous one keeps serving.", revision, refused)
		}
		return *template, ""
	}
	have := "it has no others. Remove spec.traffic, or set latestRevision: true"
	if len(names) > 0 {
		have = "it has " + strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ", ") + ". Name one of these, or set latestRevision: true. The previous one keeps serving"
	}
	return corev1.PodTemplateSpec{}, fmt.Sprintf("spec.traffic names a revision that the Function does not have: %s; %s.", revision, have)
}

// describeRefused returns why no pod may have the template now, or "".
func describeRefused(ctx context.Context, template *corev1.PodTemplateSpec) string {
	if secret := podspec.ReservedSecretOf(ctx, &template.Spec); secret != "" {
		return fmt.Sprintf("which uses Secret %s. It has the credentials of the image registry, and no Function may use it", secret)
	}
	if forbidden := podspec.DescribeForbidden(ctx, withoutKiln(template.Labels), withoutKiln(template.Annotations)); forbidden != "" {
		return "whose pods have " + forbidden
	}
	return ""
}

func withoutKiln(pairs map[string]string) map[string]string {
	pairs = maps.Clone(pairs)
	maps.DeleteFunc(pairs, func(key, _ string) bool {
		return strings.HasPrefix(key, serverless.GroupName+"/") || key == children.ManagedByLabelKey
	})
	return pairs
}
