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
	"strconv"
	"strings"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/reconciler/function"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
)

// The oracle checks any simulation: check runs at each change, and wantEnd once nothing
// happens any more.

// memory is what the oracle remembers.
type memory struct {
	// tags are the images that the Functions have wanted.
	tags map[version]string
	// made maps the digest of each image to the tag that it was built for.
	made map[string]string
	// givenUp are the Jobs that the controller may have given up, although they could still
	// run. They hold no slot of the queue any more.
	givenUp map[types.UID]bool
	// doubted are the objects whose creation had no answer, until a cache shows them. The
	// queue does not count such a build: it may not exist.
	doubted map[types.UID]bool
	// excused are the Deployments whose pods somebody has taken.
	excused map[types.UID]bool

	// acting is true during a call of the controller, but not during its disturbance.
	acting bool
	// reconciling is true during a reconcile. began is the Function at its start.
	reconciling bool
	began       *v1alpha1.Function
}

// version is a generation of a Function.
type version struct {
	function   types.UID
	generation int64
}

func (m *memory) clone() memory {
	return memory{tags: maps.Clone(m.tags), made: maps.Clone(m.made), givenUp: maps.Clone(m.givenUp), doubted: maps.Clone(m.doubted), excused: maps.Clone(m.excused)}
}

// begin records the Function at the start of a reconcile.
func (m *memory) begin(fn *v1alpha1.Function) {
	m.reconciling, m.began = true, fn
}

// check finds fault with a change in the moment it is made.
func (s *simulation) check(change ktesting.Change) {
	switch obj := change.New.(type) {
	case *v1alpha1.Function:
		s.checkFunction(obj)
	case *pipelinev1.TaskRun, *batchv1.Job:
		if change.Old == nil {
			s.checkLive(obj)
			s.checkBegan(obj)
		}
	case *corev1.Pod:
		for _, b := range s.builds() {
			if b.pod == obj && b.run().Unfinished {
				s.memory.givenUp[b.GetUID()] = true
			}
		}
	case *servingv1.Service:
		if s.memory.reconciling {
			s.checkDeployed(obj, obj.Spec.Template.Spec.Containers[0].Image)
		}
	case *appsv1.Deployment:
		s.checkServing(change, obj)
	}
	if s.memory.acting && isServing(change.Latest()) {
		s.checkServer(change)
	}
}

// checkLive checks, when a build starts, that no more builds run than the limits allow.
func (s *simulation) checkLive(started metav1.Object) {
	live := map[types.UID][]string{}
	for _, b := range s.builds() {
		if owner := metav1.GetControllerOf(b); owner != nil && b.mayRun() {
			live[owner.UID] = append(live[owner.UID], s.server.RefOf(b.Object).String())
		}
	}
	for uid, names := range live {
		if len(names) > 1 {
			s.wrongf("%s has %d builds that run: %v", uid, len(names), names)
		}
	}
	all, running, total := s.countBuilds(started.GetNamespace())
	if limit := s.limits.Cluster; limit != 0 && total > limit && running > 1 {
		s.wrongf("%d builds run at once, of %d that may, and %d of them in namespace %s", total, limit, running, started.GetNamespace())
	}
	if limit := s.limits.Namespace; limit != 0 && (all > limit+1 || all > limit && running > 1) {
		s.wrongf("%d builds are at once in namespace %s, of %d that may; %d of them run", all, started.GetNamespace(), limit, running)
	}
}

// countBuilds counts all builds of a namespace, those of them that are not stalled, and
// those of the cluster that are not. For each lost answer, one build does not count until
// the controller can know it.
func (s *simulation) countBuilds(namespace string) (all, running, total int32) {
	for _, b := range s.builds() {
		if !b.isLive() || s.memory.givenUp[b.GetUID()] || s.memory.doubted[b.GetUID()] {
			continue
		}
		pending := b.queued().Pending
		stalled := !pending.IsZero() && !s.server.Now.Before(pending.Add(queue.Grace))
		if !stalled {
			total++
		}
		if b.GetNamespace() == namespace {
			all++
			if !stalled {
				running++
			}
		}
	}
	return all, running, total
}

// checkBegan checks that no build starts for a generation older than the Function at the start
// of the reconcile. The controller cannot know later edits.
func (s *simulation) checkBegan(started metav1.Object) {
	owner, fn := metav1.GetControllerOf(started), s.memory.began
	if !s.memory.reconciling || owner == nil {
		return
	}
	if fn == nil || fn.UID != owner.UID || fn.DeletionTimestamp != nil {
		s.wrongf("build %s is started for Function %s, which was gone before", started.GetName(), owner.UID)
		return
	}
	if generation, err := strconv.ParseInt(started.GetAnnotations()[serverless.GenerationAnnotationKey], 10, 64); err != nil || generation < fn.Generation {
		s.wrongf("build %s is started for generation %d, where there was %d before: %v", started.GetName(), generation, fn.Generation, err)
	}
}

