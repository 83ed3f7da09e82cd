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
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/controller"
	servingfake "knative.dev/serving/pkg/client/clientset/versioned/fake"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// withDockerfile has the Function built of its own Dockerfile.
func withDockerfile(revision string) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Spec.Runtime, fn.Spec.Source = "any", ""
		fn.Spec.Git = &v1alpha1.GitSource{URL: "https://example.com/a.git", Revision: revision}
	}
}

func dockerfileConfig() *config.Config {
	return testConfig(func(cfg *config.Config) { cfg.Runtimes["any"] = config.Runtime{Language: "dockerfile"} })
}

// TestPlanOfDockerfile wants that all of the build is fetched, and that nobody asks a
// registry for a base image that only the Dockerfile knows.
func TestPlanOfDockerfile(t *testing.T) {
	ctx := config.ToContext(t.Context(), dockerfileConfig())
	tags := map[string]bool{}
	for revision, reuses := range map[string]bool{"main": false, strings.Repeat("1", 40): true, strings.Repeat("2", 40): true} {
		fn := function(withDockerfile(revision))
		want, ok := makePlan(ctx, fn)
		if !ok {
			t.Fatalf("there is no plan: %v", fn.Status.Conditions)
		}
		if len(want.files) > 0 || len(want.installFiles) > 0 {
			t.Errorf("the ConfigMap has %v", want.files)
		}
		if want.lookup.Base != "" || want.lookup.Dependencies != "" || (want.lookup.Tag != "") != reuses {
			t.Errorf("revision %s: the registry is asked for %+v", revision, want.lookup)
		}
		tags[want.request.Tag] = true
	}
	if len(tags) != 3 {
		t.Errorf("three sources have the tags %v", tags)
	}
	for name, fn := range map[string]*v1alpha1.Function{
		"found by the webhook": function(withRuntime("any")),
		"a runtime that was changed since": function(withRuntime("any"), func(fn *v1alpha1.Function) {
			fn.Status.AcceptedGeneration = fn.Generation
		}),
	} {
		_, ok := makePlan(ctx, fn)
		condition := fn.Status.GetCondition(v1alpha1.FunctionConditionConfigurationReady)
		if ok || condition.GetReason() != v1alpha1.ReasonInvalidSpec || !strings.Contains(condition.GetMessage(), "put them into spec.git or spec.archive") {
			t.Errorf("%s: ConfigurationReady is %+v", name, condition)
		}
	}
}

// TestServiceOfDockerfile wants that an image is asked for Kiln's own path only where
// Kiln has put what answers there.
func TestServiceOfDockerfile(t *testing.T) {
	ctx := config.ToContext(t.Context(), dockerfileConfig())
	for name, tc := range map[string]struct {
		fn   *v1alpha1.Function
		want bool
	}{
		"own Dockerfile":            {function(withDockerfile("main")), true},
		"wrapper":                   {function(), false},
		"runtime that is not known": {function(withRuntime("cobol")), false},
	} {
		probe := makeService(ctx, tc.fn).Spec.Template.Spec.Containers[0].ReadinessProbe
		if got := probe.TCPSocket != nil && probe.HTTPGet == nil; got != tc.want {
			t.Errorf("%s: the probe is %+v", name, probe)
		}
	}
}

func TestRunningSince(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	runs := func(name string, age time.Duration) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-age))}}}
	}
	ready := pod(running1, "greeter-00001", runs("function", time.Hour))
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	first, second := pod(running1, "greeter-00001", runs("queue-proxy", time.Minute), runs("function", time.Hour)), pod(running1, "greeter-00001", runs("function", time.Second))
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want time.Time
	}{
		"no pod":        {nil, time.Time{}},
		"a ready one":   {[]*corev1.Pod{ready}, time.Time{}},
		"not started":   {[]*corev1.Pod{pod(running1, "greeter-00001", crashed1)}, time.Time{}},
		"not all of it": {[]*corev1.Pod{pod(running1, "greeter-00001", runs("function", time.Hour), corev1.ContainerStatus{Name: "queue-proxy"})}, time.Time{}},
		"the eldest":    {[]*corev1.Pod{ready, second, first}, now.Add(-time.Minute)},
		"in any order":  {[]*corev1.Pod{first, second, ready}, now.Add(-time.Minute)},
	} {
		if got := stateOfPods(tc.pods, nil).waiting; !got.Equal(tc.want) {
			t.Errorf("%s: waits since %v, want %v", name, got, tc.want)
		}
	}
}

// TestMarkUnreadyDockerfile wants that an image in which nothing listens is told of
// long before Serving gives it up, and then in words that say what to do.
func TestMarkUnreadyDockerfile(t *testing.T) {
	const listens = "Have what the Dockerfile starts listen on $PORT, which is 8080."
	ago := func(age time.Duration) podState { return podState{waiting: time.Now().Add(-age)} }
	starting := serviceStatus(corev1.ConditionUnknown, "RevisionMissing", "x", "greeter-00001", "")
	for name, tc := range map[string]struct {
		svc     serviceOption
		pods    podState
		want    apis.Condition
		requeue time.Duration
	}{
		"no pod runs yet": {
			starting, podState{}, apis.Condition{Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonServiceWaiting, Message: "RevisionMissing: x"}, portPatience,
		},
		"it has just started": {
			starting, ago(10 * time.Second), apis.Condition{Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonServiceWaiting, Message: "RevisionMissing: x"}, portPatience - 10*time.Second,
		},
		"it listens, and the route waits": {
			starting, podState{ready: 1}, apis.Condition{Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonServiceWaiting, Message: "RevisionMissing: x"}, 0,
		},
		"it has run for long": {
			starting, ago(portPatience), apis.Condition{
				Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonServiceWaiting,
				Message: "Revision greeter-00001: its image runs, and nothing in it listens on port 8080 yet. " + listens + " The log of its pod tells what it does.",
			}, 0,
		},
		"Serving has given it up": {
			serviceStatus(corev1.ConditionFalse, "RevisionFailed", `Revision "greeter-00001" failed with message: Initial scale was never achieved.`, "greeter-00001", ""),
			podState{}, apis.Condition{
				Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonServiceFailed,
				Message: `RevisionFailed: Revision "greeter-00001" failed with message: Initial scale was never achieved. If its pods did start: ` + listens,
			}, 0,
		},
		"it has failed otherwise": {
			serviceStatus(corev1.ConditionFalse, "RevisionFailed", "no.", "greeter-00001", ""),
			podState{}, apis.Condition{Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonServiceFailed, Message: "RevisionFailed: no."}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fn := function(withDockerfile("main"))
			ctx := config.ToContext(t.Context(), dockerfileConfig())
			svc := makeService(ctx, fn)
			svc.Status.InitializeConditions()
			tc.svc(svc)
			r := &Reconciler{serving: servingfake.NewSimpleClientset()}
			err := r.markUnready(ctx, fn, svc, tc.pods)
			_, after := controller.IsRequeueKey(err)
			if off := after - tc.requeue; off > 0 || off < -2*time.Second || (err == nil) != (tc.requeue == 0) {
				t.Errorf("markUnready() = %v, after %s, want %s", err, after, tc.requeue)
			}
			tc.want.Type = v1alpha1.FunctionConditionRunning
			got := *fn.Status.GetCondition(tc.want.Type)
			got.LastTransitionTime = tc.want.LastTransitionTime
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("condition (-want, +got):\n%s", diff)
			}
		})
	}
}
