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

package kubernetes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgotesting "k8s.io/client-go/testing"
	"knative.dev/pkg/controller"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func (w *world) image() string {
	w.Helper()
	return w.deployment().Spec.Template.Spec.Containers[0].Image
}

// hold holds the Function, and returns the writes.
func (w *world) hold(fn *v1alpha1.Function) []string {
	w.Helper()
	w.client.ClearActions()
	if err := w.Hold(w.ctx, fn); err != nil {
		w.Fatal(err)
	}
	return w.writes()
}

// TestWithoutAnnotations checks that a Deployment without annotations does not end the
// controller. Anybody who may edit it can remove them.
func TestWithoutAnnotations(t *testing.T) {
	fn := function()
	w := serving(t, fn)
	d := w.deployment()
	d.Annotations = nil
	w.setStatus(d)
	fn.Status.Image = imageB
	w.apply(fn)
	if got := revisionOf(w.deployment()); got != "greeter-00002" || w.image() != imageB {
		t.Errorf("revision %s runs %s", got, w.image())
	}
}

// TestLostWrite checks that Hold does not take back an update whose status was lost.
func TestLostWrite(t *testing.T) {
	fn := function()
	w := serving(t, fn)
	lost := fn.DeepCopy()
	lost.Status.Image, fn.Status.Image = imageB, imageB
	w.apply(fn)
	w.rollOut(1)
	if writes := w.hold(lost); writes != nil || w.image() != imageB {
		t.Errorf("Hold writes %v; image %s serves", writes, w.image())
	}
}

// TestStaleFunction checks that a stale Function restores and deletes nothing.
func TestStaleFunction(t *testing.T) {
	for name, spoil := range map[string]func(*world, *v1alpha1.Function){
		"edited template": func(w *world, _ *v1alpha1.Function) {
			d := w.deployment()
			d.Spec.Template.Spec.Containers[0].Image = imageB
			w.setStatus(d)
		},
		"no autoscaler": func(_ *world, fn *v1alpha1.Function) { fn.Spec.Resources.Requests = nil },
	} {
		t.Run(name, func(t *testing.T) {
			fn := function()
			w := serving(t, fn)
			spoil(w, fn)
			stale := errors.New("stale")
			w.CheckCurrent = func(context.Context, *v1alpha1.Function) error { return stale }
			w.client.ClearActions()
			if err := w.Hold(w.ctx, fn); !errors.Is(err, stale) {
				t.Errorf("Hold() = %v", err)
			}
			if writes := w.writes(); writes != nil {
				t.Errorf("it writes %v", writes)
			}
		})
	}
}

// TestStaleCache checks that two templates never have the name of one revision, although
// neither the cache nor the status shows the first one.
func TestStaleCache(t *testing.T) {
	w := serving(t, function())
	if err := w.caches[deploymentKind].Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	w.apply(function(func(fn *v1alpha1.Function) { fn.Status.Image = imageB }))
	if got := revisionOf(w.deployment()); got != "greeter-00002" || w.image() != imageB {
		t.Errorf("revision %s runs %s", got, w.image())
	}
}

// TestConflict checks that a Deployment that is newer than the cache is not overwritten.
func TestConflict(t *testing.T) {
	fn := function()
	w := serving(t, fn)
	d := w.deployment()
	d.ResourceVersion, d.Spec.Replicas = "newer", new(int32(7))
	if err := w.client.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), d, namespace); err != nil {
		t.Fatal(err)
	}
	fn.Status.Image = imageB
	if later, _ := controller.IsRequeueKey(w.Apply(w.ctx, fn)); !later || w.image() != imageA {
		t.Errorf("image %s serves, want a retry", w.image())
	}
	w.sync()
	w.apply(fn)
	if got := revisionOf(w.deployment()); got != "greeter-00002" || replicasOf(w.deployment()) != 7 {
		t.Errorf("revision %s has %d pods", got, replicasOf(w.deployment()))
	}
}

