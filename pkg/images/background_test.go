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

package images

import "testing"

// TestTaggingReplaces checks that each version gets its tag. A Tagging replaces an
// earlier one only for the same tag, or for another repository.
func TestTaggingReplaces(t *testing.T) {
	g5 := Tagging{Repository: Repository{Name: "registry.example.com/default/greeter"}, Digest: "sha256:1", Tag: "g5"}
	g6, rebuilt, moved := g5, g5, g5
	g6.Tag, rebuilt.Digest, moved.Name = "g6", "sha256:2", "elsewhere.example.com/default/greeter"
	if replaces(g6, g5) {
		t.Error("the next version's tag replaces that of the one before")
	}
	if !replaces(rebuilt, g5) {
		t.Error("the rebuilt image does not replace the one before")
	}
	if !replaces(moved, g5) {
		t.Error("another registry does not replace the one before")
	}
}
