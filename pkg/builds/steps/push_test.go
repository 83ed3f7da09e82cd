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

package steps

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/builds"
)

func TestPushStep(t *testing.T) {
	results := []string{
		"--image-digest-file=/results/IMAGE_DIGEST",
		"--image-url-file=/results/IMAGE_URL",
		"--base=node:24",
		"--base-image-file=/results/BASE_IMAGE_ARTIFACT_INPUTS",
		"--label=org.opencontainers.image.title=greeter",
		"--label=serverless.kiln.dev/function-namespace=default",
		"--label=serverless.kiln.dev/function-name=greeter",
		"--label=serverless.kiln.dev/image-tag=" + tag,
		"--label=serverless.kiln.dev/runtime=nodejs24",
		"--label=serverless.kiln.dev/source-hash=sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	}
	common := append([]string{
		"--context=/kiln-build",
		"--destination=push.example.com/fn/default/greeter:" + tag,
	}, results...)
	insecure := []string{"--insecure-registry=push.example.com", "--insecure-registry=10.0.0.1:5000"}
	for name, tc := range map[string]struct {
		without      string
		dependencies builds.Dependencies
		wantInstall  bool
		wantArgs     []string
	}{
		"dependencies": {
			dependencies: builds.Dependencies{Tag: "deps-1"},
			wantInstall:  true,
			wantArgs:     []string{"--layers=/kiln-layers", "--keep=push.example.com/fn/default/greeter:deps-1", "--kept-file=/results/DEPENDENCIES", "--layout=/kiln-build/layout.json"},
		},
		"dependencies that are there": {
			dependencies: builds.Dependencies{Tag: "deps-1", Digest: "sha256:456", Packages: "sha256:789"},
			wantArgs:     []string{"--dependencies=push.example.com/fn/default/greeter@sha256:456", "--packages=sha256:789", "--layout=/kiln-build/layout.json"},
		},
		"nothing to run": {
			without:  "Dockerfile",
			wantArgs: []string{"--layout=/kiln-build/layout.json"},
		},
		"Dockerfile of the administrator": {
			without:     "layout.json",
			wantInstall: true,
			wantArgs:    []string{"--layers=/kiln-layers", "--config=/kiln-layers/config.json"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			build := testBuild()
			delete(build.Files, tc.without)
			build.Dependencies = tc.dependencies
			made := Make(function(), testConfig(), build, inFiles)
			if made.Fetch != nil || (made.Install != nil) != tc.wantInstall {
				t.Errorf("fetches: %t, installs: %t, want %t", made.Fetch != nil, made.Install != nil, tc.wantInstall)
			}
			push := made.Push
			if diff := cmp.Diff(slices.Concat(common, tc.wantArgs, insecure), push.Args); diff != "" {
				t.Errorf("args (-want, +got):\n%s", diff)
			}
			wantRestricted(t, push.SecurityContext)
			volumes := map[string]bool{}
			for _, volume := range made.Volumes {
				volumes[volume.Name] = true
			}
			for container, mounts := range mountsOf(made) {
				for _, mount := range mounts {
					if !volumes[mount.Name] {
						t.Errorf("container %s mounts volume %q, which there is not", container, mount.Name)
					}
				}
			}
		})
	}
}

// wantRestricted checks that a container meets the restricted Pod Security Standard.
func wantRestricted(t *testing.T, got *corev1.SecurityContext) {
	t.Helper()
	want := &corev1.SecurityContext{
		RunAsNonRoot:             new(true),
		ReadOnlyRootFilesystem:   new(true),
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("security context (-want, +got):\n%s", diff)
	}
}

// TestTerminationMessage checks where the steps report if results have no files, and that
// no step waits for one that has ended.
func TestTerminationMessage(t *testing.T) {
	made := fetching(t, "", Target{InTurn: true})
	if !slices.Contains(made.Push.Args, "--results-file=/dev/termination-log") {
		t.Errorf("push does not report: %v", made.Push.Args)
	}
	if !slices.Contains(made.Fetch.Args, "--origin-file=/dev/termination-log") {
		t.Errorf("fetch does not report: %v", made.Fetch.Args)
	}
	for _, arg := range slices.Concat(made.Push.Args, made.Install.Args) {
		for _, prefix := range []string{"--image-digest-file", "--image-url-file", "--base-image-file", "--kept-file", "--wait-for"} {
			if strings.HasPrefix(arg, prefix) {
				t.Errorf("a step has %s", arg)
			}
		}
	}
}
