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

package steps

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/sources"
)

const (
	// copyingDiskRequest and copyingDiskLimit are the disk of a step that copies, besides
	// its volumes. The kubelet keeps up to 50 MiB of its log.
	copyingDiskRequest = 16 << 20
	copyingDiskLimit   = 64 << 20

	// fileOverhead is the disk that a file takes besides its bytes: the rest of its last
	// block, and its entry in the folder.
	fileOverhead = 8 << 10
)

// disk is how much disk the containers and volumes of a build may use. The kubelet also
// limits the whole pod to the sum of the containers that run together, so this limits the
// builder's own containers and volumes too. The zero value has no limits.
type disk struct {
	// install limits the installation and each of its volumes.
	install *resource.Quantity

	// work limits the volume of the fetched source. Such a build has a fetch step.
	work *resource.Quantity
}

// diskOfBuild returns the limits of the build. Without a limit of the installation there
// is none: the limits of the other containers would limit the whole pod. Pods must not
// request disk on nodes that do not measure it.
func diskOfBuild(fn *v1alpha1.Function, cfg *config.Build) disk {
	install, ok := buildResources(fn, cfg).Limits[corev1.ResourceEphemeralStorage]
	if !ok {
		return disk{}
	}
	return disk{install: &install, work: sourceDisk(cfg.Sources)}
}

// sourceDisk returns the disk that a source takes while it is fetched.
func sourceDisk(limits sources.Limits) *resource.Quantity {
	return bytes(limits.Download + limits.Size + limits.Files*fileOverhead + copyingDiskLimit)
}

// limit limits a container that copies. volume is the size of the volume that it alone
// writes, or nil.
func (d disk) limit(container corev1.ResourceRequirements, volume *resource.Quantity) corev1.ResourceRequirements {
	if d.install == nil {
		return container
	}
	limit := bytes(copyingDiskLimit)
	if volume != nil {
		limit.Add(*volume)
	}
	// Without a request, Kubernetes requests the limit.
	container.Requests[corev1.ResourceEphemeralStorage] = *bytes(copyingDiskRequest)
	container.Limits[corev1.ResourceEphemeralStorage] = *limit
	return container
}

// shareDisk lets the push step use what all containers together may use. The limit of a pod
// whose containers run in turn is the greatest of theirs, and the volumes still hold what
// the earlier ones wrote.
func (s *Steps) shareDisk() {
	shared, ok := s.Push.Resources.Limits[corev1.ResourceEphemeralStorage]
	if !ok {
		return
	}
	for _, earlier := range []*corev1.Container{s.Fetch, s.Install} {
		if earlier != nil {
			shared.Add(*earlier.Resources.Limits.StorageEphemeral())
		}
	}
	s.Push.Resources.Limits[corev1.ResourceEphemeralStorage] = shared
}

// emptyDir returns a volume of at most that size. nil means no limit.
func emptyDir(name string, size *resource.Quantity) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: size}}}
}

func bytes(n int64) *resource.Quantity {
	return resource.NewQuantity(n, resource.BinarySI)
}
