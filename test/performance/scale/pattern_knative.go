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
	"fmt"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelineinformers "github.com/tektoncd/pipeline/pkg/client/informers/externalversions"
	pipelinelisters "github.com/tektoncd/pipeline/pkg/client/listers/pipeline/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servinginformers "knative.dev/serving/pkg/client/informers/externalversions"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// knative is a TaskRun and a Knative Service.
type knative struct {
	taskRun *pipelinev1.TaskRun
	service *servingv1.Service

	taskRuns pipelinelisters.TaskRunLister
	services servinglisters.ServiceLister
}

func knativeOf(ctx context.Context, c *test.Clients, key types.NamespacedName, children metav1.ListOptions) (*knative, error) {
	taskRuns, err := c.Pipeline.TektonV1().TaskRuns(key.Namespace).List(ctx, children)
	if err != nil {
		return nil, fmt.Errorf("failed to list TaskRuns: %w", err)
	}
	services, err := c.Serving.ServingV1().Services(key.Namespace).List(ctx, children)
	if err != nil {
		return nil, fmt.Errorf("failed to list Services: %w", err)
	}
	k := &knative{}
	if k.taskRun, err = only(key, taskRuns.Items); err != nil {
		return nil, err
	}
	k.service, err = only(key, services.Items)
	return k, err
}

func (k *knative) watch(ctx context.Context, c *test.Clients, with func(cache.SharedIndexInformer) error) error {
	taskRuns, services := pipelineinformers.NewSharedInformerFactory(c.Pipeline, 0), servinginformers.NewSharedInformerFactory(c.Serving, 0)
	runs, svcs := taskRuns.Tekton().V1().TaskRuns(), services.Serving().V1().Services()
	for _, informer := range []cache.SharedIndexInformer{runs.Informer(), svcs.Informer()} {
		if err := with(informer); err != nil {
			return err
		}
	}
	k.taskRuns, k.services = runs.Lister(), svcs.Lister()
	taskRuns.Start(ctx.Done())
	services.Start(ctx.Done())
	taskRuns.WaitForCacheSync(ctx.Done())
	services.WaitForCacheSync(ctx.Done())
	return nil
}

func (k *knative) build(ctx context.Context, c *test.Clients, fn *v1alpha1.Function) error {
	run := &pipelinev1.TaskRun{ObjectMeta: metaFor(fn, k.taskRun.ObjectMeta), Spec: k.taskRun.Spec}
	if _, err := c.Pipeline.TektonV1().TaskRuns(fn.Namespace).Create(ctx, run, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create TaskRun: %w", err)
	}
	return nil
}

func (k *knative) serve(ctx context.Context, c *test.Clients, fn *v1alpha1.Function) error {
	service := &servingv1.Service{ObjectMeta: metaFor(fn, k.service.ObjectMeta), Spec: k.service.Spec}
	if _, err := c.Serving.ServingV1().Services(fn.Namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Service: %w", err)
	}
	return nil
}

func (k *knative) isBuilt(name cache.ObjectName) bool {
	run, err := k.taskRuns.TaskRuns(name.Namespace).Get(name.Name)
	return err == nil && run.IsDone()
}

func (k *knative) isServed(name cache.ObjectName) bool {
	service, err := k.services.Services(name.Namespace).Get(name.Name)
	return err == nil && service.IsReady()
}
