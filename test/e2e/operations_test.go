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
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/test"
)

// The tests of this file change the configuration of the whole installation. They are not
// parallel to any other test, and undo their changes.

// observabilityConfig is the name of the ConfigMap that turns metrics on.
const observabilityConfig = "config-observability"

// TestMetrics checks a Function's metrics as Prometheus scrapes them, under the names in
// docs/metrics.md.
func TestMetrics(t *testing.T) {
	e := newEnv(t)
	// The controller sets up metrics when it starts.
	e.restore(func(e *env) { restartController(e) })
	configure(e, observabilityConfig, func(data map[string]string) { data["metrics-protocol"] = "prometheus" })
	pod := restartController(e)

	e.until(e.create(function(answering("measured"))), test.Ready)
	broken := function(answering("never"))
	broken.Name, broken.Spec.Deps = "broken", missingDependency
	_, failed := e.untilCondition(e.create(broken), buildFailed())
	for _, want := range []string{
		`kiln_functions{.*phase="Running".*runtime="nodejs24".*} [1-9]`,
		`kiln_functions{.*phase="Failed".*runtime="nodejs24".*} [1-9]`,
		`kiln_builds_total{.*reason="FirstBuild".*runtime="nodejs24".*} 2`,
		`kiln_build_duration_seconds_count{.*outcome="Succeeded".*runtime="nodejs24".*} 1`,
		`kiln_build_duration_seconds_count{.*outcome="` + failed.Reason + `".*runtime="nodejs24".*} 1`,
		`kiln_reconcile_duration_seconds_count{.*outcome="Succeeded".*} [1-9]`,
		`kn_workqueue_depth{.*name="[^"]*function\.Reconciler".*} \d`,
	} {
		untilMetric(e, pod, `(?m)^`+want)
	}
	for _, name := range documentedMetrics(t) {
		untilMetric(e, pod, `(?m)^`+name+`(_count|_bucket|_sum)?{`)
	}
}

