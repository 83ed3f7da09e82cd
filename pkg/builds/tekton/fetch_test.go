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
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
)

const archiveHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// fetching returns the spec of a build of an archive.
func fetching(t *testing.T, without string) *pipelinev1.TaskSpec {
	t.Helper()
	fn := function(func(fn *v1alpha1.Function) {
		fn.Spec.Archive = &v1alpha1.ArchiveSource{URL: "https://example.com/a.zip", SHA256: archiveHash, SecretName: "store"}
	})
	cfg := testConfig()
	cfg.Build.Sources = sources.Limits{Download: 1, Size: 2, Files: 3, Ratio: 4}
	cfg.Build.PackageRegistrySecret = "packages"
	build := testBuild()
	build.Credentials = &corev1.Secret{}
	build.Credentials.Name = "registry"
	build.Files = map[string]string{"Dockerfile": "FROM node:24", "server.cjs": "x", "layout.json": "{}"}
	delete(build.Files, without)
	build.Runtime, _ = runtimes.For("nodejs")
	return MakeTaskRun(fn, cfg, build).Spec.TaskSpec
}

func TestFetchStep(t *testing.T) {
	spec := fetching(t, "")
	want := pipelinev1.Step{
		Name:    "fetch",
		Image:   "registry.example.com/compose@sha256:123",
		Command: []string{"/ko-app/compose"},
		Args: []string{
			"fetch", "--archive=https://example.com/a.zip", "--sha256=" + archiveHash, "--files=/kiln-files", "--work=/kiln-work",
			"--language=nodejs", "--source-file=handler.js", "--dependency-file=package.json",
			"--origin-file=$(results.SOURCE_ARTIFACT_INPUTS.path)",
			"--max-download-size=1", "--max-unpacked-size=2", "--max-unpacked-files=3", "--max-unpacked-ratio=4",
			"--tree=source", "--credentials=/kiln-source-credentials",
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "context", MountPath: "/kiln-files", ReadOnly: true},
			{Name: "work", MountPath: "/kiln-work"},
			{Name: "source-credentials", MountPath: "/kiln-source-credentials", ReadOnly: true},
		},
		ComputeResources: spec.Steps[1].ComputeResources, // Like those of the step that pushes.
		SecurityContext:  children.Restricted(),
	}
	if diff := cmp.Diff(want, spec.Steps[0]); diff != "" {
		t.Errorf("step (-want, +got):\n%s", diff)
	}
	if diff := cmp.Diff(spec.Results[2].Properties, spec.Results[3].Properties); diff != "" || spec.Results[3].Name != "SOURCE_ARTIFACT_INPUTS" {
		t.Errorf("results: %v", spec.Results)
	}
}

// TestFetchedSource checks that only the fetch step can write the source and read its
// credentials, and that the others can read the source.
func TestFetchedSource(t *testing.T) {
	spec := fetching(t, "")
	mounted := map[string][]string{}
	for container, mounts := range mountsOf(spec) {
		for _, mount := range mounts {
			name := mount.Name
			if !mount.ReadOnly {
				name += ", to write"
			}
			mounted[container] = append(mounted[container], name)
		}
	}
	want := map[string][]string{
		"fetch":   {"context", "work, to write", "source-credentials"},
		"install": {"kaniko, to write", "layers, to write", "work", "packages"},
		"push":    {"work", "layers", "credentials"},
	}
	if diff := cmp.Diff(want, mounted); diff != "" {
		t.Errorf("volumes that are mounted (-want, +got):\n%s", diff)
	}
	var volumes []string
	for _, volume := range spec.Volumes {
		volumes = append(volumes, volume.Name)
		if volume.Name == "source-credentials" && (volume.Secret.SecretName != "store" || volume.Secret.Optional != nil) {
			t.Errorf("the Secret is %+v", volume.Secret)
		}
	}
	if diff := cmp.Diff([]string{"context", "work", "source-credentials", "credentials", "kaniko", "layers", "packages"}, volumes); diff != "" {
		t.Errorf("volumes (-want, +got):\n%s", diff)
	}
	for _, arg := range []string{"--context=/kiln-work/context", "--dockerfile=/kiln-work/context/Dockerfile", "--wait-for=/kiln-work/source.json"} {
		if !slices.Contains(spec.Sidecars[0].Args, arg) {
			t.Errorf("the sidecar that installs has no %s: %v", arg, spec.Sidecars[0].Args)
		}
	}
	for _, arg := range []string{"--context=/kiln-work/context", "--layout=/kiln-work/context/layout.json", "--source=/kiln-work/source.json"} {
		if !slices.Contains(spec.Steps[1].Args, arg) {
			t.Errorf("the step that pushes has no %s: %v", arg, spec.Steps[1].Args)
		}
	}
	for _, arg := range spec.Steps[1].Args {
		if strings.Contains(arg, "source-hash") {
			t.Errorf("the hash of nothing is told: %s", arg)
		}
	}
}

