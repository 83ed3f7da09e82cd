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
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
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
	configure(e, config.FunctionsConfigName, func(data map[string]string) { data["serving"] = string(with) })
}

// TestDeployments serves a Function without Knative. It checks that edits, a scale and a
// rollback lose no request, that a revision that crashes does not replace the last one, and
// that the Function keeps its Deployment when the default changes.
func TestDeployments(t *testing.T) {
	e := newEnv(t)
	e.choose(config.JobBuilder)
	e.serve(config.KubernetesServer)
	fn := e.until(e.create(function(answering("one"))), test.Healed)
	if fn.Status.Serving != string(config.KubernetesServer) {
		e.Errorf("status.serving is %q", fn.Status.Serving)
	}
	if _, err := clients.Serving.ServingV1().Services(e.namespace).Get(e.ctx, fn.Name, metav1.GetOptions{}); !apierrs.IsNotFound(err) {
		e.Errorf("there is a Knative Service: %v", err)
	}
	first := fn.Status.LatestReadyRevisionName
	prober := e.probe(fn, "one")
	e.serve(config.AutoServer)
	for i := range 5 {
		text := fmt.Sprintf("edit %d", i)
		fn = e.until(e.edit(fn, answer(text)), test.Healed)
		e.untilAnswer(prober, text)
	}
	fn = e.scale(fn, 2)
	fn = e.wantOldPodsToServe(fn, "edit 4")
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Traffic = []v1alpha1.TrafficTarget{{RevisionName: first, Percent: new(int64(100))}}
	}), servesRevision(first))
	e.untilAnswer(prober, "one")
	report, err := prober.Stop(e.ctx)
	if err != nil {
		e.Fatal(err)
	}
	if report.Failed > 0 {
		e.Errorf("%d of %d requests failed, such as %+v", report.Failed, report.Requests, report.Failures)
	}
	e.deleteAndWantNothing(fn, "deployments/", "services/", "poddisruptionbudgets/")
}

// scale sets the number of pods, as kubectl scale does.
func (e *env) scale(fn *v1alpha1.Function, replicas int32) *v1alpha1.Function {
	e.Helper()
	err := clients.Kiln.ServerlessV1alpha1().RESTClient().Patch(types.MergePatchType).Namespace(e.namespace).Resource("functions").
		Name(fn.Name).SubResource("scale").Body(fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, replicas)).Do(e.ctx).Error()
	if err != nil {
		e.Fatal(err)
	}
	return e.until(fn, func(fn *v1alpha1.Function) error {
		if fn.Status.Replicas != replicas {
			return fmt.Errorf("it has %d replicas", fn.Status.Replicas)
		}
		return test.Ready(fn)
	})
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
