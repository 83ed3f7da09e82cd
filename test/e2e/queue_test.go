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
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/test"
)

// TestQueue allows one build at a time. It checks that a namespace keeps to that, and
// that two namespaces take turns, even after the controller is replaced. It changes a
// limit of the whole installation and is not parallel to any other test.
func TestQueue(t *testing.T) {
	many, few := newEnv(t), newEnv(t)
	configure(many, config.BuildConfigName, func(data map[string]string) { data["max-concurrent-builds"] = "1" })
	var fns []*v1alpha1.Function
	named := func(name string) *v1alpha1.Function {
		fn := function(answering(name))
		fn.Name = name
		return fn
	}
	for _, name := range []string{"a", "b", "c"} {
		fn := many.create(named(name))
		if len(fns) == 0 {
			// Registry lookups end in any order. Wait, so that the first Function is the
			// first in the queue.
			many.untilCondition(fn, apis.Condition{Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionUnknown, Reason: builder.reasons.Created})
		}
		fns = append(fns, fn)
	}
	many.untilCondition(fns[2], apis.Condition{Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonBuildQueued})
	late := few.create(named("late"))
	few.untilCondition(late, apis.Condition{Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionUnknown, Reason: v1alpha1.ReasonBuildQueued})
	restartController(many)
	for _, fn := range fns {
		many.until(fn, test.Ready)
	}
	few.until(late, test.Ready)

	// On a slow cluster, the build of the other namespace may start beyond the limit.
	runs := many.wantBuilds(3)
	many.wantApart(runs)
	if late := few.onlyBuild(); runs[2].CreationTimestamp.Before(&late.CreationTimestamp) {
		t.Errorf("the Function of namespace %s was built after all those of %s", few.namespace, many.namespace)
	}
}

// TestStuckBuilds fills all slots with builds of two namespaces that cannot start: the Secret
// of their source is missing. It checks that a Function of a third namespace is built
// nevertheless, and one of a stuck namespace as well. It sets the limits of the whole
// installation and is not parallel to any other test.
func TestStuckBuilds(t *testing.T) {
	const slots, each = 10, 5
	stuck, good := []*env{newEnv(t), newEnv(t)}, newEnv(t)
	configure(good, config.BuildConfigName, func(data map[string]string) {
		data["max-concurrent-builds"], data["max-concurrent-builds-per-namespace"] = strconv.Itoa(slots), strconv.Itoa(each)
	})
	for i := range slots {
		fn := archived("nodejs24", v1alpha1.ArchiveSource{URL: "https://code.example.com/a.tgz", SecretName: "nope"})
		fn.Name = fmt.Sprint("stuck-", i)
		fn.Spec.Build = &v1alpha1.BuildSpec{Timeout: &metav1.Duration{Duration: time.Hour}}
		stuck[i%len(stuck)].create(fn)
	}
	for _, e := range stuck {
		e.untilBuilds(func(found []*build) error {
			if len(found) < each {
				return fmt.Errorf("there are %d builds, want %d", len(found), each)
			}
			return nil
		})
	}
	fn := good.until(good.create(function(answering("good"))), test.Ready)
	// The lookup of the image and the timestamps, which have whole seconds, take their time.
	waited, most := good.onlyBuild().CreationTimestamp.Sub(fn.CreationTimestamp.Time), queue.Grace+10*time.Second
	t.Logf("the build of the good Function waited for %s", waited)
	if waited > most {
		good.Errorf("the build of the good Function waited for %s, want at most %s", waited, most)
	}
	own := stuck[0].until(stuck[0].create(function(answering("own"))), test.Ready)
	stuck[0].wantAnswerSoon(own, "own")
	for _, build := range stuck[1].wantBuilds(each) {
		if build.ended {
			stuck[1].Errorf("%s %s is not stuck: %+v", builder.name, build.Name, build.status)
		}
	}
}

// TestTenEdits edits a Function ten times in ten seconds during its build. It checks that
// each edit stops the build before it, and that the last version is built.
func TestTenEdits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.create(function(answering("edit 0")))
	pods := clients.Kube.CoreV1().Pods(e.namespace)
	var pod *corev1.Pod
	untilObjects(e, pods, func(found []*corev1.Pod) error {
		if len(found) == 0 {
			return errors.New("the build has no pod")
		}
		pod = found[0]
		return nil
	})
	start := time.Now()
	for i := range 10 {
		fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering(fmt.Sprint("edit ", i+1)) })
		if i == 0 {
			edited := time.Now()
			err := test.Until(e.ctx, pods, test.Named(pod.Name), func(found []*corev1.Pod) error {
				if len(found) > 0 && found[0].UID == pod.UID && found[0].DeletionTimestamp == nil {
					return errors.New("the pod of the stale build is not being deleted")
				}
				return nil
			})
			if err != nil {
				e.Fatal(err)
			}
			took := time.Since(edited)
			t.Logf("the stale build's pod was being deleted %s after the edit", took)
			if took > 5*time.Second {
				e.Errorf("the stale build was cancelled only after %s", took)
			}
		}
		time.Sleep(time.Until(start.Add(time.Duration(i+1) * time.Second)))
	}
	fn = e.until(fn, test.Ready)
	e.wantAnswerSoon(fn, "edit 10")
	if build := e.onlyBuild(); !build.succeeded {
		e.Errorf("the last %s is %+v", builder.name, build.status)
	}
	seen := e.seenBuilds()
	done := 0
	for _, build := range seen {
		if build.succeeded {
			done++
		}
	}
	t.Logf("%d builds, of which %d succeeded", len(seen), done)
	e.wantRevisions(1)
}

// TestQuota forbids the pods of builds by a quota. It checks that the status has the
// message of the quota, and that the build starts when the quota is deleted.
func TestQuota(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	lift := e.forbidPods()
	fn, failed := e.untilCondition(e.create(function(answering("patient"))),
		apis.Condition{Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonQuotaExceeded})
	if !strings.Contains(failed.Message, "exceeded quota: no-pods") {
		e.Errorf("the message is %q", failed.Message)
	}
	lift()
	fn = e.until(fn, test.Healed)
	e.wantAnswerSoon(fn, "patient")
	e.wantBuilds(1)
}

// forbidPods creates the quota no-pods, which forbids new pods in the test's namespace. The
// returned function deletes it.
func (e *env) forbidPods() (lift func()) {
	e.Helper()
	quotas := clients.Kube.CoreV1().ResourceQuotas(e.namespace)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "no-pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	if _, err := quotas.Create(e.ctx, quota, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	// A quota without a status forbids everything, with another message.
	untilObjects(e, quotas, func(found []*corev1.ResourceQuota) error {
		for _, quota := range found {
			if _, ok := quota.Status.Used[corev1.ResourcePods]; ok {
				return nil
			}
		}
		return errors.New("the quota has no status yet")
	})
	return func() {
		e.Helper()
		if err := quotas.Delete(e.ctx, quota.Name, metav1.DeleteOptions{}); err != nil {
			e.Fatal(err)
		}
	}
}
