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
	"k8s.io/apimachinery/pkg/api/equality"
	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/pkg/kmap"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
)

// Change is the change that makes a Service as desired.
type Change int

const (
	// NoChange means that the Service is as desired.
	NoChange Change = iota
	// RouteChange means that the traffic or the visibility changes.
	RouteChange
	// RevisionChange means that the revision template is written, which may make a revision.
	RevisionChange
)

// MergeService returns a copy of the existing Service with the desired state, and what
// that changes. Foreign labels and annotations stay, since Serving forbids changes of
// its own. The revision template belongs to Kiln alone: it is written where it differs
// from the remembered one. Otherwise it stays, shortened if the existing one is.
func MergeService(desired, existing *servingv1.Service, remembered string) (*servingv1.Service, Change) {
	merged, change := MergeRoute(desired, existing)
	if desiredHashOf(existing) != desiredHashOf(desired) || Remember(existing) != remembered {
		merged.Annotations = kmap.Union(existing.Annotations, desired.Annotations)
		merged.Spec.Template = desired.Spec.Template
		change = RevisionChange
	}
	return merged, change
}

// MergeRoute is MergeService without the revision template, which stays.
func MergeRoute(desired, existing *servingv1.Service) (*servingv1.Service, Change) {
	merged := existing.DeepCopy()
	visibility := desired.Labels[netapi.VisibilityLabelKey]
	if equality.Semantic.DeepEqual(existing.Spec.RouteSpec, desired.Spec.RouteSpec) &&
		existing.Labels[netapi.VisibilityLabelKey] == visibility {
		return merged, NoChange
	}
	merged.Spec.RouteSpec = desired.Spec.RouteSpec
	merged.Labels = kmap.Union(existing.Labels, desired.Labels)
	if visibility == "" {
		delete(merged.Labels, netapi.VisibilityLabelKey)
	}
	return merged, RouteChange
}

// KeepRoute gives the desired Service the traffic and visibility of the existing one.
func KeepRoute(desired, existing *servingv1.Service) {
	desired.Spec.RouteSpec = existing.Spec.RouteSpec
	if visibility, ok := existing.Labels[netapi.VisibilityLabelKey]; ok {
		desired.Labels[netapi.VisibilityLabelKey] = visibility
	} else {
		delete(desired.Labels, netapi.VisibilityLabelKey)
	}
}
