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

import (
	"cmp"
	"slices"
	"time"
)

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
	// ReasonCommitChanged: the branch that the source is on was found at another
	// commit.
	ReasonCommitChanged = "CommitChanged"
	// ReasonCredentialsChanged: the registry had refused the build, and the
	// credentials have changed since.
	ReasonCredentialsChanged = "CredentialsChanged"
	// ReasonImageReused: the image of these inputs was known already. No build ran.
	ReasonImageReused = "ImageReused"
)

const (
	// MaxAttempts is how often a build is started at most that is not the Function's
	// fault to fail. With the delays below that takes some 10 minutes.
	MaxAttempts = 7

	// firstDelay is how long after its first failure a build is started again; each
	// further delay is twice as long, up to maxDelay.
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute
)

// State tells how far a build has come.
type State int

const (
	// Planned builds wait for earlier builds to be gone, or for their turn.
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

	// Commit is the one that a branch was found at which is followed; "" where any
	// will do. Each other asks for a build once, like a value of Rebuild.
	Commit string

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

	// Fetched is the commit that the build has fetched, if that is known: the one that
	// it was started for, if it was for one.
	Fetched string

	// Reason tells why the build was started.
	Reason string

	// Attempt counts from 1 how often this build was started. Of a build that is
	// Planned, it counts the starts there were.
	Attempt int32

	// State tells how far the build has come.
	State State

	// Deleting builds are about to be gone.
	Deleting bool

	// Refused says that the registry refused the build's credentials.
	Refused bool

	// Transient says of a build that has Failed that it may succeed later.
	Transient bool

	// Ended is when the build did, if it has.
	Ended time.Time
}

// answers says whether the build is the one that the request asks for.
func (b *Build) answers(want Request) bool {
	return b != nil && b.Tag == want.Tag && b.hasAnswered(want.Rebuild) && b.isOf(want.Commit)
}

func (b *Build) isOf(commit string) bool {
	return commit == "" || b.Commit == commit || b.Fetched == commit
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

// isRefused says whether the registry has refused the build with other
// credentials than there are now.
func (b *Build) isRefused(want Request) bool {
	return b.State == Failed && b.Refused && b.CredentialsVersion != want.CredentialsVersion
}

// RetryAt returns when the build that has failed is started again; ok is false if
// it is not, unless something changes.
func (b *Build) RetryAt() (at time.Time, ok bool) {
	if b.State != Failed || !b.Transient || b.Attempt >= MaxAttempts {
		return time.Time{}, false
	}
	delay := firstDelay
	for range b.Attempt - 1 {
		delay = min(2*delay, maxDelay)
	}
	return b.Ended.Add(delay), true
}

// afterFailure says how a build that has failed goes on at that time; ok is false
// if it does not.
func (b *Build) afterFailure(want Request, now time.Time) (decision Decision, ok bool) {
	if b.State != Failed {
		return Decision{}, false
	}
	if b.Generation < want.Generation {
		return Decision{Action: Start, Reason: retryReason(b)}, true
	}
	if b.isRefused(want) {
		return Decision{Action: Start, Reason: ReasonCredentialsChanged}, true
	}
	if at, ok := b.RetryAt(); ok && !now.Before(at) {
		return b.again(), true
	}
	return Decision{}, false
}

// again starts the build once more. It may have pushed its image before.
func (b *Build) again() Decision {
	return Decision{Action: Start, Reason: b.Reason, Again: true, Reuse: mayReuse(b.Reason)}
}

// supersedes says whether this build takes the place of the other, which has
// ended: it is Planned to, or was started since the other had failed. Who still
// sees the other need not see this one yet.
func (b *Build) supersedes(other *Build) bool {
	if b == nil || b.Tag != other.Tag || !other.State.Ended() {
		return false
	}
	if b.State == Planned {
		return other.Generation < b.Generation || other.Attempt <= b.Attempt
	}
	return other.State == Failed && b.Name != other.Name && other.Generation <= b.Generation && other.Attempt < b.Attempt
}

// IsSettled says whether the build that the status remembers is the one that is
// wanted, and has come to its end. Only then does a branch that moves ask for the
// next: what has begun is not given up for it.
func (k *Known) IsSettled(want Request) bool {
	if !k.Last.answers(want) || !k.Last.State.Ended() {
		return false
	}
	_, again := k.Last.RetryAt()
	return !again
}

// Known is what is known about a Function's builds.
type Known struct {
	// ImageTag is the tag of the newest image of the Function, if there is one.
	ImageTag string

	// Last is the build that the Function's status remembers, if there is one.
	Last *Build

	// Existing are the builds that exist in the cluster.
	Existing []Build

	// Now is the time at which that is known.
	Now time.Time
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
	// GiveUp the build: it was deleted each time that it was started.
	GiveUp
)

// Decision is what is to be done about a Function's build, and why.
type Decision struct {
	Action Action

	// Build is the name of the build to follow.
	Build string

	// Reason tells why a build starts, or why it need not.
	Reason string

	// Again says of a build to start that it is the one that the status remembers:
	// it was started before, for that reason.
	Again bool

	// Reuse says of a build to start that it may use what the registry holds
	// already: the image of these inputs, or their dependencies.
	Reuse bool
}

// Decide says what is to be done about a Function's build. A build that exists
// counts for more than what the status remembers, so that a status that was
// lost, edited or is out of date causes no second build.
func Decide(want Request, known Known) Decision {
	if b := choose(want, known); b != nil {
		if next, ok := b.afterFailure(want, known.Now); ok {
			return next
		}
		return Decision{Action: Follow, Build: b.Name}
	}
	last := known.Last
	if last.answers(want) {
		next, ok := last.afterFailure(want, known.Now)
		switch {
		case ok:
			return next
		case last.State == Failed:
			return Decision{Action: Stay}
		case last.State == Running && last.Attempt >= MaxAttempts:
			return Decision{Action: GiveUp}
		case last.State == Planned, last.State == Running:
			return last.again()
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
// exists. Where the status remembers none, it is the best there is.
func (k *Known) previous() *Build {
	previous := k.Last
	for i := range k.Existing {
		b := &k.Existing[i]
		if k.Last == nil && (previous == nil || isBetter(b, previous)) || k.Last != nil && b.Name == k.Last.Name {
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
	case previous == nil, previous.State == Planned && previous.Reason == ReasonFirstBuild:
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
		if !b.answers(want) || b.Deleting && !b.State.Ended() || known.Last.supersedes(b) {
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
// exist and are not the one to follow, but for the last that have ended, so that
// there are as many as history says together with the one that is wanted. A build
// for a newer generation than the request's is not obsolete; the request is out of
// date.
func Obsolete(want Request, existing []Build, decision Decision, history int) []Build {
	var obsolete, ended []Build
	for _, b := range existing {
		switch {
		case b.Generation > want.Generation || decision.Action == Follow && b.Name == decision.Build:
		case b.State.Ended() && !b.Deleting && !b.answers(want):
			ended = append(ended, b)
		default:
			obsolete = append(obsolete, b)
		}
	}
	slices.SortFunc(ended, func(a, b Build) int {
		return cmp.Or(b.Ended.Compare(a.Ended), cmp.Compare(b.Name, a.Name))
	})
	return append(obsolete, ended[min(max(history-1, 0), len(ended)):]...)
}

// IsAutomatic says whether a build of that reason was caused by what many
// Functions are built with, where nobody has edited this one.
func IsAutomatic(reason string) bool {
	switch reason {
	case ReasonRuntimeChanged, ReasonRegistryChanged, ReasonInputsChanged:
		return true
	}
	return false
}
