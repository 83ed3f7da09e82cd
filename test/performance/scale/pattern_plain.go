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

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// plain is a Job, and a Deployment with its Service and HorizontalPodAutoscaler.
type plain struct {
	job        *batchv1.Job
	deployment *appsv1.Deployment
	service    *corev1.Service
	scaler     *autoscalingv2.HorizontalPodAutoscaler

	jobs        batchlisters.JobLister
	deployments appslisters.DeploymentLister
}

func plainOf(ctx context.Context, c *test.Clients, key types.NamespacedName, children metav1.ListOptions) (*plain, error) {
	jobs, err := c.Kube.BatchV1().Jobs(key.Namespace).List(ctx, children)
	if err != nil {
		return nil, fmt.Errorf("failed to list Jobs: %w", err)
	}
	deployments, err := c.Kube.AppsV1().Deployments(key.Namespace).List(ctx, children)
	if err != nil {
		return nil, fmt.Errorf("failed to list Deployments: %w", err)
	}
	services, err := c.Kube.CoreV1().Services(key.Namespace).List(ctx, children)
	if err != nil {
		return nil, fmt.Errorf("failed to list Services: %w", err)
	}
	scalers, err := c.Kube.AutoscalingV2().HorizontalPodAutoscalers(key.Namespace).List(ctx, children)
	if err != nil {
		return nil, fmt.Errorf("failed to list HorizontalPodAutoscalers: %w", err)
	}
	var errs [4]error
	p := &plain{}
	p.job, errs[0] = only(key, jobs.Items)
	p.deployment, errs[1] = only(key, deployments.Items)
	p.service, errs[2] = only(key, services.Items)
	p.scaler, errs[3] = only(key, scalers.Items)
	return p, errors.Join(errs[:]...)
}

func (p *plain) watch(ctx context.Context, c *test.Clients, with func(cache.SharedIndexInformer) error) error {
	factory := kubeinformers.NewSharedInformerFactory(c.Kube, 0)
	jobs, deployments := factory.Batch().V1().Jobs(), factory.Apps().V1().Deployments()
	for _, informer := range []cache.SharedIndexInformer{jobs.Informer(), deployments.Informer()} {
		if err := with(informer); err != nil {
			return err
		}
	}
	p.jobs, p.deployments = jobs.Lister(), deployments.Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return nil
}

func (p *plain) build(ctx context.Context, c *test.Clients, fn *v1alpha1.Function) error {
	job := &batchv1.Job{ObjectMeta: metaFor(fn, p.job.ObjectMeta), Spec: *p.job.Spec.DeepCopy()}
	// The API server sets the selector and its labels.
	job.Spec.Selector = nil
	for _, label := range []string{batchv1.ControllerUidLabel, batchv1.JobNameLabel, "controller-uid", "job-name"} {
		delete(job.Spec.Template.Labels, label)
	}
	job.Spec.Template.Labels = labelsFor(fn, job.Spec.Template.Labels)
	if _, err := c.Kube.BatchV1().Jobs(fn.Namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Job: %w", err)
	}
	return nil
}

func (p *plain) serve(ctx context.Context, c *test.Clients, fn *v1alpha1.Function) error {
	deployment := &appsv1.Deployment{ObjectMeta: metaFor(fn, p.deployment.ObjectMeta), Spec: *p.deployment.Spec.DeepCopy()}
	deployment.Spec.Selector.MatchLabels = labelsFor(fn, deployment.Spec.Selector.MatchLabels)
	deployment.Spec.Template.Labels = labelsFor(fn, deployment.Spec.Template.Labels)
	if _, err := c.Kube.AppsV1().Deployments(fn.Namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Deployment: %w", err)
	}
	service := &corev1.Service{ObjectMeta: metaFor(fn, p.service.ObjectMeta), Spec: *p.service.Spec.DeepCopy()}
	service.Spec.ClusterIP, service.Spec.ClusterIPs = "", nil
	service.Spec.Selector = labelsFor(fn, service.Spec.Selector)
	if _, err := c.Kube.CoreV1().Services(fn.Namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Service: %w", err)
	}
	scaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metaFor(fn, p.scaler.ObjectMeta), Spec: *p.scaler.Spec.DeepCopy()}
	scaler.Spec.ScaleTargetRef.Name = fn.Name
	if _, err := c.Kube.AutoscalingV2().HorizontalPodAutoscalers(fn.Namespace).Create(ctx, scaler, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create HorizontalPodAutoscaler: %w", err)
	}
	return nil
}

func (p *plain) isBuilt(name cache.ObjectName) bool {
	job, err := p.jobs.Jobs(name.Namespace).Get(name.Name)
	// Kiln, too, does not wait for the Job's end when its pod has ended.
	return err == nil && (job.Status.Succeeded > 0 || job.Status.UncountedTerminatedPods != nil && len(job.Status.UncountedTerminatedPods.Succeeded) > 0)
}

func (p *plain) isServed(name cache.ObjectName) bool {
	deployment, err := p.deployments.Deployments(name.Namespace).Get(name.Name)
	return err == nil && deployment.Status.ObservedGeneration >= deployment.Generation && deployment.Status.AvailableReplicas > 0
}
