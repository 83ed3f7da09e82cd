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
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/conformance"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// callers is the number of concurrent callers. Each call takes conformance.LongTime.
const callers = 4

// TestRollout edits the source in each runtime while calls are in progress. It checks that
// callers see only that the answer changes, and only once. Calls are in progress when the
// new revision becomes ready and when the old pod stops.
func TestRollout(t *testing.T) {
	t.Parallel()
	for runtime, of := range wrapped(t) {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			fn := conforming(t, runtime, of, conformance.Source)
			// Serving ends the old pod after this time without calls.
			fn.Spec.Annotations = map[string]string{"autoscaling.knative.dev/window": "6s"}
			fn = e.until(e.create(fn), test.Ready)
			first, image := e.onlyBuild(), fn.Status.Image
			call := api.Request{Method: http.MethodGet, URL: fn.Status.URL.String() + conformance.LongPath}
			probers := e.probeOften(call, callers, conformance.LongAnswer)
			drained := e.watchDrain(fn)

			const edited = "of another source"
			fn = e.edit(fn, func(fn *v1alpha1.Function) {
				fn.Spec.Source = strings.ReplaceAll(fn.Spec.Source, conformance.LongAnswer, edited)
			})
			fn = e.until(fn, test.Ready)
			ready := server.readyTime(e, fn.Status.LatestReadyRevisionName)
			for _, prober := range probers {
				e.untilAnswer(prober, edited)
			}
			drained()
			for _, prober := range probers {
				report := e.wantAnswers(prober, conformance.LongAnswer, edited)
				if last := report.Runs[0].Last.Add(conformance.LongTime); last.Before(ready) {
					e.Errorf("the old source answered until %s only, and the new revision was ready at %s: no calls were in progress", last, ready)
				}
			}

			if second := e.onlyBuild(); second.UID == first.UID {
				e.Errorf("%s %s is still that of the old source", builder.name, first.Name)
			}
			e.wantBuilds(2)
			e.wantRevisions(2)
			if fn.Status.Image == image {
				e.Errorf("image is still %s", image)
			}
		})
	}
}

// watchDrain calls the pod of a Function repeatedly without Serving, which stops its own
// requests long before the container gets SIGTERM. The returned function waits until the
// pod has stopped, and checks that every accepted call was answered.
func (e *env) watchDrain(fn *v1alpha1.Function) (drained func()) {
	e.Helper()
	pod := e.podOf(fn)
	deleted := e.whenDeleted(pod)
	at := "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(runtimes.Port)) + conformance.LongPath
	prober := e.probeOften(api.Request{Method: http.MethodGet, URL: at}, 1, conformance.LongAnswer)[0]
	return func() {
		e.Helper()
		if err := test.Until(e.ctx, clients.Kube.CoreV1().Pods(e.namespace), test.Named(pod.Name), func(found []*corev1.Pod) error {
			if len(found) == 0 || slices.ContainsFunc(found[0].Status.ContainerStatuses, functionEnded) {
				return nil
			}
			return fmt.Errorf("the function of pod %s, of the old revision, still runs", pod.Name)
		}); err != nil {
			e.Fatal(err)
		}
		report, err := prober.Stop(e.ctx)
		if err != nil {
			e.Fatal(err)
		}
		pod, ok := <-deleted
		if !ok {
			e.Fatal("the pod ended before it was deleted")
		}
		told := pod.DeletionTimestamp.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
		if last := report.Runs[len(report.Runs)-1].Last; last.Before(told) {
			e.Errorf("pod %s was called until %s only, and deleted at %s", pod.Name, last, told)
		}
		// The first failed call must have failed to connect.
		if report.Failed > 0 && !strings.Contains(report.Failures[0].Answer.Error, "dial tcp") {
			e.Errorf("pod %s accepted a request and did not answer it: %+v", pod.Name, report.Failures[0])
		}
	}
}

// whenDeleted returns a channel that gets the pod as it is when somebody deletes it. When the
// pod has ended, its grace period is 0.
func (e *env) whenDeleted(pod *corev1.Pod) <-chan *corev1.Pod {
	deleted := make(chan *corev1.Pod, 1)
	go func() {
		defer close(deleted)
		_ = test.Until(e.ctx, clients.Kube.CoreV1().Pods(e.namespace), test.Named(pod.Name), func(found []*corev1.Pod) error {
			switch {
			case len(found) == 0:
				return test.GiveUp(errors.New("the pod is gone"))
			case found[0].DeletionTimestamp == nil:
				return errors.New("the pod is not deleted")
			}
			deleted <- found[0]
			return nil
		})
	}()
	return deleted
}

// functionEnded reports whether a function's container has ended.
func functionEnded(status corev1.ContainerStatus) bool {
	return status.Name == children.FunctionContainer && status.State.Terminated != nil
}

// TestConfigurationEdited checks which edits need a revision but no build, and which need
// neither.
func TestConfigurationEdited(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function("module.exports = { main: () => process.env.GREETING || 'none' };\n")
	fn = e.until(e.create(fn), test.Ready)
	image := fn.Status.Image
	prober := e.probe(fn, "none")

	// Labels of the Function need neither a build nor a revision. The later edits make the
	// controller reconcile it again.
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
		e.Errorf("the container requests %s of CPU, want 77m", got)
	}

	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Env = nil }), test.Ready)
	e.untilAnswer(prober, "none")
	e.wantAnswers(prober, "none", "hello", "none")
	e.wantRevisions(4)
	e.wantBuilds(1)
	if fn.Status.Image != image {
		e.Errorf("image changed from %s to %s", image, fn.Status.Image)
	}
	for _, revision := range revisions {
		if got := revision.Labels["team"]; got != "" {
			e.Errorf("revision %s has the Function's label team=%s", revision.Name, got)
		}
	}
}

// TestLabelsOfPods checks that a change of spec.labels makes a revision and no build.
func TestLabelsOfPods(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(answering("labels"))), test.Ready)
	for i, labels := range []map[string]string{{"tier": "edge"}, nil} {
		fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Labels = labels }), test.Ready)
		e.wantRevisions(i + 2)
		if got := e.service(fn).Spec.Template.Labels["tier"]; got != labels["tier"] {
			e.Errorf("the pods' label tier is %q, want %q", got, labels["tier"])
		}
	}
	e.wantBuilds(1)
}

// TestDependenciesInstalledOnce checks that the first build installs the dependencies, the
// next one reuses them, and a requested rebuild installs them again.
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

// wantSteps checks that the last build of the Function had these steps.
func (e *env) wantSteps(fn *v1alpha1.Function, want ...string) {
	e.Helper()
	if got := e.onlyBuild().steps; !slices.Equal(got, want) {
		e.Errorf("the build of generation %d had the steps %v, want %v", fn.Generation, got, want)
	}
}
