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

// Package builds holds the decisions about builds: which image a Function
// needs, whether that takes a build and why, and why a build has failed. They
// are pure: the package knows nothing of what runs builds, or of clusters.
package builds

// Why a build was started, as status.build.reason tells.
const (
	// ReasonFirstBuild: the Function has no image yet.
	ReasonFirstBuild = "FirstBuild"
	// ReasonSourceChanged: the source was edited.
	ReasonSourceChanged = "SourceChanged"
	// ReasonDepsChanged: the dependencies were edited.
	ReasonDepsChanged = "DepsChanged"
	// ReasonRuntimeChanged: the Function names another runtime; or the runtime's
	// base image, Dockerfile or wrapper has changed.
	ReasonRuntimeChanged = "RuntimeChanged"
	// ReasonRegistryChanged: images are pushed to another place.
	ReasonRegistryChanged = "RegistryChanged"
	// ReasonInputsChanged: several of these have changed, or it is not known which.
	ReasonInputsChanged = "InputsChanged"
	// ReasonRebuildRequested: the annotation serverless.kiln.dev/rebuild has a new
	// value, whatever else has changed. Such a build uses nothing from before.
	ReasonRebuildRequested = "RebuildRequested"
	// ReasonPreviousBuildFailed: the build failed, and the Function was updated since.
	ReasonPreviousBuildFailed = "PreviousBuildFailed"
	// ReasonCredentialsChanged: the registry had refused the build, and the
	// credentials have changed since.
	ReasonCredentialsChanged = "CredentialsChanged"
	// ReasonBuildDeleted: somebody deleted the build while it ran.
	ReasonBuildDeleted = "BuildDeleted"
	// ReasonImageReused: the image of these inputs was known already. No build ran.
	ReasonImageReused = "ImageReused"
)

// State tells how far a build has come.
type State int

const (
	// Planned builds wait for earlier builds to be gone.
	Planned State = iota
	// Running builds were started and have not ended.
	Running
	// Succeeded builds have pushed their image.
	Succeeded
	// Failed builds have ended without an image.
	Failed
)

// Ended says whether the build is over.
func (s State) Ended() bool {
	return s == Succeeded || s == Failed
}

// Request is what a Function wants built.
type Request struct {
	// Tag is the tag of the image.
	Tag string

	// Fingerprint tells of each input by itself.
	Fingerprint string

	// Rebuild is the value of the annotation that asks for a build of unchanged
	// inputs. Each new value other than "" asks once.
	Rebuild string

	// Generation is the Function's.
	Generation int64

	// CredentialsVersion tells two versions of the registry's credentials apart; it
	// is "" where there are none. It asks for no build of its own.
	CredentialsVersion string
}

// Build is one build: one that exists, or one that is remembered.
type Build struct {
	// Name is unique among the Function's builds; it is "" while the build is
	// Planned.
	Name string

	// Request is what the build was started for. Its Generation is the newest
	// generation of the Function that the build was to serve.
	Request

	// Reason tells why the build was started.
	Reason string

	// State tells how far the build has come.
	State State

	// Deleting builds are about to be gone.
	Deleting bool

	// Refused says that the registry refused the build's credentials.
	Refused bool
}

// answers says whether the build is the one that the request asks for.
func (b *Build) answers(want Request) bool {
	return b != nil && b.Tag == want.Tag && b.hasAnswered(want.Rebuild)
}

func (b *Build) hasAnswered(rebuild string) bool {
	return rebuild == "" || b != nil && b.Rebuild == rebuild
}

// owes says whether the build that the annotation's value asks for is still to
// come after this one: it was not for that value, or it did not get there.
func (b *Build) owes(rebuild string) bool {
	return !b.hasAnswered(rebuild) ||
		rebuild != "" && b.Reason == ReasonRebuildRequested && b.State != Succeeded
}

// Known is what is known about a Function's builds.
type Known struct {
	// ImageTag is the tag of the newest image of the Function, if there is one.
	ImageTag string

	// Last is the build that the Function's status remembers, if there is one.
	Last *Build

	// Existing are the builds that exist in the cluster.
	Existing []Build
}

// Action is what is to be done about a Function's build.
type Action int

const (
	// Start a build, as soon as no other of the Function exists.
	Start Action = iota
	// Follow the existing build that the Decision names.
	Follow
	// Use the image that the Function has.
	Use
	// Stay failed: the build has failed, and nothing has changed since.
	Stay
)

