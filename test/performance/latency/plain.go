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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/test"
)

// playPlain is playFunctions with Jobs and Deployments, which the ConfigMaps choose
// meanwhile.
func (s *stage) playPlain(ctx context.Context) error {
	plain, npm := newFunctions(rowPlain)
	return s.with(ctx, config.FunctionsConfigName, "serving", string(config.KubernetesServer), func(ctx context.Context) error {
		return s.with(ctx, config.BuildConfigName, builderKey, string(config.JobBuilder), func(ctx context.Context) error {
			if err := s.play(ctx, rowPlain+rowFirstBuild, plain, nil); err != nil {
				return fmt.Errorf("failed to take %s: %w", rowPlain+rowFirstBuild, err)
			}
			if err := s.playPlainFloor(ctx, plain.Name); err != nil {
				return fmt.Errorf("failed to take %s: %w", rowPlain+rowFloor, err)
			}
			return s.playAll(ctx, []act{
				{rowPlain + rowFirstBuildNPM, npm, nil},
				{rowPlain + rowSourceEdit, npm, editSource},
				{rowPlain + rowEnvEdit, npm, editEnv},
			})
		})
	})
}

// playPlainFloor measures Kubernetes without Kiln: an empty Job, and a Deployment and a
// Service that equal those of a Function except the names and the labels.
func (s *stage) playPlainFloor(ctx context.Context, like string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const name = rowPlain + rowFloor
	deployment, err := s.clients.Kube.AppsV1().Deployments(s.namespace).Get(ctx, like, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("failed to get Deployment: %w", err)
	}
	svc, err := s.clients.Kube.CoreV1().Services(s.namespace).Get(ctx, like, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("failed to get Service: %w", err)
	}
	labels := map[string]string{"app": name}
	deployment.ObjectMeta, svc.ObjectMeta = metav1.ObjectMeta{Name: name}, metav1.ObjectMeta{Name: name}
	deployment.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels, svc.Spec.Selector = labels, labels, labels
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "", nil
	clock := newSplit()
	if err := s.runEmptyJob(ctx, name, deployment.Spec.Template.Spec.Containers[0].Image); err != nil {
		return err
	}
	clock.mark(emptyJob)
	if err := s.runDeployment(ctx, deployment, svc); err != nil {
		return err
	}
	clock.mark(service)
	s.tell(name, clock.total(), clock.parts)
	return nil
}

// runDeployment creates a Deployment and its Service, and waits until a pod is available.
func (s *stage) runDeployment(ctx context.Context, deployment *appsv1.Deployment, svc *corev1.Service) error {
	client := s.clients.Kube.AppsV1().Deployments(s.namespace)
	if _, err := client.Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Deployment: %w", err)
	}
	if _, err := s.clients.Kube.CoreV1().Services(s.namespace).Create(ctx, svc, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Service: %w", err)
	}
	return test.Until(ctx, client, test.Named(deployment.Name), func(found []*appsv1.Deployment) error {
		for _, d := range found {
			if d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas > 0 {
				return nil
			}
		}
		return errors.New("no pod of the Deployment is available")
	})
}
