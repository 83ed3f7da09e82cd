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

package podspec

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/kmap"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/pods"
)

// Annotations returns the annotations of the Function's pods.
func Annotations(fn *v1alpha1.Function) map[string]string {
	if fn.Status.ContentHash == "" {
		return fn.Spec.Annotations
	}
	return kmap.Union(fn.Spec.Annotations, map[string]string{serverless.ContentHashAnnotationKey: fn.Status.ContentHash})
}

const reasonNotAllowed = "PodMetadataNotAllowed"

// WithAllowedMetadata returns the Function with only those labels and annotations of pods
// that the administrator allows. The spec may have been accepted under another
// configuration, or without the webhook.
func WithAllowedMetadata(ctx context.Context, fn *v1alpha1.Function) *v1alpha1.Function {
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
	return DescribeForbidden(ctx, fn.Spec.Labels, fn.Spec.Annotations)
}

// ReportDropped reports in an event which keys the pods of a new revision do not have.
func ReportDropped(ctx context.Context, fn *v1alpha1.Function) {
	if dropped := describeDropped(ctx, fn); dropped != "" {
		controller.GetEventRecorder(ctx).Eventf(fn, corev1.EventTypeWarning, reasonNotAllowed,
			"The new revision has no %s. Remove them from the spec, or ask an administrator to allow them.", dropped)
	}
}

// DescribeForbidden names the keys that pods must not have, and where to allow them.
func DescribeForbidden(ctx context.Context, labels, annotations map[string]string) string {
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

// HasOwnDockerfile reports whether the author's own Dockerfile makes the image, which then
// has no wrapper.
func HasOwnDockerfile(ctx context.Context, fn *v1alpha1.Function) bool {
	runtime, _ := config.FromContextOrDefaults(ctx).Runtimes[fn.Spec.Runtime].Find()
	return runtime.IsOwnDockerfile()
}

// PullSecrets returns the names of the Secrets with which nodes pull images. They do not
// depend on whether the Secret exists, so a new Secret replaces no pod.
func PullSecrets(ctx context.Context) []string {
	if name := config.FromContextOrDefaults(ctx).Registry.Credentials; name != "" {
		return []string{name}
	}
	return nil
}

// ReservedSecretOf returns the Secret with registry credentials that the pod names, or "".
func ReservedSecretOf(ctx context.Context, pod *corev1.PodSpec) string {
	for _, name := range config.FromContextOrDefaults(ctx).Registry.ReservedSecrets() {
		if pods.NamesSecret(pod, name) {
			return name
		}
	}
	return ""
}
