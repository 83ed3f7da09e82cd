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

package config

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/google/go-cmp/cmp"
)

const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestImages(t *testing.T) {
	tests := map[string]struct {
		data       map[string]string
		push, pull string
	}{
		"host with a dot": {
			map[string]string{"push": "ghcr.io", "prefix": "someone/functions"},
			"ghcr.io/someone/functions/ns/fn:g1", "ghcr.io/someone/functions/ns/fn@" + digest,
		},
		"no prefix": {
			map[string]string{"push": "localhost:5000"},
			"localhost:5000/ns/fn:g1", "localhost:5000/ns/fn@" + digest,
		},
		"prefix with slashes around": {
			map[string]string{"push": "localhost:5000", "prefix": "/a/b/"},
			"localhost:5000/a/b/ns/fn:g1", "localhost:5000/a/b/ns/fn@" + digest,
		},
		"pull differs": {
			map[string]string{"push": "10.0.0.1:5000", "pull": "registry.localhost:5001"},
			"10.0.0.1:5000/ns/fn:g1", "registry.localhost:5001/ns/fn@" + digest,
		},
		"IPv6": {
			map[string]string{"push": "[fd00::1]:5000"},
			"[fd00::1]:5000/ns/fn:g1", "[fd00::1]:5000/ns/fn@" + digest,
		},
		"Docker Hub": {
			map[string]string{"push": "docker.io", "prefix": "someone"},
			"docker.io/someone/ns/fn:g1", "docker.io/someone/ns/fn@" + digest,
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			r, err := NewRegistryFromMap(test.data)
			if err != nil {
				t.Fatal(err)
			}
			if !r.Configured() {
				t.Error("not configured")
			}
			if got := r.PushImage("ns", "fn", "g1"); got != test.push {
				t.Errorf("PushImage = %q, want %q", got, test.push)
			}
			if _, err := name.NewTag(r.PushImage("ns", "fn", "g1"), name.StrictValidation); err != nil {
				t.Error(err)
			}
			if got := r.PullImage("ns", "fn", digest); got != test.pull {
				t.Errorf("PullImage = %q, want %q", got, test.pull)
			}
			if _, err := name.NewDigest(r.PullImage("ns", "fn", digest), name.StrictValidation); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLongestImage(t *testing.T) {
	r, err := NewRegistryFromMap(map[string]string{"push": "localhost:5000", "prefix": strings.Repeat("p", 127)})
	if err != nil {
		t.Fatal(err)
	}
	longest := strings.Repeat("n", 63)
	if _, err := name.NewTag(r.PushImage(longest, longest, "g1"), name.StrictValidation); err != nil {
		t.Error(err)
	}
}

func TestInsecureHosts(t *testing.T) {
	r, err := NewRegistryFromMap(map[string]string{"insecure": " b.example:80, a.example ,b.example:80,"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b.example:80", "a.example"}, r.Insecure); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
