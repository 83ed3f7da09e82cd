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
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// controllerPods selects the pods of Kiln's controller.
const controllerPods = "app.kubernetes.io/name=kiln,app.kubernetes.io/component=controller"

// killed is the exit code of a process that SIGKILL ended.
const killed = 128 + 9

// TestController kills and duplicates the controller. Its parts run one after the other:
// each needs its own moment, and a second controller would do the work of a killed one.
func TestController(t *testing.T) {
	t.Parallel()
	for _, moment := range killMoments {
		t.Run("Killed/"+moment.name, func(t *testing.T) { testKill(newEnv(t), moment) })
	}
	t.Run("Two", func(t *testing.T) { testTwoControllers(newEnv(t)) })
}

// killMoment is a moment at which the test kills the controller: right after a write or an
// event, which the controller may or may not have recorded.
type killMoment struct {
	name string
	// reach creates a Function and waits for the moment.
	reach func(*env) *v1alpha1.Function
	// builds is the total number of builds at the end.
	builds int
}

// alive is the answer of the functions of TestController.
const alive = "alive"

var killMoments = []killMoment{
	{"Created", after(func(*env, *v1alpha1.Function) {}), 1},
	{"Configured", after(untilConfigMap), 1},
	{"BuildCreated", after(func(e *env, fn *v1alpha1.Function) { e.untilBuild(fn, nil) }), 1},
	{"Building", after(func(e *env, fn *v1alpha1.Function) { e.untilBuild(fn, hasStarted) }), 1},
	{"Built", after(func(e *env, fn *v1alpha1.Function) { e.untilBuild(fn, hasEnded) }), 1},
	{"Deploying", after(untilService), 1},
	{"Running", after(func(e *env, fn *v1alpha1.Function) { e.until(fn, test.Ready) }), 1},
	{"Failed", afterFailure, 2},
	{"Rebuilding", afterDeletionOfBuild, 2},
	{"RebuildRequested", afterRequest, 2},
}

// after creates the Function and waits with await.
func after(await func(*env, *v1alpha1.Function)) func(*env) *v1alpha1.Function {
	return func(e *env) *v1alpha1.Function {
		fn := e.create(function(answering(alive)))
		await(e, fn)
		return fn
	}
}

// afterFailure reaches the moment at which a build has failed.
func afterFailure(e *env) *v1alpha1.Function {
	broken := function(answering(alive))
	broken.Spec.Deps = missingDependency
	fn, _ := e.untilCondition(e.create(broken), buildFailed())
	return fn
}

// afterDeletionOfBuild reaches the moment between the deletion of the old build and the
// creation of the next.
func afterDeletionOfBuild(e *env) *v1alpha1.Function {
	fn := e.until(e.create(function(answering("before"))), test.Ready)
	first := e.onlyBuild()
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering(alive) })
	e.untilBuilds(func(found []*build) error {
		for _, build := range found {
			if build.UID == first.UID && build.DeletionTimestamp == nil {
				return errors.New("the build of the earlier source still exists")
			}
		}
		return nil
	})
	return fn
}

// afterRequest reaches the moment after a rebuild was requested.
func afterRequest(e *env) *v1alpha1.Function {
	fn := e.until(e.create(function(answering(alive))), test.Ready)
	return e.edit(fn, requestRebuild("now"))
}

// testKill kills the controller at that moment. It checks that the Function becomes ready
// without unnecessary builds.
func testKill(e *env, moment killMoment) {
	kill := newKill(e, controllerPod(e))
	fn := moment.reach(e)
	kill()
	// A later edit proves that the new controller works.
	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		setEnv("AFTER", "kill")(fn)
		fn.Spec.Deps = ""
	})
	fn = e.until(fn, test.Healed)
	e.wantAnswerSoon(fn, alive)
	e.wantBuilds(moment.builds)
	e.wantVersion(fn)
}

// testTwoControllers runs two controllers at once, like a leader that did not notice the
// loss of its lease. It checks that no work is done twice.
func testTwoControllers(e *env) {
	startSecondController(e)

	fn := e.until(e.create(function(answering("one"))), test.Healed)
	e.wantAnswerSoon(fn, "one")
	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("two") })
	fn = e.until(fn, test.Healed)
	e.wantAnswerSoon(fn, "two")
	fn = e.until(e.edit(fn, setEnv("GREETING", "three")), test.Healed)
	e.wantAnswerSoon(fn, "two")
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

// newKill prepares to send SIGKILL to the process of a controller, and returns the function
// that sends it. A hardened image has no shell, and the deletion of a pod does not kill at
// an exact moment. Therefore a pod on the same node, which shares the node's process
// namespace, sends the signal.
func newKill(e *env, pod *corev1.Pod) (kill func()) {
	e.Helper()
	killer, err := test.StartKiller(e.ctx, clients, toolNamespace, relayImage, pod.Spec.NodeName)
	if killer != nil {
		e.Cleanup(func() {
			if err := killer.Stop(e.ctx); err != nil {
				e.Error(err)
			}
		})
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

// controllerPod waits until there is exactly one controller pod and it is ready.
func controllerPod(e *env) *corev1.Pod {
	e.Helper()
	return untilControllers(e, 1)[0]
}

// replace waits until a pod's process was killed, and deletes the pod. Otherwise the
// kubelet would delay the restart of the container for minutes.
func replace(e *env, pod *corev1.Pod) {
	e.Helper()
	pods := clients.Kube.CoreV1().Pods(pod.Namespace)
	err := test.Until(e.ctx, pods, test.Named(pod.Name), func(found []*corev1.Pod) error {
		if len(found) == 0 {
			return test.GiveUp(errors.New("the controller's pod was deleted"))
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

// startSecondController starts a controller without leader election.
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
