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
	"maps"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
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

// TestShareLabels wants the labels that name the owner to share its texts, and none to be
// added where the owner has none either.
func TestShareLabels(t *testing.T) {
	nameless := metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Function"}}}
	shareMeta(&nameless)
	if len(nameless.Labels) != 0 {
		t.Errorf("labels = %v, want none", nameless.Labels)
	}
	owner := metav1.OwnerReference{Name: "greeter", UID: "1-2-3"}
	meta := metav1.ObjectMeta{
		OwnerReferences: []metav1.OwnerReference{owner},
		Labels: map[string]string{
			serverless.FunctionNameLabelKey: strings.Clone(owner.Name), serverless.FunctionUIDLabelKey: strings.Clone(string(owner.UID)), "app": "other",
		},
	}
	want := maps.Clone(meta.Labels)
	shareMeta(&meta)
	if diff := cmp.Diff(want, meta.Labels); diff != "" {
		t.Error("labels (-want, +got):", diff)
	}
	for key, text := range map[string]string{serverless.FunctionNameLabelKey: owner.Name, serverless.FunctionUIDLabelKey: string(owner.UID)} {
		if unsafe.StringData(meta.Labels[key]) != unsafe.StringData(text) {
			t.Errorf("%s %q is there twice", key, text)
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
