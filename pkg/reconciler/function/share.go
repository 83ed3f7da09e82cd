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
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/serving/pkg/apis/serving"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
)

// Each object that comes from the API server has texts of its own, though thousands
// have the same. Nothing changes what is in a cache, so that they can share them.
var (
	commonTexts     = pool[string]{known: map[string]string{}}
	commonResources = pool[corev1.ResourceList]{known: map[string]corev1.ResourceList{}}
)

// mostCommon bounds a pool: people may make up as many labels as they like. What comes
// later than that is not shared.
const mostCommon = 1 << 12

// pool has what is shared.
type pool[T any] struct {
	mu    sync.Mutex
	known map[string]T
}

// get returns what came first by that key.
func (p *pool[T]) get(key string, value T) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.known[key]; ok {
		return known
	}
	if len(p.known) < mostCommon {
		p.known[key] = value
	}
	return value
}

// shareText has texts be shared of which there are few.
func shareText[T ~string](texts ...*T) {
	for _, text := range texts {
		*text = T(commonTexts.get(string(*text), string(*text)))
	}
}

// commonValues are the keys of labels and annotations of which there are few values.
var commonValues = []string{
	resources.ManagedByLabelKey, serverless.BuildReasonAnnotationKey, serving.CreatorAnnotation, serving.UpdaterAnnotation,
}

// shareMeta has the object share what others have, too, and drops what nothing reads.
func shareMeta(o *metav1.ObjectMeta) {
	o.ManagedFields = nil
	shareText(&o.Namespace)
	o.Labels, o.Annotations = shareKeys(o.Labels), shareKeys(o.Annotations)
	for i := range o.OwnerReferences {
		owner := &o.OwnerReferences[i]
		shareText(&owner.APIVersion, &owner.Kind)
		shareLabel(o.Labels, serverless.FunctionNameLabelKey, owner.Name)
		shareLabel(o.Labels, serverless.FunctionUIDLabelKey, string(owner.UID))
	}
}

// shareLabel has the label share the text of its value.
func shareLabel(labels map[string]string, key, text string) {
	if value, ok := labels[key]; ok && value == text {
		labels[key] = text
	}
}

// shareKeys returns labels, or annotations, with keys that are shared.
func shareKeys(pairs map[string]string) map[string]string {
	if len(pairs) == 0 {
		return nil
	}
	shared := make(map[string]string, len(pairs))
	for key, value := range pairs {
		if slices.Contains(commonValues, key) {
			shareText(&value)
		}
		shareText(&key)
		shared[key] = value
	}
	return shared
}

// shareStatus has a status share the words of its conditions.
func shareStatus(status *duckv1.Status) {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		shareText(&c.Type)
		shareText(&c.Status)
		shareText(&c.Reason)
	}
}

// shareURL has an address share the URL that it is for.
func shareURL(url *apis.URL, address *duckv1.Addressable) {
	if url != nil && address != nil && address.URL != nil && *url == *address.URL {
		address.URL = url
	}
}

// shareResources has Functions share what they ask for: most have what the
// configuration says.
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
	return commonResources.get(key.String(), list)
}
