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
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

// This part of the oracle checks the promises for Functions that Deployments serve.

// isServing reports whether the object is of a kind that serves Functions.
func isServing(obj ktesting.Object) bool {
	switch obj.(type) {
	case *servingv1.Service, *appsv1.Deployment, *corev1.Service, *autoscalingv2.HorizontalPodAutoscaler,
		*policyv1.PodDisruptionBudget, *networkingv1.Ingress:
		return true
	}
	return false
}

// serverOf returns the server whose objects have that kind.
func serverOf(obj ktesting.Object) config.Server {
	if _, ok := obj.(*servingv1.Service); ok {
		return config.KnativeServer
	}
	return config.KubernetesServer
}

// checkServer checks that a write of the controller changes only what the Function owns, and
// that the first object follows the record of the server.
func (s *simulation) checkServer(change ktesting.Change) {
	ref, fn := s.server.RefOf(change.Latest()), s.memory.began
	if fn == nil {
		// The collector of garbage gets it.
		return
	}
	if change.Old != nil && children.OwnershipOf(change.Old, fn) != children.Owned {
		s.wrongf("%s is written, which Function %s does not own", ref, fn.Name)
	}
	live := s.functionOf(children.KeyOf(fn))
	if change.Old != nil || live == nil || !metav1.IsControlledBy(change.New, live) {
		return
	}
	recorded := config.KnativeServer
	if live.Status.Serving != "" {
		recorded = config.Server(live.Status.Serving)
	}
	if server := serverOf(change.New); server != recorded {
		s.wrongf("%s is created by server %s, where the status of Function %s has %s", ref, server, fn.Name, recorded)
	}
}

// checkServing checks that a Deployment runs an image that the Function wants, or has wanted,
// and that what serves keeps serving.
func (s *simulation) checkServing(change ktesting.Change, d *appsv1.Deployment) {
	if s.memory.acting {
		s.checkDeployed(d, d.Spec.Template.Spec.Containers[0].Image)
	}
	old, ok := change.Old.(*appsv1.Deployment)
	switch {
	case !ok, equality.Semantic.DeepEqual(old.Status, d.Status):
	case d.Status.AvailableReplicas > old.Status.AvailableReplicas:
		delete(s.memory.excused, d.UID)
	case d.Status.AvailableReplicas > 0:
	case old.Status.AvailableReplicas > 0 && *d.Spec.Replicas > 0 && !s.memory.excused[d.UID]:
		s.wrongf("Deployment %s served, and does not any more", d.Name)
	}
}

// wantOneServer checks that a Function has one object of each kind, and those of one server.
func (s *simulation) wantOneServer(fn *v1alpha1.Function) {
	kinds, servers := map[string]int{}, map[config.Server]bool{}
	for _, obj := range s.server.Objects() {
		if !isServing(obj) || !metav1.IsControlledBy(obj, fn) {
			continue
		}
		resource := s.server.RefOf(obj).GroupResource.String()
		kinds[resource]++
		servers[serverOf(obj)] = true
		if kinds[resource] > 1 {
			s.wrongf("Function %s has %d %s", fn.Name, kinds[resource], resource)
		}
	}
	if len(servers) > 1 {
		s.wrongf("Function %s has objects of several servers: %v", fn.Name, slices.Sorted(maps.Keys(kinds)))
	}
}

// pinned returns the revision that spec.traffic names, or "".
func pinned(fn *v1alpha1.Function) string {
	for _, target := range fn.Spec.Traffic {
		if target.RevisionName != "" {
			return target.RevisionName
		}
	}
	return ""
}

