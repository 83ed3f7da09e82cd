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

package tekton

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGolden checks each byte of the TaskRuns. A difference means that the builds of an
// upgraded Kiln differ.
func TestGolden(t *testing.T) {
	gib := func(limit string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(limit)}
	}
	limited := func(cfg *config.Config) {
		cfg.Build.Resources = corev1.ResourceRequirements{Requests: gib("512Mi"), Limits: gib("4Gi")}
		cfg.Build.MaxResources, cfg.Build.MaxTimeout = gib("16Gi"), time.Hour
		cfg.Build.Sources = sources.Limits{Download: 100 << 20, Size: 500 << 20, Files: 16 << 10, Ratio: 100}
		cfg.Build.PackageRegistrySecret = "packages"
	}
	credentials := func(build *builds.Spec) {
		build.Credentials, build.CredentialsVersion = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "registry"}}, "7"
	}
	for name, tc := range map[string]struct {
		fn     func(*v1alpha1.Function)
		config func(*config.Config)
		build  func(*builds.Spec)
	}{
		"inline": {},
		"everything": {
			fn: func(fn *v1alpha1.Function) {
				fn.Spec.Build = &v1alpha1.BuildSpec{
					Env: []v1alpha1.BuildEnvVar{{Name: "A", Value: "it's"}}, SecretName: "mine",
					Timeout: &metav1.Duration{Duration: 2 * time.Hour}, Resources: corev1.ResourceRequirements{Limits: gib("1Gi")},
				}
			},
			config: func(cfg *config.Config) {
				limited(cfg)
				cfg.Build.PriorityClassName, cfg.Build.NodeSelector = "builds", map[string]string{"pool": "builds"}
				cfg.Build.Tolerations = []corev1.Toleration{{Key: "builds", Operator: corev1.TolerationOpExists}}
			},
			build: func(build *builds.Spec) {
				credentials(build)
				build.Rebuild, build.Attempt, build.Dependencies = "x", 3, builds.Dependencies{Tag: "deps-1"}
			},
		},
		"reused-dependencies": {
			config: limited,
			build: func(build *builds.Spec) {
				credentials(build)
				build.Dependencies = builds.Dependencies{Tag: "deps-1", Digest: "sha256:456", Packages: "sha256:789"}
			},
		},
		"archive": {
			fn: func(fn *v1alpha1.Function) {
				fn.Spec.Archive = &v1alpha1.ArchiveSource{URL: "https://example.com/a.zip", SHA256: archiveHash, SecretName: "store"}
			},
			config: limited,
			build:  func(build *builds.Spec) { credentials(build); build.Runtime, _ = runtimes.For("nodejs") },
		},
		"own-dockerfile": {
			fn: func(fn *v1alpha1.Function) {
				fn.Spec.Runtime = "dockerfile"
				fn.Spec.Git = &v1alpha1.GitSource{URL: "https://example.com/a.git", SecretName: "store"}
			},
			config: limited,
			build: func(build *builds.Spec) {
				build.Runtime, build.BaseImage, build.Commit = runtimes.OwnDockerfile(), "", strings.Repeat("1", 40)
				build.Files, build.InstallFiles = nil, nil
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fn, cfg, build := function(), testConfig(), testBuild()
			if tc.fn != nil {
				tc.fn(fn)
			}
			if tc.config != nil {
				tc.config(cfg)
			}
			if tc.build != nil {
				tc.build(&build)
			}
			got, err := yaml.Marshal(MakeTaskRun(fn, cfg, build))
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", golden, diff)
			}
		})
	}
}
