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

package function

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

func TestSourceOf(t *testing.T) {
	said, found := strings.Repeat("1", 64), strings.Repeat("2", 64)
	tr := &pipelinev1.TaskRun{}
	tr.Status.Results = []pipelinev1.TaskRunResult{
		{Name: "IMAGE_DIGEST", Value: *pipelinev1.NewStructuredValues("sha256:" + said)},
		{Name: "BASE_IMAGE_ARTIFACT_INPUTS", Value: *pipelinev1.NewObject(map[string]string{"digest": "sha256:" + said})},
		{Name: "SOURCE_ARTIFACT_INPUTS", Value: *pipelinev1.NewObject(map[string]string{"uri": "https://a/b", "digest": "sha256:" + found})},
	}
	commit := strings.Repeat("3", 40)
	ofGit := &pipelinev1.TaskRun{}
	ofGit.Status.Results = []pipelinev1.TaskRunResult{
		{Name: "SOURCE_ARTIFACT_INPUTS", Value: *pipelinev1.NewObject(map[string]string{"uri": "git+https://a/b", "digest": "sha1:" + commit})},
	}
	fn := function(withSource(""))
	fn.Spec.Git = &v1alpha1.GitSource{URL: "https://a/b", Revision: "main"}
	if diff := cmp.Diff(&v1alpha1.SourceStatus{Commit: commit}, sourceOf(fn, tekton.RunOf(ofGit).Source)); diff != "" {
		t.Errorf("of a branch: sourceOf() (-want, +got):\n%s", diff)
	}
	fn.Spec.Git.Revision = commit
	if diff := cmp.Diff(&v1alpha1.SourceStatus{Commit: commit}, sourceOf(fn, builds.SourceDigest{})); diff != "" {
		t.Errorf("of a commit, and no build: sourceOf() (-want, +got):\n%s", diff)
	}
	for name, tc := range map[string]struct {
		archive *v1alpha1.ArchiveSource
		fetched builds.SourceDigest
		want    *v1alpha1.SourceStatus
	}{
		"in the Function":          {nil, tekton.RunOf(tr).Source, nil},
		"found by the build":       {&v1alpha1.ArchiveSource{}, tekton.RunOf(tr).Source, &v1alpha1.SourceStatus{SHA256: found}},
		"said, and no build":       {&v1alpha1.ArchiveSource{SHA256: said}, builds.SourceDigest{}, &v1alpha1.SourceStatus{SHA256: said}},
		"said, and a build's word": {&v1alpha1.ArchiveSource{SHA256: said}, tekton.RunOf(&pipelinev1.TaskRun{}).Source, &v1alpha1.SourceStatus{SHA256: said}},
	} {
		fn := function()
		fn.Spec.Archive = tc.archive
		if diff := cmp.Diff(tc.want, sourceOf(fn, tc.fetched)); diff != "" {
			t.Errorf("%s: sourceOf() (-want, +got):\n%s", name, diff)
		}
	}
}

// TestPlanOfArchive checks that an image is reused only if its content is known, and that
// the dependencies are unknown before the build.
func TestPlanOfArchive(t *testing.T) {
	ctx := config.ToContext(t.Context(), testConfig())
	for name, tc := range map[string]struct {
		sha256 string
		reuses bool
	}{"any archive": {"", false}, "this archive": {strings.Repeat("1", 64), true}} {
		fn := function(withSource(""))
		fn.Spec.Archive = &v1alpha1.ArchiveSource{URL: "https://example.com/a.zip", SHA256: tc.sha256}
		recordedBuild(digestA)(fn)
		want, ok := makePlan(ctx, fn)
		if !ok {
			t.Fatalf("%s: there is no plan: %v", name, fn.Status.Conditions)
		}
		if reuses := want.lookup.Image.Digest != ""; reuses != tc.reuses || want.lookup.Dependencies != "" {
			t.Errorf("%s: the registry is asked for %+v", name, want.lookup)
		}
		if _, ok := want.files["Dockerfile"]; !ok || len(want.files) != 5 {
			t.Errorf("%s: the ConfigMap has %v", name, want.files)
		}
	}
	for revision, reuses := range map[string]bool{"main": false, strings.Repeat("1", 40): true} {
		fn := function(withSource(""))
		fn.Spec.Git = &v1alpha1.GitSource{URL: "https://example.com/a.git", Revision: revision}
		recordedBuild(digestA)(fn)
		want, ok := makePlan(ctx, fn)
		if !ok || (want.lookup.Image.Digest != "") != reuses {
			t.Errorf("revision %s: %+v, %v", revision, want, fn.Status.Conditions)
		}
	}
	fn := function()
	fn.Spec.Archive = &v1alpha1.ArchiveSource{URL: "https://example.com/a.zip"}
	if _, ok := makePlan(ctx, fn); ok || fn.Status.GetCondition(v1alpha1.FunctionConditionConfigurationReady).Reason != v1alpha1.ReasonInvalidSpec {
		t.Errorf("there is a plan of two sources: %v", fn.Status.Conditions)
	}
}

func TestFetchedDependencies(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.FunctionSpec)
		want string
	}{
		"in the Function": {func(*v1alpha1.FunctionSpec) {}, ""},
		"of an archive":   {func(fs *v1alpha1.FunctionSpec) { fs.Archive = &v1alpha1.ArchiveSource{} }, "package.json of the archive"},
		"of a repository": {func(fs *v1alpha1.FunctionSpec) { fs.Git = &v1alpha1.GitSource{} }, "package.json of the repository"},
		"of a folder in a repository": {
			func(fs *v1alpha1.FunctionSpec) { fs.Git = &v1alpha1.GitSource{ContextDir: "functions/a"} }, "functions/a/package.json of the repository",
		},
	} {
		fn := function()
		tc.edit(&fn.Spec)
		if got := fetchedDependencies(fn, planOf(function()).runtime); got != tc.want {
			t.Errorf("%s: fetchedDependencies() = %q, want %q", name, got, tc.want)
		}
	}
	fn := function()
	fn.Spec.Archive = &v1alpha1.ArchiveSource{}
	if got, want := fetchedDependencies(fn, runtimes.OwnDockerfile()), "the source"; got != want {
		t.Errorf("of a runtime that knows no such file: fetchedDependencies() = %q, want %q", got, want)
	}
}
