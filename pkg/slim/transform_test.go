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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
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
