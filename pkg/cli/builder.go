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

package cli

import (
	"context"
	"fmt"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

type buildObject struct {
	namespace string

	pod string

	// containers are the names of the containers of pod, in the order in which they run.
	containers []string

	ended bool
}

type builder struct {
	get func(ctx context.Context, clients *Clients, namespace, name string) (*buildObject, error)

	// follow calls visit with an object, and again after each change, until visit is
	// done or returns an error. The object is nil if it does not exist.
	follow func(ctx context.Context, clients *Clients, namespace, name string, visit func(*buildObject) (done bool, err error)) error
}

// builders are the builders by the kind of their objects in status.build.ref.
var builders = map[string]builder{
	"TaskRun": {get: getTaskRun, follow: followTaskRun},
	"Job":     {get: getJob, follow: followJob},
}

// buildOf returns the object that runs, or ran, the build of a Function. It returns
// nil if the object does not exist, or is of a kind that this version does not know.
func (c *Clients) buildOf(ctx context.Context, fn *v1alpha1.Function) (*buildObject, error) {
	if fn.Status.Build.BuildName() == "" {
		return nil, nil
	}
	ref := fn.Status.Build.Ref
	from, ok := builders[ref.Kind]
	if !ok {
		return nil, nil
	}
	object, err := from.get(ctx, c, fn.Namespace, ref.Name)
	switch {
	case apierrs.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("failed to get %s %s: %w", ref.Kind, ref.Name, err)
	}
	return object, nil
}

func getTaskRun(ctx context.Context, clients *Clients, namespace, name string) (*buildObject, error) {
	taskRun, err := clients.Tekton.TektonV1().TaskRuns(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return buildObjectOf(taskRun), nil
}

func followTaskRun(ctx context.Context, clients *Clients, namespace, name string, visit func(*buildObject) (done bool, err error)) error {
	return follow(ctx, clients.Tekton.TektonV1().TaskRuns(namespace), onlyOne(name), func(list *pipelinev1.TaskRunList) (bool, error) {
		for i := range list.Items {
			if list.Items[i].Name == name {
				return visit(buildObjectOf(&list.Items[i]))
			}
		}
		return visit(nil)
	})
}

// Tekton's prefixes of the names of containers.
const (
	stepContainerPrefix    = "step-"
	sidecarContainerPrefix = "sidecar-"
)

// buildObjectOf reads the containers from the spec, because the status has no names at
// first. The last step waits for the sidecar that installs dependencies.
func buildObjectOf(taskRun *pipelinev1.TaskRun) *buildObject {
	object := &buildObject{namespace: taskRun.Namespace, pod: taskRun.Status.PodName, ended: taskRun.IsDone()}
	if taskRun.Spec.TaskSpec == nil {
		return object
	}
	spec := taskRun.Spec.TaskSpec
	for i, step := range spec.Steps {
		if i == len(spec.Steps)-1 {
			for _, sidecar := range spec.Sidecars {
				object.containers = append(object.containers, sidecarContainerPrefix+sidecar.Name)
			}
		}
		object.containers = append(object.containers, stepContainerPrefix+step.Name)
	}
	return object
}
