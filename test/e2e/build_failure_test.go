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
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// The tests of this file cause the build failures in docs/builds.md that a cluster can
// reproduce.

// installing returns a Function whose dependency runs a Node script during the
// installation. The script must not contain quotes.
func installing(script string) *v1alpha1.Function {
	fn := function("module.exports = { main: () => require('ms')('2h').toString() };\n")
	fn.Spec.Deps = fmt.Sprintf(`{"dependencies": {"ms": "2.1.3"}, "scripts": {"install": "node -e '%s'"}}`, script)
	return fn
}

// asleep is a script that runs longer than any of these tests.
const asleep = "setTimeout(() => 0, 600000)"

// limited sets a resource limit of the build.
func limited(fn *v1alpha1.Function, name corev1.ResourceName, limit string) *v1alpha1.Function {
	fn.Spec.Build = &v1alpha1.BuildSpec{
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse(limit)}},
	}
	return fn
}

// untilFailed waits until the build has failed with that reason. It checks that the message
// has these words and that Kiln does not retry the build.
func (e *env) untilFailed(fn *v1alpha1.Function, reason string, words ...string) *v1alpha1.Function {
	e.Helper()
	fn, condition := e.untilCondition(fn, apis.Condition{
		Type:   v1alpha1.FunctionConditionBuildReady,
		Status: corev1.ConditionFalse,
		Reason: reason,
	})
	wantWords(e.T, condition.Message, words...)
	e.wantPhase(fn, v1alpha1.FunctionFailed)
	if failure := fn.Status.Build.Failure; failure == nil || failure.Reason != reason || failure.Transient {
		e.Errorf("build.failure is %+v, want %s, not transient", failure, reason)
	}
	e.wantBuilds(int(fn.Status.Build.Attempts))
	return fn
}

// untilRetrying waits until that attempt at the build has failed, and checks that the
// message has these words. Several accepted reasons are separated by " or ".
func (e *env) untilRetrying(fn *v1alpha1.Function, attempt int32, reason string, words ...string) *v1alpha1.Function {
	e.Helper()
	fn = e.until(fn, func(fn *v1alpha1.Function) error {
		condition, build := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady), fn.Status.Build
		switch {
		case fn.Generation != fn.Status.ObservedGeneration || build == nil || build.Attempts < attempt || build.Failure == nil:
			return fmt.Errorf("attempt %d has not failed: BuildReady is %v", attempt, condition)
		case build.Attempts > attempt || !slices.Contains(strings.Split(reason, " or "), build.Failure.Reason):
			return test.GiveUp(fmt.Errorf("build is %+v, failure %+v, want attempt %d and %s", build, build.Failure, attempt, reason))
		default:
			return nil
		}
	})
	condition := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady)
	if !condition.IsUnknown() || condition.Reason != v1alpha1.ReasonBuildRetrying || !fn.Status.Build.Failure.Transient {
		e.Errorf("BuildReady is %v, failure %+v, want a retry", condition, fn.Status.Build.Failure)
	}
	wantWords(e.T, condition.Message, append(words, fmt.Sprintf("Attempt %d of ", attempt), "the next starts at ", fn.Status.Build.Failure.Reason)...)
	e.wantPhase(fn, v1alpha1.FunctionBuilding)
	return fn
}

// TestBuildScriptFails checks that npm's message reports which script failed.
func TestBuildScriptFails(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.untilFailed(e.create(installing("process.exit(3)")), builder.reasons.Failed, "process.exit(3)")
}

// TestBuildOutOfMemory checks that the status reports a build that exceeds the Function's
// memory limit.
func TestBuildOutOfMemory(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	greedy := "const all = []; for (;;) all.push(Buffer.alloc(1 << 24, 1))"
	e.untilFailed(e.create(limited(installing(greedy), corev1.ResourceMemory, "256Mi")),
		v1alpha1.ReasonBuildOutOfMemory, "spec.build.resources.limits.memory", "max-memory")
}

// TestBuildTimeout checks that a build ends after spec.build.timeout.
func TestBuildTimeout(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := installing(asleep)
	fn.Spec.Build = &v1alpha1.BuildSpec{Timeout: &metav1.Duration{Duration: 15 * time.Second}}
	e.untilFailed(e.create(fn), v1alpha1.ReasonBuildTimeout, "spec.build.timeout", "15s")
}

