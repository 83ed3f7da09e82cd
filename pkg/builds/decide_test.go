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
	"strings"
	"testing"
	"time"
)

const (
	tagA = "tag-a"
	tagB = "tag-b"

	inputsA = "source=a,deps=1,runtime=1,registry=1"
	inputsB = "source=b,deps=1,runtime=1,registry=1"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// want returns a request for A in generation 1, with changes.
func want(changes ...func(*Request)) Request {
	r := Request{Tag: tagA, Fingerprint: inputsA, Generation: 1}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func b(r *Request)  { r.Tag, r.Fingerprint = tagB, inputsB }
func x(r *Request)  { r.Rebuild = "x" }
func y(r *Request)  { r.Rebuild = "y" }
func g2(r *Request) { r.Generation = 2 }

// lost removes the fingerprint, which an early version of Kiln did not store.
func lost(r *Request) { r.Fingerprint = "" }

func build(name string, state State, request Request) Build {
	return Build{Name: name, State: state, Request: request, Reason: ReasonFirstBuild}
}

// requested sets the reason of a rebuild.
func requested(b Build) Build {
	b.Reason = ReasonRebuildRequested
	return b
}

// credentials sets the version of the registry's credentials.
func credentials(version string) func(*Request) {
	return func(r *Request) { r.CredentialsVersion = version }
}

// commit sets the newest commit of the branch.
func commit(hash string) func(*Request) {
	return func(r *Request) { r.Commit = hash }
}

// of returns a build that was started for one commit and fetched another.
func of(name string, state State, asked, fetched string) Build {
	b := build(name, state, want(commit(asked)))
	b.Fetched = fetched
	return b
}

func TestDecide(t *testing.T) {
	refused := build("a", Failed, want(credentials("1")))
	refused.Refused, refused.Attempt = true, 1
	retry := build("", Planned, want(credentials("2")))
	retry.Reason, retry.Attempt = ReasonCredentialsChanged, 1
	retried := build("b", Failed, want(credentials("2")))
	retried.Attempt = 2
	retrying := build("b", Running, want(credentials("2")))
	retrying.Attempt = 2
	edited := build("", Planned, want(g2))
	edited.Reason = ReasonPreviousBuildFailed
	failed := build("a", Failed, want())
	failed.Attempt = 1
	reused := build("", Succeeded, want())
	reused.Reason = ReasonImageReused
	done := build("b", Succeeded, want(g2))
	done.Attempt = 1
	start := func(reason string) Decision { return Decision{Action: Start, Reason: reason} }
	// unlessThere starts a build if the registry lacks the image.
	unlessThere := func(reason string) Decision { return Decision{Action: Start, Reason: reason, Reuse: true} }
	follow := func(name string) Decision { return Decision{Action: Follow, Build: name} }
	use := Decision{Action: Use, Reason: ReasonFirstBuild}
	again := func(d Decision) Decision {
		d.Again = true
		return d
	}
	// transient returns the n-th attempt, which failed at noon.
	transient := func(n int32, request Request) Build {
		b := build("a", Failed, request)
		b.Attempt, b.Transient, b.Ended = n, true, noon
		return b
	}
	deleted := func(n int32) *Build {
		b := build("a", Running, want())
		b.Attempt = n
		return &b
	}
	// rebuilt returns the next build, in that state, after the registry has lost the image of
	// the first one.
	rebuilt := func(name string, state State) Build {
		b := build(name, state, want())
		b.Reason, b.Attempt = ReasonImageLost, NextRound(1)
		return b
	}
	lostBuild := build("a", Succeeded, want())
	lostBuild.Attempt = 1
	failedRebuild := rebuilt("b", Failed)
	failedRebuild.Transient, failedRebuild.Ended = true, noon
	replanned := build("", Planned, want())
	replanned.Attempt = 1

	tests := map[string]struct {
		want     Request
		known    Known
		decision Decision
	}{
		"the image is lost: it is built again, although its build is still there": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: new(rebuilt("", Planned)), Existing: []Build{lostBuild}},
			decision: again(unlessThere(ReasonImageLost)),
		},
		"the image is lost, and its build is gone": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: new(rebuilt("", Planned))},
			decision: again(unlessThere(ReasonImageLost)),
		},
		"the image is lost, and the next build runs": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: new(rebuilt("b", Running)), Existing: []Build{lostBuild, rebuilt("b", Running)}},
			decision: follow("b"),
		},
		"the image is lost, and the next build has failed for a while": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: &failedRebuild, Existing: []Build{lostBuild, failedRebuild}, Now: noon.Add(time.Hour)},
			decision: again(unlessThere(ReasonImageLost)),
		},
		"the lost image is built again, and both builds are gone": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: new(rebuilt("b", Succeeded))},
			decision: Decision{Action: Use, Reason: ReasonImageLost},
		},
		"the build of a new commit is planned": {
			want:     want(commit("c2")),
			known:    Known{ImageTag: tagA, Last: new(of("", Planned, "c2", "")), Existing: []Build{of("a", Succeeded, "", "c1")}},
			decision: again(unlessThere(ReasonFirstBuild)),
		},
		"the build of a new commit runs": {
			want:     want(commit("c2")),
			known:    Known{ImageTag: tagA, Last: new(of("", Planned, "c2", "")), Existing: []Build{of("a", Succeeded, "", "c1"), of("b", Running, "c2", "")}},
			decision: follow("b"),
		},
		"the build of a commit has fetched a newer one": {
			want:     want(commit("c3")),
			known:    Known{ImageTag: tagA, Last: new(of("b", Succeeded, "c2", "c3")), Existing: []Build{of("b", Succeeded, "c2", "c3")}},
			decision: follow("b"),
		},
		"the build of a commit is done, and the build is gone": {
			want:     want(commit("c2")),
			known:    Known{ImageTag: tagA, Last: new(of("b", Succeeded, "c2", ""))},
			decision: use,
		},
		"the build of a commit has failed": {
			want:     want(commit("c2")),
			known:    Known{ImageTag: tagA, Last: new(of("b", Failed, "c2", "c2"))},
			decision: Decision{Action: Stay},
		},
		"any commit will do": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: new(of("b", Succeeded, "c2", "c2")), Existing: []Build{of("b", Succeeded, "c2", "c2")}},
			decision: follow("b"),
		},
		"the cache shows a failed attempt and not yet the next one": {
			want:     want(credentials("2")),
			known:    Known{Last: &retrying, Existing: []Build{refused}},
			decision: again(unlessThere(ReasonFirstBuild)),
		},
		"the next attempt has failed too, and only the status shows it": {
			want:     want(credentials("2")),
			known:    Known{Last: new(retried), Existing: []Build{refused}},
			decision: Decision{Action: Stay},
		},
		"refused, and the credentials have changed": {
			want:     want(credentials("2")),
			known:    Known{Last: new(refused), Existing: []Build{refused}},
			decision: start(ReasonCredentialsChanged),
		},
		"refused, and the credentials were removed": {
			want:     want(),
			known:    Known{Last: new(refused), Existing: []Build{refused}},
			decision: start(ReasonCredentialsChanged),
		},
		"refused, and the credentials have not changed": {
			want:     want(credentials("1")),
			known:    Known{Last: new(refused), Existing: []Build{refused}},
			decision: follow("a"),
		},
		"failed for another reason, and the credentials have changed": {
			want:     want(credentials("2")),
			known:    Known{Existing: []Build{build("a", Failed, want(credentials("1")))}},
			decision: follow("a"),
		},
		"succeeded, and the credentials have changed": {
			want:     want(credentials("2")),
			known:    Known{Existing: []Build{build("a", Succeeded, want(credentials("1")))}},
			decision: follow("a"),
		},
		"running, and the credentials have changed": {
			want:     want(credentials("2")),
			known:    Known{Existing: []Build{build("a", Running, want(credentials("1")))}},
			decision: follow("a"),
		},
		"refused, the credentials have changed, and the build is gone": {
			want:     want(credentials("2")),
			known:    Known{Last: new(refused)},
			decision: start(ReasonCredentialsChanged),
		},
		"refused, the credentials have not changed, and the build is gone": {
			want:     want(credentials("1")),
			known:    Known{Last: new(refused)},
			decision: Decision{Action: Stay},
		},
		"planned with other credentials, and the refused build is not gone": {
			want:     want(credentials("2")),
			known:    Known{Last: new(retry), Existing: []Build{refused}},
			decision: again(unlessThere(ReasonCredentialsChanged)),
		},
		"planned with other credentials, and has ended since": {
			want:     want(credentials("2")),
			known:    Known{Last: new(retry), Existing: []Build{retried}},
			decision: follow("b"),
		},
		"planned for an edit, and the failed build is not gone": {
			want:     want(g2),
			known:    Known{Last: new(edited), Existing: []Build{failed}},
			decision: again(start(ReasonPreviousBuildFailed)),
		},
		"planned for an edit, and has ended since": {
			want:     want(g2),
			known:    Known{Last: new(edited), Existing: []Build{failed, done}},
			decision: follow("b"),
		},
		"planned, and runs already": {
			want:     want(credentials("2")),
			known:    Known{Last: new(retry), Existing: []Build{build("b", Running, want())}},
			decision: follow("b"),
		},
		"nothing is known": {
			want: want(), decision: unlessThere(ReasonFirstBuild),
		},
		"the build runs": {
			want:     want(),
			known:    Known{Existing: []Build{build("a", Running, want())}},
			decision: follow("a"),
		},
		"the build runs, and the status remembers another": {
			want:     want(),
			known:    Known{Last: new(build("b", Running, want(b))), Existing: []Build{build("a", Running, want())}},
			decision: follow("a"),
		},
		"the build has succeeded": {
			want:     want(),
			known:    Known{Last: new(build("a", Running, want())), Existing: []Build{build("a", Succeeded, want())}},
			decision: follow("a"),
		},
		"the build has succeeded and is gone": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: new(build("a", Succeeded, want()))},
			decision: use,
		},
		"the status has lost the build, but not the image": {
			want:     want(),
			known:    Known{ImageTag: tagA},
			decision: Decision{Action: Use, Reason: ReasonImageReused},
		},
		"the build has succeeded and is gone, another field was edited": {
			want:     want(g2),
			known:    Known{ImageTag: tagA, Last: new(build("a", Succeeded, want()))},
			decision: use,
		},
		"the build has succeeded and is being deleted": {
			want:     want(),
			known:    Known{Last: new(build("a", Running, want())), Existing: []Build{{Name: "a", State: Succeeded, Request: want(), Deleting: true}}},
			decision: follow("a"),
		},
		"the build has succeeded and is gone, with its image forgotten": {
			want:     want(),
			known:    Known{Last: new(build("a", Succeeded, want()))},
			decision: unlessThere(ReasonInputsChanged),
		},
		"the build was deleted while it ran": {
			want:     want(),
			known:    Known{Last: new(build("a", Running, want()))},
			decision: again(unlessThere(ReasonFirstBuild)),
		},
		"the build was deleted while it ran, before its last attempt": {
			want:     want(),
			known:    Known{Last: deleted(MaxAttempts - 1)},
			decision: again(unlessThere(ReasonFirstBuild)),
		},
		"the build was deleted at each attempt": {
			want:     want(),
			known:    Known{Last: deleted(MaxAttempts)},
			decision: Decision{Action: GiveUp},
		},
		"the build was deleted at each attempt, the Function was updated": {
			want:     want(b, g2),
			known:    Known{Last: deleted(MaxAttempts)},
			decision: unlessThere(ReasonSourceChanged),
		},
		"the build is being deleted while it runs": {
			want:     want(),
			known:    Known{Last: new(build("a", Running, want())), Existing: []Build{{Name: "a", State: Running, Request: want(), Deleting: true}}},
			decision: again(unlessThere(ReasonFirstBuild)),
		},
		"the build is planned": {
			want:     want(b),
			known:    Known{ImageTag: tagA, Last: new(Build{State: Planned, Request: want(b), Reason: ReasonSourceChanged}), Existing: []Build{build("a", Succeeded, want())}},
			decision: again(unlessThere(ReasonSourceChanged)),
		},
		"transient failure: wait": {
			want:     want(),
			known:    Known{Last: new(transient(1, want())), Existing: []Build{transient(1, want())}, Now: noon.Add(9 * time.Second)},
			decision: follow("a"),
		},
		"transient failure: try again": {
			want:     want(),
			known:    Known{Last: new(transient(1, want())), Existing: []Build{transient(1, want())}, Now: noon.Add(10 * time.Second)},
			decision: again(unlessThere(ReasonFirstBuild)),
		},
		"transient failure, the build is gone: wait": {
			want:     want(),
			known:    Known{Last: new(transient(2, want())), Now: noon.Add(19 * time.Second)},
			decision: Decision{Action: Stay},
		},
		"transient failure, the build is gone: try again": {
			want:     want(),
			known:    Known{Last: new(transient(2, want())), Now: noon.Add(20 * time.Second)},
			decision: again(unlessThere(ReasonFirstBuild)),
		},
		"transient failure of a rebuild": {
			want:     want(x),
			known:    Known{ImageTag: tagA, Last: new(requested(transient(1, want(x)))), Now: noon.Add(time.Hour)},
			decision: again(start(ReasonRebuildRequested)),
		},
		"transient failure, all attempts used": {
			want:     want(),
			known:    Known{Last: new(transient(MaxAttempts, want())), Existing: []Build{transient(MaxAttempts, want())}, Now: noon.Add(time.Hour)},
			decision: follow("a"),
		},
		"transient failure, the build is gone, all attempts used": {
			want:     want(),
			known:    Known{Last: new(transient(MaxAttempts, want())), Now: noon.Add(time.Hour)},
			decision: Decision{Action: Stay},
		},
		"transient failure, the Function was updated": {
			want:     want(g2),
			known:    Known{Last: new(transient(3, want())), Existing: []Build{transient(3, want())}, Now: noon},
			decision: start(ReasonPreviousBuildFailed),
		},
		"transient failure, the source was edited": {
			want:     want(b, g2),
			known:    Known{Last: new(transient(3, want())), Existing: []Build{transient(3, want())}, Now: noon},
			decision: unlessThere(ReasonSourceChanged),
		},
		"a retry is planned, and the failed build is not gone": {
			want:     want(),
			known:    Known{Last: new(replanned), Existing: []Build{transient(1, want())}, Now: noon},
			decision: again(unlessThere(ReasonFirstBuild)),
		},
		"a retry is planned, and runs already": {
			want:     want(),
			known:    Known{Last: new(replanned), Existing: []Build{build("b", Running, want())}, Now: noon},
			decision: follow("b"),
		},
		"the build has failed": {
			want:     want(),
			known:    Known{Last: new(build("a", Failed, want())), Existing: []Build{build("a", Failed, want())}},
			decision: follow("a"),
		},
		"the build has failed and is gone": {
			want:     want(),
			known:    Known{Last: new(build("a", Failed, want()))},
			decision: Decision{Action: Stay},
		},
		"the build has failed, the Function was updated": {
			want:     want(g2),
			known:    Known{Last: new(build("a", Failed, want())), Existing: []Build{build("a", Failed, want())}},
			decision: start(ReasonPreviousBuildFailed),
		},
		"the build has failed and is gone, the Function was updated": {
			want:     want(g2),
			known:    Known{Last: new(build("a", Failed, want()))},
			decision: start(ReasonPreviousBuildFailed),
		},
		"the build failed after the Function was updated": {
			want:     want(g2),
			known:    Known{Last: new(build("a", Failed, want(g2))), Existing: []Build{build("a", Failed, want(g2))}},
			decision: follow("a"),
		},
		"the source was edited": {
			want:     want(b, g2),
			known:    Known{ImageTag: tagA, Last: new(build("a", Succeeded, want())), Existing: []Build{build("a", Succeeded, want())}},
			decision: unlessThere(ReasonSourceChanged),
		},
		"the source was edited, and the old fingerprint is unknown": {
			want:     want(b, g2),
			known:    Known{ImageTag: tagA, Last: new(build("a", Succeeded, want(lost)))},
			decision: unlessThere(ReasonInputsChanged),
		},
		"the source was edited, and the build is gone": {
			want:     want(b, g2),
			known:    Known{ImageTag: tagA, Last: new(build("a", Succeeded, want()))},
			decision: unlessThere(ReasonSourceChanged),
		},
		"the source was edited, the status is lost": {
			want:     want(b, g2),
			known:    Known{Existing: []Build{build("a", Succeeded, want())}},
			decision: unlessThere(ReasonSourceChanged),
		},
		"the source was edited back while the build ran": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: new(build("b", Running, want(b))), Existing: []Build{build("b", Running, want(b))}},
			decision: Decision{Action: Use, Reason: ReasonImageReused},
		},
		"the source was edited back after the build failed": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: new(build("b", Failed, want(b))), Existing: []Build{build("b", Failed, want(b))}},
			decision: Decision{Action: Use, Reason: ReasonImageReused},
		},
		"a reused image stays one": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: &Build{State: Succeeded, Request: want(), Reason: ReasonImageReused}},
			decision: Decision{Action: Use, Reason: ReasonImageReused},
		},
		"a rebuild is requested": {
			want:     want(x),
			known:    Known{ImageTag: tagA, Last: new(build("a", Succeeded, want())), Existing: []Build{build("a", Succeeded, want())}},
			decision: start(ReasonRebuildRequested),
		},
		"a rebuild is requested once more": {
			want:     want(y),
			known:    Known{ImageTag: tagA, Last: new(build("a", Succeeded, want(x)))},
			decision: start(ReasonRebuildRequested),
		},
		"a rebuild is requested while the first runs": {
			want:     want(x),
			known:    Known{Last: new(build("a", Running, want())), Existing: []Build{build("a", Running, want())}},
			decision: start(ReasonRebuildRequested),
		},
		"a rebuild has succeeded": {
			want:     want(x),
			known:    Known{ImageTag: tagA, Last: new(build("a", Succeeded, want(x)))},
			decision: use,
		},
		"a rebuild has failed: the earlier image does not count": {
			want:     want(x),
			known:    Known{ImageTag: tagA, Last: new(build("a", Failed, want(x)))},
			decision: Decision{Action: Stay},
		},
		"a rebuild was deleted while it ran": {
			want:     want(x),
			known:    Known{ImageTag: tagA, Last: new(build("a", Running, want(x)))},
			decision: again(unlessThere(ReasonFirstBuild)),
		},
		"the annotation is removed after its build": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: new(build("a", Succeeded, want(x)))},
			decision: use,
		},
		"the annotation is removed while its build runs": {
			want:     want(),
			known:    Known{Last: new(build("a", Running, want(x))), Existing: []Build{build("a", Running, want(x))}},
			decision: follow("a"),
		},
		"the source was edited, with the annotation still there": {
			want:     want(b, x, g2),
			known:    Known{ImageTag: tagA, Last: new(build("a", Succeeded, want(x))), Existing: []Build{build("a", Succeeded, want(x))}},
			decision: unlessThere(ReasonSourceChanged),
		},
		"a rebuild is requested together with an edit": {
			want:     want(b, x, g2),
			known:    Known{ImageTag: tagA, Last: new(build("a", Succeeded, want())), Existing: []Build{build("a", Succeeded, want())}},
			decision: start(ReasonRebuildRequested),
		},
		"a rebuild is requested of a new Function": {
			want:     want(x),
			decision: start(ReasonRebuildRequested),
		},
		"a rebuild is requested, and the source is edited before it ends": {
			want:     want(b, x, g2),
			known:    Known{ImageTag: tagA, Last: new(requested(build("a", Running, want(x)))), Existing: []Build{requested(build("a", Running, want(x)))}},
			decision: start(ReasonRebuildRequested),
		},
		"a rebuild is requested, and the source is edited before the status shows its end": {
			want:     want(b, x, g2),
			known:    Known{ImageTag: tagA, Last: new(requested(build("a", Running, want(x)))), Existing: []Build{requested(build("a", Succeeded, want(x)))}},
			decision: unlessThere(ReasonSourceChanged),
		},
		"a rebuild is requested with an edit that is undone before it ends": {
			want:     want(x),
			known:    Known{ImageTag: tagA, Last: new(requested(build("b", Running, want(b, x)))), Existing: []Build{requested(build("b", Running, want(b, x)))}},
			decision: start(ReasonRebuildRequested),
		},
		"a rebuild has failed, the Function was updated": {
			want:     want(x, g2),
			known:    Known{ImageTag: tagA, Last: new(requested(build("a", Failed, want(x)))), Existing: []Build{requested(build("a", Failed, want(x)))}},
			decision: start(ReasonRebuildRequested),
		},
		"a rebuild has failed and is gone, the source was edited": {
			want:     want(b, x, g2),
			known:    Known{ImageTag: tagA, Last: new(requested(build("a", Failed, want(x))))},
			decision: start(ReasonRebuildRequested),
		},
		"a requested rebuild was deleted while it ran": {
			want:     want(x),
			known:    Known{ImageTag: tagA, Last: new(requested(build("a", Running, want(x))))},
			decision: again(start(ReasonRebuildRequested)),
		},
		"a second attempt was deleted while it ran": {
			want:     want(),
			known:    Known{Last: &Build{Name: "a", State: Running, Request: want(), Reason: ReasonPreviousBuildFailed}},
			decision: again(start(ReasonPreviousBuildFailed)),
		},
		"a failed build outlives the reuse of an image: the image counts": {
			want:     want(),
			known:    Known{ImageTag: tagA, Last: &reused, Existing: []Build{failed}},
			decision: Decision{Action: Use, Reason: ReasonImageReused},
		},
		"a rebuild fails after the reuse of an image: the rebuild counts": {
			want:     want(x),
			known:    Known{ImageTag: tagA, Last: &reused, Existing: []Build{build("a", Failed, want(x))}},
			decision: follow("a"),
		},
		"two builds answer: the one that the status remembers counts": {
			want:     want(),
			known:    Known{Last: new(build("a2", Running, want())), Existing: []Build{build("a1", Succeeded, want()), build("a2", Running, want())}},
			decision: follow("a2"),
		},
		"two builds answer: the furthest counts": {
			want:     want(),
			known:    Known{Existing: []Build{build("a1", Running, want()), build("a2", Succeeded, want()), build("a3", Failed, want())}},
			decision: follow("a2"),
		},
		"two builds answer: the newer counts": {
			want:     want(g2),
			known:    Known{Existing: []Build{build("a1", Running, want()), build("a2", Running, want(g2)), build("a0", Running, want())}},
			decision: follow("a2"),
		},
		"two builds answer: the choice is the same every time": {
			want:     want(),
			known:    Known{Existing: []Build{build("a2", Running, want()), build("a1", Running, want())}},
			decision: follow("a1"),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Decide(tc.want, tc.known); got != tc.decision {
				t.Errorf("Decide() = %+v, want %+v", got, tc.decision)
			}
		})
	}
}

// A new commit must not replace a build that runs or is retried.
func TestIsSettled(t *testing.T) {
	transient := build("a", Failed, want())
	transient.Attempt, transient.Transient, transient.Ended = 1, true, noon
	exhausted := transient
	exhausted.Attempt = MaxAttempts
	for name, tc := range map[string]struct {
		last *Build
		want bool
	}{
		"no build":                  {nil, false},
		"planned":                   {new(build("", Planned, want())), false},
		"runs":                      {new(build("a", Running, want())), false},
		"succeeded":                 {new(build("a", Succeeded, want())), true},
		"failed":                    {new(build("a", Failed, want())), true},
		"failed, and tried again":   {&transient, false},
		"failed, and given up":      {&exhausted, true},
		"of other inputs":           {new(build("a", Succeeded, want(b))), false},
		"a rebuild is asked for":    {new(build("a", Succeeded, want())), false},
		"the rebuild was asked for": {new(build("a", Succeeded, want(x))), true},
	} {
		request := want()
		if strings.Contains(name, "rebuild") {
			request = want(x)
		}
		if got := (&Known{Last: tc.last}).IsSettled(request); got != tc.want {
			t.Errorf("%s: IsSettled() = %t, want %t", name, got, tc.want)
		}
	}
}
