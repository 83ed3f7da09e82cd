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

// Package stepstest has builds for the tests of builders.
package stepstest

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

const (
	// Tag is the tag of the image of Build.
	Tag = "0123456789abcdef0123456789abcdef"

	// ArchiveHash is a valid sha256.
	ArchiveHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

var update = flag.Bool("update", false, "write the golden files")

// Function returns a Function with an inline source.
func Function(options ...func(*v1alpha1.Function)) *v1alpha1.Function {
	fn := &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{
			Name: "greeter", Namespace: "default", UID: "uid",
			Labels:      map[string]string{"of": "the Function"},
			Annotations: map[string]string{"of": "the Function"},
		},
		Spec: v1alpha1.FunctionSpec{
			Runtime:     "nodejs24",
			MinReplicas: new(int32(1)),
			MaxReplicas: new(int32(3)),
			Env:         []corev1.EnvVar{{Name: "GREETING", Value: "hello"}},
			Labels:      map[string]string{"team": "a"},
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			},
		},
	}
	for _, option := range options {
		option(fn)
	}
	return fn
}

// Config returns a configuration without limits of disk.
func Config() *config.Config {
	return &config.Config{
		Build: &config.Build{
			KanikoImage:  "registry.example.com/kaniko@sha256:123",
			ComposeImage: "registry.example.com/compose@sha256:123",
			Timeout:      10 * time.Minute,
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
			},
		},
		Registry: &config.Registry{Push: "push.example.com", Pull: "pull.example.com", Prefix: "fn", Insecure: []string{"push.example.com", "10.0.0.1:5000"}},
	}
}

// Build returns a build that installs dependencies.
func Build() builds.Spec {
	files := map[string]string{"Dockerfile": "FROM node:24", "handler.js": "x", "package.json": "{}", "layout.json": "{}"}
	return builds.Spec{
		Request:      builds.Request{Tag: Tag, Fingerprint: "source=1", Generation: 3},
		Reason:       builds.ReasonSourceChanged,
		Attempt:      1,
		BaseImage:    "node:24",
		Files:        files,
		InstallFiles: map[string]string{"Dockerfile": files["Dockerfile"], "package.json": files["package.json"]},
	}
}

// CheckGolden checks each byte of what make returns for builds of all kinds. The golden
// files are in the folder testdata of the caller.
func CheckGolden[T any](t *testing.T, makeObject func(*v1alpha1.Function, *config.Config, builds.Spec) T) {
	t.Helper()
	for name, adapt := range kinds {
		t.Run(name, func(t *testing.T) {
			fn, cfg, build := Function(), Config(), Build()
			adapt(fn, cfg, &build)
			got, err := yaml.Marshal(makeObject(fn, cfg, build))
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

// kinds are builds of all kinds.
var kinds = map[string]func(*v1alpha1.Function, *config.Config, *builds.Spec){
	"inline": func(*v1alpha1.Function, *config.Config, *builds.Spec) {},
	"everything": func(fn *v1alpha1.Function, cfg *config.Config, build *builds.Spec) {
		fn.Spec.Build = &v1alpha1.BuildSpec{
			Env: []v1alpha1.BuildEnvVar{{Name: "A", Value: "it's"}}, SecretName: "mine",
			Timeout: &metav1.Duration{Duration: 2 * time.Hour}, Resources: corev1.ResourceRequirements{Limits: Disk("1Gi")},
		}
		limit(cfg)
		cfg.Build.PriorityClassName, cfg.Build.NodeSelector = "builds", map[string]string{"pool": "builds"}
		cfg.Build.Tolerations = []corev1.Toleration{{Key: "builds", Operator: corev1.TolerationOpExists}}
		addCredentials(build)
		build.Rebuild, build.Attempt, build.Dependencies = "x", 3, builds.Dependencies{Tag: "deps-1"}
	},
	"reused-dependencies": func(_ *v1alpha1.Function, cfg *config.Config, build *builds.Spec) {
		limit(cfg)
		addCredentials(build)
		build.Dependencies = builds.Dependencies{Tag: "deps-1", Digest: "sha256:456", Packages: "sha256:789"}
	},
	"archive": func(fn *v1alpha1.Function, cfg *config.Config, build *builds.Spec) {
		fn.Spec.Archive = &v1alpha1.ArchiveSource{URL: "https://example.com/a.zip", SHA256: ArchiveHash, SecretName: "store"}
		limit(cfg)
		addCredentials(build)
		build.Runtime, _ = runtimes.For("nodejs")
	},
	"own-dockerfile": func(fn *v1alpha1.Function, cfg *config.Config, build *builds.Spec) {
		fn.Spec.Runtime = "dockerfile"
		fn.Spec.Git = &v1alpha1.GitSource{URL: "https://example.com/a.git", SecretName: "store"}
		limit(cfg)
		build.Runtime, build.BaseImage, build.Commit = runtimes.OwnDockerfile(), "", strings.Repeat("1", 40)
		build.Files, build.InstallFiles = nil, nil
	},
}

// Disk returns an amount of disk.
func Disk(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(amount)}
}

// limit sets the limits that Kiln ships.
func limit(cfg *config.Config) {
	cfg.Build.Resources = corev1.ResourceRequirements{Requests: Disk("512Mi"), Limits: Disk("4Gi")}
	cfg.Build.MaxResources, cfg.Build.MaxTimeout = Disk("16Gi"), time.Hour
	cfg.Build.Sources = sources.Limits{Download: 100 << 20, Size: 500 << 20, Files: 16 << 10, Ratio: 100}
	cfg.Build.PackageRegistrySecret = "packages"
}

func addCredentials(build *builds.Spec) {
	build.Credentials, build.CredentialsVersion = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "registry"}}, "7"
}
