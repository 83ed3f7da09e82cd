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
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// serve sets what serves new Functions until the test ends. Tests that call it are not
// parallel to any other test.
func (e *env) serve(with config.Server) {
	e.Helper()
	configure(e, config.FunctionsConfigName, func(data map[string]string) { data[servingKey] = string(with) })
}

// TestDeployments serves a Function without Knative. It checks that an edit, a scale and a
// rollback lose no request, that a revision that crashes does not replace the last one, and
// that the Function keeps its Deployment when the default changes.
func TestDeployments(t *testing.T) {
	e := newEnv(t)
	e.serve(config.KubernetesServer)
	fn := e.until(e.create(function(answering("one"))), test.Healed)
	if fn.Status.Serving != string(config.KubernetesServer) {
		e.Errorf("status.serving is %q", fn.Status.Serving)
	}
	if !hasServing {
		e.Log("the cluster has no Knative Services")
	} else if _, err := clients.Serving.ServingV1().Services(e.namespace).Get(e.ctx, fn.Name, metav1.GetOptions{}); !apierrs.IsNotFound(err) {
		e.Errorf("there is a Knative Service: %v", err)
	}
	first := fn.Status.LatestReadyRevisionName
	prober := e.probe(fn, "one")
	e.serve(config.AutoServer)
	fn = e.until(e.edit(fn, answer("two")), test.Healed)
	e.untilAnswer(prober, "two")
	fn = e.scale(fn, 2)
	fn = e.wantOldPodsToServe(fn, "two")
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Traffic = []v1alpha1.TrafficTarget{{RevisionName: first, Percent: new(int64(100))}}
	}), servesRevision(first))
	e.untilAnswer(prober, "one")
	e.wantNoFailure(prober)
	e.deleteAndWantNothing(fn, "deployments/", "services/", "poddisruptionbudgets/")
}

// wantNoFailure stops a prober and checks that no request failed.
func (e *env) wantNoFailure(prober *test.Prober) (requests int) {
	e.Helper()
	report, err := prober.Stop(e.ctx)
	if err != nil {
		e.Fatal(err)
	}
	if report.Failed > 0 {
		e.Errorf("%d of %d requests failed, such as %+v", report.Failed, report.Requests, report.Failures)
	}
	return report.Requests
}

// TestEditsUnderLoad edits the source of a Function again and again while it is called. It
// checks that no request fails. The flag -edits sets how often.
func TestEditsUnderLoad(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, testTimeout+time.Duration(edits)*15*time.Second)
	fn := e.until(e.create(function(answering("edit 0"))), test.Healed)
	probers := e.probeOften(request(fn, "{}"), callers, "edit 0")
	for i := range edits {
		text := fmt.Sprintf("edit %d", i+1)
		start := time.Now()
		fn = e.until(e.edit(fn, answer(text)), test.Healed)
		for _, prober := range probers {
			e.untilAnswer(prober, text)
		}
		e.Logf("%s answers after %s", text, time.Since(start).Round(100*time.Millisecond))
	}
	requests := 0
	for _, prober := range probers {
		requests += e.wantNoFailure(prober)
	}
	e.Logf("%d requests during %d edits", requests, edits)
}

// busy is the source of a function that needs a tenth of a second of CPU for each call.
const busy = `module.exports = { main: () => {
  const end = process.cpuUsage().user + 100000;
  while (process.cpuUsage().user < end) {}
  return 'done';
} };
`

// TestAutoscaled calls a Function of a Deployment until its HorizontalPodAutoscaler has
// started as many pods as it may, and lets it rest until one is left.
func TestAutoscaled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	if server != deployments {
		t.Skip("it needs metrics-server, which the local cluster has with PLATFORM=plain")
	}
	fn := function(busy)
	fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(1)), new(int32(3))
	fn.Spec.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("50m")
	fn = e.until(e.create(fn), test.Healed)
	prober := e.probe(fn, "done")
	fn = e.until(fn, hasReplicas(3))
	requests := e.wantNoFailure(prober)
	e.Logf("%d requests until there were 3 pods", requests)
	fn = e.until(fn, hasReplicas(1))
	e.wantAnswer(fn, "{}", "done")
	e.wantRevisions(1)
}

// hasReplicas returns a check that the Function is ready with so many pods.
func hasReplicas(want int32) func(*v1alpha1.Function) error {
	return func(fn *v1alpha1.Function) error {
		if fn.Status.Replicas != want {
			return fmt.Errorf("it has %d replicas", fn.Status.Replicas)
		}
		return test.Ready(fn)
	}
}

// scale sets the number of pods, as kubectl scale does.
func (e *env) scale(fn *v1alpha1.Function, replicas int32) *v1alpha1.Function {
	e.Helper()
	err := clients.Kiln.ServerlessV1alpha1().RESTClient().Patch(types.MergePatchType).Namespace(e.namespace).Resource("functions").
		Name(fn.Name).SubResource("scale").Body(fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, replicas)).Do(e.ctx).Error()
	if err != nil {
		e.Fatal(err)
	}
	return e.until(fn, hasReplicas(replicas))
}

