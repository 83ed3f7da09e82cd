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

// Package podspec makes the pods that run functions, whatever serves them.
package podspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// Healthy asks Kiln's wrapper whether the function is ready. Serving replaces the port 0.
func Healthy(port int32) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: runtimes.HealthPath, Port: intstr.FromInt32(port)}}
}

// Listening asks whether the function listens. An image without Kiln's wrapper is ready then.
// Serving replaces the port 0.
func Listening(port int32) corev1.ProbeHandler {
	return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}}
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

// Make returns a pod that meets the restricted Pod Security Standard. The container
// has the whole security context, because Serving allows none on the pod.
func Make(fn *v1alpha1.Function, image string, ready corev1.ProbeHandler, pullSecrets []string) corev1.PodSpec {
	var references []corev1.LocalObjectReference
	for _, name := range pullSecrets {
		references = append(references, corev1.LocalObjectReference{Name: name})
	}
	volumes, mounts := volumesOf(&fn.Spec)
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
			VolumeMounts:    mounts,
		}},
		Volumes: volumes,
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

// Hash returns a hash of the JSON of the value.
func Hash(value any) string {
	// Marshal fails only for types that JSON lacks, such as channels.
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:32]
}
