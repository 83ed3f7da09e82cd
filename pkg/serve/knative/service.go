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

package knative

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	netapi "knative.dev/networking/pkg/apis/networking"
	"knative.dev/pkg/kmap"
	"knative.dev/serving/pkg/apis/autoscaling"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	tmpVolumeName = "tmp"
	tmpPath       = "/tmp"
	// tmpSize bounds what a function can write to the disk of its node.
	tmpSize = "512Mi"
)

// MakeService returns the Knative Service that runs the image, a reference by digest.
// pullSecrets are the names of the Secrets with which nodes pull the image.
func MakeService(fn *v1alpha1.Function, image string, pullSecrets ...string) *servingv1.Service {
	return makeService(fn, image, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: runtimes.HealthPath, Port: intstr.FromInt32(0)}}, pullSecrets)
}

// MakeListeningService is MakeService for an image without Kiln's wrapper: it is ready
// when it listens on its port.
func MakeListeningService(fn *v1alpha1.Function, image string, pullSecrets ...string) *servingv1.Service {
	return makeService(fn, image, corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(0)}}, pullSecrets)
}

func makeService(fn *v1alpha1.Function, image string, ready corev1.ProbeHandler, pullSecrets []string) *servingv1.Service {
	svc := &servingv1.Service{
		ObjectMeta: children.ObjectMeta(fn, children.ServiceName(fn)),
		Spec: servingv1.ServiceSpec{
			ConfigurationSpec: servingv1.ConfigurationSpec{
				Template: servingv1.RevisionTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{
						Labels: kmap.Union(fn.Spec.Labels, map[string]string{
							serverless.FunctionNameLabelKey: fn.Name,
							serverless.FunctionUIDLabelKey:  string(fn.UID),
						}),
						Annotations: kmap.Union(fn.Spec.Annotations, scaleAnnotations(fn)),
					},
					Spec: servingv1.RevisionSpec{
						PodSpec:              podSpec(fn, image, ready, pullSecrets),
						ContainerConcurrency: fn.Spec.Concurrency,
						TimeoutSeconds:       fn.Spec.TimeoutSeconds,
					},
				},
			},
			RouteSpec: servingv1.RouteSpec{Traffic: traffic(fn)},
		},
	}
	if fn.Spec.Visibility != v1alpha1.VisibilityPublic {
		svc.Labels[netapi.VisibilityLabelKey] = serving.VisibilityClusterLocal
	}
	svc.Annotations = map[string]string{
		serverless.WishHashAnnotationKey: hashOfTemplate(svc),
	}
	return svc
}

// scaleAnnotations omits a maximum of 0, which would contradict a limit of Serving's
// own. It states a minimum of 0, because Serving's default can be another.
func scaleAnnotations(fn *v1alpha1.Function) map[string]string {
	annotations := map[string]string{}
	if n := fn.Spec.MinReplicas; n != nil {
		annotations[autoscaling.MinScaleAnnotationKey] = strconv.Itoa(int(*n))
	}
	if n := fn.Spec.MaxReplicas; n != nil && *n > 0 {
		annotations[autoscaling.MaxScaleAnnotationKey] = strconv.Itoa(int(*n))
	}
	return annotations
}

// readinessProbe probes each second. With Serving's period, a pod that misses the first
// probe would wait ten seconds. A busy function gets as long as with Kubernetes'
// defaults: 30 seconds.
func readinessProbe(ready corev1.ProbeHandler) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     ready,
		SuccessThreshold: 1,
		PeriodSeconds:    1,
		TimeoutSeconds:   1,
		FailureThreshold: 30,
	}
}

