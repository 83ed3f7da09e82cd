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
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestShareList checks that only equal lists are shared.
func TestShareList(t *testing.T) {
	for _, list := range []corev1.ResourceList{
		nil,
		{corev1.ResourceCPU: resource.MustParse("50m")},
		{corev1.ResourceCPU: resource.MustParse("50")},
		{corev1.ResourceMemory: resource.MustParse("50")},
		{corev1.ResourceCPU: resource.MustParse("50"), corev1.ResourceMemory: resource.MustParse("1Gi")},
	} {
		if got := shareList(list.DeepCopy()); !equality.Semantic.DeepEqual(list, got) {
			t.Errorf("shareList(%v) = %v", list, got)
		}
	}
}

// TestPoolIsBounded checks that a full pool works and does not grow.
func TestPoolIsBounded(t *testing.T) {
	p := pool[string]{known: map[string]string{}}
	for i := range 2 * poolSize {
		if text := strconv.Itoa(i); p.get(text, text) != text {
			t.Fatalf("get(%q) returns another", text)
		}
	}
	if len(p.known) != poolSize {
		t.Errorf("the pool has %d texts, want %d", len(p.known), poolSize)
	}
}