// checkDeployed checks that a Service or a Deployment runs an image that the Function wants, or
// has wanted.
func (s *simulation) checkDeployed(served ktesting.Object, image string) {
	owner := metav1.GetControllerOf(served)
	if owner == nil {
		return
	}
	for version, tag := range s.memory.tags {
		if version.function == owner.UID && s.memory.isOf(image, tag) {
			return
		}
	}
	s.wrongf("%s runs %s, which the Function has never wanted", s.server.RefOf(served), image)
}

// isOf reports whether the image was built for that tag.
func (m *memory) isOf(image, tag string) bool {
	made := m.made[digestIn(image)]
	return tag != "" && strings.HasSuffix(made, ":"+tag)
}

// checkFunction checks that the parts of a Function's status agree.
func (s *simulation) checkFunction(fn *v1alpha1.Function) {
	now := version{fn.UID, fn.Generation}
	if _, ok := s.memory.tags[now]; !ok {
		s.memory.tags[now] = s.wantedTag(fn)
	}
	if fn.Status.Phase == "" {
		return
	}
	conditions := []*apis.Condition{
		fn.Status.GetCondition(v1alpha1.FunctionConditionConfigurationReady),
		fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady),
		fn.Status.GetCondition(v1alpha1.FunctionConditionRunning),
	}
	var want v1alpha1.FunctionPhase
	switch failed := slices.ContainsFunc(conditions, (*apis.Condition).IsFalse); {
	case failed:
		want = v1alpha1.FunctionFailed
	case !conditions[0].IsTrue():
		want = v1alpha1.FunctionInitializing
	case !conditions[1].IsTrue():
		want = v1alpha1.FunctionBuilding
	case !conditions[2].IsTrue():
		want = v1alpha1.FunctionDeploying
	default:
		want = v1alpha1.FunctionRunning
	}
	if fn.Status.Phase != want {
		s.wrongf("Function %s is %s, where its conditions say %s", fn.Name, fn.Status.Phase, want)
	}
	ready := fn.Status.GetCondition(v1alpha1.FunctionConditionReady)
	if ready.IsTrue() != (want == v1alpha1.FunctionRunning) || ready.IsFalse() != (want == v1alpha1.FunctionFailed) {
		s.wrongf("Function %s is %s, and its condition Ready %s", fn.Name, want, ready.Status)
	}
	for i := 1; i < len(conditions); i++ {
		if conditions[i].IsTrue() && !conditions[i-1].IsTrue() {
			s.wrongf("Function %s: %s is True, where %s is not", fn.Name, conditions[i].Type, conditions[i-1].Type)
		}
	}
	wanted := s.memory.tags[version{fn.UID, fn.Status.ObservedGeneration}]
	if conditions[1].IsTrue() && (fn.Status.ImageTag != wanted || !s.memory.isOf(fn.Status.Image, wanted)) {
		s.wrongf("Function %s: BuildReady is True for generation %d, which wants %s; there is %s, of tag %s",
			fn.Name, fn.Status.ObservedGeneration, wanted, fn.Status.Image, fn.Status.ImageTag)
	}
}

// wantedTag returns the tag of the image that the Function wants, or "".
func (s *simulation) wantedTag(fn *v1alpha1.Function) string {
	fn = fn.DeepCopy()
	fn.Status = v1alpha1.FunctionStatus{}
	return function.DesiredTag(configStore{s}.ToContext(unlogged), fn)
}

// wantEnd checks the state once nothing happens any more.
func (s *simulation) wantEnd() {
	functions := map[types.UID]bool{}
	for _, fn := range objects[*v1alpha1.Function](s) {
		functions[fn.UID] = true
	}
	alive := map[types.UID]bool{}
	for _, obj := range s.server.Objects() {
		alive[obj.GetUID()] = true
	}
	for _, obj := range s.server.Objects() {
		if owner := metav1.GetControllerOf(obj); owner != nil && !alive[owner.UID] {
			s.wrongf("%s outlives %s", s.server.RefOf(obj), owner.UID)
		}
		if uid := obj.GetLabels()[serverless.FunctionUIDLabelKey]; uid != "" && !functions[types.UID(uid)] {
			s.wrongf("%s outlives Function %s", s.server.RefOf(obj), uid)
		}
	}
	for _, fn := range objects[*v1alpha1.Function](s) {
		s.wantOneServer(fn)
		s.wantSettled(fn)
	}
}