// TestBuildOutOfDisk checks that the kubelet evicts a build whose install script fills the
// disk, in the container or in a volume. The status reports it, and the build of another
// namespace goes on.
func TestBuildOutOfDisk(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"Container": "/var/full", "Volume": "/kiln-layers/full"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			// The base image is smaller than the limit.
			script := "const full = require(`fs`).openSync(`" + file + "`, `w`); " +
				"for (let i = 0; i < 80; i++) require(`fs`).writeSync(full, Buffer.alloc(1 << 24)); " + asleep
			fn := e.create(limited(installing(script), corev1.ResourceEphemeralStorage, "1Gi"))
			e.untilInstalling(fn)
			neighbour := newEnv(t)
			other := neighbour.create(installing("0"))
			e.untilFailed(fn, v1alpha1.ReasonBuildOutOfDisk,
				"spec.build.resources.limits.ephemeral-storage", "max-ephemeral-storage", "limit")
			neighbour.wantAnswer(neighbour.until(other, test.Ready), "{}", "7200000")
			neighbour.wantBuilds(1)
		})
	}
}

// TestBuildCancelled checks that a cancelled build starts again only on request.
func TestBuildCancelled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.create(function(answering("uncancelled")))
	build := e.untilBuild(fn, nil)
	e.cancel(build)
	fn = e.untilFailed(fn, v1alpha1.ReasonBuildCancelled, "serverless.kiln.dev/rebuild")
	fn = e.until(e.edit(fn, requestRebuild("now")), test.Healed)
	e.wantAnswer(fn, "{}", "uncancelled")
	e.wantBuilds(2)
}

// TestBuildPodGone checks that Kiln reports and retries a build whose pod was deleted. It
// also checks that status.build.log is kept without the pod.
func TestBuildPodGone(t *testing.T) {
	t.Parallel()
	pods := func(e *env) typedPods { return clients.Kube.CoreV1().Pods(e.namespace) }
	for name, row := range map[string]struct {
		takeAway func(e *env, pod string) error
		reason   string
		words    string
	}{
		"Deleted": {
			func(e *env, pod string) error { return pods(e).Delete(e.ctx, pod, metav1.DeleteOptions{}) },
			v1alpha1.ReasonPodDeleted, "was deleted",
		},
		"Evicted": {
			func(e *env, pod string) error {
				return pods(e).EvictV1(e.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: e.namespace}})
			},
			// Only the pod has the difference, and it can be deleted before Kiln reads it.
			v1alpha1.ReasonPodEvicted + " or " + v1alpha1.ReasonPodDeleted, "The build's pod was",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			fn := e.create(installing("setTimeout(() => 0, 8000)"))
			if err := row.takeAway(e, e.untilInstalling(fn)); err != nil {
				e.Fatal(err)
			}
			fn = e.untilRetrying(fn, 1, row.reason, row.words)
			fn = e.until(fn, test.Ready)
			e.wantAnswer(fn, "{}", "7200000")
			e.wantBuilds(2)
			wantWords(t, fn.Status.Build.Log, "added 1 package")
		})
	}
}

// TestBuildPodForcedAway checks that the Function becomes ready when the build's pod is
// force-deleted. Tekton creates another pod. A Job fails, and Kiln starts the next attempt.
func TestBuildPodForcedAway(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.create(installing("setTimeout(() => 0, 4000)"))
	pod := e.untilInstalling(fn)
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	if err := clients.Kube.CoreV1().Pods(e.namespace).Delete(e.ctx, pod, now); err != nil {
		e.Fatal(err)
	}
	want := 1
	if builder == jobKind {
		fn = e.untilRetrying(fn, 1, v1alpha1.ReasonPodDeleted)
		want = 2
	}
	fn = e.until(fn, test.Ready)
	e.wantAnswer(fn, "{}", "7200000")
	e.wantBuilds(want)
}

// untilInstalling waits until a build of the Function installs dependencies, and returns
// the name of its pod. The status of a TaskRun can miss this on a busy cluster, because
// Tekton limits its own requests.
func (e *env) untilInstalling(fn *v1alpha1.Function) (pod string) {
	e.Helper()
	untilObjects(e, clients.Kube.CoreV1().Pods(e.namespace), func(found []*corev1.Pod) error {
		for _, p := range found {
			for _, container := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
				if p.Labels[serverless.FunctionNameLabelKey] == fn.Name && container.Name == builder.install && container.State.Running != nil {
					pod = p.Name
					return nil
				}
			}
		}
		return fmt.Errorf("no build of Function %s installs dependencies", fn.Name)
	})
	return pod
}

// typedPods is a client for pods.
type typedPods interface {
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	EvictV1(ctx context.Context, eviction *policyv1.Eviction) error
}

