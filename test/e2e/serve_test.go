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
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"knative.dev/pkg/apis"
	"knative.dev/serving/pkg/apis/serving"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// greeting is the source of a function that answers with its variable GREETING.
const greeting = "module.exports = { main: () => process.env.GREETING || 'none' };\n"

// servingNamespace is the namespace of Knative Serving's configuration.
const servingNamespace = "knative-serving"

func share(revision string, percent int64, tag string) v1alpha1.TrafficTarget {
	target := v1alpha1.TrafficTarget{RevisionName: revision, Percent: &percent, Tag: tag}
	if revision == "" {
		target.LatestRevision = new(true)
	}
	return target
}

func setTraffic(targets ...v1alpha1.TrafficTarget) func(*v1alpha1.Function) {
	return func(fn *v1alpha1.Function) { fn.Spec.Traffic = targets }
}

// wantAnswerAt waits until a URL gives an answer.
func (e *env) wantAnswerAt(url, host, want string) {
	e.Helper()
	prober, err := relay.Probe(e.ctx, api.Request{Method: http.MethodGet, URL: url, Host: host})
	if err != nil {
		e.Fatal(err)
	}
	e.untilAnswer(prober, want)
	if _, err := prober.Stop(e.ctx); err != nil {
		e.Fatal(err)
	}
}

// TestTraffic splits requests, rolls back to an earlier revision and forward again. That
// needs no build and no revision, and also works after a failed build.
func TestTraffic(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	first := function(greeting)
	setEnv("GREETING", "one")(first)
	fn := e.until(e.create(first), test.Ready)
	one := fn.Status.LatestReadyRevisionName
	fn = e.until(e.edit(fn, setEnv("GREETING", "two")), test.Ready)
	two := fn.Status.LatestReadyRevisionName
	prober := e.probe(fn, "two")

	fn = e.until(e.edit(fn, setTraffic(share(one, 100, "old"), share("", 0, "next"))), test.Ready)
	e.untilAnswer(prober, "one")
	urls := map[string]string{}
	for _, target := range fn.Status.Traffic {
		urls[target.Tag] = target.URL.String()
	}
	e.wantAnswerAt(urls["old"], "", "one")
	e.wantAnswerAt(urls["next"], "", "two")

	fn = e.until(e.edit(fn, setTraffic(share(one, 50, ""), share("", 50, ""))), test.Ready)
	want := []v1alpha1.TrafficStatus{
		{RevisionName: one, LatestRevision: new(false), Percent: new(int64(50))},
		{RevisionName: two, LatestRevision: new(true), Percent: new(int64(50))},
	}
	if diff := cmp.Diff(want, fn.Status.Traffic); diff != "" {
		e.Errorf("status.traffic (-want +got): %s", diff)
	}
	if got, want := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).Message, fmt.Sprintf("Revisions %s (50%%), %s (50%%) serve.", one, two); got != want {
		e.Errorf("message is %q, want %q", got, want)
	}

	// An invalid edit changes nothing, and the next edit corrects it.
	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		setTraffic(share("fn-99999", 100, ""))(fn)
		setEnv("GREETING", "three")(fn)
	})
	fn, missing := e.untilCondition(fn, apis.Condition{
		Type: v1alpha1.FunctionConditionRunning, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonRevisionMissing,
	})
	for _, want := range []string{"fn-99999", one, two} {
		if !strings.Contains(missing.Message, want) {
			e.Errorf("message %q does not name %s", missing.Message, want)
		}
	}
	if diff := cmp.Diff(want, fn.Status.Traffic); diff != "" {
		e.Errorf("status.traffic (-want +got): %s", diff)
	}
	e.wantRevisions(2)

	fn = e.until(e.edit(fn, setTraffic(share(one, 100, ""))), test.Ready)
	e.untilAnswer(prober, "one")
	e.wantRevisions(3)

	// While the next image cannot be built, the traffic does not change.
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Deps = missingDependency })
	fn, _ = e.untilCondition(fn, buildFailed())
	fn = e.edit(fn, setTraffic(share(two, 100, "")))
	e.untilAnswer(prober, "two")
	fn = e.edit(fn, setTraffic())
	e.untilAnswer(prober, "three")
	e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Deps = "" }), test.Healed)

	report, err := prober.Stop(e.ctx)
	if err != nil {
		e.Fatal(err)
	}
	if report.Failed > 0 {
		e.Errorf("%d of %d requests failed, such as %+v", report.Failed, report.Requests, report.Failures)
	}
	e.wantRevisions(3)
}

// inspector is the source of a function that answers with its environment, mounts and
// identity.
const inspector = `const fs = require('fs');
const read = (file) => { try { return fs.readFileSync(file, 'utf8'); } catch { return ''; } };
module.exports = { main: () => JSON.stringify({
  env: process.env.TOKEN || '', level: process.env.LEVEL || '', mounted: read('/secrets/api/token'),
  identity: read('/var/run/secrets/kubernetes.io/serviceaccount/namespace') !== '',
}) };
`

