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
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	"knative.dev/pkg/apis"
)

// finalizer is on each TaskRun with a pod. It delays the end of a deleted TaskRun.
const finalizer = "chains.tekton.dev"

// runTaskRuns replaces Tekton: it starts the next TaskRun, ends it, or removes its
// finalizer.
func (s *simulation) runTaskRuns() bool {
	for _, tr := range objects[*pipelinev1.TaskRun](s) {
		switch {
		case tr.DeletionTimestamp != nil:
			s.finalize(tr, "let go")
			return true
		case !(build{Object: tr}).isLive():
			continue
		case len(tr.Finalizers) == 0:
			s.finalize(tr, "held", finalizer)
			return true
		}
		if condition := tr.Status.GetCondition(apis.ConditionSucceeded); condition == nil || condition.Reason == "Pending" {
			verdict, ok := s.judge(build{Object: tr})
			s.verdicts[tr.UID] = verdict
			if ok {
				s.updateTaskRun(tr, taskRunRunning)
				return true
			}
			if condition == nil {
				s.updateTaskRun(tr, succeededCondition(corev1.ConditionUnknown, "Pending", "a volume is not there"))
				return true
			}
			continue
		}
		if s.verdicts[tr.UID] == hangs {
			continue
		}
		s.endTaskRun(tr, s.verdicts[tr.UID])
		return true
	}
	return false
}

// finalize sets the finalizers of the TaskRun.
func (s *simulation) finalize(tr *pipelinev1.TaskRun, what string, finalizers ...string) {
	tr = tr.DeepCopy()
	tr.Finalizers = finalizers
	s.tracef("TaskRun %s: %s", tr.Name, what)
	must(s.server.Update(tr))
}

func (s *simulation) endTaskRun(tr *pipelinev1.TaskRun, verdict verdict) {
	switch verdict {
	case breaks:
		s.updateTaskRun(tr, taskRunFailed("Failed", "exit code 1"), withFailedStep)
	case isRefused:
		s.updateTaskRun(tr, taskRunFailed("Failed", "exit code 1"), func(tr *pipelinev1.TaskRun) {
			withFailedStep(tr)
			tr.Status.Steps[0].Terminated.ExitCode = 1
		})
	case isUnpulled:
		s.updateTaskRun(tr, taskRunFailed(string(pipelinev1.TaskRunReasonImagePullFailed), "the image cannot be pulled"))
	default:
		s.updateTaskRun(tr, taskRunSucceeded(s.push(build{Object: tr}, verdict)))
	}
}

func (s *simulation) updateTaskRun(tr *pipelinev1.TaskRun, options ...taskRunOption) {
	tr = tr.DeepCopy()
	for _, option := range options {
		option(tr)
	}
	if tr.Status.CompletionTime != nil {
		tr.Status.CompletionTime = new(s.ended())
	}
	s.tracef("TaskRun %s: %s", tr.Name, tr.Status.GetCondition(apis.ConditionSucceeded).Reason)
	must(s.server.UpdateStatus(tr))
}
