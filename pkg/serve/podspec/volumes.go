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

package podspec

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const (
	tmpVolumeName = "tmp"
	tmpPath       = "/tmp"
	// tmpSize bounds what a function can write to the disk of its node. It is also the limit
	// of a folder without one, which the webhook has not seen.
	tmpSize = "512Mi"
)

// pod has the volumes of a pod, and where its container mounts them.
type pod struct {
	volumes []corev1.Volume
	mounts  []corev1.VolumeMount
}

func (p *pod) mount(name string, path v1alpha1.MountPath, readOnly bool, source corev1.VolumeSource) {
	p.volumes = append(p.volumes, corev1.Volume{Name: name, VolumeSource: source})
	p.mounts = append(p.mounts, corev1.VolumeMount{Name: name, MountPath: string(path), ReadOnly: readOnly})
}

// volumesOf returns the volumes of a pod and where its container mounts them. The order of a
// list in the spec does not count. Other names would cause new revisions of all Functions.
func volumesOf(fs *v1alpha1.FunctionSpec) ([]corev1.Volume, []corev1.VolumeMount) {
	p := &pod{}
	p.mount(tmpVolumeName, tmpPath, false, emptyDir(nil))
	for i, m := range byPath(fs.SecretMounts, func(m v1alpha1.SecretMount) v1alpha1.MountPath { return m.MountPath }) {
		p.mount(fmt.Sprintf("secret-%d", i), m.MountPath, true,
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: m.SecretName}})
	}
	for i, m := range byPath(fs.ConfigMapMounts, func(m v1alpha1.ConfigMapMount) v1alpha1.MountPath { return m.MountPath }) {
		p.mount(fmt.Sprintf("config-map-%d", i), m.MountPath, true,
			corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: m.ConfigMapName}}})
	}
	for i, m := range byPath(fs.EmptyDirMounts, func(m v1alpha1.EmptyDirMount) v1alpha1.MountPath { return m.MountPath }) {
		p.mount(fmt.Sprintf("empty-dir-%d", i), m.MountPath, false, emptyDir(m.SizeLimit))
	}
	for i, m := range byPath(fs.PersistentVolumeClaimMounts, func(m v1alpha1.PersistentVolumeClaimMount) v1alpha1.MountPath { return m.MountPath }) {
		p.mount(fmt.Sprintf("persistent-volume-claim-%d", i), m.MountPath, m.ReadOnly,
			corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: m.ClaimName, ReadOnly: m.ReadOnly}})
	}
	return p.volumes, p.mounts
}

func byPath[M any](mounts []M, path func(M) v1alpha1.MountPath) []M {
	return slices.SortedFunc(slices.Values(mounts), func(a, b M) int { return cmp.Compare(path(a), path(b)) })
}

func emptyDir(size *resource.Quantity) corev1.VolumeSource {
	if size == nil {
		size = new(resource.MustParse(tmpSize))
	}
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: size}}
}