// mountsOf returns the mounts of each step and sidecar.
func mountsOf(spec *pipelinev1.TaskSpec) map[string][]corev1.VolumeMount {
	mounts := map[string][]corev1.VolumeMount{}
	for _, step := range spec.Steps {
		mounts[step.Name] = step.VolumeMounts
	}
	for _, sidecar := range spec.Sidecars {
		mounts[sidecar.Name] = sidecar.VolumeMounts
	}
	return mounts
}

func TestFetchStepOfGit(t *testing.T) {
	fn := function(func(fn *v1alpha1.Function) {
		fn.Spec.Git = &v1alpha1.GitSource{URL: "git@example.com:a/b.git", Revision: "main", ContextDir: "fn", SecretName: "deploy-key"}
	})
	spec := MakeTaskRun(fn, testConfig(), testBuild()).Spec.TaskSpec
	want := []string{"fetch", "--git=git@example.com:a/b.git", "--revision=main", "--folder=fn", "--files=/kiln-files"}
	if diff := cmp.Diff(want, spec.Steps[0].Args[:5]); diff != "" {
		t.Errorf("args (-want, +got):\n%s", diff)
	}
	ofCommit := testBuild()
	ofCommit.Commit = strings.Repeat("1", 40)
	if got, want := MakeTaskRun(fn, testConfig(), ofCommit).Spec.TaskSpec.Steps[0].Args[2], "--revision="+ofCommit.Commit; got != want {
		t.Errorf("the build for a commit that the branch was found at has %s, want %s", got, want)
	}
	for _, volume := range spec.Volumes {
		if volume.Name == "source-credentials" && volume.Secret.SecretName == "deploy-key" {
			return
		}
	}
	t.Errorf("the Secret is not mounted: %+v", spec.Volumes)
}

// TestFetchStepOfArtifact checks that the step knows which registries speak plain HTTP,
// and that it has the registry credentials only for artifacts beside the images of its
// namespace.
func TestFetchStepOfArtifact(t *testing.T) {
	cfg := testConfig()
	build := testBuild()
	build.Credentials = &corev1.Secret{}
	host := cfg.Registry.PushRepository("", "")
	for name, tc := range map[string]struct {
		archive v1alpha1.ArchiveSource
		want    bool
	}{
		"of the namespace":     {v1alpha1.ArchiveSource{URL: "oci://" + host + "/default/greeter:1"}, true},
		"with its own Secret":  {v1alpha1.ArchiveSource{URL: "oci://" + host + "/default/greeter:1", SecretName: "own"}, false},
		"of another namespace": {v1alpha1.ArchiveSource{URL: "oci://" + host + "/default2/greeter:1"}, false},
		"of no namespace":      {v1alpha1.ArchiveSource{URL: "oci://" + host + "/default:1"}, false},
		"of another registry":  {v1alpha1.ArchiveSource{URL: "oci://registry.elsewhere.example.com/default/greeter:1"}, false},
		"by HTTP":              {v1alpha1.ArchiveSource{URL: "http://" + host + "/default/greeter"}, false},
	} {
		fn := function(func(fn *v1alpha1.Function) { fn.Spec.Source, fn.Spec.Archive = "", &tc.archive })
		step := MakeTaskRun(fn, cfg, build).Spec.TaskSpec.Steps[0]
		mounted := slices.ContainsFunc(step.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "credentials" })
		if told := slices.Contains(step.Args, "--registry-credentials=/kiln-credentials"); mounted != tc.want || told != tc.want {
			t.Errorf("%s: the credentials are mounted: %t, and told of: %t, want %t", name, mounted, told, tc.want)
		}
		insecure := slices.Contains(step.Args, "--insecure-registry="+cfg.Registry.Insecure[0])
		if want := strings.HasPrefix(tc.archive.URL, "oci://"); insecure != want {
			t.Errorf("%s: the step knows who speaks plain HTTP: %t, want %t", name, insecure, want)
		}
	}
}

// TestFetchStepOfObject checks that the step gets the address of the bucket.
func TestFetchStepOfObject(t *testing.T) {
	fn := function(func(fn *v1alpha1.Function) {
		fn.Spec.Archive = &v1alpha1.ArchiveSource{
			URL: "s3://code/a.zip", S3: &v1alpha1.S3Store{Endpoint: "https://store.example.com", Region: "eu-1", PathStyle: new(false)},
		}
	})
	want := []string{
		"fetch", "--archive=s3://code/a.zip", "--sha256=",
		"--s3-endpoint=https://store.example.com", "--s3-region=eu-1", "--s3-path-style=false", "--files=/kiln-files",
	}
	if diff := cmp.Diff(want, MakeTaskRun(fn, testConfig(), testBuild()).Spec.TaskSpec.Steps[0].Args[:len(want)]); diff != "" {
		t.Errorf("args (-want, +got):\n%s", diff)
	}
}

