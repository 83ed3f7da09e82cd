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

package function

import (
	"context"
	"fmt"
	"maps"
	"strings"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/digest"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
)

// digestKey is the label of a ConfigMap in the cache whose value stands for all its
// content: a map of its own would take more than the rest of a ConfigMap. None of the
// API server can have it.
const digestKey = ""

// withoutContent keeps of a ConfigMap a digest in place of its content, which is
// most of what there would be to keep of a Function: each has the wrapper of its
// runtime.
func withoutContent(obj any) (any, error) {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return obj, nil
	}
	content := digestOfContent(cm)
	shareMeta(&cm.ObjectMeta)
	if cm.Labels == nil {
		cm.Labels = map[string]string{}
	}
	cm.Labels[digestKey] = content
	cm.Data, cm.BinaryData = nil, nil
	return cm, nil
}

// digestOfContent returns a digest of the content of a ConfigMap, as it is in the
// cache or as the API server has it.
func digestOfContent(cm *corev1.ConfigMap) string {
	if content, ok := cm.Labels[digestKey]; ok {
		return content
	}
	return digest.Of(digest.List(cm.Data)...)
}

// withoutTemplate keeps of a Service a hash in place of its revision template.
func withoutTemplate(obj any) (any, error) {
	svc, ok := obj.(*servingv1.Service)
	if !ok {
		return obj, nil
	}
	resources.ShortenTemplate(svc)
	shareMeta(&svc.ObjectMeta)
	shareStatus(&svc.Status.Status)
	shareURL(svc.Status.URL, svc.Status.Address)
	return svc, nil
}

// withoutTask keeps of a TaskRun how it fares, and what it tells of the build: what it
// does is in it twice, and Kiln has written it.
func withoutTask(obj any) (any, error) {
	tr, ok := obj.(*pipelinev1.TaskRun)
	if !ok {
		return obj, nil
	}
	maps.DeleteFunc(tr.Annotations, func(key, _ string) bool { return !tellsOfBuild(key) })
	shareMeta(&tr.ObjectMeta)
	shareStatus(&tr.Status.Status)
	tr.Spec = pipelinev1.TaskRunSpec{}
	tr.Status.TaskRunStatusFields = pipelinev1.TaskRunStatusFields{
		PodName:        tr.Status.PodName,
		CompletionTime: tr.Status.CompletionTime,
		Steps:          tellingSteps(tr),
		Results:        tellingResults(tr.Status.Results),
	}
	return tr, nil
}

// tellsOfBuild says whether an annotation does. The environment of a build is for its
// pod only.
func tellsOfBuild(key string) bool {
	return strings.HasPrefix(key, serverless.GroupName+"/") && key != serverless.BuildEnvAnnotationKey
}

// tellingSteps returns of the TaskRun's steps which have failed, and where their logs
// are. Of one that has succeeded only the installation has a log that is read.
func tellingSteps(tr *pipelinev1.TaskRun) []pipelinev1.StepState {
	var kept []pipelinev1.StepState
	for _, step := range tr.Status.Steps {
		if stateOf(tr) == builds.Succeeded && step.Name != resources.InstallStepName {
			continue
		}
		shareText(&step.Name, &step.Container)
		state := pipelinev1.StepState{Name: step.Name, Container: step.Container}
		if step.Terminated != nil && step.Terminated.ExitCode != 0 {
			state.Terminated = &corev1.ContainerStateTerminated{ExitCode: step.Terminated.ExitCode}
		}
		kept = append(kept, state)
	}
	return kept
}

// tellingResults returns which image a TaskRun has built, and of which source.
func tellingResults(results []pipelinev1.TaskRunResult) []pipelinev1.TaskRunResult {
	var kept []pipelinev1.TaskRunResult
	for _, result := range results {
		if result.Name == resources.ImageDigestResult || result.Name == resources.SourceResult {
			shareText(&result.Name)
			shareText(&result.Type)
			kept = append(kept, result)
		}
	}
	return kept
}

// readWriter gets and updates the objects of one kind.
type readWriter[T metav1.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Update(ctx context.Context, object T, opts metav1.UpdateOptions) (T, error)
}

// healCached puts back what somebody has taken from the metadata of an object, of
// which the cache keeps a part: what is written is what the API server has. It
// returns the object as it is then.
func healCached[T interface {
	metav1.Object
	DeepCopy() T
}](ctx context.Context, objects readWriter[T], kind string, existing T, heal func(metav1.Object) bool) (T, error) {
	if !heal(existing.DeepCopy()) {
		return existing, nil
	}
	live, err := objects.Get(ctx, existing.GetName(), metav1.GetOptions{})
	if err != nil {
		return existing, fmt.Errorf("failed to get %s: %w", kind, err)
	}
	if live.GetUID() != existing.GetUID() || !heal(live) {
		// The watch will tell of it.
		return existing, nil
	}
	healed, err := objects.Update(ctx, live, metav1.UpdateOptions{})
	if err != nil {
		return existing, fmt.Errorf("failed to update %s: %w", kind, err)
	}
	return healed, nil
}