// TestHold checks what Hold applies while no newer image is available.
func TestHold(t *testing.T) {
	t.Run("replicas", func(t *testing.T) {
		fn := function()
		w := serving(t, fn)
		fn.Spec.Replicas = new(int32(3))
		if writes := w.hold(fn); !slices.Equal(writes, []string{"create poddisruptionbudgets", "delete horizontalpodautoscalers", "update deployments"}) {
			t.Errorf("it writes %v", writes)
		}
		if got := replicasOf(w.deployment()); got != 3 || w.image() != imageA {
			t.Errorf("%d pods run %s", got, w.image())
		}
	})
	t.Run("invalid spec", func(t *testing.T) {
		fn := function()
		w := serving(t, fn)
		w.config.Functions.PublicDomain = "fn.example.com"
		fn.Generation++
		fn.Spec.Visibility, fn.Spec.Replicas = v1alpha1.VisibilityPublic, new(int32(3))
		if writes := w.hold(fn); writes != nil || strings.Contains(fn.Status.URL.String(), "example.com") {
			t.Errorf("it writes %v; the URL is %s", writes, fn.Status.URL)
		}
	})
	t.Run("somebody's autoscaler", func(t *testing.T) {
		fn := function(func(fn *v1alpha1.Function) { fn.Spec.Replicas = new(int32(1)) })
		w := serving(t, fn)
		theirs := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "greeter", Namespace: namespace}}
		if err := w.client.Tracker().Add(theirs); err != nil {
			t.Fatal(err)
		}
		fn.Spec.Replicas = nil
		w.hold(fn)
	})
	t.Run("no Deployment yet", func(t *testing.T) {
		if writes := newWorld(t).hold(function(func(fn *v1alpha1.Function) { fn.Status.Image = "" })); writes != nil {
			t.Errorf("it writes %v", writes)
		}
	})
}

// TestHoldDeleted checks that a deleted Deployment comes back while no newer image is
// available, with its last template if a ReplicaSet still has it.
func TestHoldDeleted(t *testing.T) {
	for name, keepsSets := range map[string]bool{"with its ReplicaSet": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			fn := function()
			w := serving(t, fn)
			fn.Spec.Env = []corev1.EnvVar{{Name: "NEW", Value: "1"}}
			if err := w.client.AppsV1().Deployments(namespace).Delete(w.ctx, "greeter", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if !keepsSets {
				if err := w.client.AppsV1().ReplicaSets(namespace).Delete(w.ctx, "greeter-greeter-00001", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			w.sync()
			w.hold(fn)
			want := map[string]string{"with its ReplicaSet": "greeter-00001", "without": "greeter-00002"}[name]
			hasNew := slices.ContainsFunc(w.deployment().Spec.Template.Spec.Containers[0].Env, func(e corev1.EnvVar) bool { return e.Name == "NEW" })
			if revisionOf(w.deployment()) != want || hasNew == keepsSets {
				t.Errorf("revision %s, of the new spec: %v", revisionOf(w.deployment()), hasNew)
			}
			w.rollOut(1)
			if writes := w.hold(fn); writes != nil {
				t.Errorf("a second time writes %v", writes)
			}
			if got := fn.Status.Traffic[0].RevisionName; got != want {
				t.Errorf("status.traffic names %s, and %s serves", got, want)
			}
		})
	}
}

// TestHoldUnlisted checks that a Deployment without its label gets it back while no newer image
// is available. The cache does not have it.
func TestHoldUnlisted(t *testing.T) {
	fn := function()
	w := serving(t, fn)
	d := w.deployment()
	delete(d.Labels, serverless.ServerLabelKey)
	w.setStatus(d)
	w.hold(fn)
	if w.deployment().Labels[serverless.ServerLabelKey] == "" {
		t.Error("the label is still missing")
	}
	w.sync()
	if writes := w.hold(fn); writes != nil {
		t.Errorf("a second time writes %v", writes)
	}
}

// TestRejected checks that the status reports which object the API server rejects, and why.
func TestRejected(t *testing.T) {
	for _, resource := range []string{"deployments", "services", "horizontalpodautoscalers", "poddisruptionbudgets", "ingresses"} {
		t.Run(resource, func(t *testing.T) {
			fn := function(func(fn *v1alpha1.Function) {
				fn.Spec.MinReplicas, fn.Spec.Visibility = new(int32(2)), v1alpha1.VisibilityPublic
			})
			w := newWorld(t)
			w.config.Functions.PublicDomain = "fn.example.com"
			w.client.PrependReactor("create", resource, func(clientgotesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrs.NewBadRequest("admission webhook denied the request")
			})
			if err := w.Apply(w.ctx, fn); err == nil || controller.IsPermanentError(err) {
				t.Errorf("Apply() = %v, want a retry", err)
			}
			w.wantRunning(fn, corev1.ConditionFalse, v1alpha1.ReasonDeploymentFailed, "denied the request")
		})
	}
}

// TestReturnFromFailure checks the state while the pods of a failed revision still end.
func TestReturnFromFailure(t *testing.T) {
	fn := function()
	w := serving(t, fn)
	fn.Status.Image = imageB
	w.apply(fn)
	w.sync()
	fn.Status.Image = imageA
	fn.Status.ResetConditions()
	w.apply(fn)
	fn.Status.ResetConditions()
	d := w.deployment()
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1}
	w.setStatus(d)
	ready := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: namespace, Labels: d.Spec.Template.Labels},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if err := w.caches["Pod"].Add(ready); err != nil {
		t.Fatal(err)
	}
	w.apply(fn)
	w.wantRunning(fn, corev1.ConditionUnknown, v1alpha1.ReasonDeploymentWaiting, "1 of other revisions still run")
}

