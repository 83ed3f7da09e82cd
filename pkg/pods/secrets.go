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

package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// CredentialsVolume is the name of the volume with the registry credentials in the pod of
// a build. Only steps that run no author's code mount it.
const CredentialsVolume = "credentials"

// The containers of a build that run no author's code. Only their termination messages
// count.
const (
	// FetchContainer is the name of the container that fetches the source.
	FetchContainer = "fetch"
	// PushContainer is the name of the container that pushes the image.
	PushContainer = "push"
)

// NamesSecret reports whether a container or a volume of the pod names the Secret. Pull
// secrets and CredentialsVolume do not count, because no author's code can read them.
func NamesSecret(spec *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.Name != CredentialsVolume && (v.Secret != nil && v.Secret.SecretName == name || projects(v.Projected, name))
	}) || slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool {
			return v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil && v.ValueFrom.SecretKeyRef.Name == name
		}) || slices.ContainsFunc(c.EnvFrom, func(from corev1.EnvFromSource) bool {
			return from.SecretRef != nil && from.SecretRef.Name == name
		})
	})
}

func projects(volume *corev1.ProjectedVolumeSource, name string) bool {
	return volume != nil && slices.ContainsFunc(volume.Sources, func(source corev1.VolumeProjection) bool {
		return source.Secret != nil && source.Secret.Name == name
	})
}
