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

package knative

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/controller"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingfake "knative.dev/serving/pkg/client/clientset/versioned/fake"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

// dockerfileConfig has a runtime with a wrapper, and one with the author's own Dockerfile.
func dockerfileConfig() *config.Config {
	return &config.Config{
		Registry: &config.Registry{},
		Runtimes: config.Runtimes{"any": {Language: "dockerfile"}, "nodejs24": {BaseImage: "node:24", Language: "nodejs"}},
	}
}

func ofRuntime(runtime string) *v1alpha1.Function {
	return &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Name: "greeter", Namespace: "default", UID: "uid-1", Generation: 1},
		Spec:       v1alpha1.FunctionSpec{Runtime: runtime},
	}
}

// TestServiceOfDockerfile checks that only images with Kiln's wrapper are probed on the
// wrapper's path.
func TestServiceOfDockerfile(t *testing.T) {
	ctx := config.ToContext(t.Context(), dockerfileConfig())
	for name, tc := range map[string]struct {
		fn   *v1alpha1.Function
		want bool
	}{
		"own Dockerfile":            {ofRuntime("any"), true},
		"wrapper":                   {ofRuntime("nodejs24"), false},
		"runtime that is not known": {ofRuntime("cobol"), false},
	} {
		probe := desiredService(ctx, tc.fn).Spec.Template.Spec.Containers[0].ReadinessProbe
		if got := probe.TCPSocket != nil && probe.HTTPGet == nil; got != tc.want {
			t.Errorf("%s: the probe is %+v", name, probe)
		}
	}
}

// TestMarkNotReadyDockerfile checks that the status reports an image that does not listen
// long before Serving's deadline, and says what to do.
func TestMarkNotReadyDockerfile(t *testing.T) {
	const listens = "The command in the Dockerfile must listen on $PORT, which is 8080."
	ago := func(age time.Duration) pods.State { return pods.State{RunningSince: time.Now().Add(-age)} }
	starting := apis.Condition{Status: corev1.ConditionUnknown, Reason: "RevisionMissing", Message: "x"}
	noRoom := apis.Condition{Status: corev1.ConditionFalse, Reason: "RevisionFailed", Message: `Revision "greeter-00001" failed with message: no CPU.`}
	unschedulable := &servingv1.Revision{ObjectMeta: metav1.ObjectMeta{Name: "greeter-00001", Namespace: "default"}}
	unschedulable.Status.MarkResourcesAvailableFalse(corev1.PodReasonUnschedulable, "no CPU.")
	for name, tc := range map[string]struct {
		ready   apis.Condition
		served  []runtime.Object
		pods    pods.State
		want    apis.Condition
		requeue time.Duration
	}{
		"no pod runs yet": {
			starting, nil, pods.State{}, apis.Condition{Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonServiceWaiting, Message: "RevisionMissing: x"}, podspec.PortTimeout,
		},
		"it has just started": {
			starting, nil, ago(10 * time.Second), apis.Condition{Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonServiceWaiting, Message: "RevisionMissing: x"}, podspec.PortTimeout - 10*time.Second,
		},
		"it listens, and the route waits": {
			starting, nil, pods.State{Ready: 1}, apis.Condition{Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonServiceWaiting, Message: "RevisionMissing: x"}, 0,
		},
		"it has run for long": {
			starting, nil, ago(podspec.PortTimeout), apis.Condition{
				Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonServiceWaiting,
				Message: "Revision greeter-00001: its image runs but does not listen on port 8080 yet. " + listens + " See the log of its pod.",
			}, 0,
		},
		"Serving has given it up": {
			apis.Condition{Status: corev1.ConditionFalse, Reason: "RevisionFailed", Message: `Revision "greeter-00001" failed with message: Initial scale was never achieved.`},
			nil, pods.State{}, apis.Condition{
				Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonServiceFailed,
				Message: `RevisionFailed: Revision "greeter-00001" failed with message: Initial scale was never achieved. If its pods started: ` + listens,
			}, 0,
		},
		"it has failed otherwise": {
			apis.Condition{Status: corev1.ConditionFalse, Reason: "RevisionFailed", Message: "no."},
			nil, pods.State{}, apis.Condition{Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonServiceFailed, Message: "RevisionFailed: no."}, 0,
		},
		"Serving knows no room for it": {
			noRoom, []runtime.Object{unschedulable}, pods.State{}, apis.Condition{
				Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonMinimumReplicasUnavailable, Message: "Revision greeter-00001: no CPU.",
			}, podspec.PortTimeout,
		},
		"Serving has not noticed that there is room now": {
			noRoom, []runtime.Object{unschedulable}, ago(10 * time.Second), apis.Condition{
				Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonServiceWaiting, Message: "Revision greeter-00001 is not ready yet.",
			}, podspec.PortTimeout - 10*time.Second,
		},
		"Serving has not noticed that it has run for long": {
			noRoom, []runtime.Object{unschedulable}, ago(podspec.PortTimeout), apis.Condition{
				Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonServiceWaiting,
				Message: "Revision greeter-00001: its image runs but does not listen on port 8080 yet. " + listens + " See the log of its pod.",
			}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fn := ofRuntime("any")
			ctx := config.ToContext(t.Context(), dockerfileConfig())
			svc := desiredService(ctx, fn)
			svc.Status.LatestCreatedRevisionName = "greeter-00001"
			configured := tc.ready
			tc.ready.Type, configured.Type = servingv1.ServiceConditionReady, servingv1.ServiceConditionConfigurationsReady
			svc.Status.SetConditions(apis.Conditions{configured, tc.ready})
			s := &Server{Client: servingfake.NewSimpleClientset(tc.served...)}
			err := s.markNotReady(ctx, fn, svc, tc.pods)
			_, after := controller.IsRequeueKey(err)
			if off := after - tc.requeue; off > 0 || off < -2*time.Second || (err == nil) != (tc.requeue == 0) {
				t.Errorf("markNotReady() = %v, after %s, want %s", err, after, tc.requeue)
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
