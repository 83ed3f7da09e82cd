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
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func cached[T interface{ DeepCopy() T }](object T, transform cache.TransformFunc) T {
	kept, err := transform(object.DeepCopy())
	if err != nil {
		panic(err)
	}
	return kept.(T)
}

func TestConfigMap(t *testing.T) {
	live := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "controller"}}},
		Data:       map[string]string{"wrapper": strings.Repeat("x", 1<<16), "source": "y"},
		BinaryData: map[string][]byte{"z": {1}},
	}
	want := ContentDigest(live)
	kept := cached(live, ConfigMap)
	if kept.Size() > 1<<8 {
		t.Errorf("of the ConfigMap %d bytes are kept", kept.Size())
	}
	if got := ContentDigest(kept); got != want {
		t.Errorf("digest = %s, want %s", got, want)
	}
	if diff := cmp.Diff(kept, cached(kept, ConfigMap)); diff != "" {
		t.Errorf("what is kept changes when it is kept again (-want, +got): %s", diff)
	}
}

func TestContentDigest(t *testing.T) {
	seen := map[string]map[string]string{}
	for _, data := range []map[string]string{
		nil, {"a": ""}, {"a": "b"}, {"ab": ""}, {"a": "b", "c": ""}, {"a": "", "b": "c"}, {"a": "bc"},
	} {
		digest := ContentDigest(&corev1.ConfigMap{Data: data})
		if other, ok := seen[digest]; ok {
			t.Errorf("%v and %v have the same digest", data, other)
		}
		seen[digest] = data
	}
}

// function returns a Function with these texts.
func function(source, deps string) *v1alpha1.Function {
	return &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "uid-1", Generation: 3, ResourceVersion: "7"},
		Spec:       v1alpha1.FunctionSpec{Runtime: "nodejs24", Source: source, Deps: deps},
	}
}

func TestFunction(t *testing.T) {
	large := strings.Repeat("x", 256<<10)
	live := function(strings.Repeat("// comment\n", 80<<10), `{"dependencies": {"ms": "2.1.3"}, "description": "`+large+`"}`)
	want := function("", "")
	want.Digests = live.TextDigests()
	want.Annotations = map[string]string{serverless.RebuildAnnotationKey: "1", serverless.RolloutOnChangeAnnotationKey: "true"}
	live.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	live.Labels = map[string]string{"of": "others"}
	live.Annotations = map[string]string{
		corev1.LastAppliedConfigAnnotation: large, "notes": large, serverless.RebuildAnnotationKey: "1", serverless.RolloutOnChangeAnnotationKey: "true",
	}
	kept := cached(live, Function)
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("what is kept (-want, +got): %s", diff)
	}
	if diff := cmp.Diff(kept, cached(kept, Function)); diff != "" {
		t.Errorf("what is kept changes when it is kept again (-want, +got): %s", diff)
	}
	// A missed deletion arrives as a DeletedFinalStateUnknown.
	if _, err := Function(cache.DeletedFinalStateUnknown{Key: "ns/a"}); err != nil {
		t.Error(err)
	}
}

// TestFunctionSize checks that authors cannot choose how much the cache keeps of their
// texts. %v also shows what has no JSON form.
func TestFunctionSize(t *testing.T) {
	digits := strings.Repeat("1", 900<<10)
	for name, live := range map[string]*v1alpha1.Function{
		"source":                 function(digits, ""),
		"dependencies":           function("x", digits),
		"dependencies of a list": function("x", `{"dependencies": [`+digits+`]}`),
		"a large number":         function("x", `{"dependencies": `+digits+`}`),
		"a large version":        function("x", `{"dependencies": {"ms": `+digits+`}}`),
		"a large key":            function("x", `{"dependencies": {"`+digits+`": "1"}}`),
		"not JSON":               function("x", `"`+digits),
	} {
		if size := len(fmt.Sprintf("%+v %+v", cached(live, Function), cached(live, Function).Digests)); size > 4<<10 {
			t.Errorf("%s: %d bytes are kept", name, size)
		}
	}
}

// TestFunctionDigestsAreNoInput checks that an author cannot write digests, and that the
// API server never gets them.
func TestFunctionDigestsAreNoInput(t *testing.T) {
	victim := cached(function("secret source", ""), Function)
	text, err := json.Marshal(victim)
	if err != nil || strings.Contains(string(text), "sha256") {
		t.Errorf("the JSON form is %s, %v", text, err)
	}
	forged := &v1alpha1.Function{}
	if err := json.Unmarshal([]byte(`{"Digests": {"Source": "`+victim.Digests.Source+`"}, "spec": {"source": "x"}}`), forged); err != nil || forged.Digests != nil {
		t.Errorf("an author has written %v, %v", forged.Digests, err)
	}
	if kept := cached(function(victim.Digests.Source, ""), Function); kept.Digests.Source == victim.Digests.Source {
		t.Error("a source that is the digest of another one is taken for that")
	}
}

// TestFunctionWithoutTexts checks that absent texts leave nothing in the cache.
func TestFunctionWithoutTexts(t *testing.T) {
	live := function("", "")
	live.Spec.Git = &v1alpha1.GitSource{URL: "https://git.example.com/a.git"}
	if kept := cached(live, Function); kept.Digests != nil {
		t.Errorf("digests = %v", kept.Digests)
	}
}
