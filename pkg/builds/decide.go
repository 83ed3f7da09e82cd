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

import "time"

// Known is what is known about the builds of a Function.
type Known struct {
	// ImageTag is the tag of the Function's newest image, or "".
	ImageTag string

	// Last is the build that the Function's status remembers, or nil.
	Last *Build

	// Existing are the builds in the cluster.
	Existing []Build

	// Now is the current time.
	Now time.Time
}

// Action is what to do about the build of a Function.
type Action int

const (
	// Start a build once no other build of the Function exists.
	Start Action = iota
	// Follow the existing build that the Decision names.
	Follow
	// Use the image that the Function has.
	Use
	// Stay failed, because nothing changed since the build failed.
	Stay
	// GiveUp the build, because every attempt was deleted.
	GiveUp
)

// Decision is what to do about the build of a Function, and why.
type Decision struct {
	// Action is what to do.
	Action Action

	// Build is the name of the build to follow.
	Build string

	// Reason is why to start a build or to use the image.
	Reason string

	// Again reports whether the build to start is another attempt at the build that the
	// status remembers.
	Again bool

	// Reuse reports whether the build to start may reuse images in the registry.
	Reuse bool
}

// Decide decides what to do about the build of a Function. Existing builds count for more
// than the status, so a lost or stale status starts no second build.
func Decide(want Request, known Known) Decision {
	s := situation{want: want, known: known, build: choose(want, known)}
	if s.exists = s.build != nil; !s.exists && known.Last.answers(want) {
		s.build = known.Last
	}
	for _, r := range policy {
		if decision, ok := r(s); ok {
			return decision
		}
	}
	return startNew(s)
}

type situation struct {
	want  Request
	known Known

	// build makes the desired image, or is nil. It is in the cluster if exists is true,
	// and only in the Function's status otherwise.
	build  *Build
	exists bool
}

func (s *situation) is(state State) bool { return s.build != nil && s.build.State == state }

type rule func(situation) (Decision, bool)

// policy lists the rules. The first that applies decides; without any, startNew does.
var policy = []rule{
	retryUpdated,
	retryCredentials,
	retryDue,
	followExisting,
	stayFailed,
	giveUp,
	resume,
	useImage,
}

// retryUpdated retries a failed build because the Function was updated since.
func retryUpdated(s situation) (Decision, bool) {
	if !s.is(Failed) || s.build.Generation >= s.want.Generation {
		return Decision{}, false
	}
	return Decision{Action: Start, Reason: retryReason(s.build)}, true
}

// retryCredentials retries a build that the registry refused, because its credentials changed.
func retryCredentials(s situation) (Decision, bool) {
	changed := s.is(Failed) && s.build.Refused && s.build.CredentialsVersion != s.want.CredentialsVersion
	return Decision{Action: Start, Reason: ReasonCredentialsChanged}, changed
}

// retryDue retries a build with a transient failure after a delay.
func retryDue(s situation) (Decision, bool) {
	if !s.is(Failed) {
		return Decision{}, false
	}
	at, ok := s.build.RetryAt()
	return again(s.build), ok && !s.known.Now.Before(at)
}

// followExisting follows the build in the cluster, also when it has ended.
func followExisting(s situation) (Decision, bool) {
	if !s.exists {
		return Decision{}, false
	}
	return Decision{Action: Follow, Build: s.build.Name}, true
}

// stayFailed keeps the failure of a build that was deleted since.
func stayFailed(s situation) (Decision, bool) {
	return Decision{Action: Stay}, s.is(Failed)
}

// giveUp gives up a build that was deleted at every attempt.
func giveUp(s situation) (Decision, bool) {
	return Decision{Action: GiveUp}, s.is(Running) && AttemptInRound(s.build.Attempt) >= MaxAttempts
}

// resume starts a planned build, and one that was deleted while it ran.
func resume(s situation) (Decision, bool) {
	if !s.is(Planned) && !s.is(Running) {
		return Decision{}, false
	}
	return again(s.build), true
}

// useImage uses the Function's image unless a rebuild is due.
func useImage(s situation) (Decision, bool) {
	if s.known.ImageTag != s.want.Tag || s.known.previous().owes(s.want.Rebuild) {
		return Decision{}, false
	}
	return Decision{Action: Use, Reason: useReason(s.want, s.known.Last)}, true
}

// startNew starts the first build of new inputs.
func startNew(s situation) Decision {
	reason := startReason(s.want, s.known.previous())
	return Decision{Action: Start, Reason: reason, Reuse: mayReuse(reason)}
}

// again starts another attempt. An earlier attempt may have pushed its image.
func again(b *Build) Decision {
	return Decision{Action: Start, Reason: b.Reason, Again: true, Reuse: mayReuse(b.Reason)}
}

// choose returns the existing build of the desired image, or nil. It prefers the build that
// the status remembers, then the build that has got furthest.
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
		if chosen == nil || b.precedes(chosen) {
			chosen = b
		}
	}
	return chosen
}

// previous returns the build that the status remembers, in its current state if it exists.
// Without such a build it returns the existing build that has got furthest, or nil.
func (k *Known) previous() *Build {
	previous := k.Last
	for i := range k.Existing {
		b := &k.Existing[i]
		if k.Last == nil && (previous == nil || b.precedes(previous)) || k.Last != nil && b.Name == k.Last.Name {
			previous = b
		}
	}
	return previous
}

// IsSettled reports whether the remembered build makes the desired image, has ended and
// is not retried. A new commit of a followed branch must not replace it before.
func (k *Known) IsSettled(want Request) bool {
	if !k.Last.answers(want) || !k.Last.State.Ended() {
		return false
	}
	_, again := k.Last.RetryAt()
	return !again
}
