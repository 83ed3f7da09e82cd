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

package tekton

import (
	"maps"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelinelisters "github.com/tektoncd/pipeline/pkg/client/listers/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// Lister is a lister of TaskRuns that uses the index by Function.
type Lister struct {
	pipelinelisters.TaskRunLister
	Indexer cache.Indexer
}

// TaskRuns implements pipelinelisters.TaskRunLister.
func (l Lister) TaskRuns(namespace string) pipelinelisters.TaskRunNamespaceLister {
	return slim.Namespace[*pipelinev1.TaskRun]{NamespaceLister: l.TaskRunLister.TaskRuns(namespace), Indexer: l.Indexer, Name: namespace}
}

// Slim is a transform that keeps of a TaskRun its state and its results. The spec is
// Kiln's own, and the status repeats it.
func Slim(obj any) (any, error) {
	tr, ok := obj.(*pipelinev1.TaskRun)
	if !ok {
		return obj, nil
	}
	maps.DeleteFunc(tr.Annotations, func(key, _ string) bool { return !steps.IsKept(key) })
	slim.ShareMeta(&tr.ObjectMeta)
	slim.ShareStatus(&tr.Status.Status)
	tr.Spec = pipelinev1.TaskRunSpec{}
	tr.Status.TaskRunStatusFields = pipelinev1.TaskRunStatusFields{
		PodName:        tr.Status.PodName,
		CompletionTime: tr.Status.CompletionTime,
		Steps:          slimSteps(tr),
		Sidecars:       slimSidecars(tr.Status.Sidecars),
		Results:        slimResults(tr.Status.Results),
	}
	return tr, nil
}

// slimSidecars keeps how each sidecar ended. Tekton lists its own sidecars, and no
// injected ones.
func slimSidecars(sidecars []pipelinev1.SidecarState) []pipelinev1.SidecarState {
	var kept []pipelinev1.SidecarState
	for _, sidecar := range sidecars {
		slim.Share(&sidecar.Name, &sidecar.Container)
		state := pipelinev1.SidecarState{Name: sidecar.Name, Container: sidecar.Container}
		if end := sidecar.Terminated; end != nil {
			slim.Share(&end.Reason)
			state.Terminated = &corev1.ContainerStateTerminated{ExitCode: end.ExitCode, Reason: end.Reason}
		}
		kept = append(kept, state)
	}
	return kept
}

// slimSteps keeps the exit codes of failed steps, and the steps whose logs are read.
// Of a build that has succeeded that is the install step of earlier Kilns.
func slimSteps(tr *pipelinev1.TaskRun) []pipelinev1.StepState {
	var kept []pipelinev1.StepState
	for _, step := range tr.Status.Steps {
		if stateOf(tr) == builds.Succeeded && step.Name != steps.Install {
			continue
		}
		slim.Share(&step.Name, &step.Container)
		state := pipelinev1.StepState{Name: step.Name, Container: step.Container}
		if step.Terminated != nil && step.Terminated.ExitCode != 0 {
			state.Terminated = &corev1.ContainerStateTerminated{ExitCode: step.Terminated.ExitCode}
		}
		kept = append(kept, state)
	}
	return kept
}

// slimResults keeps the digests of the images and of the source.
func slimResults(results []pipelinev1.TaskRunResult) []pipelinev1.TaskRunResult {
	var kept []pipelinev1.TaskRunResult
	for _, result := range results {
		switch result.Name {
		case steps.ImageDigestResult, steps.SourceResult, steps.DependenciesResult:
		case steps.BaseImageResult:
			// Thousands of images have the same base image.
			digest := result.Value.ObjectVal["digest"]
			slim.Share(&digest)
			result.Value.ObjectVal = map[string]string{"digest": digest}
		default:
			continue
		}
		slim.Share(&result.Name)
		slim.Share(&result.Type)
		kept = append(kept, result)
	}
	return kept
}

// Count returns a handler that reports each TaskRun to the queue, and calls then. The
// queue must be first: a Function that wakes at the end of a build must find its slot
// free.
func Count(q *queue.Queue, then func(any)) cache.ResourceEventHandler {
	see := func(obj any) {
		if tr, ok := obj.(*pipelinev1.TaskRun); ok && !stateOf(tr).Ended() {
			q.See(QueuedBuild(tr))
		} else if ok {
			q.End(types.NamespacedName{Namespace: tr.Namespace, Name: tr.Name})
		}
		then(obj)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, obj any) { see(obj) },
		DeleteFunc: func(obj any) {
			if tr, err := kmeta.DeletionHandlingAccessor(obj); err == nil {
				q.End(types.NamespacedName{Namespace: tr.GetNamespace(), Name: tr.GetName()})
			}
			then(obj)
		},
	}
}
