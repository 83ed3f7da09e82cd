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
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// decodedFunction returns a copy that shares nothing, as the cache has it.
func decodedFunction(t *testing.T, fn *v1alpha1.Function) *v1alpha1.Function {
	t.Helper()
	text, err := json.Marshal(fn)
	if err != nil {
		t.Fatal(err)
	}
	read := &v1alpha1.Function{}
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	return cached(read, withoutApplied)
}

// TestShare wants Functions in the cache to be as they are, and to share what they
// have in common.
func TestShare(t *testing.T) {
	live := readyFunction()
	a, b := decodedFunction(t, live), decodedFunction(t, live)
	want := live.DeepCopy()
	want.ManagedFields, want.Annotations = nil, nil
	if !equality.Semantic.DeepEqual(want, a) {
		t.Errorf("what is kept (-want, +got): %s", cmp.Diff(want, a))
	}
	if a.Status.Address.URL != a.Status.URL {
		t.Error("the address has a URL of its own")
	}
	for name, texts := range map[string][2]string{
		"namespace": {a.Namespace, b.Namespace},
		"runtime":   {a.Spec.Runtime, b.Spec.Runtime},
		"condition": {string(a.Status.Conditions[0].Type), string(b.Status.Conditions[0].Type)},
		"reason":    {a.Status.Conditions[0].Reason, b.Status.Conditions[0].Reason},
	} {
		if unsafe.StringData(texts[0]) != unsafe.StringData(texts[1]) {
			t.Errorf("%s %q is there twice", name, texts[0])
		}
	}
	for name, lists := range map[string][2]corev1.ResourceList{
		"requests": {a.Spec.Resources.Requests, b.Spec.Resources.Requests},
		"limits":   {a.Spec.Resources.Limits, b.Spec.Resources.Limits},
	} {
		if reflect.ValueOf(lists[0]).Pointer() != reflect.ValueOf(lists[1]).Pointer() {
			t.Errorf("%s are there twice", name)
		}
	}
}

// TestShareList wants lists to be shared only where all of them is the same.
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

// TestPoolIsBounded wants a pool to go on, but not to grow, when there is too much.
func TestPoolIsBounded(t *testing.T) {
	p := pool[string]{known: map[string]string{}}
	for i := range 2 * mostCommon {
		if text := fmt.Sprint(i); p.get(text, text) != text {
			t.Fatalf("get(%q) returns another", text)
		}
	}
	if len(p.known) != mostCommon {
		t.Errorf("the pool has %d texts, want %d", len(p.known), mostCommon)
	}
}
