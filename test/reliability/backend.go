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

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/test"
)

// backend is what builds and serves on the cluster.
type backend interface {
	// watch starts to record the builds of a namespace. The returned function returns all
	// that were ever created.
	watch(ctx context.Context, c *test.Clients, namespace string) func() ([]build, error)
	// untilBuilding waits until a build is running.
	untilBuilding(ctx context.Context, c *test.Clients, namespace string) error
	// serveBare serves the image of the called Function, which is Ready, without Kiln.
	serveBare(ctx context.Context, c *test.Clients, namespace string) error
}

// build is a build of any kind.
type build struct {
	uid       types.UID
	succeeded bool
}

// backendOf returns what Kiln uses on the cluster by default.
func backendOf(c *test.Clients) (backend, error) {
	hasTekton, hasServing, err := c.Platform()
	switch {
	case err != nil:
		return nil, err
	case hasTekton && hasServing:
		return knative{}, nil
	case !hasTekton && !hasServing:
		return plain{}, nil
	}
	return nil, errors.New("the cluster must have Tekton and Knative Serving, or neither")
}

// knative builds with TaskRuns and serves with Knative Services.
type knative struct{}

func (knative) watch(ctx context.Context, c *test.Clients, namespace string) func() ([]build, error) {
	return watch(ctx, c.Pipeline.TektonV1().TaskRuns(namespace), func(tr *pipelinev1.TaskRun) build {
		return build{tr.UID, tr.IsSuccessful()}
	})
}

func (knative) untilBuilding(ctx context.Context, c *test.Clients, namespace string) error {
	return untilOne(ctx, c.Pipeline.TektonV1().TaskRuns(namespace), func(tr *pipelinev1.TaskRun) bool { return tr.HasStarted() && !tr.IsDone() })
}

func (knative) serveBare(ctx context.Context, c *test.Clients, namespace string) error {
	services := c.Serving.ServingV1().Services(namespace)
	of, err := services.Get(ctx, calledName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("failed to get Service: %w", err)
	}
	svc := &servingv1.Service{ObjectMeta: metav1.ObjectMeta{Name: bareName, Labels: map[string]string{netapi.VisibilityLabelKey: serving.VisibilityClusterLocal}}}
	svc.Spec = *of.Spec.DeepCopy()
	svc.Spec.Template.Labels = nil
	if _, err := services.Create(ctx, svc, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Service: %w", err)
	}
	return untilOne(ctx, services, func(svc *servingv1.Service) bool { return svc.Name == bareName && svc.IsReady() })
}

// plain builds with Jobs and serves with Deployments.
type plain struct{}

func (plain) watch(ctx context.Context, c *test.Clients, namespace string) func() ([]build, error) {
	return watch(ctx, c.Kube.BatchV1().Jobs(namespace), func(job *batchv1.Job) build {
		// Kiln deploys the image before the Job has ended, and keeps the results.
		return build{job.UID, job.Status.Succeeded > 0 || job.Annotations[serverless.BuildResultsAnnotationKey] != ""}
	})
}

func (plain) untilBuilding(ctx context.Context, c *test.Clients, namespace string) error {
	return untilOne(ctx, c.Kube.BatchV1().Jobs(namespace), func(job *batchv1.Job) bool { return job.Status.Active > 0 })
}

func (plain) serveBare(ctx context.Context, c *test.Clients, namespace string) error {
	deployments, services := c.Kube.AppsV1().Deployments(namespace), c.Kube.CoreV1().Services(namespace)
	of, err := deployments.Get(ctx, calledName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("failed to get Deployment: %w", err)
	}
	labels := map[string]string{"app": bareName}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: bareName}, Spec: *of.Spec.DeepCopy()}
	deployment.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels = labels, labels
	if _, err := deployments.Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Deployment: %w", err)
	}
	service, err := services.Get(ctx, calledName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("failed to get Service: %w", err)
	}
	service.ObjectMeta = metav1.ObjectMeta{Name: bareName}
	service.Spec = corev1.ServiceSpec{Selector: labels, Ports: service.Spec.Ports}
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Service: %w", err)
	}
	return untilOne(ctx, deployments, func(d *appsv1.Deployment) bool { return d.Name == bareName && d.Status.AvailableReplicas > 0 })
}

// watch records the objects that build. It ignores those that were created and deleted while
// the API server was not available.
func watch[T metav1.Object, L runtime.Object](ctx context.Context, client test.Watcher[L], buildOf func(T) build) func() ([]build, error) {
	history := test.Record[T](ctx, client, metav1.ListOptions{})
	return func() ([]build, error) {
		seen, err := history.Seen()
		if err != nil && !errors.Is(err, test.ErrGap) {
			return nil, fmt.Errorf("failed to follow builds: %w", err)
		}
		builds := make([]build, 0, len(seen))
		for _, object := range seen {
			builds = append(builds, buildOf(object))
		}
		return builds, nil
	}
}

// untilOne waits until an object fulfils a condition.
func untilOne[T metav1.Object, L runtime.Object](ctx context.Context, client test.Watcher[L], is func(T) bool) error {
	return test.Until(ctx, client, metav1.ListOptions{}, func(found []T) error {
		if !slices.ContainsFunc(found, is) {
			return fmt.Errorf("none of %d objects of type %T is as it must be", len(found), *new(T))
		}
		return nil
	})
}