// TestEverythingSaid sets every option of a Function's pods and removes them again. It
// checks that Kiln reverts manual changes.
func TestEverythingSaid(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.createSecret("api")
	core := clients.Kube.CoreV1()
	for _, create := range []func() error{
		func() error {
			_, err := core.ConfigMaps(e.namespace).Create(e.ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"LEVEL": "debug"},
			}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := core.ServiceAccounts(e.namespace).Create(e.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
			return err
		},
	} {
		if err := create(); err != nil {
			e.Fatal(err)
		}
	}

	fn := e.until(e.create(function(inspector)), test.Ready)
	plain := e.service(fn).Spec.Template.Spec
	prober := e.probe(fn, `{"env":"","level":"","mounted":"","identity":false}`)

	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "api"}, Key: "token",
		}}}}
		fn.Spec.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
		}}}
		fn.Spec.SecretMounts = []v1alpha1.SecretMount{{SecretName: "api", MountPath: "/secrets/api"}}
		fn.Spec.ServiceAccountName = "robot"
		fn.Spec.Concurrency, fn.Spec.TimeoutSeconds = new(int64(5)), new(int64(42))
		fn.Spec.Annotations = map[string]string{"note": "blue", "serving.knative.dev/progress-deadline": "20m"}
	}), test.Ready)
	e.untilAnswer(prober, `{"env":"s3cret","level":"debug","mounted":"s3cret","identity":true}`)
	given := e.service(fn).Spec.Template
	if *given.Spec.ContainerConcurrency != 5 || *given.Spec.TimeoutSeconds != 42 || given.Annotations["note"] != "blue" {
		e.Errorf("the revision's concurrency, timeout and annotations are %d, %d and %v, want 5, 42 and blue",
			*given.Spec.ContainerConcurrency, *given.Spec.TimeoutSeconds, given.Annotations)
	}
	deployments, err := clients.Kube.AppsV1().Deployments(e.namespace).List(e.ctx, metav1.ListOptions{
		LabelSelector: serving.RevisionLabelKey + "=" + fn.Status.LatestReadyRevisionName,
	})
	if err != nil {
		e.Fatal(err)
	}
	if got := deployments.Items; len(got) != 1 || *got[0].Spec.ProgressDeadlineSeconds != 1200 {
		e.Errorf("of %d deployments of the revision, none has 1200 s to become ready", len(got))
	}
	editService(e, fn)
	fn = e.until(fn, test.Healed)

	var bare v1alpha1.FunctionSpec
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Env, fn.Spec.EnvFrom, fn.Spec.SecretMounts = bare.Env, bare.EnvFrom, bare.SecretMounts
		fn.Spec.ServiceAccountName, fn.Spec.Concurrency, fn.Spec.TimeoutSeconds = "", nil, nil
		fn.Spec.Annotations = nil
	}), test.Ready)
	e.untilAnswer(prober, `{"env":"","level":"","mounted":"","identity":false}`)
	if diff := cmp.Diff(plain, e.service(fn).Spec.Template.Spec); diff != "" {
		e.Errorf("the revision has changed (-before +after): %s", diff)
	}
	if _, err := prober.Stop(e.ctx); err != nil {
		e.Fatal(err)
	}
	e.wantBuilds(1)
}

func (e *env) createSecret(name string) {
	e.Helper()
	_, err := clients.Kube.CoreV1().Secrets(e.namespace).Create(e.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"token": "s3cret"},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
}

// TestMissingReferences names Secrets and a service account that do not exist. It checks
// that the status names them, and that the Function runs when they exist.
func TestMissingReferences(t *testing.T) {
	t.Parallel()
	secretRef := corev1.LocalObjectReference{Name: "late"}
	for name, tc := range map[string]struct {
		edit   func(*v1alpha1.Function)
		create func(*env)
		reason string
	}{
		"Env": {func(fn *v1alpha1.Function) {
			fn.Spec.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: secretRef, Key: "token"}}}}
		}, func(e *env) { e.createSecret("late") }, "late"},
		"EnvFrom": {func(fn *v1alpha1.Function) {
			fn.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: secretRef}}}
		}, func(e *env) { e.createSecret("late") }, "late"},
		"SecretMounts": {func(fn *v1alpha1.Function) {
			fn.Spec.SecretMounts = []v1alpha1.SecretMount{{SecretName: "late", MountPath: "/late"}}
		}, func(e *env) { e.createSecret("late") }, `secret "late" not found`},
		"ConfigMapMounts": {func(fn *v1alpha1.Function) {
			fn.Spec.ConfigMapMounts = []v1alpha1.ConfigMapMount{{ConfigMapName: "late", MountPath: "/late"}}
		}, func(e *env) { e.createConfigMap("late", map[string]string{"a": "b"}) }, `configmap "late" not found`},
		"ServiceAccount": {func(fn *v1alpha1.Function) { fn.Spec.ServiceAccountName = "late" }, func(e *env) {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
			if _, err := clients.Kube.CoreV1().ServiceAccounts(e.namespace).Create(e.ctx, account, metav1.CreateOptions{}); err != nil {
				e.Fatal(err)
			}
		}, "late"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			fn := function(answering("at last"))
			tc.edit(fn)
			fn, failed := e.untilCondition(e.create(fn), revisionFailed())
			if !strings.Contains(failed.Message, tc.reason) {
				e.Errorf("message is %q, want %s in it", failed.Message, tc.reason)
			}
			tc.create(e)
			fn = e.until(fn, test.Healed)
			e.wantAnswerSoon(fn, "at last")
		})
	}
}

