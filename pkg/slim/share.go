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

package slim

import (
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/children"
)

// Each decoded object has its own copies of strings that thousands of objects repeat.
// Cached objects are immutable, so they can share one copy.
var (
	sharedStrings   = pool[string]{known: map[string]string{}}
	sharedResources = pool[corev1.ResourceList]{known: map[string]corev1.ResourceList{}}
)

// poolSize bounds a pool, because users can invent any number of labels. Values
// that come later are not shared.
const poolSize = 1 << 12

type pool[T any] struct {
	mu    sync.Mutex
	known map[string]T
}

func (p *pool[T]) get(key string, value T) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.known[key]; ok {
		return known
	}
	if len(p.known) < poolSize {
		p.known[key] = value
	}
	return value
}

// Share replaces each string by its shared copy. It is for strings with few values.
func Share[T ~string](values ...*T) {
	for _, value := range values {
		*value = T(sharedStrings.get(string(*value), string(*value)))
	}
}

var sharedValues = []string{
	children.ManagedByLabelKey, serverless.BuildReasonAnnotationKey,
	// Serving writes the user who created and who last changed a Service.
	"serving.knative.dev/creator", "serving.knative.dev/lastModifier",
}

// ShareMeta shares the strings of the metadata and drops the managed fields.
func ShareMeta(o *metav1.ObjectMeta) {
	o.ManagedFields = nil
	Share(&o.Namespace)
	o.Labels, o.Annotations = shareKeys(o.Labels), shareKeys(o.Annotations)
	for i := range o.OwnerReferences {
		owner := &o.OwnerReferences[i]
		Share(&owner.APIVersion, &owner.Kind)
		shareLabel(o.Labels, serverless.FunctionNameLabelKey, owner.Name)
		shareLabel(o.Labels, serverless.FunctionUIDLabelKey, string(owner.UID))
	}
}

func shareLabel(labels map[string]string, key, text string) {
	if value, ok := labels[key]; ok && value == text {
		labels[key] = text
	}
}

func shareKeys(pairs map[string]string) map[string]string {
	if len(pairs) == 0 {
		return nil
	}
	shared := make(map[string]string, len(pairs))
	for key, value := range pairs {
		if slices.Contains(sharedValues, key) {
			Share(&value)
		}
		Share(&key)
		shared[key] = value
	}
	return shared
}

// ShareStatus shares the types, statuses and reasons of the conditions.
func ShareStatus(status *duckv1.Status) {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		Share(&c.Type)
		Share(&c.Status)
		Share(&c.Reason)
	}
}

// ShareURL makes the address share the URL if both are equal.
func ShareURL(url *apis.URL, address *duckv1.Addressable) {
	if url != nil && address != nil && address.URL != nil && *url == *address.URL {
		address.URL = url
	}
}

// shareResources shares resource lists, since most Functions have the defaults.
func shareResources(of *corev1.ResourceRequirements) {
	of.Requests, of.Limits = shareList(of.Requests), shareList(of.Limits)
}

func shareList(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		key.WriteString(string(name) + "=" + quantity.String() + ",")
	}
	return sharedResources.get(key.String(), list)
}
