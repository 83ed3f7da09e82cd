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
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// effectOf returns the effect of an edit of a running Function, in the words of
// docs/function.md, and the reason of a build. It calls the same pure functions as the
// reconciler.
func effectOf(before, after *v1alpha1.Function) (effect, buildReason string) {
	last := builds.Build{Name: "last", Request: request(before), State: builds.Succeeded}
	known := builds.Known{ImageTag: last.Tag, Last: &last, Existing: []builds.Build{last}}
	if decision := builds.Decide(request(after), known); decision.Action == builds.Start {
		return "build", decision.Reason
	}
	existing := service(before)
	switch _, change := knative.MergeService(knative.MakeService(after, after.Status.Image), existing, knative.Remember(existing)); change {
	case knative.RevisionChange:
		return "revision", ""
	case knative.RouteChange:
		return "route", ""
	default:
		return "nothing", ""
	}
}

// TestEffects checks for each field of the spec what an edit causes, and that the
// documentation says the same. A new field needs a row.
func TestEffects(t *testing.T) {
	type edit func(*v1alpha1.FunctionSpec)
	rows := map[string]struct {
		edit   edit
		want   string
		reason string
	}{
		"runtime": {func(fs *v1alpha1.FunctionSpec) { fs.Runtime = "nodejs22" }, "build", builds.ReasonRuntimeChanged},
		"source":  {func(fs *v1alpha1.FunctionSpec) { fs.Source = sourceB }, "build", builds.ReasonSourceChanged},
		"archive": {func(fs *v1alpha1.FunctionSpec) {
			fs.Source, fs.Archive = "", &v1alpha1.ArchiveSource{URL: "https://example.com/a.zip"}
		}, "build", builds.ReasonInputsChanged},
		"git": {func(fs *v1alpha1.FunctionSpec) {
			fs.Source, fs.Git = "", &v1alpha1.GitSource{URL: "https://example.com/a.git"}
		}, "build", builds.ReasonInputsChanged},
		"deps": {func(fs *v1alpha1.FunctionSpec) { fs.Deps = `{"dependencies": {"ms": "2.1.3"}}` }, "build", builds.ReasonDepsChanged},
		"env":  {func(fs *v1alpha1.FunctionSpec) { fs.Env = []corev1.EnvVar{{Name: "A", Value: "1"}} }, "revision", ""},
		"envFrom": {func(fs *v1alpha1.FunctionSpec) {
			fs.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}}}
		}, "revision", ""},
		"secretMounts": {func(fs *v1alpha1.FunctionSpec) {
			fs.SecretMounts = []v1alpha1.SecretMount{{SecretName: "a", MountPath: "/a"}}
		}, "revision", ""},
		"configMapMounts": {func(fs *v1alpha1.FunctionSpec) {
			fs.ConfigMapMounts = []v1alpha1.ConfigMapMount{{ConfigMapName: "a", MountPath: "/a"}}
		}, "revision", ""},
		"emptyDirMounts": {func(fs *v1alpha1.FunctionSpec) {
			fs.EmptyDirMounts = []v1alpha1.EmptyDirMount{{MountPath: "/a", SizeLimit: new(resource.MustParse("1Mi"))}}
		}, "revision", ""},
		"persistentVolumeClaimMounts": {func(fs *v1alpha1.FunctionSpec) {
			fs.PersistentVolumeClaimMounts = []v1alpha1.PersistentVolumeClaimMount{{ClaimName: "a", MountPath: "/a"}}
		}, "revision", ""},
		"serviceAccountName": {func(fs *v1alpha1.FunctionSpec) { fs.ServiceAccountName = "robot" }, "revision", ""},
		"nodeSelector":       {func(fs *v1alpha1.FunctionSpec) { fs.NodeSelector = map[string]string{"a": "b"} }, "revision", ""},
		"tolerations":        {func(fs *v1alpha1.FunctionSpec) { fs.Tolerations = []corev1.Toleration{{Key: "a"}} }, "revision", ""},
		"minReplicas":        {func(fs *v1alpha1.FunctionSpec) { fs.MinReplicas = new(int32(1)) }, "revision", ""},
		"maxReplicas":        {func(fs *v1alpha1.FunctionSpec) { fs.MaxReplicas = new(int32(5)) }, "revision", ""},
		"replicas":           {func(fs *v1alpha1.FunctionSpec) { fs.Replicas = new(int32(2)) }, "nothing", ""},
		"concurrency":        {func(fs *v1alpha1.FunctionSpec) { fs.Concurrency = new(int64(1)) }, "revision", ""},
		"timeoutSeconds":     {func(fs *v1alpha1.FunctionSpec) { fs.TimeoutSeconds = new(int64(7)) }, "revision", ""},
		"resources": {func(fs *v1alpha1.FunctionSpec) {
			fs.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		}, "revision", ""},
		"labels":      {func(fs *v1alpha1.FunctionSpec) { fs.Labels = map[string]string{"a": "b"} }, "revision", ""},
		"annotations": {func(fs *v1alpha1.FunctionSpec) { fs.Annotations = map[string]string{"a": "b"} }, "revision", ""},
		"visibility":  {func(fs *v1alpha1.FunctionSpec) { fs.Visibility = v1alpha1.VisibilityPublic }, "route", ""},
		"traffic": {func(fs *v1alpha1.FunctionSpec) {
			fs.Traffic = []v1alpha1.TrafficTarget{{RevisionName: "greeter-00001", Percent: new(int64(100))}}
		}, "route", ""},
		"build": {func(fs *v1alpha1.FunctionSpec) {
			fs.Build = &v1alpha1.BuildSpec{
				Resources:  corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
				Timeout:    &metav1.Duration{Duration: time.Minute},
				Env:        []v1alpha1.BuildEnvVar{{Name: "A", Value: "1"}},
				SecretName: "npm",
			}
		}, "nothing", ""},
	}
	documented := documentedEffects(t)
	for structField := range reflect.TypeFor[v1alpha1.FunctionSpec]().Fields() {
		field, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		row, ok := rows[field]
		if !ok {
			t.Errorf("spec.%s has no row: what does a change of it cause?", field)
			continue
		}
		t.Run(field, func(t *testing.T) {
			before, after := running1.DeepCopy(), running1.DeepCopy()
			row.edit(&after.Spec)
			if reflect.DeepEqual(before.Spec, after.Spec) {
				t.Fatal("the row changes nothing")
			}
			if got, reason := effectOf(before, after); got != row.want || reason != row.reason {
				t.Errorf("a change causes %s %s, want %s %s", got, reason, row.want, row.reason)
			}
			// Back again, too.
			if got, reason := effectOf(after, before); got != row.want || reason != row.reason {
				t.Errorf("the change back causes %s %s, want %s %s", got, reason, row.want, row.reason)
			}
			if documented[field] != row.want {
				t.Errorf("docs/function.md says that a change causes %q, want %s", documented[field], row.want)
			}
		})
	}

	metadata := running1.DeepCopy()
	metadata.Labels, metadata.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
	if got, reason := effectOf(running1, metadata); got != "nothing" {
		t.Errorf("a change of the Function's own labels causes %s %s", got, reason)
	}
	again := running1.DeepCopy()
	withRebuild("1")(again)
	if got, reason := effectOf(running1, again); got != "build" || reason != builds.ReasonRebuildRequested {
		t.Errorf("a request to build again causes %s %s", got, reason)
	}
}

