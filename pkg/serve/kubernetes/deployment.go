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

package kubernetes

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"knative.dev/pkg/kmap"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

const (
	portName = "http"

	// history is how many ReplicaSets without pods stay, for rollbacks.
	history = 10

	// drain is how long a pod that ends still takes requests, until nobody sends it any.
	drain = 5 * time.Second
	// grace is how long such a pod has, beyond the timeout of a request.
	grace = 10 * time.Second

	// volumeGroup is the group that can write to PersistentVolumes. The functions run in it.
	volumeGroup = 1000

	// deadlineAnnotation is Serving's annotation of revisions that start slowly.
	deadlineAnnotation = "serving.knative.dev/progress-deadline"
	// progressDeadline is Kubernetes' default.
	progressDeadline = 10 * time.Minute
	// maxProgressDeadline bounds what a Deployment stores as 32 bits.
	maxProgressDeadline = 24 * time.Hour
)

// objectMeta returns the metadata of each object of the Function.
func objectMeta(fn *v1alpha1.Function) metav1.ObjectMeta {
	meta := children.ObjectMeta(fn, children.ServiceName(fn))
	meta.Labels[serverless.ServerLabelKey] = string(config.KubernetesServer)
	return meta
}

// podLabels are the labels by which the Deployment and the Service select pods. The pods of
// builds have only the first.
func podLabels(fn *v1alpha1.Function) map[string]string {
	return map[string]string{
		serverless.FunctionUIDLabelKey: string(fn.UID),
		serverless.ServerLabelKey:      string(config.KubernetesServer),
	}
}

// MakeDeployment returns the Deployment that runs the Function's image. Its template is of no
// revision yet.
func MakeDeployment(ctx context.Context, fn *v1alpha1.Function) *appsv1.Deployment {
	fn = podspec.WithAllowedMetadata(ctx, fn)
	deployment := &appsv1.Deployment{
		ObjectMeta: objectMeta(fn),
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: podLabels(fn)},
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromString("25%")),
				},
			},
			RevisionHistoryLimit:    new(int32(history)),
			ProgressDeadlineSeconds: new(int32(deadlineOf(fn).Seconds())),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: kmap.Union(fn.Spec.Labels, podLabels(fn), map[string]string{
						serverless.FunctionNameLabelKey: fn.Name,
						children.ManagedByLabelKey:      children.ObjectMeta(fn, "").Labels[children.ManagedByLabelKey],
					}),
					Annotations: kmap.Union(podspec.Annotations(fn)),
				},
				Spec: podSpec(ctx, fn),
			},
		},
	}
	deployment.Spec.Template.Annotations[serverless.WishHashAnnotationKey] = podspec.Hash(deployment.Spec.Template)
	return deployment
}

// podSpec returns the pod. Serving adds the same things to the pods of its revisions.
func podSpec(ctx context.Context, fn *v1alpha1.Function) corev1.PodSpec {
	ready := podspec.Healthy(runtimes.Port)
	if podspec.HasOwnDockerfile(ctx, fn) {
		ready = podspec.Listening(runtimes.Port)
	}
	pod := podspec.Make(fn, fn.Status.Image, ready, podspec.PullSecrets(ctx))
	pod.TerminationGracePeriodSeconds = new(int64((drain + grace).Seconds()) + timeoutOf(fn))
	if len(fn.Spec.PersistentVolumeClaimMounts) > 0 {
		pod.SecurityContext = &corev1.PodSecurityContext{
			FSGroup: new(int64(volumeGroup)), FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
		}
	}
	container := &pod.Containers[0]
	container.Ports = []corev1.ContainerPort{{Name: portName, ContainerPort: runtimes.Port, Protocol: corev1.ProtocolTCP}}
	container.Env = append([]corev1.EnvVar{
		{Name: "PORT", Value: strconv.Itoa(runtimes.Port)},
		{Name: "K_SERVICE", Value: fn.Name},
		{Name: "K_CONFIGURATION", Value: fn.Name},
		{Name: revisionEnv},
	}, container.Env...)
	container.Lifecycle = &corev1.Lifecycle{
		PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: int64(drain.Seconds())}},
	}
	return pod
}

// revisionEnv is the variable with the name of the revision, as under Knative.
const revisionEnv = "K_REVISION"

// setRevision makes the template one of the revision.
func setRevision(template *corev1.PodTemplateSpec, revision string) {
	template.Labels = kmap.Union(template.Labels, map[string]string{serverless.RevisionLabelKey: revision})
	for i := range template.Spec.Containers {
		for j := range template.Spec.Containers[i].Env {
			if env := &template.Spec.Containers[i].Env[j]; env.Name == revisionEnv {
				env.Value = revision
			}
		}
	}
}

func timeoutOf(fn *v1alpha1.Function) int64 {
	if fn.Spec.TimeoutSeconds == nil {
		return 0
	}
	return *fn.Spec.TimeoutSeconds
}

// deadlineOf returns how long a revision may take to start.
func deadlineOf(fn *v1alpha1.Function) time.Duration {
	if deadline, err := time.ParseDuration(fn.Spec.Annotations[deadlineAnnotation]); err == nil && deadline >= time.Second {
		return min(deadline, maxProgressDeadline)
	}
	return progressDeadline
}

// revisionName returns the name of the revision with that number. It is short enough for a
// label.
func revisionName(fn *v1alpha1.Function, number int) string {
	return kmeta.ChildName(fn.Name, fmt.Sprintf("-%05d", number))
}

// numberOf returns the number of a revision, or 0.
func numberOf(revision string) int {
	number, err := strconv.Atoi(revision[strings.LastIndexByte(revision, '-')+1:])
	if err != nil {
		return 0
	}
	return number
}