// documentedMetrics returns the metrics of the controller in docs/metrics.md.
func documentedMetrics(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(kiln_\\w+|kn_\\w+|http_\\w+)`").FindAllStringSubmatch(string(text), -1) {
		if !strings.HasPrefix(row[1], "kn_webhook_") {
			names = append(names, row[1])
		}
	}
	if len(names) < 5 {
		t.Fatalf("docs/metrics.md has only %q", names)
	}
	return names
}

// untilMetric scrapes a pod until the text matches. Metrics cannot be watched.
func untilMetric(e *env, pod *corev1.Pod, want string) {
	e.Helper()
	pattern := regexp.MustCompile(want)
	var found []byte
	err := wait.PollUntilContextTimeout(e.ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (done bool, err error) {
		found, err = scrape(ctx, pod, 9090)
		return pattern.Match(found), err
	})
	if err != nil {
		related := regexp.MustCompile(`(?m)^(kiln|kn)_.*$`).FindAllString(string(found), 60)
		e.Errorf("no metric matches %s: %v; there are:\n%s", want, err, strings.Join(related, "\n"))
	}
}

// scrape returns the metrics that a pod exports on a port.
func scrape(ctx context.Context, pod *corev1.Pod, port int) ([]byte, error) {
	return clients.Kube.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").
		Name(fmt.Sprintf("%s:%d", pod.Name, port)).SubResource("proxy").Suffix("metrics").DoRaw(ctx)
}

// TestTakeover kills the leader of two controllers during builds. The new leader continues
// one build. It replaces the other, whose source was edited while there was no leader, by
// one build of the new source.
func TestTakeover(t *testing.T) {
	e, other := newEnv(t), newEnv(t)
	e.restore(func(e *env) {
		scaleController(e, 1)
		controllerPod(e)
	})
	scaleController(e, 2)
	pods := untilControllers(e, 2)
	isOf := func(leader string) func(*corev1.Pod) bool {
		return func(pod *corev1.Pod) bool { return strings.HasPrefix(leader, pod.Name+"_") }
	}
	first := untilLed(e, func(leader string) bool { return slices.ContainsFunc(pods, isOf(leader)) })
	kill := newKill(e, pods[slices.IndexFunc(pods, isOf(first))])

	fn := e.create(function(answering(alive)))
	edited := other.create(function(answering("before")))
	e.untilBuild(fn, hasStarted)
	other.untilBuild(edited, hasStarted)
	kill()
	edited = other.edit(edited, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("after") })
	next := untilLed(e, func(leader string) bool { return leader != first })
	t.Logf("%s led, and %s took over", first, next)
	fn = e.until(fn, test.Ready)
	e.wantAnswer(fn, "{}", alive)
	e.until(e.edit(fn, setEnv("AFTER", "takeover")), test.Healed)
	e.wantBuilds(1)
	e.wantRevisions(2)

	edited = other.until(edited, test.Ready)
	other.wantAnswerSoon(edited, "after")
	other.until(other.edit(edited, setEnv("AFTER", "takeover")), test.Healed)
	other.wantBuilds(2)
}

func scaleController(e *env, replicas int32) {
	e.Helper()
	edit(e, clients.Kube.AppsV1().Deployments(test.SystemNamespace), "controller", func(d *appsv1.Deployment) {
		d.Spec.Replicas = &replicas
	})
}

// untilControllers waits until there are exactly so many controllers, all of them ready.
func untilControllers(e *env, want int) (pods []*corev1.Pod) {
	e.Helper()
	err := test.Until(e.ctx, clients.Kube.CoreV1().Pods(test.SystemNamespace), metav1.ListOptions{LabelSelector: controllerPods}, func(found []*corev1.Pod) error {
		if len(found) != want {
			return fmt.Errorf("there are %d controllers, want %d", len(found), want)
		}
		for _, pod := range found {
			if statuses := pod.Status.ContainerStatuses; len(statuses) != 1 || !statuses[0].Ready {
				return fmt.Errorf("controller %s is not ready", pod.Name)
			}
		}
		pods = found
		return nil
	})
	if err != nil {
		e.Fatal(err)
	}
	return pods
}

// functionLease is the suffix of the name of the lease for Functions.
const functionLease = "reconciler.function.reconciler.00-of-01"

// untilLed waits until an expected holder has the lease, and returns its name.
func untilLed(e *env, isRight func(leader string) bool) (leader string) {
	e.Helper()
	err := test.Until(e.ctx, clients.Kube.CoordinationV1().Leases(test.SystemNamespace), metav1.ListOptions{}, func(found []*coordinationv1.Lease) error {
		for _, lease := range found {
			if !strings.HasSuffix(lease.Name, functionLease) || lease.Spec.HolderIdentity == nil {
				continue
			}
			if leader = *lease.Spec.HolderIdentity; leader != "" && isRight(leader) {
				return nil
			}
		}
		return fmt.Errorf("the leader is %q", leader)
	})
	if err != nil {
		e.Fatal(err)
	}
	return leader
}

// TestConfigurationBroken forces an invalid ConfigMap past the webhook. It checks that the
// previous values stay in effect and that an event reports the error. A controller that
// starts now must report the error, too.
func TestConfigurationBroken(t *testing.T) {
	e := newEnv(t)
	fn := e.until(e.create(function(answering("one"))), test.Ready)
	nonsense := "soon-" + e.namespace

	e.restore(func(e *env) {
		// The kubelet delays each restart of a container that cannot start.
		restartController(e)
	})
	forceConfig(e, config.BuildConfigName, func(data map[string]string) { data["timeout"] = nonsense })
	untilEvent(e, config.BuildConfigName, nonsense)

	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("two") })
	fn = e.until(fn, test.Healed)
	e.wantAnswerSoon(fn, "two")
	e.wantBuilds(2)

	deleteController(e)
	err := test.Until(e.ctx, clients.Kube.CoreV1().Pods(test.SystemNamespace), metav1.ListOptions{LabelSelector: controllerPods}, func(found []*corev1.Pod) error {
		for _, pod := range found {
			for _, status := range pod.Status.ContainerStatuses {
				for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
					if state.Terminated != nil && strings.Contains(state.Terminated.Message, config.BuildConfigName) && strings.Contains(state.Terminated.Message, nonsense) {
						return nil
					}
				}
			}
		}
		return errors.New("no controller has terminated with the error")
	})
	if err != nil {
		e.Error(err)
	}
	// Functions do not need a controller.
	e.wantAnswer(fn, "{}", "two")
}

// untilEvent waits for a warning event on a ConfigMap with these words.
func untilEvent(e *env, configMap, words string) {
	e.Helper()
	on := metav1.ListOptions{FieldSelector: fields.Set{"involvedObject.kind": "ConfigMap", "involvedObject.name": configMap}.String()}
	err := test.Until(e.ctx, clients.Kube.CoreV1().Events(test.SystemNamespace), on, func(found []*corev1.Event) error {
		for _, event := range found {
			if event.Type == corev1.EventTypeWarning && strings.Contains(event.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("there is no event on %s with %q", configMap, words)
	})
	if err != nil {
		e.Fatal(err)
	}
}

// TestRuntimeChanged changes the base image of a runtime. It checks that Kiln builds the
// Functions of that runtime again, and no others.
func TestRuntimeChanged(t *testing.T) {
	e := newEnv(t)
	const runtime = "nodejs24-e2e"
	var other string
	configure(e, config.RuntimesConfigName, func(data map[string]string) {
		data[runtime], other = data["nodejs24"], data["nodejs22"]
	})
	unconcerned := e.create(function(answering("unconcerned")))
	concerned := function(answering("concerned"))
	concerned.Name, concerned.Spec.Runtime = "concerned", runtime
	// The webhook may see the runtime a moment later than this test.
	untilAccepted(e, func() error {
		_, err := e.tryCreate(concerned)
		return err
	})
	e.until(unconcerned, test.Healed)
	concerned = e.until(concerned, test.Healed)

	configure(e, config.RuntimesConfigName, func(data map[string]string) { data[runtime] = other })
	concerned = e.until(concerned, func(fn *v1alpha1.Function) error {
		if fn.Status.Build.Reason != builds.ReasonRuntimeChanged {
			return fmt.Errorf("the last build's reason is %s", fn.Status.Build.Reason)
		}
		return test.Healed(fn)
	})
	e.wantAnswerSoon(concerned, "concerned")
	// Wait until Kiln has reconciled the other Function, too.
	e.until(e.edit(unconcerned, setEnv("AFTER", "change")), test.Healed)
	e.wantBuilds(3)
	e.wantRevisions(4)
}

// TestDefaultChanged changes a default. It must apply to new Functions and not to existing
// ones.
func TestDefaultChanged(t *testing.T) {
	e := newEnv(t)
	before := e.until(e.create(function(answering("before"))), test.Ready)
	configure(e, config.FunctionsConfigName, func(data map[string]string) { data["default-max-replicas"] = "7" })

	after := function(answering("after"))
	after.Name = "after"
	// The webhook may see the default a moment later than this test.
	untilAccepted(e, func() error {
		dry, err := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace).Create(e.ctx, after, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && (dry.Spec.MaxReplicas == nil || *dry.Spec.MaxReplicas != 7) {
			err = fmt.Errorf("maxReplicas is %v", dry.Spec.MaxReplicas)
		}
		return err
	})
	after = e.until(e.create(after), test.Ready)
	if after.Spec.MaxReplicas == nil || *after.Spec.MaxReplicas != 7 {
		e.Errorf("maxReplicas of a new Function is %v, want 7", after.Spec.MaxReplicas)
	}
	now := e.until(before, test.Ready)
	if now.Generation != before.Generation || now.Spec.MaxReplicas != nil && *now.Spec.MaxReplicas == 7 {
		e.Errorf("the existing Function has changed to %+v", now.Spec)
	}
	e.wantBuilds(2)
	e.wantRevisions(2)
}

// restore calls a function when the test ends, even if it fails.
func (e *env) restore(undo func(*env)) {
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		after := *e
		after.ctx = ctx
		undo(&after)
	})
}

// configure changes one of Kiln's ConfigMaps until the test ends.
func configure(e *env, name string, change func(data map[string]string)) {
	e.Helper()
	configMaps := clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace)
	before, err := configMaps.Get(e.ctx, name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	e.restore(func(e *env) {
		edit(e, configMaps, name, func(cm *corev1.ConfigMap) { cm.Data = maps.Clone(before.Data) })
	})
	edit(e, configMaps, name, func(cm *corev1.ConfigMap) { change(cm.Data) })
}

// configWebhook is the name of the webhook that denies invalid ConfigMaps.
const configWebhook = "config.webhook.serverless.kiln.dev"

// forceConfig changes one of Kiln's ConfigMaps until the test ends. It first checks that
// the webhook denies the change, and then exempts the ConfigMap from the webhook.
func forceConfig(e *env, name string, change func(data map[string]string)) {
	e.Helper()
	configMaps := clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace)
	configure(e, name, func(map[string]string) {})
	try := func() error {
		cm, err := configMaps.Get(e.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(cm.Data)
		_, err = configMaps.Update(e.ctx, cm, metav1.UpdateOptions{})
		return err
	}
	if err := try(); err == nil || !strings.Contains(err.Error(), name) {
		e.Errorf("the webhook did not deny an invalid %s: %v", name, err)
	}

	webhooks := clients.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	const exemption = "e2e-exemption"
	e.restore(func(e *env) {
		edit(e, webhooks, configWebhook, func(w *admissionregistrationv1.ValidatingWebhookConfiguration) {
			w.Webhooks[0].MatchConditions = slices.DeleteFunc(w.Webhooks[0].MatchConditions,
				func(c admissionregistrationv1.MatchCondition) bool { return c.Name == exemption })
		})
	})
	edit(e, webhooks, configWebhook, func(w *admissionregistrationv1.ValidatingWebhookConfiguration) {
		w.Webhooks[0].MatchConditions = append(w.Webhooks[0].MatchConditions,
			admissionregistrationv1.MatchCondition{Name: exemption, Expression: fmt.Sprintf("request.name != %q", name)})
	})
	// The API server sees the change of the webhook a moment later.
	untilAccepted(e, try)
}

// untilAccepted retries until there is no error. Nothing reports when the API server or a
// webhook has seen a change.
func untilAccepted(e *env, try func() error) {
	e.Helper()
	var last error
	err := wait.PollUntilContextTimeout(e.ctx, 200*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil || apierrs.IsAlreadyExists(last), nil
	})
	if err != nil {
		e.Fatalf("%v; last error: %v", err, last)
	}
}

// restartController replaces the controller and waits until the new one leads.
func restartController(e *env) *corev1.Pod {
	e.Helper()
	deleteController(e)
	pod := controllerPod(e)
	untilLed(e, func(leader string) bool { return strings.HasPrefix(leader, pod.Name+"_") })
	return pod
}

// deleteController deletes the controller's pod and waits until it is gone.
func deleteController(e *env) {
	e.Helper()
	pods := clients.Kube.CoreV1().Pods(test.SystemNamespace)
	list, err := pods.List(e.ctx, metav1.ListOptions{LabelSelector: controllerPods})
	if err != nil {
		e.Fatal(err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if err := pods.Delete(e.ctx, pod.Name, metav1.DeleteOptions{}); err != nil && !apierrs.IsNotFound(err) {
			e.Fatal(err)
		}
		err := test.Until(e.ctx, pods, test.Named(pod.Name), func(found []*corev1.Pod) error {
			if len(found) > 0 {
				return fmt.Errorf("pod %s still exists", pod.Name)
			}
			return nil
		})
		if err != nil {
			e.Fatal(err)
		}
	}
}
