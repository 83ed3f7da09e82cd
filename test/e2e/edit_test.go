//go:build e2e

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

package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// TestSourceEdited wants a new build and that nobody who calls the function in
// the meantime notices more than that the answer changes, once.
func TestSourceEdited(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(answering("old"))), test.Ready)
	first := e.onlyBuild()
	oldImage := fn.Status.Image
	prober := e.probe(fn, "old")

	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("new") })
	fn = e.until(fn, test.Ready)
	e.untilAnswer(prober, "new")
	report := e.wantAnswers(prober, "old", "new")

	second := e.onlyBuild()
	if second.UID == first.UID {
		t.Errorf("TaskRun %s is still the one of the old source", first.Name)
	}
	e.wantBuilds(2)
	e.wantRevisions(2)
	if fn.Status.Image == oldImage {
		t.Errorf("image is still %s", oldImage)
	}
	// Kubernetes' times are in whole seconds.
	if done := second.Status.CompletionTime; len(report.Runs) > 0 && report.Runs[0].Last.Before(done.Time) {
		t.Errorf("the old source answered until %s only, and its successor was built at %s", report.Runs[0].Last, done)
	}
}

// TestConfigurationEdited wants that what is not built into the image changes
// without a build, and what is not the function's at all changes nothing.
func TestConfigurationEdited(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function("module.exports = { main: () => process.env.GREETING || 'none' };\n")
	fn = e.until(e.create(fn), test.Ready)
	image := fn.Status.Image
	prober := e.probe(fn, "none")

	// Labels of the Function: neither a build nor a revision. What follows gives
	// the controller every occasion to do something about them.
	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Labels = map[string]string{"team": "blue"}
		fn.Annotations = map[string]string{"example.com/note": "blue"}
	})

	fn = e.until(e.edit(fn, setEnv("GREETING", "hello")), test.Ready)
	e.untilAnswer(prober, "hello")
	e.wantRevisions(2)

	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("77m")}
	}), test.Ready)
	revisions := e.wantRevisions(3)
	container := e.service(fn).Spec.Template.Spec.Containers[0]
	if got := container.Resources.Requests.Cpu().String(); got != "77m" {
		t.Errorf("the container requests %s of CPU, want 77m", got)
	}

	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Env = nil }), test.Ready)
	e.untilAnswer(prober, "none")
	e.wantAnswers(prober, "none", "hello", "none")
	e.wantRevisions(4)
	e.wantBuilds(1)
	if fn.Status.Image != image {
		t.Errorf("image was %s, and is %s", image, fn.Status.Image)
	}
	for _, revision := range revisions {
		if got := revision.Labels["team"]; got != "" {
			t.Errorf("revision %s has the Function's label team=%s", revision.Name, got)
		}
	}
}

// TestLabelsOfPods wants that spec.labels, which are the pods', come and go
// with a revision and without a build.
func TestLabelsOfPods(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(answering("labels"))), test.Ready)
	for i, labels := range []map[string]string{{"tier": "edge"}, nil} {
		fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Labels = labels }), test.Ready)
		e.wantRevisions(i + 2)
		if got := e.service(fn).Spec.Template.Labels["tier"]; got != labels["tier"] {
			t.Errorf("the pods' label tier is %q, want %q", got, labels["tier"])
		}
	}
	e.wantBuilds(1)
}

// TestDependenciesInstalledOnce wants that dependencies are installed for the
// first image and not for the next, until a rebuild is asked for.
func TestDependenciesInstalledOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function("const ms = require('ms');\nmodule.exports = { main: () => `first ${ms('1h')}` };\n")
	fn.Spec.Deps = `{"dependencies": {"ms": "2.1.3"}}`
	fn = e.until(e.create(fn), test.Ready)
	e.wantSteps(fn, "install", "push")

	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = strings.Replace(fn.Spec.Source, "first", "second", 1) }), test.Ready)
	e.wantSteps(fn, "push")
	e.wantAnswerSoon(fn, "second 3600000")
	e.wantPackages(fn, e.wantTypeHints(fn), "pkg:npm/ms@2.1.3")

	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Annotations = map[string]string{serverless.RebuildAnnotationKey: "1"} }), func(fn *v1alpha1.Function) error {
		if fn.Status.Build == nil || fn.Status.Build.Rebuild != "1" {
			return errors.New("the rebuild has not begun")
		}
		return test.Ready(fn)
	})
	e.wantSteps(fn, "install", "push")
}

// wantSteps wants that the Function's last build had these steps.
func (e *env) wantSteps(fn *v1alpha1.Function, want ...string) {
	e.Helper()
	var got []string
	for _, step := range e.onlyBuild().Spec.TaskSpec.Steps {
		got = append(got, step.Name)
	}
	if !slices.Equal(got, want) {
		e.Errorf("the build of generation %d had the steps %v, want %v", fn.Generation, got, want)
	}
}
