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

// The reasons of a build in status.build.reason.
const (
	// ReasonFirstBuild means that the Function has no image yet.
	ReasonFirstBuild = "FirstBuild"
	// ReasonSourceChanged means that the source was edited.
	ReasonSourceChanged = "SourceChanged"
	// ReasonDepsChanged means that the dependencies were edited.
	ReasonDepsChanged = "DepsChanged"
	// ReasonRuntimeChanged means that the Function has another runtime, or that the
	// runtime's base image, Dockerfile or wrapper changed.
	ReasonRuntimeChanged = "RuntimeChanged"
	// ReasonRegistryChanged means that images are pushed to another repository.
	ReasonRegistryChanged = "RegistryChanged"
	// ReasonInputsChanged means that several inputs changed, or an unknown one.
	ReasonInputsChanged = "InputsChanged"
	// ReasonRebuildRequested means that the annotation serverless.kiln.dev/rebuild has a
	// new value. The build reuses no image.
	ReasonRebuildRequested = "RebuildRequested"
	// ReasonPreviousBuildFailed means that the Function was updated after a failed build.
	ReasonPreviousBuildFailed = "PreviousBuildFailed"
	// ReasonCommitChanged means that the followed branch has a new commit.
	ReasonCommitChanged = "CommitChanged"
	// ReasonCredentialsChanged means that the registry refused an earlier build, and its
	// credentials changed since.
	ReasonCredentialsChanged = "CredentialsChanged"
	// ReasonImageLost means that the registry no longer holds the deployed image.
	ReasonImageLost = "ImageLost"
	// ReasonImageReused means that the image existed already, and no build ran.
	ReasonImageReused = "ImageReused"
)

// IsAutomatic reports whether builds of that reason follow a change of the configuration
// or of the registry, which many Functions share, and no edit of the Function.
func IsAutomatic(reason string) bool {
	switch reason {
	case ReasonRuntimeChanged, ReasonRegistryChanged, ReasonInputsChanged, ReasonImageLost:
		return true
	}
	return false
}

// mayReuse reports whether a build of that reason may reuse images in the registry. A
// rebuild must not, and a failed build may have pushed broken images.
func mayReuse(reason string) bool {
	return reason != ReasonRebuildRequested && reason != ReasonPreviousBuildFailed
}

func retryReason(failed *Build) string {
	if failed.Reason == ReasonRebuildRequested {
		return failed.Reason
	}
	return ReasonPreviousBuildFailed
}

// useReason returns the reason of the build that made the image. It is ReasonImageReused
// if the status remembers another build or none.
func useReason(want Request, last *Build) string {
	if last != nil && last.Tag == want.Tag {
		return last.Reason
	}
	return ReasonImageReused
}

func startReason(want Request, previous *Build) string {
	switch {
	case previous.owes(want.Rebuild):
		return ReasonRebuildRequested
	case previous == nil, previous.State == Planned && previous.Reason == ReasonFirstBuild:
		return ReasonFirstBuild
	default:
		return changeReason(previous.Fingerprint, want.Fingerprint)
	}
}
