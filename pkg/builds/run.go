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

package builds

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// Spec is a build to start, with any builder.
type Spec struct {
	// Request is the image to build.
	Request

	// Reason is why the build starts.
	Reason string

	// Attempt counts the starts of this build, from 1.
	Attempt int32

	// BaseImage is the base image, by digest if that is known. It is "" if the author's
	// own Dockerfile names one.
	BaseImage string

	// Files has the digest of each file of the build context, by file name.
	Files map[string]string

	// InstallFiles are those Files that the install step may read.
	InstallFiles map[string]string

	// Runtime is the runtime of the Function.
	Runtime runtimes.Runtime

	// Dependencies is the dependencies image of the Function.
	Dependencies Dependencies

	// Credentials is the Secret with the namespace's registry credentials, or nil.
	Credentials *corev1.Secret
}

// Dependencies is an image with only a Function's dependencies, in its repository.
type Dependencies struct {
	// Tag is the tag of the image, or "" for no tag.
	Tag string

	// Digest is the digest of the image, or "" if it does not exist yet.
	Digest string

	// Packages is the digest of the list of its packages, or "" if that is unknown.
	Packages string
}

// Installs reports whether the build runs the package manager or the author's
// Dockerfile.
func (s *Spec) Installs() bool {
	_, ok := s.Files[runtimes.DockerfileName]
	return s.Runtime.IsOwnDockerfile() || ok && s.Dependencies.Digest == ""
}

// Run is a build as its object reports it.
type Run struct {
	// Request is the image that the build was started for. Its Generation is that of
	// the Function when the build started.
	Request

	// Ref names the object.
	Ref v1alpha1.BuildReference

	// Object is that object. Only its builder reads more than its metadata.
	Object metav1.Object

	// Reason is why the build was started.
	Reason string

	// Attempt counts the starts of this build, from 1.
	Attempt int32

	// State is Running, Succeeded or Failed.
	State State

	// Unfinished reports whether the object of a Failed build could still run. Kiln deletes
	// it once the status reports the failure.
	Unfinished bool

	// StartTime is when the object was created. CompletionTime is when the build ended, or
	// nil.
	StartTime, CompletionTime *metav1.Time

	// Digest is the digest of the image. It is "" unless the build has Succeeded.
	Digest string

	// BaseDigest is the digest of the base image, or "" if the build does not report it.
	BaseDigest string

	// Installed is the image with the dependencies that the build has installed, or its
	// zero value.
	Installed v1alpha1.DependencyImage

	// Source is the digest of the source that the build fetched.
	Source SourceDigest
}

// SourceDigest identifies a fetched source. Its zero value is an unknown source.
type SourceDigest struct {
	// Algorithm is sha1 for a Git commit, and sha256 for an archive.
	Algorithm string

	// Value is the digest in hexadecimal.
	Value string
}

// Commit returns the fetched Git commit, or "".
func (d SourceDigest) Commit() string {
	if d.Algorithm == "sha1" {
		return d.Value
	}
	return ""
}

// Stage is how far a running build is.
type Stage int

const (
	// Created builds have an object, and their pod has not started.
	Created Stage = iota
	// Started builds run, or wait for a node or a volume.
	Started
	// OverQuota builds wait because the namespace's quota does not allow their pod.
	OverQuota
)

// Progress is what a running build reports.
type Progress struct {
	// Stage is how far the build is.
	Stage Stage

	// Message describes the stage in a sentence.
	Message string
}

// Reasons are the reasons of the condition BuildReady that name a kind of object. Each
// starts with the kind, and NotCreated and Deleted end in "NotCreated" and "sDeleted".
type Reasons struct {
	// Created: the object exists, and its pod has not started.
	Created string
	// NotCreated: the object could not be created, and Kiln retries.
	NotCreated string
	// Running: the build runs.
	Running string
	// Succeeded: the build has pushed the image.
	Succeeded string
	// Failed: the build failed, and no other reason is more specific.
	Failed string
	// Deleted: the build waits until earlier builds are deleted.
	Deleted string
}