// TestEffectsOfArchive edits a Function whose source is in an archive.
func TestEffectsOfArchive(t *testing.T) {
	one, other := strings.Repeat("1", 64), strings.Repeat("2", 64)
	for name, row := range map[string]struct {
		before, after v1alpha1.ArchiveSource
		want, reason  string
	}{
		"url": {
			v1alpha1.ArchiveSource{URL: "https://a/a.zip"}, v1alpha1.ArchiveSource{URL: "https://a/b.zip"}, "build", builds.ReasonSourceChanged,
		},
		"url of the same archive": {
			v1alpha1.ArchiveSource{URL: "https://a/a.zip", SHA256: one}, v1alpha1.ArchiveSource{URL: "https://b/a.zip?signature=2", SHA256: one}, "nothing", "",
		},
		"sha256": {
			v1alpha1.ArchiveSource{URL: "https://a/a.zip", SHA256: one}, v1alpha1.ArchiveSource{URL: "https://a/a.zip", SHA256: other}, "build", builds.ReasonSourceChanged,
		},
		"sha256 added": {
			v1alpha1.ArchiveSource{URL: "https://a/a.zip"}, v1alpha1.ArchiveSource{URL: "https://a/a.zip", SHA256: one}, "build", builds.ReasonSourceChanged,
		},
		"secretName": {
			v1alpha1.ArchiveSource{URL: "https://a/a.zip"}, v1alpha1.ArchiveSource{URL: "https://a/a.zip", SecretName: "b"}, "nothing", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := running1.DeepCopy(), running1.DeepCopy()
			before.Spec.Source, before.Spec.Archive = "", &row.before
			after.Spec.Source, after.Spec.Archive = "", &row.after
			if got, reason := effectOf(before, after); got != row.want || reason != row.reason {
				t.Errorf("a change causes %s %s, want %s %s", got, reason, row.want, row.reason)
			}
		})
	}
}

// TestEffectsOfGit edits a Function whose source is in a repository.
func TestEffectsOfGit(t *testing.T) {
	for name, row := range map[string]struct {
		edit         func(*v1alpha1.GitSource)
		want, reason string
	}{
		"url":        {func(g *v1alpha1.GitSource) { g.URL += "x" }, "build", builds.ReasonSourceChanged},
		"revision":   {func(g *v1alpha1.GitSource) { g.Revision = "next" }, "build", builds.ReasonSourceChanged},
		"contextDir": {func(g *v1alpha1.GitSource) { g.ContextDir = "fn" }, "build", builds.ReasonSourceChanged},
		"secretName": {func(g *v1alpha1.GitSource) { g.SecretName = "key" }, "nothing", ""},
	} {
		before := running1.DeepCopy()
		before.Spec.Source, before.Spec.Git = "", &v1alpha1.GitSource{URL: "https://example.com/a.git", Revision: "main"}
		after := before.DeepCopy()
		row.edit(after.Spec.Git)
		if got, reason := effectOf(before, after); got != row.want || reason != row.reason {
			t.Errorf("a change of git.%s causes %s %s, want %s %s", name, got, reason, row.want, row.reason)
		}
	}
}

// documentedEffects reads the last column of the page's table of fields.
func documentedEffects(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "function.md"))
	if err != nil {
		t.Fatal(err)
	}
	effects := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|.*\\| (build|revision|route|nothing) \\|$").FindAllStringSubmatch(string(page), -1) {
		effects[row[1]] = row[2]
	}
	return effects
}
