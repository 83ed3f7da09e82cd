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
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/sources"
)

// lostNode is the reason of the condition DisruptionTarget of a pod on a lost node.
const lostNode = "DeletionByTaintManager"

// runJobs replaces the Job controller and the kubelet. Each step is one write, as theirs
// are, so that the controller sees all states in between.
func (s *simulation) runJobs() bool {
	jobs := map[string]bool{}
	for _, b := range s.builds() {
		job, ok := b.Object.(*batchv1.Job)
		if !ok {
			continue
		}
		jobs[string(job.UID)] = true
		if s.runJob(job, b.pod) {
			return true
		}
	}
	for _, pod := range objects[*corev1.Pod](s) {
		if pod.DeletionTimestamp != nil && !jobs[pod.Labels[batchv1.ControllerUidLabel]] {
			s.letGo(pod)
			return true
		}
	}
	return false
}

// runJob takes the next step of a Job.
func (s *simulation) runJob(job *batchv1.Job, pod *corev1.Pod) bool {
	held := pod != nil && len(pod.Finalizers) > 0
	switch {
	case job.DeletionTimestamp != nil:
		if held && pod.DeletionTimestamp != nil {
			s.letGo(pod)
			return true
		}
		return s.releaseJob(job)
	case is(job, batchv1.JobComplete), is(job, batchv1.JobFailed):
		return false
	case len(job.Finalizers) == 0:
		s.holdJob(job)
	case job.Status.StartTime == nil:
		s.updateJob(job, "seen", func(status *batchv1.JobStatus) { status.StartTime = new(metav1.NewTime(s.server.Now)) })
	case is(job, batchv1.JobFailureTarget) && held && isLost(pod):
		// Nobody confirms its end.
		return false
	case (is(job, batchv1.JobFailureTarget) || is(job, batchv1.JobSuccessCriteriaMet)) && held:
		s.letGo(pod)
	case is(job, batchv1.JobFailureTarget):
		s.endJob(job, batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
	case is(job, batchv1.JobSuccessCriteriaMet):
		s.endJob(job, batchv1.JobComplete, batchv1.JobReasonCompletionsReached)
	case pod == nil:
		s.createPod(job)
	case pod.Status.Phase == corev1.PodFailed, pod.DeletionTimestamp != nil && isLost(pod):
		s.endJob(job, batchv1.JobFailureTarget, batchv1.JobReasonBackoffLimitExceeded)
	case pod.Status.Phase == corev1.PodSucceeded:
		s.endJob(job, batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached)
	default:
		return s.runPod(job, pod)
	}
	return true
}

// jobFinalizer belongs to another controller. It delays the end of a deleted Job.
const jobFinalizer = "example.com/hold"

func (s *simulation) holdJob(job *batchv1.Job) {
	job = job.DeepCopy()
	job.Finalizers = append(job.Finalizers, jobFinalizer)
	s.tracef("Job %s: held", job.Name)
	must(s.server.Update(job))
}

// releaseJob removes the finalizer of a Job. It reports whether there was one.
func (s *simulation) releaseJob(job *batchv1.Job) bool {
	i := slices.Index(job.Finalizers, jobFinalizer)
	if i < 0 {
		return false
	}
	job = job.DeepCopy()
	job.Finalizers = slices.Delete(job.Finalizers, i, i+1)
	s.tracef("Job %s: let go", job.Name)
	must(s.server.Update(job))
	return true
}

func is(job *batchv1.Job, t batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == t })
}

func isLost(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == lostNode })
}

func (s *simulation) updateJob(job *batchv1.Job, what string, edit func(*batchv1.JobStatus)) {
	job = job.DeepCopy()
	edit(&job.Status)
	s.tracef("Job %s: %s", job.Name, what)
	must(s.server.UpdateStatus(job))
}

// endJob adds a condition that leads to the end of the Job.
func (s *simulation) endJob(job *batchv1.Job, t batchv1.JobConditionType, reason string) {
	s.updateJob(job, string(t), func(status *batchv1.JobStatus) {
		status.Conditions = append(status.Conditions, batchv1.JobCondition{
			Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: "Job has ended.", LastTransitionTime: s.ended(),
		})
	})
}

// createPod creates the pod of a Job. The Job controller holds it until it has counted it.
func (s *simulation) createPod(job *batchv1.Job) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			// Names of pods are never used again.
			Name:            strings.TrimPrefix(string(job.UID), "jobs-"),
			Namespace:       job.Namespace,
			Labels:          maps.Clone(job.Spec.Template.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
			Finalizers:      []string{batchv1.JobTrackingFinalizer},
		},
		Spec: *job.Spec.Template.Spec.DeepCopy(),
	}
	pod.Labels[batchv1.JobNameLabel], pod.Labels[batchv1.ControllerUidLabel] = job.Name, string(job.UID)
	s.tracef("Pod %s: created", pod.Name)
	must(s.server.Create(pod))
}

// letGo removes the finalizer of a pod.
func (s *simulation) letGo(pod *corev1.Pod) {
	pod = pod.DeepCopy()
	pod.Finalizers = nil
	s.tracef("Pod %s: let go", pod.Name)
	must(s.server.Update(pod))
}

// runPod replaces the kubelet: it starts the containers of a pod, or ends them.
func (s *simulation) runPod(job *batchv1.Job, pod *corev1.Pod) bool {
	b := build{job, pod}
	switch {
	case pod.DeletionTimestamp != nil:
		s.updatePod(pod, corev1.PodFailed, end(137, ""))
	case pod.Status.Phase == "":
		verdict, ok := s.judge(b)
		s.verdicts[job.UID] = verdict
		if !ok {
			return false
		}
		s.startPod(pod, verdict)
	case s.verdicts[job.UID] == hangs, s.verdicts[job.UID] == isUnpulled:
		return false
	case s.verdicts[job.UID] == isRefused:
		s.updatePod(pod, corev1.PodFailed, end(1, ""))
	case s.verdicts[job.UID] == breaks:
		s.updatePod(pod, corev1.PodFailed, end(sources.ExitNotInstalled, ""))
	default:
		s.updatePod(pod, corev1.PodSucceeded, end(0, fmt.Sprintf("{%q: %q}", steps.ImageDigestResult, s.push(b, s.verdicts[job.UID]))))
	}
	return true
}

// startPod starts the containers of a pod. An installation that breaks ends it.
func (s *simulation) startPod(pod *corev1.Pod, verdict verdict) {
	pod = pod.DeepCopy()
	for _, container := range pod.Spec.InitContainers {
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: container.Name, State: end(0, "")})
	}
	if last := len(pod.Status.InitContainerStatuses) - 1; verdict == breaks && last >= 0 {
		pod.Status.InitContainerStatuses[last].State = end(1, "")
		s.updatePod(pod, corev1.PodFailed, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}})
		return
	}
	if verdict == isUnpulled {
		s.updatePod(pod, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}})
		return
	}
	s.updatePod(pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

// updatePod sets the state of a pod and of its push step.
func (s *simulation) updatePod(pod *corev1.Pod, phase corev1.PodPhase, push corev1.ContainerState) {
	pod = pod.DeepCopy()
	pod.Status.Phase = phase
	if push.Terminated != nil {
		push.Terminated.FinishedAt = s.ended()
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: steps.Push, State: push}}
	s.tracef("Pod %s: %s", pod.Name, phase)
	must(s.server.UpdateStatus(pod))
}

// end returns the state of a container that has ended.
func end(code int32, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Ended", Message: message}}
}
