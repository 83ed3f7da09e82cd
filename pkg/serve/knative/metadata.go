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
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"knative.dev/pkg/controller"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const reasonNotAllowed = "PodMetadataNotAllowed"

// withAllowedMetadata returns the Function with only those labels and annotations of pods
// that the administrator allows. The spec may have been accepted under another
// configuration, or without the webhook.
func withAllowedMetadata(ctx context.Context, fn *v1alpha1.Function) *v1alpha1.Function {
	if describeDropped(ctx, fn) == "" {
		return fn
	}
	allowed := config.FromContextOrDefaults(ctx).Functions
	fn = fn.DeepCopy()
	fn.Spec.Labels = fn.Spec.PodLabels(allowed.AllowedLabels)
	fn.Spec.Annotations = fn.Spec.PodAnnotations(allowed.AllowedAnnotations)
	return fn
}

// describeDropped names the keys that the Function's pods must not have, or returns "".
func describeDropped(ctx context.Context, fn *v1alpha1.Function) string {
	return describeForbidden(ctx, fn.Spec.Labels, fn.Spec.Annotations)
}

func reportDropped(ctx context.Context, fn *v1alpha1.Function) {
	if dropped := describeDropped(ctx, fn); dropped != "" {
		controller.GetEventRecorder(ctx).Eventf(fn, corev1.EventTypeWarning, reasonNotAllowed,
			"The new revision has no %s. Remove them from the spec, or ask an administrator to allow them.", dropped)
	}
}

// describeForbidden names the keys that pods must not have, and where to allow them.
func describeForbidden(ctx context.Context, labels, annotations map[string]string) string {
	allowed := config.FromContextOrDefaults(ctx).Functions
	var parts []string
	for _, kind := range []struct {
		name, key string
		metadata  map[string]string
		allowed   config.KeyPatterns
	}{
		{"annotations", config.AllowedAnnotationsKey, annotations, allowed.AllowedAnnotations},
		{"labels", config.AllowedLabelsKey, labels, allowed.AllowedLabels},
	} {
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(kind.metadata)), func(key string) bool {
			return v1alpha1.AllowsOnPods(kind.allowed, key)
		})
		if len(keys) > 0 {
			parts = append(parts, fmt.Sprintf("%s %s, which %s of the ConfigMap %s does not allow",
				kind.name, strings.Join(keys, ", "), kind.key, config.FunctionsConfigName))
		}
	}
	return strings.Join(parts, ", and ")
}

// hasForbiddenMetadata reports whether the pods of the revision have labels or annotations
// that the administrator does not allow.
func hasForbiddenMetadata(ctx context.Context, revision *servingv1.Revision) bool {
	return describeForbidden(ctx, revision.Labels, revision.Annotations) != ""
}
