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

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/steps/stepstest"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
)

// inFiles is a target whose results have files of their own, as Tekton's.
var inFiles = Target{ResultFile: func(result string) string { return "/results/" + result }}

const (
	tag         = stepstest.Tag
	archiveHash = stepstest.ArchiveHash
)

// fetching returns the steps of a build of an archive.
func fetching(t *testing.T, without string, target Target) Steps {
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
	return Make(fn, cfg, build, target)
}

func TestFetchStep(t *testing.T) {
	made := fetching(t, "", inFiles)
	want := &corev1.Container{
		Name:    "fetch",
		Image:   "registry.example.com/compose@sha256:123",
		Command: []string{"/ko-app/compose"},
		Args: []string{
			"fetch", "--archive=https://example.com/a.zip", "--sha256=" + archiveHash, "--files=/kiln-files", "--work=/kiln-work",
			"--language=nodejs", "--source-file=handler.js", "--source-file=handler.ts", "--dependency-file=package.json",
			"--origin-file=/results/SOURCE_ARTIFACT_INPUTS",
			"--max-download-size=1", "--max-unpacked-size=2", "--max-unpacked-files=3", "--max-unpacked-ratio=4",
			"--tree=source", "--base=node:24", "--credentials=/kiln-source-credentials",
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "context", MountPath: "/kiln-files", ReadOnly: true},
			{Name: "work", MountPath: "/kiln-work"},
			{Name: "source-credentials", MountPath: "/kiln-source-credentials", ReadOnly: true},
		},
		Resources:       made.Push.Resources, // Like those of the step that pushes.
		SecurityContext: children.Restricted(),
	}
	if diff := cmp.Diff(want, made.Fetch); diff != "" {
		t.Errorf("step (-want, +got):\n%s", diff)
	}
}

// TestFetchedSource checks that only the fetch step can write the source and read its
// credentials, and that the others can read the source.
func TestFetchedSource(t *testing.T) {
	made := fetching(t, "", inFiles)
	mounted := map[string][]string{}
	for container, mounts := range mountsOf(made) {
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
	for _, volume := range made.Volumes {
		volumes = append(volumes, volume.Name)
		if volume.Name == "source-credentials" && (volume.Secret.SecretName != "store" || volume.Secret.Optional != nil) {
			t.Errorf("the Secret is %+v", volume.Secret)
		}
	}
	if diff := cmp.Diff([]string{"context", "work", "source-credentials", "credentials", "kaniko", "layers", "packages"}, volumes); diff != "" {
		t.Errorf("volumes (-want, +got):\n%s", diff)
	}
	for _, arg := range []string{"--context=/kiln-work/context", "--dockerfile=/kiln-work/context/Dockerfile", "--wait-for=/kiln-work/source.json"} {
		if !slices.Contains(made.Install.Args, arg) {
			t.Errorf("the sidecar that installs has no %s: %v", arg, made.Install.Args)
		}
	}
	for _, arg := range []string{"--context=/kiln-work/context", "--layout=/kiln-work/context/layout.json", "--source=/kiln-work/source.json"} {
		if !slices.Contains(made.Push.Args, arg) {
			t.Errorf("the step that pushes has no %s: %v", arg, made.Push.Args)
		}
	}
	for _, arg := range made.Push.Args {
		if strings.Contains(arg, "source-hash") {
			t.Errorf("the hash of nothing is told: %s", arg)
		}
	}
}

// containersOf returns the containers by name.
func containersOf(made Steps) map[string]*corev1.Container {
	containers := map[string]*corev1.Container{"push": &made.Push}
	for _, c := range []*corev1.Container{made.Fetch, made.Install} {
		if c != nil {
			containers[c.Name] = c
		}
	}
	return containers
}

// mountsOf returns the mounts of each container.
func mountsOf(made Steps) map[string][]corev1.VolumeMount {
	mounts := map[string][]corev1.VolumeMount{}
	for name, c := range containersOf(made) {
		mounts[name] = c.VolumeMounts
	}
	return mounts
}

func TestFetchStepOfGit(t *testing.T) {
	fn := function(func(fn *v1alpha1.Function) {
		fn.Spec.Git = &v1alpha1.GitSource{URL: "git@example.com:a/b.git", Revision: "main", ContextDir: "fn", SecretName: "deploy-key"}
	})
	made := Make(fn, testConfig(), testBuild(), inFiles)
	want := []string{"fetch", "--git=git@example.com:a/b.git", "--revision=main", "--folder=fn", "--files=/kiln-files"}
	if diff := cmp.Diff(want, made.Fetch.Args[:5]); diff != "" {
		t.Errorf("args (-want, +got):\n%s", diff)
	}
	ofCommit := testBuild()
	ofCommit.Commit = strings.Repeat("1", 40)
	if got, want := Make(fn, testConfig(), ofCommit, inFiles).Fetch.Args[2], "--revision="+ofCommit.Commit; got != want {
		t.Errorf("the build for a commit that the branch was found at has %s, want %s", got, want)
	}
	for _, volume := range made.Volumes {
		if volume.Name == "source-credentials" && volume.Secret.SecretName == "deploy-key" {
			return
		}
	}
	t.Errorf("the Secret is not mounted: %+v", made.Volumes)
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
		step := Make(fn, cfg, build, inFiles).Fetch
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
	if diff := cmp.Diff(want, Make(fn, testConfig(), testBuild(), inFiles).Fetch.Args[:len(want)]); diff != "" {
		t.Errorf("args (-want, +got):\n%s", diff)
	}
}

// TestFetchedForOwnDockerfile checks that the source is where the administrator's Dockerfile
// expects it.
func TestFetchedForOwnDockerfile(t *testing.T) {
	for _, arg := range fetching(t, "layout.json", inFiles).Fetch.Args {
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
	made := Make(fn, testConfig(), build, inFiles)

	args, mounts := map[string][]string{}, map[string][]string{}
	for name, c := range containersOf(made) {
		args[name] = c.Args
	}
	if added := made.Install.SecurityContext.Capabilities.Add; !slices.Contains(added, "SETFCAP") {
		t.Errorf("install cannot unpack files with capabilities: it has %v", added)
	}
	for container, mounted := range mountsOf(made) {
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
		"--image-digest-file=/results/IMAGE_DIGEST",
		"--image-url-file=/results/IMAGE_URL",
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
}
