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

	// FunctionNameLabelKey is on everything that Kiln creates for a Function, and on its
	// images. Its value is the Function's name.
	FunctionNameLabelKey = GroupName + "/function-name"

	// FunctionNamespaceLabelKey is on images. Its value is the namespace of the Function.
	FunctionNamespaceLabelKey = GroupName + "/function-namespace"

	// FunctionUIDLabelKey is on everything that Kiln creates for a Function. Its value is
	// the Function's UID. Kiln's informers select objects with this label.
	FunctionUIDLabelKey = GroupName + "/function-uid"

	// ImageTagLabelKey is on build objects and images. Its value is the tag of the image:
	// the hash of the build's inputs.
	ImageTagLabelKey = GroupName + "/image-tag"

	// RuntimeLabelKey is on images. Its value is the name of the Function's runtime.
	RuntimeLabelKey = GroupName + "/runtime"

	// SourceHashLabelKey is on images. Its value is sha256: and the hash of the Function's
	// source.
	SourceHashLabelKey = GroupName + "/source-hash"

	// ServerLabelKey is on the objects and pods of Functions that Deployments serve. Its
	// value is kubernetes.
	ServerLabelKey = GroupName + "/server"

	// RevisionLabelKey is on the pods of Functions that Deployments serve, and on their
	// ReplicaSets. Its value is the name of the revision.
	RevisionLabelKey = GroupName + "/revision"

	// RevisionAnnotationKey is on the Deployment of a Function. Its value is the number of
	// the newest revision.
	RevisionAnnotationKey = GroupName + "/revision"

	// RebuildAnnotationKey is set by users on a Function. Each new non-empty value causes
	// one build of unchanged inputs.
	RebuildAnnotationKey = GroupName + "/rebuild"

	// RolloutOnChangeAnnotationKey is set by users on a Function. With the value true, a
	// changed Secret or ConfigMap of the Function causes a new revision.
	RolloutOnChangeAnnotationKey = GroupName + "/rollout-on-change"

	// ContentHashAnnotationKey is on the pods of Functions with the annotation
	// rollout-on-change. Its value is a hash of the Secrets and ConfigMaps that they name.
	ContentHashAnnotationKey = GroupName + "/content-hash"

	// GenerationAnnotationKey is on build objects. Its value is the generation of the
	// Function that started the build.
	GenerationAnnotationKey = GroupName + "/generation"

	// BuildReasonAnnotationKey is on build objects. Its value is why the build was started.
	BuildReasonAnnotationKey = GroupName + "/build-reason"

	// BuildInputsAnnotationKey is on build objects. Its value has a digest of each input of
	// the build, which the next build compares to find its reason.
	BuildInputsAnnotationKey = GroupName + "/build-inputs"

	// BuildAttemptAnnotationKey is on build objects. Its value counts the starts of the
	// build.
	BuildAttemptAnnotationKey = GroupName + "/build-attempt"

	// BuildCommitAnnotationKey is on build objects. Its value is the commit of the followed
	// branch that started the build.
	BuildCommitAnnotationKey = GroupName + "/build-commit"

	// WishHashAnnotationKey is on the object that serves a Function. Its value is a hash of the
	// desired revision template.
	WishHashAnnotationKey = GroupName + "/wish-hash"

	// CredentialsLabelKey is on Kiln's copies of the Secret with registry credentials.
	CredentialsLabelKey = GroupName + "/credentials"

	// DeleteAfterAnnotationKey is on the copies of registry credentials that have lost
	// their source. Its value is the time, in RFC 3339, after which Kiln deletes the copy.
	DeleteAfterAnnotationKey = GroupName + "/delete-after"

	// BuildCredentialsAnnotationKey is on build objects. Its value is the version of the
	// registry credentials of the build.
	BuildCredentialsAnnotationKey = GroupName + "/build-credentials"

	// BuildEnvAnnotationKey is on build objects and their pods. Its value is the
	// environment of the package manager, as a shell script.
	BuildEnvAnnotationKey = GroupName + "/build-env"

	// BuildResultsAnnotationKey is on build objects that cannot hold results in their status.
	// Its value has the results of a build that has succeeded, in JSON.
	BuildResultsAnnotationKey = GroupName + "/build-results"

	// DevLabelKey is on the pods and Functions that kubectl fn dev creates. Its value is the
	// name of the Function whose code they replace.
	DevLabelKey = GroupName + "/dev"
)
