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

package knative

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

func namedRevisions(svc *servingv1.Service) []string {
	var names []string
	for _, target := range svc.Spec.Traffic {
		if target.RevisionName != "" && !slices.Contains(names, target.RevisionName) {
			names = append(names, target.RevisionName)
		}
	}
	return names
}

// missingRevisions returns which revisions of the desired traffic do not exist or may not
// be used, or "". It looks only when the traffic is about to change. Serving reports it afterwards.
func (s *Server) missingRevisions(ctx context.Context, fn *v1alpha1.Function, desired *servingv1.Service) (string, error) {
	wanted := namedRevisions(desired)
	if len(wanted) == 0 {
		return "", nil
	}
	existing, err := s.Services.Services(fn.Namespace).Get(desired.Name)
	switch {
	case apierrs.IsNotFound(err):
		return describeMissing(wanted, nil), nil
	case err != nil:
		return "", fmt.Errorf("failed to get Service: %w", err)
	case equality.Semantic.DeepEqual(existing.Spec.RouteSpec, desired.Spec.RouteSpec):
		return "", nil
	}
	// Revisions of a deleted Service of that name may still exist. They will go, and no
	// event would report that.
	list, err := s.Client.ServingV1().Revisions(fn.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(labels.Set{serving.ServiceUIDLabelKey: string(existing.UID)}).String(),
	})
	if err != nil {
		return "", fmt.Errorf("failed to list Revisions: %w", err)
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			names = append(names, list.Items[i].Name)
		}
	}
	if message := describeRefused(ctx, wanted, list.Items); message != "" {
		return message, nil
	}
	return describeMissing(wanted, names), nil
}

func describeMissing(wanted, names []string) string {
	missing := slices.DeleteFunc(slices.Clone(wanted), func(name string) bool { return slices.Contains(names, name) })
	if len(missing) == 0 {
		return ""
	}
	slices.Sort(names)
	have := "it has none yet, and gets none until spec.traffic is corrected. Remove spec.traffic, or set latestRevision: true"
	if len(names) > 0 {
		have = "it has " + strings.Join(names, ", ") + ". Name one of these, or set latestRevision: true. The previous traffic stays in effect"
	}
	return fmt.Sprintf("spec.traffic names revisions that the Function does not have: %s; %s.", strings.Join(missing, ", "), have)
}

// restoreTemplate gives the Service the last deployed revision template, if a revision
// still has it and may be used. It reports whether it did.
func (s *Server) restoreTemplate(ctx context.Context, fn *v1alpha1.Function, svc *servingv1.Service) (bool, error) {
	if fn.Status.TemplateHash == "" {
		return false, nil
	}
	list, err := s.Client.ServingV1().Revisions(fn.Namespace).List(ctx, metav1.ListOptions{LabelSelector: children.SelectorOf(fn).String()})
	if err != nil {
		return false, fmt.Errorf("failed to list Revisions: %w", err)
	}
	allowed := slices.DeleteFunc(append(list.Items, s.keptTemplate(fn)...), func(revision servingv1.Revision) bool {
		return podspec.ReservedSecretOf(ctx, &revision.Spec.PodSpec) != "" ||
			podspec.DescribeForbidden(ctx, revision.Labels, revision.Annotations) != ""
	})
	return RestoreTemplate(svc, allowed, fn.Status.TemplateHash), nil
}

// revisionFailed is the reason of a Configuration whose newest revision has failed.
const revisionFailed = "RevisionFailed"

// excuse reports whether a revision that Serving calls failed has not failed, and marks
// it as waiting. Serving counts an unschedulable pod as a failure, and reports that for
// minutes after a node has taken the pod.
func (s *Server) excuse(ctx context.Context, fn *v1alpha1.Function, name string, state pods.State) (bool, error) {
	revision, err := s.Client.ServingV1().Revisions(fn.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("failed to get Revision: %w", err)
	}
	available := revision.Status.GetCondition(servingv1.RevisionConditionResourcesAvailable)
	unschedulable := available.IsFalse() && available.Reason == corev1.PodReasonUnschedulable
	switch {
	case unschedulable && state.RunningSince.IsZero():
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonMinimumReplicasUnavailable, "Revision %s: %s", name, available.Message)
	case unschedulable || !revision.Status.GetCondition(servingv1.RevisionConditionReady).IsFalse():
		fn.Status.MarkRunningUnknown(v1alpha1.ReasonServiceWaiting, "Revision %s is not ready yet.", name)
	default:
		return false, nil
	}
	return true, nil
}
