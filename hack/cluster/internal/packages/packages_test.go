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

package packages

import (
	"io"
	"slices"
	"strings"
	"testing"
)

func TestMissing(t *testing.T) {
	got := Missing("sh", "kiln-no-such-tool")
	if want := []string{"kiln-no-such-tool"}; !slices.Equal(got, want) {
		t.Errorf("Missing() = %q, want %q", got, want)
	}
}

func TestPackagesOf(t *testing.T) {
	got := packagesOf([]string{"nft", "dockerd", "docker", "unheard-of"})
	if want := []string{"docker.io", "nftables", "unheard-of"}; !slices.Equal(got, want) {
		t.Errorf("packagesOf() = %q, want %q", got, want)
	}
}

func TestEnsureNothingMissing(t *testing.T) {
	if err := Ensure(t.Context(), io.Discard, "sh"); err != nil {
		t.Errorf("Ensure() = %v", err)
	}
}

func TestEnsureWithoutPackageManager(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Ensure(t.Context(), io.Discard, "mmdebstrap", "nft")
	if err == nil || !strings.Contains(err.Error(), "mmdebstrap, nftables") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Ensure() = %v, want one line that names the packages", err)
	}
}