// podSpec returns a pod that meets the restricted Pod Security Standard. The container
// has the whole security context, because Serving allows none on the pod.
func podSpec(fn *v1alpha1.Function, image string, ready corev1.ProbeHandler, pullSecrets []string) corev1.PodSpec {
	var references []corev1.LocalObjectReference
	for _, name := range pullSecrets {
		references = append(references, corev1.LocalObjectReference{Name: name})
	}
	mounts := slices.SortedFunc(slices.Values(fn.Spec.SecretMounts), func(a, b v1alpha1.SecretMount) int {
		return cmp.Compare(a.MountPath, b.MountPath)
	})
	return corev1.PodSpec{
		ServiceAccountName:           fn.Spec.ServiceAccountName,
		AutomountServiceAccountToken: automount(fn),
		EnableServiceLinks:           new(false),
		ImagePullSecrets:             references,
		NodeSelector:                 fn.Spec.NodeSelector,
		Tolerations:                  fn.Spec.Tolerations,
		Containers: []corev1.Container{{
			Name:            children.FunctionContainer,
			Image:           image,
			Env:             env(fn),
			EnvFrom:         fn.Spec.EnvFrom,
			Resources:       fn.Spec.Resources,
			ReadinessProbe:  readinessProbe(ready),
			SecurityContext: children.Restricted(),
			VolumeMounts:    append([]corev1.VolumeMount{{Name: tmpVolumeName, MountPath: tmpPath}}, secretVolumeMounts(mounts)...),
		}},
		Volumes: append([]corev1.Volume{{
			Name: tmpVolumeName,
			VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse(tmpSize))},
			},
		}}, secretVolumes(mounts)...),
	}
}

// automount withholds the token of the default service account. For a named one it
// returns nil, which is Kubernetes' default: Serving rejects true.
func automount(fn *v1alpha1.Function) *bool {
	if fn.Spec.ServiceAccountName != "" {
		return nil
	}
	return new(false)
}

func secretVolumes(mounts []v1alpha1.SecretMount) []corev1.Volume {
	var volumes []corev1.Volume
	for i, mount := range mounts {
		volumes = append(volumes, corev1.Volume{
			Name:         secretVolumeName(i),
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: mount.SecretName}},
		})
	}
	return volumes
}

func secretVolumeMounts(mounts []v1alpha1.SecretMount) []corev1.VolumeMount {
	var volumeMounts []corev1.VolumeMount
	for i, mount := range mounts {
		volumeMounts = append(volumeMounts, corev1.VolumeMount{Name: secretVolumeName(i), MountPath: mount.MountPath, ReadOnly: true})
	}
	return volumeMounts
}

func secretVolumeName(i int) string {
	return fmt.Sprintf("secret-%d", i)
}

// traffic sets every field that Serving would default, so the two can be compared.
func traffic(fn *v1alpha1.Function) []servingv1.TrafficTarget {
	if len(fn.Spec.Traffic) == 0 {
		return []servingv1.TrafficTarget{{LatestRevision: new(true), Percent: new(int64(100))}}
	}
	targets := make([]servingv1.TrafficTarget, 0, len(fn.Spec.Traffic))
	for _, target := range fn.Spec.Traffic {
		percent := int64(0)
		if target.Percent != nil {
			percent = *target.Percent
		}
		targets = append(targets, servingv1.TrafficTarget{
			Tag:            target.Tag,
			RevisionName:   target.RevisionName,
			LatestRevision: new(target.RevisionName == ""),
			Percent:        &percent,
		})
	}
	return targets
}

// env returns the variables that describe the function, followed by its author's.
func env(fn *v1alpha1.Function) []corev1.EnvVar {
	own := []corev1.EnvVar{
		{Name: runtimes.EnvFunctionName, Value: fn.Name},
		{Name: runtimes.EnvFunctionNamespace, Value: fn.Namespace},
		{Name: runtimes.EnvFunctionRuntime, Value: fn.Spec.Runtime},
	}
	if seconds := fn.Spec.TimeoutSeconds; seconds != nil {
		own = append(own, corev1.EnvVar{Name: runtimes.EnvFunctionTimeout, Value: strconv.FormatInt(*seconds, 10)})
	}
	if limit, ok := fn.Spec.Resources.Limits[corev1.ResourceMemory]; ok {
		own = append(own, corev1.EnvVar{Name: runtimes.EnvFunctionMemoryLimit, Value: limit.String()})
	}
	return append(own, fn.Spec.Env...)
}
