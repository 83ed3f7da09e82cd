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
	"cmp"
	"errors"
	"regexp"
	"strings"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// ErrBehind is the error of a builder whose cache does not show yet how a build ended. The
// build may have succeeded.
var ErrBehind = errors.New("the cache does not show yet how the build ended")

// Cause is what ended a failed build, as far as its builder reports that.
type Cause int

const (
	// Other causes are known by their message only.
	Other Cause = iota
	// StepFailed means that a step of the build failed. Its log says why.
	StepFailed
	// TimedOut means that the build took too long.
	TimedOut
	// OutOfMemory means that a step exceeded its memory limit.
	OutOfMemory
	// Cancelled means that somebody cancelled the build.
	Cancelled
	// ImagePull means that the image of a step could not be pulled.
	ImagePull
	// Evicted means that the build's pod was evicted from its node.
	Evicted
	// Deleted means that the build's pod was deleted, or that its node was lost.
	Deleted
	// NotRun means that the builder failed, and not the build.
	NotRun
)

// Failure is what a builder knows about a failed build.
type Failure struct {
	// Cause is what ended the build.
	Cause Cause

	// Pushing reports whether the push step failed. It runs no code of the Function.
	Pushing bool

	// Fetching is the exit code of the fetch step if that failed, and 0 otherwise.
	Fetching int32

	// Unscheduled reports whether no step started because no node accepted the pod.
	Unscheduled bool

	// OwnDockerfile reports whether the author's own Dockerfile defines the build.
	OwnDockerfile bool

	// Message is the builder's message.
	Message string

	// Log is the end of the log of the failed step, or "".
	Log string

	// DependencyFile names the file of a fetched source that lists the dependencies. It
	// is "" if the Function lists them.
	DependencyFile string

	// Secrets are values to redact.
	Secrets []string
}

// Describe returns why the build failed and what to do about it, without secrets. generic
// is the default reason. explain extracts the package manager's error from a log.
func (f Failure) Describe(generic string, explain func(log string) string) *v1alpha1.BuildFailure {
	e := f.evidence(explain)
	matched := e.match()
	why := matched.verdict
	text := f.placeDependencies(why.advice) + e.quote(matched.in)
	return &v1alpha1.BuildFailure{
		Reason:    cmp.Or(why.reason, generic),
		Message:   head(clean(strings.TrimSpace(text), f.Secrets), maxMessage),
		Transient: why.transient,
		Log:       tail(e.texts[inLog], maxLog),
	}
}

// placeDependencies completes advice that names the place of the dependencies.
func (f Failure) placeDependencies(advice string) string {
	place := "in spec.deps"
	switch {
	case f.OwnDockerfile:
		place = "where the source lists it"
	case f.DependencyFile != "":
		place = "in " + f.DependencyFile
	}
	return strings.ReplaceAll(advice, dependenciesPlace, place)
}

// step is a set of steps of a build.
type step int

const (
	noStep step = 1 << iota
	fetchStep
	runtimeInstallStep // with the Dockerfile of a runtime
	ownInstallStep     // with the author's own Dockerfile
	pushStep

	installStep = runtimeInstallStep | ownInstallStep
	anyStep     = noStep | fetchStep | installStep | pushStep
)

func (f Failure) step() step {
	switch {
	case f.Unscheduled:
		return noStep
	case f.Fetching != 0:
		return fetchStep
	case f.Pushing:
		return pushStep
	case f.OwnDockerfile:
		return ownInstallStep
	default:
		return runtimeInstallStep
	}
}

type text int

const (
	inMessage text = iota
	inLog
	inLastLine
	inPackageError
	allTexts
)

type evidence struct {
	cause Cause
	step  step
	exit  int32
	texts [allTexts]string
}

func (f Failure) evidence(explain func(log string) string) evidence {
	log := clean(f.Log, f.Secrets)
	e := evidence{cause: f.Cause, step: f.step(), exit: f.Fetching}
	e.texts = [allTexts]string{inMessage: f.Message, inLog: log, inLastLine: lastLine(log)}
	if e.cause == StepFailed && e.step&installStep != 0 {
		e.texts[inPackageError] = explain(log)
	}
	return e
}

func (e *evidence) match() failureRule {
	for _, r := range failureRules {
		if r.matches(e) {
			return r
		}
	}
	return failureRule{name: "unknown cause"}
}

func (r *failureRule) matches(e *evidence) bool {
	if r.cause != e.cause || r.steps&e.step == 0 || r.exit != 0 && r.exit != e.exit {
		return false
	}
	for _, pattern := range []*regexp.Regexp{r.pattern, r.also} {
		if pattern != nil && !pattern.MatchString(e.texts[r.in]) {
			return false
		}
	}
	return true
}

func (e *evidence) quote(in text) string {
	switch {
	case in == inPackageError:
		return "\n" + e.texts[inPackageError]
	case in == inMessage || e.texts[inLastLine] == "":
		return " " + strings.TrimSpace(e.texts[inMessage])
	default:
		return " " + strings.TrimSpace(e.texts[inLastLine])
	}
}
