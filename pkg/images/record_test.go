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

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func TestRecord(t *testing.T) {
	installed := func(n int) v1alpha1.DependencyImage {
		return v1alpha1.DependencyImage{Tag: fmt.Sprintf("deps-%d", n), Digest: fmt.Sprintf("sha256:%d", n)}
	}
	image := func(n int) v1alpha1.BuiltImage {
		return v1alpha1.BuiltImage{Tag: strconv.Itoa(n), Digest: fmt.Sprintf("sha256:%d", n), BaseDigest: absent}
	}
	status := &v1alpha1.FunctionStatus{}
	for n := range 9 {
		RecordBuilt(status, image(n))
		RecordInstalled(status, installed(n))
	}
	cached, before := status.DeepCopy(), status.BuiltImages
	rebuilt := v1alpha1.BuiltImage{Tag: "6", Digest: "sha256:other", BaseDigest: absent}
	RecordBuilt(status, rebuilt)
	RecordInstalled(status, v1alpha1.DependencyImage{})
	if diff := cmp.Diff([]v1alpha1.BuiltImage{rebuilt, image(8), image(7), image(5), image(4)}, status.BuiltImages); diff != "" {
		t.Errorf("builtImages (-want, +got):\n%s", diff)
	}
	if diff := cmp.Diff([]v1alpha1.DependencyImage{installed(8), installed(7), installed(6)}, status.DependencyImages); diff != "" {
		t.Errorf("dependencyImages (-want, +got):\n%s", diff)
	}
	if diff := cmp.Diff(cached.BuiltImages, before); diff != "" {
		t.Errorf("the list of the cached Function has changed (-want, +got):\n%s", diff)
	}
	if got := Built(status, "6"); got != rebuilt {
		t.Errorf("Built() = %v, want %v", got, rebuilt)
	}
	if got := Built(status, "0"); got != (v1alpha1.BuiltImage{}) {
		t.Errorf("Built() of an image that is not recorded = %v", got)
	}
}

// TestInstalled checks that dependencies are found by what was installed, on whatever
// base image.
func TestInstalled(t *testing.T) {
	status := &v1alpha1.FunctionStatus{DependencyImages: []v1alpha1.DependencyImage{
		{Tag: "deps-2-b", Digest: "sha256:2b"}, {Tag: "deps-1-b", Digest: "sha256:1b"}, {Tag: "deps-1-a", Digest: "sha256:1a"},
	}}
	for dependencies, want := range map[string]string{"1": "sha256:1b", "2": "sha256:2b", "3": "", "": "", "1-b": ""} {
		if got := Installed(status, dependencies).Digest; got != want {
			t.Errorf("dependencies %q are %q, want %q", dependencies, got, want)
		}
	}
}
