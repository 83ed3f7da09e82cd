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

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func getJob(ctx context.Context, clients *Clients, namespace, name string) (*buildObject, error) {
	job, err := clients.Kube.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return clients.buildObjectOfJob(ctx, job)
}

func followJob(ctx context.Context, clients *Clients, namespace, name string, visit func(*buildObject) (done bool, err error)) error {
	return follow(ctx, clients.Kube.BatchV1().Jobs(namespace), onlyOne(name), func(list *batchv1.JobList) (bool, error) {
		for i := range list.Items {
			if list.Items[i].Name != name {
				continue
			}
			object, err := clients.buildObjectOfJob(ctx, &list.Items[i])
			if err != nil {
				return false, err
			}
			return visit(object)
		}
		return visit(nil)
	})
}

// buildObjectOfJob finds the pod by its label, because a Job does not name it.
func (c *Clients) buildObjectOfJob(ctx context.Context, job *batchv1.Job) (*buildObject, error) {
	object := &buildObject{namespace: job.Namespace, ended: hasEnded(job)}
	spec := &job.Spec.Template.Spec
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			object.containers = append(object.containers, containers[i].Name)
		}
	}
	if job.Status.Active+job.Status.Succeeded+job.Status.Failed == 0 {
		return object, nil
	}
	pods, err := c.Kube.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{batchv1.ControllerUidLabel: string(job.UID)}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("failed to list pods of Job %s: %w", job.Name, err)
	}
	if sorted := sortPods(pods); len(sorted) > 0 {
		object.pod = sorted[0].Name
	}
	return object, nil
}

// hasEnded reports whether the Job runs no more.
func hasEnded(job *batchv1.Job) bool {
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		return true
	}
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