// Decision is what is to be done about a Function's build, and why.
type Decision struct {
	Action Action

	// Build is the name of the build to follow.
	Build string

	// Reason tells why a build starts, or why it need not.
	Reason string

	// Reuse says of a build to start that it may use what the registry holds
	// already: the image of these inputs, or their dependencies.
	Reuse bool
}

// Decide says what is to be done about a Function's build. A build that exists
// counts for more than what the status remembers, so that a status that was
// lost, edited or is out of date causes no second build.
func Decide(want Request, known Known) Decision {
	if b := choose(want, known); b != nil {
		if b.State == Failed && b.Generation < want.Generation {
			return Decision{Action: Start, Reason: retryReason(b)}
		}
		if b.State == Failed && b.Refused && b.CredentialsVersion != want.CredentialsVersion {
			return Decision{Action: Start, Reason: ReasonCredentialsChanged}
		}
		return Decision{Action: Follow, Build: b.Name}
	}
	last := known.Last
	if last.answers(want) {
		switch {
		case last.State == Planned:
			return Decision{Action: Start, Reason: last.Reason, Reuse: mayReuse(last.Reason)}
		case last.State == Running:
			// It may have pushed the image before.
			return Decision{Action: Start, Reason: ReasonBuildDeleted, Reuse: mayReuse(last.Reason)}
		case last.State == Failed && last.Generation < want.Generation:
			return Decision{Action: Start, Reason: retryReason(last)}
		case last.State == Failed:
			return Decision{Action: Stay}
		}
	}
	previous := known.previous()
	if known.ImageTag == want.Tag && !previous.owes(want.Rebuild) {
		return Decision{Action: Use, Reason: useReason(want, last)}
	}
	reason := startReason(want, previous)
	return Decision{Action: Start, Reason: reason, Reuse: mayReuse(reason)}
}

// mayReuse says whether a build that starts for that reason may as well find its
// image in the registry. Who asks for a rebuild does not want that image; and
// where a build has failed, what it has left there is not to be trusted.
func mayReuse(reason string) bool {
	return reason != ReasonRebuildRequested && reason != ReasonPreviousBuildFailed
}

// retryReason tells why a build that has failed is tried again.
func retryReason(failed *Build) string {
	if failed.Reason == ReasonRebuildRequested {
		return failed.Reason
	}
	return ReasonPreviousBuildFailed
}

// useReason tells why the image is there: the reason of the build that made it,
// as far as it is remembered. It is not where the Function was edited, and edited
// back before its build was done, or where the status has lost it.
func useReason(want Request, last *Build) string {
	if last != nil && last.Tag == want.Tag {
		return last.Reason
	}
	return ReasonImageReused
}

// previous returns the build that the status remembers, as it is now if it still
// exists, or any other there is.
func (k *Known) previous() *Build {
	previous := k.Last
	for i := range k.Existing {
		if b := &k.Existing[i]; previous == nil || b.Name == previous.Name {
			previous = b
		}
	}
	return previous
}

// startReason tells why inputs that no build has seen are to be built.
func startReason(want Request, previous *Build) string {
	switch {
	case previous.owes(want.Rebuild):
		return ReasonRebuildRequested
	case previous == nil:
		return ReasonFirstBuild
	default:
		return changeReason(previous.Fingerprint, want.Fingerprint)
	}
}

// choose returns the existing build that answers the request. There should be
// one at most; among more it prefers the one that the status remembers, then
// the one that has come furthest.
func choose(want Request, known Known) *Build {
	var chosen *Build
	for i := range known.Existing {
		b := &known.Existing[i]
		if !b.answers(want) || b.Deleting && !b.State.Ended() {
			continue
		}
		if known.Last != nil && b.Name == known.Last.Name {
			return b
		}
		if chosen == nil || isBetter(b, chosen) {
			chosen = b
		}
	}
	return chosen
}

func isBetter(a, b *Build) bool {
	rank := [...]int{Failed: 0, Planned: 1, Running: 2, Succeeded: 3}
	if rank[a.State] != rank[b.State] {
		return rank[a.State] > rank[b.State]
	}
	if a.Generation != b.Generation {
		return a.Generation > b.Generation
	}
	return a.Name < b.Name
}

// Obsolete returns the builds that are of no use to the request: those that
// exist and are not the one to follow. A build for a newer generation than the
// request's is not obsolete; the request is out of date.
func Obsolete(want Request, existing []Build, decision Decision) []Build {
	var obsolete []Build
	for _, b := range existing {
		if b.Generation > want.Generation || decision.Action == Follow && b.Name == decision.Build {
			continue
		}
		obsolete = append(obsolete, b)
	}
	return obsolete
}