// wantServed checks a Function whose image exists and that a Deployment serves.
func (s *simulation) wantServed(fn *v1alpha1.Function) {
	running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
	d := get[*appsv1.Deployment](s, fn.Namespace, fn.Name)
	switch {
	case len(fn.Spec.Traffic) > 1:
		if running.GetReason() != v1alpha1.ReasonTrafficUnsupported {
			s.wrongf("Function %s has several targets, and Running is %s: %s", fn.Name, running.Status, running.Reason)
		}
	case pinned(fn) != "" && running.GetReason() == v1alpha1.ReasonRevisionMissing:
	case d == nil:
		s.wrongf("Function %s has no Deployment: Running is %s: %s: %s", fn.Name, running.Status, running.Reason, running.Message)
	case pinned(fn) != "":
		if got := d.Spec.Template.Labels[serverless.RevisionLabelKey]; got != pinned(fn) {
			s.wrongf("Deployment %s runs revision %s, where spec.traffic names %s", d.Name, got, pinned(fn))
		}
	default:
		s.wantRun(fn, d, d.Spec.Template.Spec.Containers[0])
	}
	s.wantHeld(fn)
}

// wantHeld checks what serves a Function, independent of its newest image.
func (s *simulation) wantHeld(fn *v1alpha1.Function) {
	d := get[*appsv1.Deployment](s, fn.Namespace, fn.Name)
	if d == nil {
		if fn.Status.LatestReadyRevisionName != "" && pinned(fn) == "" {
			s.wrongf("Function %s has served, and has no Deployment", fn.Name)
		}
		return
	}
	ready := s.readyPods(fn)
	running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
	if running.IsTrue() && (len(fn.Status.Traffic) != 1 || ready[fn.Status.Traffic[0].RevisionName] < leastPods(fn)) {
		s.wrongf("Function %s is Running with %v, and has the ready pods %v", fn.Name, fn.Status.Traffic, ready)
	}
	if len(fn.Status.Traffic) == 1 && len(ready) > 0 && leastPods(fn) > 0 && ready[fn.Status.Traffic[0].RevisionName] == 0 {
		s.wrongf("Function %s reports that %s gets all requests, and has the ready pods %v", fn.Name, fn.Status.Traffic[0].RevisionName, ready)
	}
	if fn.Status.Replicas != d.Status.Replicas {
		s.wrongf("Function %s reports %d replicas, where the Deployment has %d", fn.Name, fn.Status.Replicas, d.Status.Replicas)
	}
	if fn.Status.LatestReadyRevisionName != "" {
		s.wantParts(fn)
	}
}

// readyPods counts the ready pods by revision that get requests.
func (s *simulation) readyPods(fn *v1alpha1.Function) map[string]int32 {
	ready := map[string]int32{}
	svc := get[*corev1.Service](s, fn.Namespace, fn.Name)
	for _, pod := range objects[*corev1.Pod](s) {
		if svc != nil && pod.Namespace == fn.Namespace && isReady(pod) && pod.DeletionTimestamp == nil && containsAll(pod.Labels, svc.Spec.Selector) {
			ready[pod.Labels[serverless.RevisionLabelKey]]++
		}
	}
	return ready
}

// leastPods returns how many pods the Function has at any time.
func leastPods(fn *v1alpha1.Function) int32 {
	if fn.Spec.Replicas != nil {
		return *fn.Spec.Replicas
	}
	return max(1, *fn.Spec.MinReplicas)
}

// wantParts finds fault with the objects besides the Deployment.
func (s *simulation) wantParts(fn *v1alpha1.Function) {
	has := map[string]bool{
		"Service":                 len(ownedBy[*corev1.Service](s, fn.UID)) == 1,
		"HorizontalPodAutoscaler": len(ownedBy[*autoscalingv2.HorizontalPodAutoscaler](s, fn.UID)) == 1,
		"PodDisruptionBudget":     len(ownedBy[*policyv1.PodDisruptionBudget](s, fn.UID)) == 1,
		"Ingress":                 len(ownedBy[*networkingv1.Ingress](s, fn.UID)) == 1,
	}
	want := map[string]bool{
		"Service":                 true,
		"HorizontalPodAutoscaler": fn.Spec.Replicas == nil,
		"PodDisruptionBudget":     leastPods(fn) > 1,
		"Ingress":                 fn.Spec.Visibility == v1alpha1.VisibilityPublic,
	}
	for _, kind := range slices.Sorted(maps.Keys(want)) {
		if has[kind] != want[kind] {
			s.wrongf("Function %s: it has a %s: %v", fn.Name, kind, has[kind])
		}
	}
}
