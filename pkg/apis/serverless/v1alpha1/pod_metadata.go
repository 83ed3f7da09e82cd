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

package v1alpha1

import (
	"fmt"

	"knative.dev/pkg/kmap"

	"github.com/kiln-dev/kiln/pkg/apis/config"
)

// PodAnnotations returns the annotations of the spec that may reach pods, with the
// administrator's patterns. The spec may be older than the patterns.
func (fs *FunctionSpec) PodAnnotations(allowed config.KeyPatterns) map[string]string {
	return kmap.Filter(fs.Annotations, func(key string) bool { return !AllowsOnPods(allowed, key) })
}

// PodLabels returns the labels of the spec that may reach pods.
func (fs *FunctionSpec) PodLabels(allowed config.KeyPatterns) map[string]string {
	return kmap.Filter(fs.Labels, func(key string) bool { return !AllowsOnPods(allowed, key) })
}

// AllowsOnPods reports whether pods may have a label or an annotation of this key. Keys of
// Kiln and Knative have checks of their own.
func AllowsOnPods(allowed config.KeyPatterns, key string) bool {
	return prefixOwner(key) != "" || allowed.Allow(key)
}

func notAllowed(kind, key string) string {
	return fmt.Sprintf("the %s that pods may have are listed in %s of the ConfigMap %s", kind, key, config.FunctionsConfigName)
}
