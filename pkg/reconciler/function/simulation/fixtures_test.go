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
	"context"
	"strings"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/contents"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/poll"
)

const (
	namespace = "default"
	name      = "greeter"
	repo      = "registry.example.com:5000/functions/default/greeter"
	digestB   = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	sourceA   = "module.exports = { main: () => 'A' }"
	sourceB   = "module.exports = { main: () => 'B' }"
)

// noon is when a simulation starts.
var noon = metav1.NewTime(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))

func testConfig(edits ...func(*config.Config)) *config.Config {
	functions, err := config.NewFunctionsFromMap(nil)
	if err != nil {
		panic(err)
	}
	build, err := config.NewBuildFromMap(map[string]string{"kaniko-image": "registry.example.com:5000/kaniko", "compose-image": "registry.example.com:5000/compose"})
	if err != nil {
		panic(err)
	}
	registry, err := config.NewRegistryFromMap(map[string]string{"push": "registry.example.com:5000", "prefix": "functions"})
	if err != nil {
		panic(err)
	}
	cfg := &config.Config{
		Functions: functions,
		Build:     build,
		Registry:  registry,
		Runtimes: config.Runtimes{
			"nodejs22": {BaseImage: "node:22", Language: "nodejs"},
			"nodejs24": {BaseImage: "node:24", Language: "nodejs"},
		},
	}
	for _, edit := range edits {
		edit(cfg)
	}
	return cfg
}

// configStore has the config of a simulation as it is now.
type configStore struct{ *simulation }

func (s configStore) ToContext(ctx context.Context) context.Context {
	return config.ToContext(ctx, s.config)
}

// noChecks finds no image lost.
type noChecks struct{ noPolls }

func (noChecks) Ask(types.NamespacedName, images.Check) {}

func (noChecks) Answer(types.NamespacedName, images.Check, bool) (checked images.Checked, ok bool) {
	return
}

// noContents reads nothing.
type noContents struct{ noPolls }

func (noContents) Ask(types.NamespacedName, contents.Request) {}
func (noContents) Hurry(types.NamespacedName)                 {}

func (noContents) Answer(types.NamespacedName, contents.Request, bool) (found contents.Found, ok bool) {
	return
}

// noPolls finds no branch.
type noPolls struct{}

func (noPolls) Ask(types.NamespacedName, poll.Branch)     {}
func (noPolls) Acknowledge(types.NamespacedName)          {}
func (noPolls) Forget(types.NamespacedName)               {}
func (noPolls) ForgetAll(func(types.NamespacedName) bool) {}

func (noPolls) Answer(types.NamespacedName, poll.Branch, bool) (found poll.Found, ok bool) { return }

type functionOption func(*v1alpha1.Function)

func withSource(source string) functionOption {
	return func(fn *v1alpha1.Function) { fn.Spec.Source = source }
}

func withEnv(name, value string) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Spec.Env = append(fn.Spec.Env, corev1.EnvVar{Name: name, Value: value})
	}
}

func withRebuild(value string) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Annotations = map[string]string{serverless.RebuildAnnotationKey: value}
	}
}

func withMinReplicas(least int32) functionOption {
	return func(fn *v1alpha1.Function) { fn.Spec.MinReplicas = &least }
}

func withTraffic(targets ...v1alpha1.TrafficTarget) functionOption {
	return func(fn *v1alpha1.Function) { fn.Spec.Traffic = targets }
}

type taskRunOption func(*pipelinev1.TaskRun)

func succeededCondition(status corev1.ConditionStatus, reason, message string) taskRunOption {
	return func(tr *pipelinev1.TaskRun) {
		tr.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: status, Reason: reason, Message: message})
		tr.CreationTimestamp, tr.Status.StartTime = noon, &noon
		tr.Status.PodName = tr.Name + "-pod"
		if status != corev1.ConditionUnknown {
			tr.Status.CompletionTime = &noon
		}
	}
}

var taskRunRunning = succeededCondition(corev1.ConditionUnknown, "Running", "Not all Steps in the Task have finished executing")

func taskRunSucceeded(digest string) taskRunOption {
	return func(tr *pipelinev1.TaskRun) {
		succeededCondition(corev1.ConditionTrue, "Succeeded", "All Steps have completed executing")(tr)
		tr.Status.Results = []pipelinev1.TaskRunResult{
			{Name: steps.ImageURLResult, Value: *pipelinev1.NewStructuredValues(repo)},
			{Name: steps.ImageDigestResult, Value: *pipelinev1.NewStructuredValues(digest)},
		}
	}
}

func taskRunFailed(reason, message string) taskRunOption {
	return func(tr *pipelinev1.TaskRun) {
		succeededCondition(corev1.ConditionFalse, reason, message)(tr)
	}
}

// withFailedStep reports that the sidecar that installs dependencies has failed.
func withFailedStep(tr *pipelinev1.TaskRun) {
	tr.Status.Steps = []pipelinev1.StepState{{
		ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: sources.ExitNotInstalled}},
		Name:           steps.Push,
		Container:      tekton.StepContainerPrefix + steps.Push,
	}}
	tr.Status.Sidecars = []pipelinev1.SidecarState{{
		ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
		Name:           steps.Install,
		Container:      tekton.SidecarContainerPrefix + steps.Install,
	}}
}

// digestIn returns the digest of an image, or "".
func digestIn(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}