// TestScaleToZero checks that an idle function has no pods and answers the next call.
func TestScaleToZero(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function(answering("awake"))
	fn.Spec.MinReplicas = new(int32(0))
	fn.Spec.Annotations = map[string]string{"autoscaling.knative.dev/window": "6s"}
	fn = e.until(e.create(fn), test.Ready)
	untilObjects(e, clients.Kube.CoreV1().Pods(e.namespace), func(pods []*corev1.Pod) error {
		if n := len(podsOf(pods, fn)); n > 0 {
			return fmt.Errorf("there are %d pods", n)
		}
		return nil
	})
	e.until(fn, test.Ready)
	e.wantAnswer(fn, "{}", "awake")
}

// podsOf returns the pods that run a Function. A pod that a node has rejected runs nothing.
func podsOf(pods []*corev1.Pod, fn *v1alpha1.Function) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		return pod.Labels[serverless.FunctionUIDLabelKey] != string(fn.UID) || !runsFunction(pod) || pod.Status.Phase == corev1.PodFailed
	})
}

// runsFunction reports whether a pod runs a Function. The other pods build.
func runsFunction(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == children.FunctionContainer })
}

// TestMinimumReplicas checks that the status reports pods that fit no node, before the
// Function has run and after. Each pod needs one seat, a resource that the test adds to a
// node.
func TestMinimumReplicas(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	seat := corev1.ResourceName("seats.kiln.dev/" + e.namespace)
	setSeats(e, seat, 1)
	fn := function(answering("seated"))
	fn.Spec.MinReplicas = new(int32(2))
	fn.Spec.Resources.Requests[seat] = resource.MustParse("1")
	fn.Spec.Resources.Limits = corev1.ResourceList{seat: resource.MustParse("1")}
	short := apis.Condition{
		Type: v1alpha1.FunctionConditionRunning, Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonMinimumReplicasUnavailable,
	}
	wantShort := func(fn *v1alpha1.Function) *v1alpha1.Function {
		t.Helper()
		fn = e.until(fn, func(fn *v1alpha1.Function) error {
			if err := test.HasCondition(short)(fn); err != nil {
				return err
			}
			message := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).Message
			if !strings.Contains(message, "1 of 2 replicas") || !strings.Contains(message, string(seat)) {
				return fmt.Errorf("message is %q", message)
			}
			return nil
		})
		e.wantPhase(fn, v1alpha1.FunctionDeploying)
		return fn
	}

	fn = wantShort(e.create(fn))
	setSeats(e, seat, 2)
	fn = e.until(fn, test.Ready)

	setSeats(e, seat, 1)
	pods := clients.Kube.CoreV1().Pods(e.namespace)
	running := e.podsOf(fn)
	if len(running) != 2 {
		e.Fatalf("there are %d pods, want 2", len(running))
	}
	if err := pods.Delete(e.ctx, running[0].Name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	fn = wantShort(fn)
	e.wantAnswer(fn, "{}", "seated")
	setSeats(e, seat, 2)
	fn = e.until(fn, test.Ready)
	e.wantRevisions(1)
	e.wantPhase(fn, v1alpha1.FunctionRunning)
}

// setSeats gives one node that amount of a resource that no other test uses, until the test
// ends.
func setSeats(e *env, seat corev1.ResourceName, n int) {
	e.Helper()
	nodes, err := clients.Kube.CoreV1().Nodes().List(e.ctx, metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		e.Fatalf("there are no nodes: %v", err)
	}
	patch := func(n string) error {
		resources := fmt.Sprintf("{%q: %s}", seat, n)
		_, err := clients.Kube.CoreV1().Nodes().Patch(context.WithoutCancel(e.ctx), nodes.Items[0].Name, types.MergePatchType,
			fmt.Appendf(nil, `{"status": {"capacity": %s, "allocatable": %s}}`, resources, resources), metav1.PatchOptions{}, "status")
		return err
	}
	e.Cleanup(func() {
		if err := patch("null"); err != nil {
			e.Error(err)
		}
	})
	if err := patch(strconv.Quote(strconv.Itoa(n))); err != nil {
		e.Fatal(err)
	}
}

