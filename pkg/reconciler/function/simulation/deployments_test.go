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
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

const (
	// foreignLabel is on the objects of somebody else. Nothing runs them.
	foreignLabel = "example.com/foreign"

	// countAnnotation is where the Deployment controller counts the templates.
	countAnnotation = "deployment.kubernetes.io/revision"
)

// rollout is the state of a Deployment. Its sets are the oldest first.
type rollout struct {
	*appsv1.Deployment
	sets    []*appsv1.ReplicaSet
	current *appsv1.ReplicaSet
	pods    map[types.UID][]*corev1.Pod
}

// runDeployments replaces the controllers of Deployments and ReplicaSets, and the kubelet.
// Each step is one write, as theirs are, so that the controller sees all states in between.
func (s *simulation) runDeployments() bool {
	var deployments []*appsv1.Deployment
	var sets []*appsv1.ReplicaSet
	pods := map[types.UID][]*corev1.Pod{}
	for _, obj := range s.server.Objects() {
		switch obj := obj.(type) {
		case *appsv1.Deployment:
			deployments = append(deployments, obj)
		case *appsv1.ReplicaSet:
			sets = append(sets, obj)
		case *corev1.Pod:
			if owner := metav1.GetControllerOf(obj); owner != nil && obj.DeletionTimestamp == nil {
				pods[owner.UID] = append(pods[owner.UID], obj)
			}
		}
	}
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, d := range deployments {
		if d.DeletionTimestamp == nil && d.Labels[foreignLabel] == "" && s.runDeployment(rolloutOf(d, sets, pods)) {
			return true
		}
	}
	for _, set := range sets {
		if set.DeletionTimestamp == nil && s.runReplicaSet(set, pods[set.UID]) {
			return true
		}
	}
	return false
}

// autoscale replaces the autoscaler, which keeps the number of pods between its bounds.
func (s *simulation) autoscale() bool {
	for _, scaler := range objects[*autoscalingv2.HorizontalPodAutoscaler](s) {
		d := get[*appsv1.Deployment](s, scaler.Namespace, scaler.Spec.ScaleTargetRef.Name)
		// No pods means that nobody wants any.
		if d == nil || d.DeletionTimestamp != nil || *d.Spec.Replicas == 0 {
			continue
		}
		if want := min(max(*d.Spec.Replicas, *scaler.Spec.MinReplicas), scaler.Spec.MaxReplicas); want != *d.Spec.Replicas {
			s.setReplicas(d, want)
			return true
		}
	}
	return false
}

func (s *simulation) setReplicas(d *appsv1.Deployment, replicas int32) {
	d = d.DeepCopy()
	d.Spec.Replicas = &replicas
	s.tracef("Deployment %s: scaled to %d", d.Name, replicas)
	must(s.server.Update(d))
}

func rolloutOf(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, pods map[types.UID][]*corev1.Pod) rollout {
	r := rollout{Deployment: d, pods: pods}
	for _, set := range sets {
		if !metav1.IsControlledBy(set, d) || set.DeletionTimestamp != nil {
			continue
		}
		r.sets = append(r.sets, set)
		template := set.Spec.Template.DeepCopy()
		delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		if r.current == nil && equality.Semantic.DeepEqual(*template, d.Spec.Template) {
			r.current = set
		}
	}
	return r
}

// available counts the ready pods of the set, or of all for nil.
func (r *rollout) available(of *appsv1.ReplicaSet) (n int32) {
	for _, set := range r.sets {
		if of == nil || of == set {
			n += int32(len(slices.DeleteFunc(slices.Clone(r.pods[set.UID]), func(pod *corev1.Pod) bool { return !isReady(pod) })))
		}
	}
	return n
}

