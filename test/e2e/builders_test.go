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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pipelinev1beta1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1beta1"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// The tests of this file choose the builder themselves. They are not parallel to any other
// test.

// choose sets the builder in config-build until the test ends.
func (e *env) choose(b config.Builder) {
	e.Helper()
	configure(e, config.BuildConfigName, func(data map[string]string) { data[builderKey] = string(b) })
}

// answer returns an edit of the source, which needs a build.
func answer(text string) func(*v1alpha1.Function) {
	return func(fn *v1alpha1.Function) { fn.Spec.Source = answering(text) }
}

// untilBuiltBy waits until the Function is ready and gives that answer. It checks that its
// last build was of that kind, and took one attempt.
func (e *env) untilBuiltBy(k *kind, fn *v1alpha1.Function, answer string) *v1alpha1.Function {
	e.Helper()
	fn = e.until(fn, test.Healed)
	e.wantAnswerSoon(fn, answer)
	if last := fn.Status.Build; last.Ref == nil || last.Ref.Kind != k.name || last.Attempts != 1 {
		e.Errorf("the last build is %+v of %+v, want the first attempt of a %s", last, last.Ref, k.name)
	}
	return fn
}

// TestBuilderSwitch changes the builder during a build. It checks that Kiln follows that
// build to its end, builds the next edit with the other builder, and never runs two builds
// of the Function at once. The other builder reuses the dependencies. An edit at the time of
// the change replaces the running build.
func TestBuilderSwitch(t *testing.T) {
	e := newEnv(t)
	e.choose(config.TektonBuilder)
	fn := e.create(installing("setTimeout(() => 0, 20000)"))
	e.untilBuildOf(taskRunKind, fn, hasStarted)

	e.choose(config.JobBuilder)
	// The Job of another Function shows that Kiln has seen the change.
	other := function(answering("other"))
	other.Name = "other"
	other = e.create(other)
	switched := e.untilBuildOf(jobKind, other, nil)
	fn = e.untilBuiltBy(taskRunKind, fn, "7200000")
	e.untilBuiltBy(jobKind, other, "other")

	fn = e.untilBuiltBy(jobKind, e.edit(fn, answer("with a Job")), "with a Job")
	e.choose(config.TektonBuilder)
	fn = e.untilBuiltBy(taskRunKind, e.edit(fn, answer("with a TaskRun")), "with a TaskRun")

	own := slices.DeleteFunc(e.seenBuilds(), func(b *build) bool { return !ownedBy(b, fn) })
	var got [][]string
	for _, b := range own {
		got = append(got, append([]string{b.kind.name}, b.steps...))
	}
	want := [][]string{{"TaskRun", "install", "push"}, {"Job", "push"}, {"TaskRun", "push"}}
	if diff := cmp.Diff(want, got); diff != "" {
		e.Fatalf("builds of the Function (-want, +got):\n%s", diff)
	}
	if !switched.CreationTimestamp.Before(own[0].completed) {
		e.Errorf("the builder changed at %s, and the first build ended at %s: it did not run then", switched.CreationTimestamp, own[0].completed)
	}
	e.wantApart(own)
	e.wantReplaced(fn)
}

// wantReplaced edits a Function and changes the builder while a TaskRun builds it. It checks
// that a Job replaces the TaskRun, and does not run beside it.
func (e *env) wantReplaced(fn *v1alpha1.Function) {
	e.Helper()
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Deps = installing(asleep).Spec.Deps })
	e.untilBuildOf(taskRunKind, fn, func(b *build) bool { return b.started && !b.ended })
	e.choose(config.JobBuilder)
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source, fn.Spec.Deps = answering("replaced"), "" })
	e.untilBuildOf(jobKind, fn, isUnended)
	for _, b := range e.liveBuilds(taskRunKind, ofFunction(fn)) {
		if !b.ended {
			e.Errorf("TaskRun %s still runs beside a Job", b.Name)
		}
	}
	e.untilBuiltBy(jobKind, fn, "replaced")
}