// configure changes a key of Serving's configuration until the test ends. Tests that use it
// are not parallel.
func (e *env) configure(name, key, value string) {
	e.Helper()
	configMaps := clients.Kube.CoreV1().ConfigMaps(servingNamespace)
	before := edit(e, configMaps, name, func(*corev1.ConfigMap) {})
	e.Cleanup(func() {
		patch := fmt.Sprintf(`{"data": {%q: null}}`, key)
		if old, ok := before.Data[key]; ok {
			patch = fmt.Sprintf(`{"data": {%q: %q}}`, key, old)
		}
		_, err := configMaps.Patch(context.WithoutCancel(e.ctx), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			e.Error(err)
		}
	})
	edit(e, configMaps, name, func(configMap *corev1.ConfigMap) {
		if configMap.Data == nil {
			configMap.Data = map[string]string{}
		}
		configMap.Data[key] = value
	})
}

// TestVisibility makes a Function public and then cluster-local again. It configures a
// domain, because Serving publishes nothing without one.
func TestVisibility(t *testing.T) {
	e := newEnv(t)
	fn := function(answering("hello, world"))
	fn.Name = "public-" + strings.TrimPrefix(e.namespace, "kiln-e2e-")
	e.configure("config-domain", "kiln.example.com", "selector:\n  "+serverless.FunctionNameLabelKey+": "+fn.Name+"\n")

	fn = e.until(e.create(fn), test.Ready)
	wantClusterLocal(e, fn)
	host := fmt.Sprintf("%s.%s.kiln.example.com", fn.Name, e.namespace)

	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Visibility = v1alpha1.VisibilityPublic }), test.Ready)
	if fn.Status.URL.Host != host {
		e.Errorf("url is %s, want host %s", fn.Status.URL, host)
	}
	if want := fmt.Sprintf("%s.%s.svc.cluster.local", fn.Name, e.namespace); fn.Status.Address.URL.Host != want {
		e.Errorf("address is %s, want host %s", fn.Status.Address.URL, want)
	}
	ingress, err := clients.Ingress.NetworkingV1alpha1().Ingresses(e.namespace).Get(e.ctx, fn.Name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	outside := "http://" + ingress.Status.PublicLoadBalancer.Ingress[0].DomainInternal
	e.wantAnswerAt(outside, host, "hello, world")
	e.wantAnswerAt(fn.Status.Address.URL.String(), "", "hello, world")

	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Visibility = v1alpha1.VisibilityClusterLocal }), test.Ready)
	wantClusterLocal(e, fn)
	for {
		answer, err := relay.Call(e.ctx, api.Request{Method: http.MethodGet, URL: outside, Host: host})
		if err != nil {
			e.Fatal(err)
		}
		if answer.Status == http.StatusNotFound {
			break
		}
	}
	e.wantAnswer(fn, "{}", "hello, world")
	e.wantRevisions(1)
	e.wantBuilds(1)
}

// TestFeatureFlags checks that the status names the features of Serving that a Function
// needs. The Function runs when an administrator enables them.
func TestFeatureFlags(t *testing.T) {
	e := newEnv(t)
	fn := e.until(e.create(function(answering("old"))), test.Ready)
	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
		fn.Spec.Tolerations = []corev1.Toleration{{Key: "example.com/gpu", Operator: corev1.TolerationOpExists}}
	})
	fn, refused := e.untilCondition(fn, revisionFailed())
	for _, want := range []string{"kubernetes.podspec-nodeselector", "kubernetes.podspec-tolerations", "config-features"} {
		if !strings.Contains(refused.Message, want) {
			e.Errorf("message is %q, want %s in it", refused.Message, want)
		}
	}
	e.wantAnswer(fn, "{}", "old")

	e.configure("config-features", "kubernetes.podspec-nodeselector", "enabled")
	e.configure("config-features", "kubernetes.podspec-tolerations", "enabled")
	fn = e.until(fn, test.Healed)
	spec := e.service(fn).Spec.Template.Spec
	if spec.NodeSelector[corev1.LabelOSStable] != "linux" || len(spec.Tolerations) != 1 {
		e.Errorf("the revision has node selector %v and tolerations %v", spec.NodeSelector, spec.Tolerations)
	}
	e.wantRevisions(2)
	// Without the feature, Serving would deny the next update of this Function's Service.
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.NodeSelector, fn.Spec.Tolerations = nil, nil }), test.Ready)
	e.wantAnswer(fn, "{}", "old")
	e.wantBuilds(1)
}
