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

package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Keys of config-functions for the metadata of pods. Messages name them.
const (
	AllowedAnnotationsKey = "allowed-pod-annotations"
	AllowedLabelsKey      = "allowed-pod-labels"
)

// KeyPatterns are patterns of the keys of labels or annotations: example.com/name, or
// example.com/* for all names of a prefix.
type KeyPatterns []string

// Allow reports whether a pattern matches the key. Keys without a prefix are private to
// users, as Kubernetes has it, so no system gives them a meaning. They are always allowed.
func (p KeyPatterns) Allow(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return !ok || slices.Contains(p, key) || slices.Contains(p, prefix+"/*")
}

func parseKeyPatterns(s string) (KeyPatterns, error) {
	var patterns KeyPatterns
	for pattern := range strings.SplitSeq(s, ",") {
		pattern = strings.TrimSpace(pattern)
		if pattern == "" {
			continue
		}
		prefix, name, ok := strings.Cut(pattern, "/")
		if !ok || len(validation.IsDNS1123Subdomain(prefix)) > 0 || name != "*" && len(validation.IsQualifiedName(pattern)) > 0 {
			return nil, fmt.Errorf("%q is neither a key such as example.com/name nor a prefix such as example.com/*", pattern)
		}
		patterns = append(patterns, pattern)
	}
	return patterns, nil
}
