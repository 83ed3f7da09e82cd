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
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// buildFailed returns the condition of a failed build that only an edit can correct.
func buildFailed() apis.Condition {
	return apis.Condition{
		Type:   v1alpha1.FunctionConditionBuildReady,
		Status: corev1.ConditionFalse,
		Reason: builder.reasons.Failed,
	}
}

// missingDependency names a version that does not exist.
const missingDependency = `{"dependencies": {"ms": "99.99.99"}}`

// TestDependencyMissing checks that the status has npm's message, and that the old revision
// serves until the dependency is corrected.
func TestDependencyMissing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(answering("old"))), test.Ready)
	prober := e.probe(fn, "old")

	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Source = "module.exports = { main: () => require('ms')('2h').toString() };\n"
		fn.Spec.Deps = missingDependency
	})
	fn, condition := e.untilCondition(fn, buildFailed())
	wantWords(t, condition.Message, "No matching version found for ms@99.99.99")
	e.wantPhase(fn, v1alpha1.FunctionFailed)
	if failure := fn.Status.Build.Failure; failure == nil || !strings.Contains(failure.Log, "npm error") {
		e.Errorf("build.failure is %+v, want a log with npm's error", failure)
	}
	if running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning); !running.IsUnknown() {
		e.Errorf("Running is %v, want Unknown", running)
	}
	e.wantAnswer(fn, "{}", "old")
	e.wantBuilds(2)

	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Deps = `{"dependencies": {"ms": "2.1.3"}}` })
	fn = e.until(fn, test.Ready)
	e.wantPhase(fn, v1alpha1.FunctionRunning)
	e.untilAnswer(prober, "7200000")
	e.wantAnswers(prober, "old", "7200000")
	e.wantBuilds(3)
	e.wantRevisions(2)
}

// TestDependencyUnknown checks that the status names a package that no registry has.
func TestDependencyUnknown(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function(answering("never"))
	fn.Spec.Deps = `{"dependencies": {"@kiln-e2e/no-such-package": "1.0.0"}}`
	fn, condition := e.untilCondition(e.create(fn), buildFailed())
	wantWords(t, condition.Message, "spec.deps", "@kiln-e2e/no-such-package", "404")
	e.wantPhase(fn, v1alpha1.FunctionFailed)
	e.wantBuilds(1)
}

// TestBaseImageMissing checks that the status distinguishes a missing base image from an
// error in the Function. It adds a runtime to the configuration.
func TestBaseImageMissing(t *testing.T) {
	e := newEnv(t)
	fn := e.createWith(function(answering("never")), "nodejs-e2e-missing", func(runtime *config.Runtime) {
		image, err := name.ParseReference(runtime.BaseImage)
		if err != nil {
			e.Fatal(err)
		}
		runtime.BaseImage = image.Context().Tag("no-such-tag").String()
	})
	fn, condition := e.untilCondition(fn, apis.Condition{
		Type:   v1alpha1.FunctionConditionBuildReady,
		Status: corev1.ConditionFalse,
		Reason: v1alpha1.ReasonImagePullFailed,
	})
	wantWords(t, condition.Message, "config-runtimes", "no-such-tag")
	e.wantPhase(fn, v1alpha1.FunctionFailed)
}

// TestSyntaxError checks that a source with a syntax error is built. Its revision fails
// with the message of the language, while the old revision serves.
func TestSyntaxError(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(answering("old"))), test.Ready)
	prober := e.probe(fn, "old")

	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = "module.exports = { main: () => { };\n" })
	fn, condition := e.untilCondition(fn, revisionFailed())
	wantWords(t, condition.Message, "handler.js:", "SyntaxError")
	e.wantPhase(fn, v1alpha1.FunctionFailed)
	if built := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady); !built.IsTrue() {
		e.Errorf("BuildReady is %v, want True", built)
	}
	e.wantAnswer(fn, "{}", "old")

	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("new") })
	e.until(fn, test.Healed)
	e.untilAnswer(prober, "new")
	e.wantAnswers(prober, "old", "new")
	e.wantBuilds(3)
	e.wantRevisions(3)
}

// TestFirstRevisionFails checks that the status reports a failure of the first revision,
// and that the Function recovers after an edit.
func TestFirstRevisionFails(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.create(function("module.exports = { handle: () => 'wrong name' };\n"))
	fn, condition := e.untilCondition(fn, revisionFailed())
	wantWords(t, condition.Message, "handler.js", "main")
	e.wantPhase(fn, v1alpha1.FunctionFailed)

	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("mended") })
	fn = e.until(fn, test.Healed)
	e.wantAnswer(fn, "{}", "mended")
}

// TestCrashHidesSecrets checks that a secret in the output of a crash appears neither in
// the status nor in an event.
func TestCrashHidesSecrets(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const secret = "correct-horse-battery"
	fn := function("throw new Error(`cannot log in with ${process.env.API_KEY} at https://bob:staple@example.com`);\n")
	setEnv("API_KEY", secret)(fn)
	fn, condition := e.untilCondition(e.create(fn), revisionFailed())
	wantWords(t, condition.Message, "cannot log in with [redacted] at https://bob:[redacted]@example.com")
	told := &strings.Builder{}
	fmt.Fprint(told, fn.Status)
	events, err := clients.Kube.CoreV1().Events(e.namespace).List(e.ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(fn.UID)).String(),
	})
	if err != nil {
		e.Fatal(err)
	}
	for _, event := range events.Items {
		fmt.Fprintln(told, event.Message)
	}
	if strings.Contains(told.String(), secret) || strings.Contains(told.String(), "staple@") {
		e.Errorf("a secret was published: %s", told)
	}
}

// TestDenied checks that the webhook denies invalid Functions, and that the message names
// the field.
func TestDenied(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for name, row := range map[string]struct {
		change func(*v1alpha1.Function)
		words  []string
	}{
		"unknown runtime":    {func(fn *v1alpha1.Function) { fn.Spec.Runtime = "cobol85" }, []string{"spec.runtime", "nodejs24"}},
		"blank source":       {func(fn *v1alpha1.Function) { fn.Spec.Source = " \n" }, []string{"spec.source"}},
		"deps no JSON":       {func(fn *v1alpha1.Function) { fn.Spec.Deps = "[]" }, []string{"spec.deps"}},
		"min above max":      {func(fn *v1alpha1.Function) { fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(3)), new(int32(2)) }, []string{"minReplicas"}},
		"bad env name":       {setEnv("1=2", "x"), []string{"spec.env"}},
		"reserved env name":  {setEnv("PORT", "1"), []string{"PORT"}},
		"bad label key":      {func(fn *v1alpha1.Function) { fn.Spec.Labels = map[string]string{"a b": "c"} }, []string{"spec.labels"}},
		"label of Kiln's":    {func(fn *v1alpha1.Function) { fn.Spec.Labels = map[string]string{"serverless.kiln.dev/x": "c"} }, []string{"spec.labels"}},
		"name not for a URL": {func(fn *v1alpha1.Function) { fn.Name = "1.fn" }, []string{"metadata.name"}},
	} {
		fn := function(answering("denied"))
		row.change(fn)
		_, err := e.tryCreate(fn)
		if err == nil {
			e.Errorf("%s: the Function was admitted", name)
			continue
		}
		for _, word := range row.words {
			if !strings.Contains(err.Error(), word) {
				e.Errorf("%s: denied with %q, want %q in it", name, err, word)
			}
		}
	}
}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("message is %q, want %q in it", text, word)
		}
	}
}
