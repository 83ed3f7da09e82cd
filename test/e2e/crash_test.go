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
	"strings"
	"testing"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// controllerPods selects Kiln's controller.
const controllerPods = "app.kubernetes.io/name=kiln,app.kubernetes.io/component=controller"

// killed is the exit code of a process that was ended by SIGKILL.
const killed = 128 + 9

// TestControllerKilled kills the controller at the edges of each phase: right
// after one child of the Function has been written, when the controller may or
// may not have written down that it was.
func TestControllerKilled(t *testing.T) {
	t.Parallel()
	for _, moment := range []struct {
		name  string
		await func(*env, *v1alpha1.Function)
	}{
		{"Created", func(*env, *v1alpha1.Function) {}},
		{"Configured", untilConfigMap},
		{"BuildCreated", func(e *env, fn *v1alpha1.Function) { e.untilBuild(fn, nil) }},
		{"Building", func(e *env, fn *v1alpha1.Function) { e.untilBuild(fn, (*pipelinev1.TaskRun).HasStarted) }},
		{"Built", func(e *env, fn *v1alpha1.Function) { e.untilBuild(fn, (*pipelinev1.TaskRun).IsDone) }},
		{"Deploying", untilService},
		{"Running", func(e *env, fn *v1alpha1.Function) { e.until(fn, test.Ready) }},
	} {
		// One after the other: each wants its own kill at its own moment.
		t.Run(moment.name, func(t *testing.T) {
			e := newEnv(t)
			kill := newKill(e)
			fn := e.create(function(answering("alive")))
			moment.await(e, fn)
			kill()
			// What is edited afterwards shows that the new controller is at work.
			fn = e.edit(fn, setEnv("AFTER", "kill"))
			fn = e.until(fn, test.Healed)
			e.wantAnswer(fn, "{}", "alive")
			e.wantBuilds(1)
		})
	}
}

// TestTwoControllers lets two controllers work at once, as a leader that has
// lost its lease without noticing would, and wants no work done twice.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	startSecondController(e)

	fn := e.until(e.create(function(answering("one"))), test.Healed)
	e.wantAnswer(fn, "{}", "one")
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("two") })
	fn = e.until(fn, test.Healed)
	e.wantAnswer(fn, "{}", "two")
	fn = e.until(e.edit(fn, setEnv("GREETING", "three")), test.Healed)
	e.wantAnswer(fn, "{}", "two")
	e.wantBuilds(2)
	e.wantRevisions(3)
}

func untilConfigMap(e *env, fn *v1alpha1.Function) {
	untilObjects(e, clients.Kube.CoreV1().ConfigMaps(e.namespace), func(found []*corev1.ConfigMap) error {
		for _, cm := range found {
			if ownedBy(cm, fn) {
				return nil
			}
		}
		return errors.New("there is no ConfigMap")
	})
}

func untilService(e *env, _ *v1alpha1.Function) {
	untilObjects(e, clients.Serving.ServingV1().Services(e.namespace), func(found []*servingv1.Service) error {
		if len(found) == 0 {
			return errors.New("there is no service")
		}
		return nil
	})
}

// newKill gets everything ready to send SIGKILL to the controller's process,
// and returns the function that does it. A hardened image has no shell, and
// deleting a pod is no SIGKILL at a moment of our choice; so a pod on the same
// node, which sees the node's processes, kills it.
func newKill(e *env) (kill func()) {
	e.Helper()
	pod := controllerPod(e)
	killer, err := test.StartKiller(e.ctx, clients, toolNamespace, relayImage, pod.Spec.NodeName)
	if killer != nil {
		e.Cleanup(func() { stop(e.T, killer) })
	}
	if err != nil {
		e.Fatal(err)
	}
	return func() {
		e.Helper()
		_, containerID, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
		if _, err := killer.Kill(e.ctx, containerID); err != nil {
			e.Fatal(err)
		}
		replace(e, pod)
	}
}

// controllerPod waits until one controller is ready and returns its pod.
func controllerPod(e *env) (ready *corev1.Pod) {
	e.Helper()
	pods := clients.Kube.CoreV1().Pods(test.SystemNamespace)
	err := test.Until(e.ctx, pods, metav1.ListOptions{LabelSelector: controllerPods}, func(found []*corev1.Pod) error {
		if len(found) != 1 {
			return fmt.Errorf("there are %d controllers, want 1", len(found))
		}
		ready = found[0]
		if statuses := ready.Status.ContainerStatuses; len(statuses) != 1 || !statuses[0].Ready {
			return errors.New("the controller is not ready")
		}
		return nil
	})
	if err != nil {
		e.Fatal(err)
	}
	return ready
}

// replace waits until it is seen that a pod's process was killed, and lets a
// new pod take its place: the kubelet makes a container that dies time and
// again wait for minutes.
func replace(e *env, pod *corev1.Pod) {
	e.Helper()
	pods := clients.Kube.CoreV1().Pods(pod.Namespace)
	err := test.Until(e.ctx, pods, test.Named(pod.Name), func(found []*corev1.Pod) error {
		if len(found) == 0 {
			return test.GiveUp(errors.New("the controller's pod is gone"))
		}
		for _, state := range []corev1.ContainerState{found[0].Status.ContainerStatuses[0].State, found[0].Status.ContainerStatuses[0].LastTerminationState} {
			if state.Terminated != nil && state.Terminated.ExitCode == killed {
				return nil
			}
		}
		return errors.New("the controller was not killed")
	})
	if err != nil {
		e.Fatal(err)
	}
	if err := pods.Delete(e.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		e.Fatal(err)
	}
}

func stop(t *testing.T, relay *test.Relay) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := relay.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// startSecondController starts a controller that does not ask whether it leads.
func startSecondController(e *env) {
	e.Helper()
	deployments := clients.Kube.AppsV1().Deployments(test.SystemNamespace)
	first, err := deployments.Get(e.ctx, "controller", metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	labels := map[string]string{"app.kubernetes.io/part-of": "kiln-e2e"}
	second := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "second-controller-"},
		Spec:       *first.Spec.DeepCopy(),
	}
	second.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	second.Spec.Template.Labels = labels
	container := &second.Spec.Template.Spec.Containers[0]
	container.Args = append(container.Args, "--disable-ha")
	if second, err = deployments.Create(e.ctx, second, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := deployments.Delete(context.Background(), second.Name, metav1.DeleteOptions{}); err != nil {
			e.Error(err)
		}
	})
	err = test.Until(e.ctx, deployments, test.Named(second.Name), func(found []*appsv1.Deployment) error {
		if len(found) == 0 || found[0].Status.ReadyReplicas == 0 {
			return errors.New("the second controller is not ready")
		}
		return nil
	})
	if err != nil {
		e.Fatal(err)
	}
}