// TestRevisionNames checks that each revision has a number, and a name that a label may have.
func TestRevisionNames(t *testing.T) {
	for _, name := range []string{"a", "greeter-00009", strings.Repeat("a", 57), strings.Repeat("a", 58), strings.Repeat("a", 63)} {
		fn := function(func(fn *v1alpha1.Function) { fn.Name = name })
		for _, number := range []int{1, 99999, 100000} {
			revision := revisionName(fn, number)
			if problems := validation.IsValidLabelValue(revision); problems != nil || numberOf(revision) != number {
				t.Errorf("revision %d of %s is %s: number %d, %v", number, name, revision, numberOf(revision), problems)
			}
		}
	}
}

// TestDeadline checks that each progress deadline is one that a Deployment may have.
func TestDeadline(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 10 * time.Minute, "90s": 90 * time.Second, "-1s": 10 * time.Minute, "soon": 10 * time.Minute, "2000000h": 24 * time.Hour} {
		fn := function(func(fn *v1alpha1.Function) { fn.Spec.Annotations = map[string]string{deadlineAnnotation: text} })
		if got := deadlineOf(fn); got != want {
			t.Errorf("%q: the deadline is %s, want %s", text, got, want)
		}
	}
}

// TestRefusedRollback checks that spec.traffic does not bring back pods that the
// administrator forbids now.
func TestRefusedRollback(t *testing.T) {
	for name, tc := range map[string]struct {
		edit   edit
		forbid func(*config.Config)
		text   string
	}{
		"Secret": {
			func(fn *v1alpha1.Function) {
				fn.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "registry"}}}}
			},
			func(c *config.Config) { c.Registry.Credentials = "registry" }, "uses Secret registry",
		},
		"label": {
			func(fn *v1alpha1.Function) { fn.Spec.Labels = map[string]string{"example.com/team": "a"} },
			func(c *config.Config) { c.Functions.AllowedLabels = nil }, "example.com/team",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.config.Functions.AllowedLabels = config.KeyPatterns{"example.com/*"}
			fn := function(tc.edit)
			w.apply(fn)
			w.sync()
			w.rollOut(1)
			fn.Spec.EnvFrom, fn.Spec.Labels = nil, nil
			w.apply(fn)
			w.sync()
			w.rollOut(1)
			w.apply(fn)
			tc.forbid(w.config)
			fn.Spec.Traffic = []v1alpha1.TrafficTarget{{RevisionName: "greeter-00001", Percent: new(int64(100))}}
			w.apply(fn)
			w.wantRunning(fn, corev1.ConditionFalse, v1alpha1.ReasonRevisionMissing, tc.text)
			if got := revisionOf(w.deployment()); got != "greeter-00002" {
				t.Errorf("revision %s serves", got)
			}
		})
	}
}

// TestWakes checks which changes wake a Function. Kubernetes writes the status of each
// autoscaler every few seconds.
func TestWakes(t *testing.T) {
	scaler := func(edit func(*autoscalingv2.HorizontalPodAutoscaler)) any {
		made := MakeScaler(t.Context(), function())
		made.ResourceVersion = "1"
		edit(made)
		kept, err := Slim(made)
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	old := scaler(func(*autoscalingv2.HorizontalPodAutoscaler) {})
	for name, tc := range map[string]struct {
		edit func(*autoscalingv2.HorizontalPodAutoscaler)
		want int
	}{
		"status": {func(s *autoscalingv2.HorizontalPodAutoscaler) { s.ResourceVersion, s.Status.DesiredReplicas = "2", 3 }, 0},
		"spec":   {func(s *autoscalingv2.HorizontalPodAutoscaler) { s.ResourceVersion, s.Spec.MaxReplicas = "2", 3 }, 1},
		"labels": {func(s *autoscalingv2.HorizontalPodAutoscaler) { delete(s.Labels, serverless.FunctionUIDLabelKey) }, 1},
	} {
		woken := 0
		handler := WakeOnChange(func(any) { woken++ })
		handler.OnUpdate(old, scaler(tc.edit))
		if woken != tc.want {
			t.Errorf("%s: woken %d times, want %d", name, woken, tc.want)
		}
	}
}
