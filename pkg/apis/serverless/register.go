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

// Package serverless holds the names that all versions of Kiln's API group share.
package serverless

const (
	// GroupName is the API group of Kiln's resources.
	GroupName = "serverless.kiln.dev"

	// FunctionNameLabelKey is put on everything that Kiln creates for a
	// Function, and on its images; its value is the Function's name.
	FunctionNameLabelKey = GroupName + "/function-name"

	// FunctionNamespaceLabelKey is put on images; its value is the namespace of the
	// Function.
	FunctionNamespaceLabelKey = GroupName + "/function-namespace"

	// FunctionUIDLabelKey is put on everything that Kiln creates for a
	// Function; its value is the Function's UID. Kiln's informers select by the
	// presence of this key.
	FunctionUIDLabelKey = GroupName + "/function-uid"

	// ImageTagLabelKey is put on build objects, and on images; its value is the tag
	// of the image they build, which carries the hash of the build's inputs.
	ImageTagLabelKey = GroupName + "/image-tag"

	// RuntimeLabelKey is put on images; its value is the name of the Function's
	// runtime.
	RuntimeLabelKey = GroupName + "/runtime"

	// SourceHashLabelKey is put on images; its value is sha256: and the hash of the
	// Function's source.
	SourceHashLabelKey = GroupName + "/source-hash"

	// RebuildAnnotationKey is set by users on a Function to ask for a build of
	// unchanged inputs. Each new non-empty value causes one build.
	RebuildAnnotationKey = GroupName + "/rebuild"

	// GenerationAnnotationKey is put on build objects; its value is the
	// generation of the Function that asked for the build.
	GenerationAnnotationKey = GroupName + "/generation"

	// BuildReasonAnnotationKey is on build objects. Its value is why the build was started.
	BuildReasonAnnotationKey = GroupName + "/build-reason"

	// BuildInputsAnnotationKey is on build objects. Its value has a digest of each input of
	// the build, which the next build compares to find its reason.
	BuildInputsAnnotationKey = GroupName + "/build-inputs"

	// BuildAttemptAnnotationKey is put on build objects; its value counts how
	// often the build was started.
	BuildAttemptAnnotationKey = GroupName + "/build-attempt"

	// BuildCommitAnnotationKey is put on build objects; its value is the commit of a
	// branch that is followed which the build was started for.
	BuildCommitAnnotationKey = GroupName + "/build-commit"

	// WishHashAnnotationKey is put on the service of a Function; its value is a
	// hash of what Kiln wants the service's revisions to be made of.
	WishHashAnnotationKey = GroupName + "/wish-hash"

	// CredentialsLabelKey is put on the copies of the Secret with the credentials
	// of registries that Kiln makes in the namespaces of Functions.
	CredentialsLabelKey = GroupName + "/credentials"

	// DeleteAfterAnnotationKey is on the copies of registry credentials that have lost
	// their source. Its value is the time, in RFC 3339, after which Kiln deletes the copy.
	DeleteAfterAnnotationKey = GroupName + "/delete-after"

	// BuildCredentialsAnnotationKey is put on build objects; its value is the
	// version of the Secret with the credentials of registries that the build was
	// started with.
	BuildCredentialsAnnotationKey = GroupName + "/build-credentials"

	// BuildEnvAnnotationKey is put on build objects, and on their pods; its value is
	// the environment of the package manager, as a file for a shell to read.
	BuildEnvAnnotationKey = GroupName + "/build-env"
)
