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
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// TestLockFileIsAnInput checks that each lock file has its own image and its own
// dependencies, and that the install step gets the file.
func TestLockFileIsAnInput(t *testing.T) {
	locked := func(lock string) plan {
		return planOf(function(func(fn *v1alpha1.Function) { fn.Spec.Deps = `{"dependencies": {"ms": "^2.1.0"}}` + lock }))
	}
	tags, dependencies := map[string]bool{}, map[string]bool{}
	locks := []string{"", `{"lockfileVersion": 3}`, `{"lockfileVersion": 2}`}
	for _, lock := range locks {
		is := locked(lock)
		tags[is.request.Tag], dependencies[is.lookup.Dependencies] = true, true
		want := []string{"Dockerfile", "package-lock.json", "package.json"}
		if lock == "" {
			want = []string{"Dockerfile", "package.json"}
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(is.installFiles))); diff != "" {
			t.Errorf("lock file %q: installFiles (-want, +got):\n%s", lock, diff)
		}
	}
	if len(tags) != len(locks) || len(dependencies) != len(locks) {
		t.Errorf("%d lock files have the tags %v and the dependencies %v", len(locks), tags, dependencies)
	}
}
