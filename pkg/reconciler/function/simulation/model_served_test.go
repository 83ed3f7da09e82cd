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

package simulation

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

// hasDeployments reports whether Deployments serve Functions.
func (m *model) hasDeployments() bool {
	return m.mixed || m.config.Functions.Server == config.KubernetesServer
}

// servingActions are further actions where Deployments serve Functions.
func (m *model) servingActions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){"squat": m.squat, "scale": m.scaleOther, "shake": m.shake, "takeSet": m.takeSet}
}

// servingEdit returns an edit with an effect on Deployments.
func (m *model) servingEdit(t *rapid.T, key types.NamespacedName, edit string) functionOption {
	switch edit {
	case "pin":
		revision := fmt.Sprintf("%s-%05d", key.Name, rapid.IntRange(1, 3).Draw(t, "revision"))
		return withTraffic(v1alpha1.TrafficTarget{RevisionName: revision, Percent: new(int64(100))})
	case "least":
		return withMinReplicas(int32(rapid.IntRange(0, 2).Draw(t, "least")))
	default:
		replicas := rapid.SampledFrom([]*int32{nil, new(int32(0)), new(int32(1)), new(int32(2))}).Draw(t, "replicas")
		return func(fn *v1alpha1.Function) { fn.Spec.Replicas = replicas }
	}
}

// squat gives a name of a Function's objects to an object of somebody else for a while.
func (m *model) squat(t *rapid.T) {
	key := m.player(t)
	meta := metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace, Labels: map[string]string{foreignLabel: "true"}}
	obj := rapid.SampledFrom([]ktesting.Object{
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "theirs", Image: "theirs"}}}},
		}},
		&corev1.Service{ObjectMeta: meta}, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta}, &networkingv1.Ingress{ObjectMeta: meta},
	}).Draw(t, "object")
	ref := m.server.RefOf(obj)
	if slices.ContainsFunc(m.server.Objects(), func(o ktesting.Object) bool { return m.server.RefOf(o) == ref }) {
		t.Skip("the name is taken")
	}
	m.tracef("somebody creates %s", ref)
	must(m.server.Create(obj))
	m.goOn(t)
	m.goOn(t)
	m.tracef("somebody deletes %s", ref)
	must(nil, m.server.Delete(ref, metav1.DeleteOptions{}))
}

// deployment returns a Deployment of a Function that may be touched.
func (m *model) deployment(t *rapid.T) *appsv1.Deployment {
	all := slices.DeleteFunc(objects[*appsv1.Deployment](m.simulation), func(d *appsv1.Deployment) bool { return d.Namespace == bystander.Namespace })
	if len(all) == 0 {
		t.Skip("there is none")
	}
	return rapid.SampledFrom(all).Draw(t, "deployment")
}

// scaleOther sets the number of pods, as an autoscaler does.
func (m *model) scaleOther(t *rapid.T) {
	d := m.deployment(t)
	m.memory.excused[d.UID] = true
	m.setReplicas(d, int32(rapid.IntRange(0, 3).Draw(t, "replicas")))
}

// shake has the pods of a Deployment miss a probe.
func (m *model) shake(t *rapid.T) {
	d := m.deployment(t)
	m.memory.excused[d.UID] = true
	for _, pod := range objects[*corev1.Pod](m.simulation) {
		if !isReady(pod) || pod.Namespace != d.Namespace || !containsAll(pod.Labels, d.Spec.Selector.MatchLabels) {
			continue
		}
		pod = pod.DeepCopy()
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
		m.tracef("Pod %s misses a probe", pod.Name)
		must(m.server.UpdateStatus(pod))
	}
}

// takeSet deletes a ReplicaSet without pods, and so its revision.
func (m *model) takeSet(t *rapid.T) {
	all := slices.DeleteFunc(objects[*appsv1.ReplicaSet](m.simulation), func(set *appsv1.ReplicaSet) bool {
		return set.Namespace == bystander.Namespace || *set.Spec.Replicas > 0
	})
	if len(all) == 0 {
		t.Skip("there is none")
	}
	set := rapid.SampledFrom(all).Draw(t, "set")
	m.tracef("somebody deletes ReplicaSet %s", set.Name)
	m.memory.excused[metav1.GetControllerOf(set).UID] = true
	must(nil, m.server.Delete(m.server.RefOf(set), metav1.DeleteOptions{}))
}

// imageOf returns the image in the spec of the object, or nil.
func imageOf(obj ktesting.Object) *string {
	switch obj := obj.(type) {
	case *servingv1.Service:
		return &obj.Spec.Template.Spec.Containers[0].Image
	case *appsv1.Deployment:
		return &obj.Spec.Template.Spec.Containers[0].Image
	}
	return nil
}

// spoil changes a field that makes an object useless.
func spoil(t *rapid.T, obj ktesting.Object) {
	switch obj := obj.(type) {
	case *appsv1.Deployment:
		obj.Spec.Paused = true
	case *corev1.Service:
		obj.Spec.Selector = map[string]string{"app": "theirs"}
	case *autoscalingv2.HorizontalPodAutoscaler:
		obj.Spec.MaxReplicas = 1
	case *policyv1.PodDisruptionBudget:
		obj.Spec.MaxUnavailable = nil
	case *networkingv1.Ingress:
		obj.Spec.Rules = nil
	default:
		t.Skip("nothing else matters of it")
	}
}
