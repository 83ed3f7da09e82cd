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

package builds

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDigest(t *testing.T) {
	// Another program made this digest. It is part of image tags, so another digest
	// would build each Function again.
	const want = "5431e586240e438f26f934199ea915d95b20ae972e47e8a9749347ab71883a35"
	if got := digest("", "a", strings.Repeat("bc", 5000)); got != want {
		t.Errorf("digest() = %s, want %s", got, want)
	}
	seen := map[string][]string{}
	for _, values := range [][]string{nil, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"", "ab"}, {"b", "a"}} {
		got := digest(values...)
		if other, dup := seen[got]; dup {
			t.Errorf("digest(%q) is the same as of %q", values, other)
		}
		seen[got] = values
	}
}

func TestFlatten(t *testing.T) {
	got := flatten(map[string]string{"b": "2", "a": "1", "c": "a"})
	if diff := cmp.Diff([]string{"a", "1", "b", "2", "c", "a"}, got); diff != "" {
		t.Error("flatten() (-want, +got):", diff)
	}
}