func (r *rollout) total() (n int32) {
	for _, set := range r.sets {
		n += *set.Spec.Replicas
	}
	return n
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// runDeployment takes the next step of a Deployment.
func (s *simulation) runDeployment(r rollout) bool {
	if r.current == nil {
		return !r.Spec.Paused && s.createReplicaSet(r)
	}
	if count := r.current.Annotations[countAnnotation]; r.Annotations[countAnnotation] != count {
		d := r.DeepCopy()
		d.Annotations = cmpOrEmpty(d.Annotations)
		d.Annotations[countAnnotation] = count
		s.tracef("Deployment %s: template %s", d.Name, count)
		must(s.server.Update(d))
		return true
	}
	if s.reportDeployment(r) {
		return true
	}
	if r.Spec.Paused {
		return false
	}
	return s.rollOut(r) || s.prune(r)
}

func (s *simulation) createReplicaSet(r rollout) bool {
	template := r.Spec.Template.DeepCopy()
	hash := podspec.Hash(template)[:10]
	template.Labels = cmpOrEmpty(template.Labels)
	template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.Name + "-" + hash, Namespace: r.Namespace, Labels: maps.Clone(template.Labels),
			Annotations:     map[string]string{countAnnotation: r.nextCount()},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r.Deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Template: *template, Selector: r.Spec.Selector, Replicas: new(int32(0))},
	}
	if get[*appsv1.ReplicaSet](s, set.Namespace, set.Name) != nil {
		// An earlier Deployment of that name has left it, to be collected.
		return false
	}
	now := s.server.Now
	defer func() { s.server.Now = now }()
	s.server.Now = now.Add(time.Duration(len(s.server.Changes())) * time.Second)
	s.tracef("ReplicaSet %s: created", set.Name)
	must(s.server.Create(set))
	return true
}

// nextCount returns the number of a template that is new, or that comes back.
func (r *rollout) nextCount() string {
	most := 0
	for _, set := range r.sets {
		if count, err := strconv.Atoi(set.Annotations[countAnnotation]); err == nil {
			most = max(most, count)
		}
	}
	return strconv.Itoa(most + 1)
}

// reportDeployment writes the status of a Deployment.
func (s *simulation) reportDeployment(r rollout) bool {
	status := appsv1.DeploymentStatus{ObservedGeneration: r.Generation, AvailableReplicas: r.available(nil), UpdatedReplicas: int32(len(r.pods[r.current.UID]))}
	for _, set := range r.sets {
		status.Replicas += int32(len(r.pods[set.UID]))
	}
	status.ReadyReplicas = status.AvailableReplicas
	progress := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated"}
	want := *r.Spec.Replicas
	switch {
	case status.UpdatedReplicas == want && status.Replicas == want && status.AvailableReplicas == want:
		progress.Reason = "NewReplicaSetAvailable"
	case slices.ContainsFunc(r.pods[r.current.UID], hasCrashed):
		progress.Status, progress.Reason = corev1.ConditionFalse, "ProgressDeadlineExceeded"
		progress.Message = fmt.Sprintf("ReplicaSet %q has timed out progressing.", r.current.Name)
	}
	status.Conditions = []appsv1.DeploymentCondition{progress}
	if equality.Semantic.DeepEqual(r.Status, status) {
		return false
	}
	d := r.DeepCopy()
	d.Status = status
	s.tracef("Deployment %s: %d replicas, %d updated, %d available: %s", d.Name, status.Replicas, status.UpdatedReplicas, status.AvailableReplicas, progress.Reason)
	must(s.server.UpdateStatus(d))
	return true
}

// rollOut starts pods of the current template, or ends others, within the bounds of the
// strategy.
func (s *simulation) rollOut(r rollout) bool {
	want := *r.Spec.Replicas
	surge, unavailable := limitsOf(r.Deployment)
	now, total := *r.current.Spec.Replicas, r.total()
	switch {
	case now > want:
		return s.scale(r, r.current, want)
	case now < want && total < want+surge:
		return s.scale(r, r.current, now+min(want+surge-total, want-now))
	}
	// Pods that are not ready go first.
	least := want - unavailable
	spare := total - least - (now - r.available(r.current))
	for _, set := range r.sets {
		broken := *set.Spec.Replicas - r.available(set)
		if set != r.current && spare > 0 && broken > 0 {
			return s.scale(r, set, *set.Spec.Replicas-min(spare, broken))
		}
	}
	spare = min(spare, r.available(nil)-least)
	for _, set := range r.sets {
		if set != r.current && spare > 0 && *set.Spec.Replicas > 0 {
			return s.scale(r, set, *set.Spec.Replicas-min(spare, *set.Spec.Replicas))
		}
	}
	return false
}