// wantOldPodsToServe edits a Function so that it crashes. It checks that the last revision
// serves on, also after one of its pods is deleted.
func (e *env) wantOldPodsToServe(fn *v1alpha1.Function, answer string) *v1alpha1.Function {
	e.Helper()
	serving := fn.Status.Traffic[0].RevisionName
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = "throw new Error('it does not start');\n" })
	fn, _ = e.untilCondition(fn, apis.Condition{Type: v1alpha1.FunctionConditionRunning, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonDeploymentFailed})
	pods := clients.Kube.CoreV1().Pods(e.namespace)
	ofRevision := metav1.ListOptions{LabelSelector: serverless.RevisionLabelKey + "=" + serving}
	list, err := pods.List(e.ctx, ofRevision)
	if err != nil || len(list.Items) == 0 {
		e.Fatalf("%d pods of revision %s: %v", len(list.Items), serving, err)
	}
	gone := list.Items[0]
	if err := pods.Delete(e.ctx, gone.Name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	err = test.Until(e.ctx, pods, ofRevision, func(pods []*corev1.Pod) error {
		ready := 0
		for _, pod := range pods {
			if pod.Name != gone.Name && isReady(pod) {
				ready++
			}
		}
		if ready < len(list.Items) {
			return errors.New("the deleted pod is not replaced")
		}
		return nil
	})
	if err != nil {
		e.Fatal(err)
	}
	e.wantAnswer(fn, "{}", answer)
	return fn
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// servesRevision returns a check that the Function is ready and the revision gets all
// requests.
func servesRevision(revision string) func(*v1alpha1.Function) error {
	return func(fn *v1alpha1.Function) error {
		if len(fn.Status.Traffic) != 1 || fn.Status.Traffic[0].RevisionName != revision {
			return fmt.Errorf("status.traffic is %+v", fn.Status.Traffic)
		}
		return test.Ready(fn)
	}
}

// wantInternal checks that the Service of a Function is reachable only from inside the
// cluster.
func wantInternal(e *env, fn *v1alpha1.Function) {
	e.Helper()
	service, err := clients.Kube.CoreV1().Services(e.namespace).Get(e.ctx, fn.Name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	if service.Spec.Type != corev1.ServiceTypeClusterIP || len(service.Spec.ExternalIPs) > 0 {
		e.Errorf("the Service is %+v, want an address inside the cluster only", service.Spec)
	}
	ingresses, err := clients.Kube.NetworkingV1().Ingresses(e.namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil || len(ingresses.Items) > 0 {
		e.Errorf("there are %d Ingresses: %v", len(ingresses.Items), err)
	}
}

// editDeployment changes the image and environment of a Deployment.
func editDeployment(e *env, fn *v1alpha1.Function) {
	e.Helper()
	objects := clients.Kube.AppsV1().Deployments(e.namespace)
	edit(e, objects, fn.Name, func(d *appsv1.Deployment) {
		container := &d.Spec.Template.Spec.Containers[0]
		container.Image = relayImage
		container.Env = append(container.Env, corev1.EnvVar{Name: "BY_HAND", Value: "yes"})
	})
	untilDeployment(e, fn, "it still has the manual changes", func(d *appsv1.Deployment) bool {
		container := d.Spec.Template.Spec.Containers[0]
		return container.Image == fn.Status.Image && !slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == "BY_HAND" })
	})
}

func stripDeployment(e *env, fn *v1alpha1.Function) {
	e.Helper()
	strip(e, clients.Kube.AppsV1().Deployments(e.namespace), fn.Name, fn)
}

func scaleDeployment(e *env, fn *v1alpha1.Function) {
	e.Helper()
	edit(e, clients.Kube.AppsV1().Deployments(e.namespace), fn.Name, func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) })
	untilDeployment(e, fn, "it has no pod", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 1 })
}

func deleteDeployment(e *env, fn *v1alpha1.Function) {
	e.Helper()
	objects := clients.Kube.AppsV1().Deployments(e.namespace)
	old, err := objects.Get(e.ctx, fn.Name, metav1.GetOptions{})
	if err == nil {
		err = objects.Delete(e.ctx, fn.Name, metav1.DeleteOptions{})
	}
	if err != nil {
		e.Fatal(err)
	}
	untilDeployment(e, fn, "it was not created again", func(d *appsv1.Deployment) bool { return d.UID != old.UID })
}

// untilDeployment waits for the Deployment of a Function.
func untilDeployment(e *env, fn *v1alpha1.Function, what string, is func(*appsv1.Deployment) bool) {
	e.Helper()
	untilObjects(e, clients.Kube.AppsV1().Deployments(e.namespace), func(found []*appsv1.Deployment) error {
		if !slices.ContainsFunc(found, func(d *appsv1.Deployment) bool { return d.Name == fn.Name && is(d) }) {
			return fmt.Errorf("Deployment %s: %s", fn.Name, what)
		}
		return nil
	})
}

// editClusterIP makes the Service of a Function select nothing.
func editClusterIP(e *env, fn *v1alpha1.Function) {
	e.Helper()
	services := clients.Kube.CoreV1().Services(e.namespace)
	edited := edit(e, services, fn.Name, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"by": "hand"} })
	untilClusterIP(e, edited, "it still has the manual changes", func(s *corev1.Service) bool { return s.Spec.Selector["by"] == "" })
}

func deleteClusterIP(e *env, fn *v1alpha1.Function) {
	e.Helper()
	services := clients.Kube.CoreV1().Services(e.namespace)
	old, err := services.Get(e.ctx, fn.Name, metav1.GetOptions{})
	if err == nil {
		err = services.Delete(e.ctx, fn.Name, metav1.DeleteOptions{})
	}
	if err != nil {
		e.Fatal(err)
	}
	untilClusterIP(e, old, "it was not created again", func(s *corev1.Service) bool { return s.UID != old.UID })
}

func untilClusterIP(e *env, of *corev1.Service, what string, is func(*corev1.Service) bool) {
	e.Helper()
	untilObjects(e, clients.Kube.CoreV1().Services(e.namespace), func(found []*corev1.Service) error {
		if !slices.ContainsFunc(found, func(s *corev1.Service) bool { return s.Name == of.Name && is(s) }) {
			return fmt.Errorf("Service %s: %s", of.Name, what)
		}
		return nil
	})
}