// TestWithoutTekton deletes Tekton's definition of TaskRuns. It checks that Kiln then builds
// with Jobs if it may choose, and reports that it cannot build with TaskRuns. When the
// definition exists again, Kiln builds with TaskRuns within a minute.
func TestWithoutTekton(t *testing.T) {
	if !deleteTekton || builder != taskRunKind {
		t.Skip("-delete-tekton is not set, or builds run as Jobs: this test deletes all TaskRuns of the cluster")
	}
	e := newEnv(t)
	e.choose(config.AutoBuilder)
	fn := e.untilBuiltBy(taskRunKind, e.create(function(answering("one"))), "one")

	with := untilLed(e, func(string) bool { return true })
	reinstall := e.deleteTaskRuns()
	without := untilLed(e, func(leader string) bool { return leader != with })
	e.wantAnswer(fn, "{}", "one")
	fn = e.untilBuiltBy(jobKind, e.edit(fn, answer("two")), "two")

	e.choose(config.TektonBuilder)
	fn, condition := e.untilCondition(e.edit(fn, answer("three")), apis.Condition{
		Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonBuilderUnavailable,
	})
	wantWords(t, condition.Message, config.BuildConfigName, `"tekton"`)
	e.wantAnswer(fn, "{}", "two")
	e.wantJobs(1)
	e.choose(config.AutoBuilder)
	fn = e.untilBuiltBy(jobKind, fn, "three")

	start := metav1.Now()
	reinstall(e)
	untilLed(e, func(leader string) bool { return leader != without })
	fn = e.edit(fn, answer("four"))
	if took := e.untilBuildOf(taskRunKind, fn, nil).CreationTimestamp.Sub(start.Time); took > time.Minute {
		e.Errorf("a TaskRun was created %s after Tekton's installation, want at most a minute", took)
	}
	e.untilBuiltBy(taskRunKind, fn, "four")
	e.wantJobs(2)
}

// wantJobs checks the exact number of Jobs that were ever created. The history of TaskRuns
// ends with their definition.
func (e *env) wantJobs(want int) {
	e.Helper()
	seen, err := e.jobs.Seen()
	if err != nil {
		e.Fatal(err)
	}
	if len(seen) != want {
		e.Errorf("%d Jobs were created, want %d", len(seen), want)
	}
}

// deleteTaskRuns deletes Tekton's definition of TaskRuns, and with it all TaskRuns. The
// returned function creates the definition again. It also runs when the test ends.
func (e *env) deleteTaskRuns() (reinstall func(*env)) {
	e.Helper()
	const name = "taskruns.tekton.dev"
	definitions := clients.Definitions.ApiextensionsV1().CustomResourceDefinitions()
	before, err := definitions.Get(e.ctx, name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	again := &apiextensionsv1.CustomResourceDefinition{
		// Tekton's webhook has written its certificate into the spec.
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: before.Labels, Annotations: before.Annotations},
		Spec:       before.Spec,
	}
	until := func(e *env, check test.Check[*apiextensionsv1.CustomResourceDefinition]) {
		e.Helper()
		if err := test.Until(e.ctx, definitions, test.Named(name), check); err != nil {
			e.Fatal(err)
		}
	}
	reinstall = func(e *env) {
		e.Helper()
		until(e, func(found []*apiextensionsv1.CustomResourceDefinition) error {
			if len(found) > 0 && found[0].DeletionTimestamp != nil {
				return errors.New("the definition of TaskRuns is being deleted")
			}
			return nil
		})
		if _, err := definitions.Create(e.ctx, again, metav1.CreateOptions{}); err != nil && !apierrs.IsAlreadyExists(err) {
			e.Fatal(err)
		}
		untilAccepted(e, e.tryTaskRun)
	}
	e.restore(reinstall)
	if err := definitions.Delete(e.ctx, name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	until(e, gone[*apiextensionsv1.CustomResourceDefinition])
	return reinstall
}

// tryTaskRun creates no TaskRun, but asks for one in an old version. Tekton's webhook
// defaults, validates and converts it.
func (e *env) tryTaskRun() error {
	//nolint:staticcheck // It tests the conversion of an old version.
	taskRun := &pipelinev1beta1.TaskRun{
		ObjectMeta: metav1.ObjectMeta{Name: "trial"},
		Spec:       pipelinev1beta1.TaskRunSpec{TaskRef: &pipelinev1beta1.TaskRef{Name: "any"}},
	}
	_, err := clients.Pipeline.TektonV1beta1().TaskRuns(e.namespace).Create(e.ctx, taskRun, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