// wantSettled finds fault with a Function when nothing happens any more.
func (s *simulation) wantSettled(fn *v1alpha1.Function) {
	if fn.Status.ObservedGeneration != fn.Generation {
		s.wrongf("Function %s: generation %d was not seen, but %d", fn.Name, fn.Generation, fn.Status.ObservedGeneration)
		return
	}
	if n := len(ownedBy[*corev1.ConfigMap](s, fn.UID)); n != 1 {
		s.wrongf("Function %s has %d ConfigMaps", fn.Name, n)
	}
	live := slices.DeleteFunc(s.builds(), func(b build) bool { return !b.mayRun() || !metav1.IsControlledBy(b, fn) })
	ready, want := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady), s.memory.tags[version{fn.UID, fn.Generation}]
	refused := string(get[*corev1.Secret](s, fn.Namespace, credentialsName).Data["password"]) == "wrong"
	switch {
	case ready.IsTrue():
		s.wantDeployed(fn)
	case len(live) == 1 && s.verdicts[live[0].GetUID()] == hangs && live[0].GetLabels()[serverless.ImageTagLabelKey] == want && ready.IsUnknown():
		live = nil
	case ready.IsFalse() && (strings.Contains(fn.Spec.Source, brokenSource) || refused):
	case ready.GetReason() == v1alpha1.ReasonBuildQueued && s.isFull(fn.Namespace):
	default:
		s.wrongf("Function %s: nothing happens any more, and BuildReady is %s: %s: %s", fn.Name, ready.Status, ready.Reason, ready.Message)
	}
	if fn.Status.Serving == string(config.KubernetesServer) && !ready.IsTrue() {
		s.wantHeld(fn)
	}
	if len(live) != 0 {
		s.wrongf("Function %s: BuildReady is %s, and build %s still runs", fn.Name, ready.Status, live[0].GetName())
	}
}

// isFull reports whether no other build may run in the namespace, however long it waits.
func (s *simulation) isFull(namespace string) bool {
	all, running, total := s.countBuilds(namespace)
	if !s.clocked {
		return s.limits.Cluster != 0 && total >= s.limits.Cluster || s.limits.Namespace != 0 && all >= s.limits.Namespace
	}
	return s.limits.Cluster != 0 && total >= s.limits.Cluster && running > 0 ||
		s.limits.Namespace != 0 && (all > s.limits.Namespace || all == s.limits.Namespace && running > 0)
}

// wantDeployed checks a Function whose image exists.
func (s *simulation) wantDeployed(fn *v1alpha1.Function) {
	if fn.Status.Serving == string(config.KubernetesServer) {
		s.wantServed(fn)
		return
	}
	running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
	svc := get[*servingv1.Service](s, fn.Namespace, fn.Name)
	switch {
	case running.GetReason() == v1alpha1.ReasonRevisionMissing && pinned(fn) != "":
		return
	case svc == nil:
		s.wrongf("Function %s has no Service: Running is %s: %s: %s", fn.Name, running.Status, running.Reason, running.Message)
		return
	}
	s.wantRun(fn, svc, svc.Spec.Template.Spec.Containers[0])
}

// wantRun finds fault with what runs the newest image of the Function.
func (s *simulation) wantRun(fn *v1alpha1.Function, served ktesting.Object, container corev1.Container) {
	running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
	crashes := s.crashing[digestIn(fn.Status.Image)] && (fn.Spec.Replicas == nil || *fn.Spec.Replicas > 0)
	if crashes != running.IsFalse() || running.IsUnknown() {
		s.wrongf("Function %s: nothing happens any more, and Running is %s: %s: %s", fn.Name, running.Status, running.Reason, running.Message)
	}
	if container.Image != fn.Status.Image {
		s.wrongf("%s runs %s, where the Function has %s", s.server.RefOf(served), container.Image, fn.Status.Image)
	}
	for _, variable := range fn.Spec.Env {
		if !slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return equality.Semantic.DeepEqual(v, variable) }) {
			s.wrongf("%s lacks %s=%s", s.server.RefOf(served), variable.Name, variable.Value)
		}
	}
}

// ownedBy returns the objects of a kind that the Function of that UID controls.
func ownedBy[T ktesting.Object](s *simulation, uid types.UID) []T {
	return slices.DeleteFunc(objects[T](s), func(obj T) bool {
		owner := metav1.GetControllerOf(obj)
		return owner == nil || owner.UID != uid
	})
}
