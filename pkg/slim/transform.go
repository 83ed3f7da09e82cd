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
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"knative.dev/pkg/kmap"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// contentLabel is the label of a cached ConfigMap that holds the digest of its
// content. The API server rejects a blank key, so no real label can have it. An own
// map would take more memory than the rest of a ConfigMap.
const contentLabel = ""

// ConfigMap replaces the content of a ConfigMap by a digest. The content is most of
// what the cache would hold of a Function, because it includes the wrapper.
func ConfigMap(obj any) (any, error) {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return obj, nil
	}
	content := ContentDigest(cm)
	ShareMeta(&cm.ObjectMeta)
	if cm.Labels == nil {
		cm.Labels = map[string]string{}
	}
	cm.Labels[contentLabel] = content
	cm.Data, cm.BinaryData = nil, nil
	return cm, nil
}

// ContentDigest returns a digest of the content of a ConfigMap, cached or live.
func ContentDigest(cm *corev1.ConfigMap) string {
	if content, ok := cm.Labels[contentLabel]; ok {
		return content
	}
	digests := make(map[string]string, len(cm.Data))
	for name, text := range cm.Data {
		digests[name] = runtimes.Digest(text)
	}
	return ContextDigest(digests)
}

// ContextDigest returns a digest of a build context: the names and the digests of files.
func ContextDigest(files map[string]string) string {
	var list strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&list, "%q %q\n", name, files[name])
	}
	return runtimes.Digest(list.String())
}

// Function replaces the source and the dependencies of a Function by their digests, and
// drops labels and annotations of others. Otherwise authors could fill the controller's
// memory.
func Function(obj any) (any, error) {
	fn, ok := obj.(*v1alpha1.Function)
	if !ok {
		return obj, nil
	}
	if fn.Spec.Source != "" || fn.Spec.Deps != "" {
		fn.Digests = fn.TextDigests()
		fn.Spec.Source, fn.Spec.Deps = "", ""
	}
	before := fn.Annotations
	fn.Labels, fn.Annotations = nil, nil
	for _, key := range []string{serverless.RebuildAnnotationKey, serverless.RolloutOnChangeAnnotationKey} {
		if value, ok := before[key]; ok {
			fn.Annotations = kmap.Union(fn.Annotations, map[string]string{key: value})
		}
	}
	ShareMeta(&fn.ObjectMeta)
	Share(&fn.Spec.Runtime)
	Share(&fn.Spec.Visibility)
	shareResources(&fn.Spec.Resources)
	ShareStatus(&fn.Status.Status)
	Share(&fn.Status.Phase)
	ShareURL(fn.Status.URL, fn.Status.Address)
	for i := range fn.Status.BuiltImages {
		Share(&fn.Status.BuiltImages[i].BaseDigest)
	}
	return fn, nil
}