// limitsOf returns how many pods there may be beyond the wanted number, and how many below it.
func limitsOf(d *appsv1.Deployment) (surge, unavailable int32) {
	want := *d.Spec.Replicas
	rolling := d.Spec.Strategy.RollingUpdate
	if rolling == nil {
		return 0, want
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxSurge, int(want), true)
	must(nil, err)
	missing, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, int(want), false)
	must(nil, err)
	return int32(most), int32(missing)
}

// scale sets the number of pods of a set. A template that comes back counts as the newest.
func (s *simulation) scale(r rollout, set *appsv1.ReplicaSet, replicas int32) bool {
	set = set.DeepCopy()
	if r.sets[len(r.sets)-1].UID != set.UID && set.UID == r.current.UID && *set.Spec.Replicas == 0 {
		set.Annotations[countAnnotation] = r.nextCount()
	}
	set.Spec.Replicas = &replicas
	s.tracef("ReplicaSet %s: %d replicas", set.Name, replicas)
	must(s.server.Update(set))
	return true
}

// prune deletes the oldest set beyond the history.
func (s *simulation) prune(r rollout) bool {
	idle := slices.DeleteFunc(slices.Clone(r.sets), func(set *appsv1.ReplicaSet) bool {
		return set == r.current || *set.Spec.Replicas > 0 || len(r.pods[set.UID]) > 0
	})
	if int32(len(idle)) <= *r.Spec.RevisionHistoryLimit {
		return false
	}
	s.tracef("ReplicaSet %s: pruned", idle[0].Name)
	must(nil, s.server.Delete(s.server.RefOf(idle[0]), metav1.DeleteOptions{}))
	return true
}

// runReplicaSet creates or deletes a pod of the set, or starts one.
func (s *simulation) runReplicaSet(set *appsv1.ReplicaSet, pods []*corev1.Pod) bool {
	switch want := int(*set.Spec.Replicas); {
	case len(pods) < want:
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				// Names of pods are never used again.
				Name: fmt.Sprintf("%s-%d", set.Name, len(s.server.Changes())), Namespace: set.Namespace, Labels: maps.Clone(set.Spec.Template.Labels),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
			},
			Spec: *set.Spec.Template.Spec.DeepCopy(),
		}
		s.tracef("Pod %s: created", pod.Name)
		must(s.server.Create(pod))
		return true
	case len(pods) > want:
		i := max(0, slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return !isReady(pod) }))
		s.tracef("Pod %s: deleted", pods[i].Name)
		must(nil, s.server.Delete(s.server.RefOf(pods[i]), metav1.DeleteOptions{}))
		return true
	}
	for _, pod := range pods {
		if !isReady(pod) && !hasCrashed(pod) {
			s.startServing(pod, !s.crashing[digestIn(pod.Spec.Containers[0].Image)])
			return true
		}
	}
	return false
}

func hasCrashed(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.RestartCount > 0 })
}

// startServing replaces the kubelet: the pod becomes ready, or crashes again and again.
func (s *simulation) startServing(pod *corev1.Pod, ready bool) {
	pod = pod.DeepCopy()
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	container := corev1.ContainerStatus{Name: children.FunctionContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	if !ready {
		condition.Status = corev1.ConditionFalse
		container.RestartCount, container.LastTerminationState = 2, end(1, "")
		container.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions, pod.Status.ContainerStatuses = []corev1.PodCondition{condition}, []corev1.ContainerStatus{container}
	s.tracef("Pod %s: ready: %v", pod.Name, ready)
	must(s.server.UpdateStatus(pod))
}