// TestFetchedForOwnDockerfile wants the source where the administrator's Dockerfile
// looks for it.
func TestFetchedForOwnDockerfile(t *testing.T) {
	for _, arg := range fetching(t, "layout.json").Steps[0].Args {
		if strings.HasPrefix(arg, "--tree") {
			t.Errorf("the step has %s", arg)
		}
	}
}

// TestOwnDockerfile checks that the Dockerfile of the source runs with no more rights
// than one of an administrator. No step gets a base image, because only the Dockerfile
// names it, and the pushing step has credentials.
func TestOwnDockerfile(t *testing.T) {
	fn := function(func(fn *v1alpha1.Function) {
		fn.Spec.Source, fn.Spec.Runtime = "", "dockerfile"
		fn.Spec.Git = &v1alpha1.GitSource{URL: "https://example.com/a.git", SecretName: "store"}
		fn.Spec.Build = &v1alpha1.BuildSpec{SecretName: "packages", Env: []v1alpha1.BuildEnvVar{{Name: "A", Value: "b"}}}
	})
	build := testBuild()
	build.Credentials = &corev1.Secret{}
	build.Runtime, build.BaseImage = runtimes.OwnDockerfile(), ""
	build.Files, build.InstallFiles = map[string]string{}, map[string]string{}
	spec := MakeTaskRun(fn, testConfig(), build).Spec.TaskSpec

	args, mounts := map[string][]string{}, map[string][]string{}
	for _, step := range spec.Steps {
		args[step.Name] = step.Args
	}
	for _, sidecar := range spec.Sidecars {
		args[sidecar.Name] = sidecar.Args
		if !slices.Contains(sidecar.SecurityContext.Capabilities.Add, "SETFCAP") {
			t.Errorf("install cannot unpack files with capabilities: it has %v", sidecar.SecurityContext.Capabilities.Add)
		}
	}
	for container, mounted := range mountsOf(spec) {
		for _, mount := range mounted {
			mounts[container] = append(mounts[container], mount.Name)
		}
	}
	insecure := []string{"--insecure-registry=push.example.com", "--insecure-registry=10.0.0.1:5000"}
	want := append([]string{"--context=/kiln-work/context", "--dockerfile=/kiln-work/context/Dockerfile", "--layers=/kiln-layers"}, insecure...)
	want = append(want, "--wait-for=/kiln-work/source.json")
	if diff := cmp.Diff(want, args["install"]); diff != "" {
		t.Errorf("args of install (-want, +got):\n%s", diff)
	}
	want = append([]string{
		"--context=/kiln-work/context",
		"--destination=push.example.com/fn/default/greeter:" + tag,
		"--image-digest-file=$(results.IMAGE_DIGEST.path)",
		"--image-url-file=$(results.IMAGE_URL.path)",
		"--label=org.opencontainers.image.title=greeter",
		"--label=serverless.kiln.dev/function-namespace=default",
		"--label=serverless.kiln.dev/function-name=greeter",
		"--label=serverless.kiln.dev/image-tag=" + tag,
		"--label=serverless.kiln.dev/runtime=dockerfile",
		"--source=/kiln-work/source.json", "--layers=/kiln-layers", "--config=/kiln-layers/config.json",
	}, insecure...)
	if diff := cmp.Diff(want, args["push"]); diff != "" {
		t.Errorf("args of push (-want, +got):\n%s", diff)
	}
	for _, arg := range []string{"--language=dockerfile", "--source-file=Dockerfile", "--dependency-file="} {
		if !slices.Contains(args["fetch"], arg) {
			t.Errorf("fetch has no %s: %v", arg, args["fetch"])
		}
	}
	if slices.ContainsFunc(args["fetch"], func(arg string) bool { return strings.HasPrefix(arg, "--tree") }) {
		t.Errorf("the source is not the build context: %v", args["fetch"])
	}
	wantMounts := map[string][]string{
		"fetch": {"context", "work", "source-credentials"}, "install": {"kaniko", "layers", "work", "packages", "env"}, "push": {"work", "layers", "credentials"},
	}
	if diff := cmp.Diff(wantMounts, mounts); diff != "" {
		t.Errorf("volumes that are mounted (-want, +got):\n%s", diff)
	}
	var results []string
	for _, result := range spec.Results {
		results = append(results, result.Name)
	}
	if diff := cmp.Diff([]string{"IMAGE_URL", "IMAGE_DIGEST", "SOURCE_ARTIFACT_INPUTS"}, results); diff != "" {
		t.Errorf("results (-want, +got):\n%s", diff)
	}
}
