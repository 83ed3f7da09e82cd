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

// Package steps makes the containers of a build: fetch, install and push. It knows no
// kind of object that runs them.
package steps

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/pods"
)

const (
	// Fetch is the name of the container that fetches a source from Git or an archive.
	Fetch = pods.FetchContainer

	// Install is the name of the container in which Kaniko runs the Dockerfile.
	Install = "install"

	// Push is the name of the container that composes the image and pushes it.
	Push = pods.PushContainer

	contextVolumeName = "context"
	contextPath       = "/kiln-build"
	layersVolumeName  = "layers"
	layersPath        = "/kiln-layers"
	kanikoVolumeName  = "kaniko"
	kanikoPath        = "/kaniko"
	kanikoBinary      = "/ko-app/kaniko"
	composeBinary     = "/ko-app/compose"

	credentialsVolumeName = pods.CredentialsVolume
	credentialsPath       = "/kiln-credentials"
	packagesVolumeName    = "packages"
	envVolumeName         = "env"

	// The fetch step mounts the ConfigMap as a folder. It writes the build context into a
	// volume that the other steps read.
	filesPath                   = "/kiln-files"
	workVolumeName              = "work"
	workPath                    = "/kiln-work"
	fetchedContextPath          = workPath + "/context"
	fetchedSourcePath           = workPath + "/source.json"
	sourceCredentialsVolumeName = "source-credentials"
	sourceCredentialsPath       = "/kiln-source-credentials"
)

// Steps are the containers of a build. Only Install runs code of authors, and nothing that
// it reports may count.
type Steps struct {
	// Fetch fetches the source. It is nil for an inline source.
	Fetch *corev1.Container

	// Install installs dependencies, or runs the author's Dockerfile. It is nil if the
	// build needs neither.
	Install *corev1.Container

	// Push pushes the image.
	Push corev1.Container

	// Volumes are the volumes that the containers mount.
	Volumes []corev1.Volume
}

// Target describes how an object runs the containers.
type Target struct {
	// ResultFile returns the file for the result of that name. If it is nil, the containers
	// write their results to their termination messages.
	ResultFile func(result string) string

	// InTurn reports whether each container starts when the one before it has succeeded.
	// Otherwise all start together.
	InTurn bool
}

// Make returns the containers that build and push the Function's image.
func Make(fn *v1alpha1.Function, cfg *config.Config, build builds.Spec, target Target) Steps {
	steps := Steps{Push: pushStep(fn, cfg, build, target), Volumes: volumesOf(fn, cfg, build)}
	if fn.Spec.IsFetched() {
		steps.Fetch = new(fetchStep(fn, cfg, build, target))
	}
	if build.Installs() {
		steps.Install = new(installStep(fn, cfg, build, target))
	}
	if target.InTurn {
		steps.shareDisk()
	}
	return steps
}
