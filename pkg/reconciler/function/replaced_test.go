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
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// TestReplaced checks that a Function is skipped only while the cache has the version before
// the last write of its status. There are no clients, so all else panics.
func TestReplaced(t *testing.T) {
	at := func(uid types.UID, resourceVersion string) *v1alpha1.Function {
		fn := function()
		fn.UID, fn.ResourceVersion = uid, resourceVersion
		return fn
	}
	r := &Reconciler{}
	for _, before := range []*v1alpha1.Function{at("a", "1"), at("a", "2")} {
		r.replaced.note(before, at("a", "3"))
		for range 2 {
			if err := r.ReconcileKind(t.Context(), before); err != nil {
				t.Error(err)
			}
		}
	}
	for name, now := range map[string]*v1alpha1.Function{
		"as it was written":    at("a", "3"),
		"as somebody edits it": at("a", "4"),
		"another of its name":  at("b", "2"),
	} {
		r.replaced.note(at("a", "2"), at("a", "3"))
		if r.replaced.has(now) {
			t.Errorf("%s: the Function is left alone", name)
		}
		if r.replaced.has(at("a", "2")) {
			t.Errorf("%s: what was replaced is remembered", name)
		}
	}
	r.replaced.note(at("a", "2"), at("a", "2"))
	if r.replaced.has(at("a", "2")) {
		t.Error("a write that changes nothing has the Function left alone for ever")
	}
}
