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

// Package builds decides about builds: which image a Function needs, whether that needs
// a build and why, and why a build failed. It reads no cluster and knows no builder.
package builds

import "time"

const (
	// MaxAttempts bounds the starts of a build whose failures are transient. With the
	// delays below they take about 10 minutes.
	MaxAttempts = 7

	// firstDelay is the delay before the second attempt. Each further delay is twice as
	// long, up to maxDelay.
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute
)

// State is how far a build is.
type State int

const (
	// Planned builds wait for their turn, or for the deletion of earlier builds.
	Planned State = iota
	// Running builds have started and have not ended.
	Running
	// Succeeded builds have pushed their image.
	Succeeded
	// Failed builds have ended without an image.
	Failed
)

// Ended reports whether the build has succeeded or failed.
func (s State) Ended() bool {
	return s == Succeeded || s == Failed
}

// Request is the image that a Function needs.
type Request struct {
	// Tag is the tag of the image.
	Tag string

	// Fingerprint holds a digest of each kind of input.
	Fingerprint string

	// Rebuild is the value of the rebuild annotation. Each new value other than ""
	// requests one build of unchanged inputs.
	Rebuild string

	// Commit is the newest known commit of a followed branch, or "" for any commit. Each
	// new commit requests one build.
	Commit string

	// Generation is the generation of the Function.
	Generation int64

	// CredentialsVersion identifies the registry credentials, or is "" without any. A new
	// version by itself requests no build.
	CredentialsVersion string
}

// Build is a build that exists, or that the Function's status remembers.
type Build struct {
	// Name is unique among the builds of the Function. It is "" for a Planned build.
	Name string

	// Request is the image that the build was started for. Its Generation is the newest
	// generation of the Function that the build serves.
	Request

	// Fetched is the commit that the build fetched, or "" if that is unknown.
	Fetched string

	// Reason is why the build was started.
	Reason string

	// Attempt counts the starts of this build, from 1. A Planned build counts only its
	// earlier starts.
	Attempt int32

	// State is how far the build is.
	State State

	// Unfinished reports whether the object of a Failed build could still run. Kiln deletes
	// it once the status reports the failure.
	Unfinished bool

	// Deleting reports whether the build is being deleted.
	Deleting bool

	// Refused reports whether the registry refused the build's credentials.
	Refused bool

	// Transient reports whether a later attempt at a Failed build may succeed.
	Transient bool

	// Ended is when the build ended. It is zero until then.
	Ended time.Time
}

// RetryAt returns the time of the next attempt at a Failed build. ok is false if there is
// none unless something changes.
func (b *Build) RetryAt() (at time.Time, ok bool) {
	attempt := AttemptInRound(b.Attempt)
	if b.State != Failed || !b.Transient || attempt >= MaxAttempts {
		return time.Time{}, false
	}
	delay := firstDelay
	for range attempt - 1 {
		delay = min(2*delay, maxDelay)
	}
	return b.Ended.Add(delay), true
}

// AttemptInRound returns the number of an attempt among those at one build: from 1 to
// MaxAttempts. Each rebuild of a lost image starts another round.
func AttemptInRound(attempt int32) int32 {
	return max(attempt-1, 0)%MaxAttempts + 1
}

// NextRound returns the first attempt of the round after that of an attempt. A rebuild of
// a lost image needs a number that no earlier build of the same inputs has.
func NextRound(attempt int32) int32 {
	return (max(attempt-1, 0)/MaxAttempts+1)*MaxAttempts + 1
}

func (b *Build) answers(want Request) bool {
	return b != nil && b.Tag == want.Tag && b.hasAnswered(want.Rebuild) && b.isOf(want.Commit)
}

func (b *Build) isOf(commit string) bool {
	return commit == "" || b.Commit == commit || b.Fetched == commit
}

func (b *Build) hasAnswered(rebuild string) bool {
	return rebuild == "" || b != nil && b.Rebuild == rebuild
}

// owes reports whether the rebuild is still due after b: b was not started for it, or has
// not succeeded.
func (b *Build) owes(rebuild string) bool {
	return !b.hasAnswered(rebuild) ||
		rebuild != "" && b.Reason == ReasonRebuildRequested && b.State != Succeeded
}

// supersedes reports whether b replaces the other build, which has ended. A stale cache
// may show the other build and not b.
func (b *Build) supersedes(other *Build) bool {
	if b == nil || b.Tag != other.Tag || !other.State.Ended() {
		return false
	}
	if b.State == Planned {
		return other.Generation < b.Generation || other.Attempt <= b.Attempt
	}
	if other.State != Failed || b.Name == other.Name || other.Generation > b.Generation {
		return false
	}
	return other.Attempt < b.Attempt || b.Reason == ReasonImageReused && b.hasAnswered(other.Rebuild)
}

func (b *Build) precedes(other *Build) bool {
	rank := [...]int{Failed: 0, Planned: 1, Running: 2, Succeeded: 3}
	if rank[b.State] != rank[other.State] {
		return rank[b.State] > rank[other.State]
	}
	if b.Generation != other.Generation {
		return b.Generation > other.Generation
	}
	return b.Name < other.Name
}