// TestPackageRegistryDown checks that the status reports an unreachable package registry,
// and that an edit starts a build before the next attempt is due.
func TestPackageRegistryDown(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := installing("0")
	fn.Spec.Build = &v1alpha1.BuildSpec{Env: []v1alpha1.BuildEnvVar{
		{Name: "NPM_CONFIG_REGISTRY", Value: "http://127.0.0.1:1/"},
		{Name: "NPM_CONFIG_FETCH_RETRIES", Value: "0"},
	}}
	fn = e.untilRetrying(e.create(fn), 1, v1alpha1.ReasonPackageRegistryUnavailable, "ECONNREFUSED")
	edited := e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Build = nil })
	fn = e.until(edited, test.Ready)
	e.wantAnswer(fn, "{}", "7200000")
	// Another test can kill the controller and delay it, so the next attempt may begin
	// before the edit.
	waited := edited.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).GetReason() == v1alpha1.ReasonBuildRetrying
	if waited && fn.Status.Build.Attempts != 1 {
		e.Errorf("the build took %d attempts after the edit, want 1", fn.Status.Build.Attempts)
	}
}

// TestRegistryDownThenFull checks that Kiln distinguishes a registry that is down from one
// that is full. It retries after a restart of the controller, and the old revision serves
// meanwhile.
func TestRegistryDownThenFull(t *testing.T) {
	e := newEnv(t)
	r := e.startRegistries()
	r.want("password", "any")
	r.createSource("any")
	fn := e.until(e.create(function(answering("old"))), test.Ready)

	r.want("images", "down")
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("new") })
	fn = e.untilRetrying(fn, 1, v1alpha1.ReasonRegistryUnavailable, "connection refused", "config-registry")
	e.wantAnswer(fn, "{}", "old")

	r.want("images", "full")
	fn = e.untilRetrying(fn, 2, v1alpha1.ReasonRegistryFull, "make room")

	// The next attempt is due in 20 seconds: before or after a new controller leads.
	r.want("images", "up")
	restartController(e)
	fn = e.until(fn, test.Ready)
	e.wantAnswerSoon(fn, "new")
	if fn.Status.Build.Attempts != 3 {
		e.Errorf("the build took %d attempts, want 3", fn.Status.Build.Attempts)
	}
	e.wantBuilds(4)
	e.wantRevisions(2)

	// A change without a build does not wait for the registry. Each version gets its tag
	// later.
	r.want("images", "full")
	for _, version := range []string{"3", "4"} {
		fn = e.until(e.edit(fn, setEnv("VERSION", version)), test.Ready)
	}
	r.want("images", "up")
	for _, tag := range []string{"g4", "g3", "g2"} {
		r.untilTag(fn, tag, "any")
	}
	e.wantBuilds(4)
}

// TestTektonWebhookDown checks that the status reports why a TaskRun cannot be created,
// while the old revision serves. Kiln creates the TaskRun when the webhook is back.
func TestTektonWebhookDown(t *testing.T) {
	skipWithJobs(t)
	e := newEnv(t)
	fn := e.until(e.create(function(answering("old"))), test.Ready)
	e.restore(func(e *env) { e.scaleTektonWebhook(1) })
	e.scaleTektonWebhook(0)

	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("new") })
	fn, condition := e.untilCondition(fn, apis.Condition{
		Type:   v1alpha1.FunctionConditionBuildReady,
		Status: corev1.ConditionUnknown,
		Reason: v1alpha1.ReasonTaskRunNotCreated,
	})
	wantWords(t, condition.Message, "cannot be created. Kiln keeps retrying", "webhook.pipeline.tekton.dev")
	e.wantPhase(fn, v1alpha1.FunctionBuilding)
	e.wantAnswer(fn, "{}", "old")

	e.scaleTektonWebhook(1)
	fn = e.until(fn, test.Ready)
	e.wantAnswerSoon(fn, "new")
	e.wantBuilds(2)
}

// scaleTektonWebhook waits until Tekton's webhook has exactly so many pods, all of them
// ready.
func (e *env) scaleTektonWebhook(replicas int32) {
	e.Helper()
	const tekton, webhook = "tekton-pipelines", "tekton-pipelines-webhook"
	edit(e, clients.Kube.AppsV1().Deployments(tekton), webhook, func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas })
	selector := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=webhook"}
	err := test.Until(e.ctx, clients.Kube.CoreV1().Pods(tekton), selector, func(found []*corev1.Pod) error {
		if len(found) != int(replicas) {
			return fmt.Errorf("there are %d pods, want %d", len(found), replicas)
		}
		for _, pod := range found {
			if statuses := pod.Status.ContainerStatuses; len(statuses) == 0 || !statuses[0].Ready {
				return errors.New("pod " + pod.Name + " is not ready")
			}
		}
		return nil
	})
	if err != nil {
		e.Fatal(err)
	}
}
