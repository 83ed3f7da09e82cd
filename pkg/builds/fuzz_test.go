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
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// FuzzDescribe checks that any output of a build becomes a valid status: bounded, UTF-8,
// without secrets and with a reason.
func FuzzDescribe(f *testing.F) {
	f.Add(uint8(StepFailed), false, "npm error code ETARGET\nnpm error notarget No matching version found for ms@99.99.99.", "", "hunter2")
	f.Add(uint8(StepFailed), true, "\x1b[31mdenied\x1b[0m: token hun\x1b[1mter2 refused", "exit code 1", "hunter2")
	f.Add(uint8(StepFailed), false, "hun\xffter2", "hun\xffter2", "hunter2")
	f.Add(uint8(TimedOut), false, "", "0/1 nodes are available", "node")
	f.Add(uint8(Evicted), true, strings.Repeat("é", maxLog), strings.Repeat("é", maxMessage), "éé")
	f.Fuzz(func(t *testing.T, cause uint8, pushing bool, log, message, secret string) {
		failure := Failure{Cause: Cause(cause), Pushing: pushing, Log: log, Message: message, Secrets: []string{secret}}
		for _, language := range runtimes.Languages() {
			runtime, _ := runtimes.For(language)
			got := failure.Describe(generic, runtime.ExplainBuildFailure)
			if got.Reason == "" {
				t.Errorf("%s: no reason", language)
			}
			checkText(t, language+": message", got.Message, maxMessage, secret)
			checkText(t, language+": log", got.Log, maxLog, secret)
		}
		checkText(t, "Excerpt", Excerpt(log, secret), maxLog, secret)
	})
}

// checkText checks that a text may be in a status.
func checkText(t *testing.T, what, text string, most int, secret string) {
	t.Helper()
	// Shorter secrets may stay, and advice is not the output of a build.
	const leastSecret = 12
	switch {
	case len(text) > most:
		t.Errorf("%s has %d bytes, want at most %d", what, len(text), most)
	case !utf8.ValidString(text):
		t.Errorf("%s is not UTF-8: %q", what, text)
	case len(secret) >= leastSecret && strings.Contains(text, secret) && !strings.Contains(strings.Join(ownWords, "\n"), secret):
		t.Errorf("%s has the secret: %q", what, text)
	}
}

// ownWords are the advice of all rules.
var ownWords = func() (words []string) {
	for _, rule := range failureRules {
		words = append(words, Failure{}.placeDependencies(rule.verdict.advice))
	}
	return words
}()

// dice makes small values from the bytes of a fuzzer.
type dice []byte

// roll returns a number from 0 up to n-1.
func (d *dice) roll(n int) int {
	if len(*d) == 0 {
		return 0
	}
	face := int((*d)[0])
	*d = (*d)[1:]
	return face % n
}

func (d *dice) request() Request {
	names := []string{"", "1", "2"}
	return Request{
		Tag: "tag-" + names[1+d.roll(2)], Fingerprint: "source=" + names[d.roll(3)],
		Rebuild: names[d.roll(3)], Generation: int64(1 + d.roll(3)), CredentialsVersion: names[d.roll(2)],
	}
}

func (d *dice) build(name string) Build {
	reasons := []string{ReasonFirstBuild, ReasonSourceChanged, ReasonRebuildRequested, ReasonPreviousBuildFailed, ReasonCredentialsChanged}
	return Build{
		Name: name, Request: d.request(), Reason: reasons[d.roll(len(reasons))], Attempt: int32(1 + d.roll(MaxAttempts+1)), State: State(d.roll(4)),
		Deleting: d.roll(2) == 1, Refused: d.roll(2) == 1, Transient: d.roll(2) == 1, Ended: time.Unix(int64(60*d.roll(10)), 0),
	}
}

// FuzzDecide checks invariants of decisions: the order of a list does not matter, the
// desired build is neither started twice nor deleted, and each decision is feasible.
func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("a Function with a build that runs, and one that has ended"))
	f.Add(slices.Repeat([]byte{1, 2, 3, 5, 7}, 20))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := dice(data)
		want := d.request()
		known := Known{Now: time.Unix(int64(60*d.roll(20)), 0)}
		known.ImageTag = []string{"", "tag-1", "tag-2"}[d.roll(3)]
		for i := range d.roll(4) {
			known.Existing = append(known.Existing, d.build(fmt.Sprintf("build-%d", i)))
		}
		if d.roll(2) == 1 {
			last := d.build([]string{"", "build-0", "build-9"}[d.roll(3)])
			known.Last = &last
		}
		decision := Decide(want, known)
		checkDecision(t, want, known, decision)

		slices.Reverse(known.Existing)
		if diff := cmp.Diff(decision, Decide(want, known)); diff != "" {
			t.Errorf("it depends on the order (-want, +got):\n%s\nof %+v, last %+v", diff, known.Existing, known.Last)
		}
	})
}

func checkDecision(t *testing.T, want Request, known Known, decision Decision) {
	t.Helper()
	obsolete := Obsolete(want, known.Existing, decision, 1)
	for _, b := range known.Existing {
		followed := decision.Action == Follow && b.Name == decision.Build
		if followed && slices.ContainsFunc(obsolete, func(o Build) bool { return o.Name == b.Name }) {
			t.Errorf("it follows build %+v, and deletes it", b)
		}
		runs := b.State == Running && !b.Deleting && b.answers(want) && !known.Last.supersedes(&b)
		if runs && decision.Action != Follow && !slices.ContainsFunc(known.Existing, func(o Build) bool { return o.Name != b.Name && o.answers(want) }) {
			t.Errorf("build %+v runs, and it decides %+v", b, decision)
		}
	}
	switch decision.Action {
	case Follow:
		i := slices.IndexFunc(known.Existing, func(b Build) bool { return b.Name == decision.Build })
		if i < 0 || !known.Existing[i].answers(want) {
			t.Errorf("it follows %q, which is no desired build of %+v", decision.Build, known.Existing)
		}
	case Use:
		if known.ImageTag != want.Tag {
			t.Errorf("it uses image %q, want %q", known.ImageTag, want.Tag)
		}
	case Stay, GiveUp:
		if known.Last == nil || known.Last.Tag != want.Tag {
			t.Errorf("it gives up what was never tried: last %+v, want %+v", known.Last, want)
		}
	case Start:
		checkStart(t, want, known, decision)
	}
}

// checkStart checks that a started build is followed.
func checkStart(t *testing.T, want Request, known Known, decision Decision) {
	t.Helper()
	if decision.Reason == "" {
		t.Errorf("a build starts for no reason: %+v", decision)
	}
	started := Build{Name: "started", Request: want, Reason: decision.Reason, Attempt: 1, State: Running}
	if known.Last != nil && (decision.Again || decision.Reason == ReasonCredentialsChanged) {
		started.Attempt = known.Last.Attempt + 1
	}
	// A build starts only when no other exists.
	after := Decide(want, Known{ImageTag: known.ImageTag, Last: &started, Existing: []Build{started}, Now: known.Now})
	if after.Action != Follow || after.Build != started.Name {
		t.Errorf("it has started %+v, and then decides %+v", started, after)
	}
}
