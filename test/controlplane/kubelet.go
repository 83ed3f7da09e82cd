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

package controlplane

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/children"
)

// runPods does the work of the kubelet for builds, and of the controller of Deployments, for
// Functions until ctx ends. It returns when it watches.
func (s *StandIn) runPods(ctx context.Context) {
	factory := informers.NewSharedInformerFactoryWithOptions(s.clients.Kube, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = children.LabelSelector }))
	pods := factory.Core().V1().Pods()
	work(ctx, pods.Informer(), s.report, func(namespace, name string) error {
		pod, err := pods.Lister().Pods(namespace).Get(name)
		if err != nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodPending {
			return ignoreNotFound(err)
		}
		if pod.Labels[batchv1.JobNameLabel] == "" {
			return nil
		}
		return s.endBuild(ctx, pod.DeepCopy())
	})
	deployments := factory.Apps().V1().Deployments()
	work(ctx, deployments.Informer(), s.report, func(namespace, name string) error {
		deployment, err := deployments.Lister().Deployments(namespace).Get(name)
		if err != nil || deployment.Status.ObservedGeneration == deployment.Generation {
			return ignoreNotFound(err)
		}
		return s.rollOut(ctx, deployment.DeepCopy())
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}

// rollOut makes all pods of a Deployment available, without pods.
func (s *StandIn) rollOut(ctx context.Context, deployment *appsv1.Deployment) error {
	if s.Serve != nil {
		s.Serve(ctx, deployment)
	}
	replicas := *deployment.Spec.Replicas
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
	}
	if _, err := s.clients.Kube.AppsV1().Deployments(deployment.Namespace).UpdateStatus(ctx, deployment, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("failed to roll out Deployment: %w", err)
	}
	return nil
}

// endBuild runs the containers of a build.
func (s *StandIn) endBuild(ctx context.Context, pod *corev1.Pod) error {
	built, err := s.build(ctx, pod, pod.Spec.Volumes)
	if err != nil || built.Runs {
		return err
	}
	end := corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.Now()}
	for _, container := range pod.Spec.InitContainers {
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, ended(container.Name, end))
	}
	if built.OutOfMemory {
		// The author's code needs the memory, not the step that pushes.
		end.ExitCode, end.Reason = 137, "OOMKilled"
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{ended(steps.Install, end)}
		pod.Status.Phase = corev1.PodFailed
	} else {
		_, digest, err := s.push(pod, built)
		if err != nil {
			return err
		}
		message, err := json.Marshal(steps.Results{ImageDigest: digest})
		if err != nil {
			return fmt.Errorf("failed to encode results: %w", err)
		}
		end.Message = string(message)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{ended(steps.Push, end)}
		pod.Status.Phase = corev1.PodSucceeded
	}
	if _, err := s.clients.Kube.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("failed to end Pod: %w", err)
	}
	return nil
}

func ended(container string, end corev1.ContainerStateTerminated) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: container, State: corev1.ContainerState{Terminated: &end}}
}
