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
	"regexp"
	"strings"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const (
	// maxMessage bounds what a condition says, maxLog what the status keeps.
	maxMessage = 1 << 10
	maxLog     = 4 << 10
)

// Cause is what ended a build without an image, as far as that can be told
// without having read its log.
type Cause int

const (
	// Other causes are told by the message alone.
	Other Cause = iota
	// StepFailed says that what builds the image gave up; its log says why.
	StepFailed
	// TimedOut says that the build took too long.
	TimedOut
	// OutOfMemory says that the build needed more memory than it may use.
	OutOfMemory
	// Cancelled says that somebody ended the build.
	Cancelled
	// ImagePull says that an image to run the build with could not be pulled.
	ImagePull
	// Evicted says that the node had no room for the build any more.
	Evicted
)

// Failure is how a build failed.
type Failure struct {
	// Cause is what ended the build.
	Cause Cause

	// Message holds the words of what ran the build.
	Message string

	// Log is the end of the log of what builds the image; "" if there is none.
	Log string
}

var causeReasons = map[Cause]string{
	Other:       v1alpha1.ReasonTaskRunFailed,
	StepFailed:  v1alpha1.ReasonTaskRunFailed,
	TimedOut:    v1alpha1.ReasonBuildTimeout,
	OutOfMemory: v1alpha1.ReasonBuildOutOfMemory,
	Cancelled:   v1alpha1.ReasonBuildCancelled,
	ImagePull:   v1alpha1.ReasonImagePullFailed,
	Evicted:     v1alpha1.ReasonPodEvicted,
}

// The words by which what builds the image says, in its last line, that it was
// not the Function's fault.
var (
	outOfMemory  = regexp.MustCompile(`signal: killed|heap out of memory`)
	unauthorized = regexp.MustCompile(`UNAUTHORIZED|DENIED|401 Unauthorized|403 Forbidden`)
	notPulled    = regexp.MustCompile(`MANIFEST_UNKNOWN|NAME_UNKNOWN|404 Not Found|\bGet "https?://`)
	pushing      = regexp.MustCompile(`push permission|pushing image|failed to push`)

	// verbose is what the builder puts before what matters.
	verbose = regexp.MustCompile(`^(error building image: |error building stage: |failed to execute command: )+`)

	ansiEscape = regexp.MustCompile("\x1b\\[[0-9;]*m")
)

// Describe tells why the build failed, and what to do about it. explain picks
// the words of the language's package manager from a log; it returns "" when
// they are not there.
func (f Failure) Describe(explain func(log string) string) *v1alpha1.BuildFailure {
	log := ansiEscape.ReplaceAllString(f.Log, "")
	reason, message := causeReasons[f.Cause], f.Message
	if f.Cause == StepFailed {
		if r, m := readLog(log, explain); m != "" {
			reason, message = r, m
		}
	}
	return &v1alpha1.BuildFailure{
		Reason:  reason,
		Message: head(advise(reason, message), maxMessage),
		Log:     tail(log, maxLog),
	}
}

// readLog returns the reason and the words that the log of a failed build
// gives. The package manager knows best what the author is to fix.
func readLog(log string, explain func(string) string) (reason, message string) {
	last := lastLine(log)
	words := explain(log)
	switch {
	case outOfMemory.MatchString(last):
		return v1alpha1.ReasonBuildOutOfMemory, last
	case words != "":
		return v1alpha1.ReasonTaskRunFailed, words
	case unauthorized.MatchString(last):
		return v1alpha1.ReasonRegistryUnauthorized, last
	case notPulled.MatchString(last) && !pushing.MatchString(last):
		return v1alpha1.ReasonImagePullFailed, last
	default:
		return v1alpha1.ReasonTaskRunFailed, last
	}
}

var advice = map[string]string{
	v1alpha1.ReasonBuildTimeout:         "The build took longer than the timeout in config-build.",
	v1alpha1.ReasonBuildOutOfMemory:     "The build needs more memory than the memory-limit in config-build.",
	v1alpha1.ReasonBuildCancelled:       "Somebody cancelled the build. Edit the Function, or set its annotation serverless.kiln.dev/rebuild, to build again.",
	v1alpha1.ReasonPodEvicted:           "The node evicted the build. Set the Function's annotation serverless.kiln.dev/rebuild to build again.",
	v1alpha1.ReasonRegistryUnauthorized: "The registry in config-registry refused the build.",
}

func advise(reason, message string) string {
	return strings.TrimSpace(advice[reason] + " " + strings.TrimSpace(message))
}

// lastLine returns the last line of the log, which is where the builder says
// why it gave up.
func lastLine(log string) string {
	log = strings.TrimSpace(log)
	if i := strings.LastIndexByte(log, '\n'); i >= 0 {
		log = log[i+1:]
	}
	return verbose.ReplaceAllString(log, "")
}

// head returns at most limit bytes of the beginning of s.
func head(s string, limit int) string {
	const more = " …"
	if len(s) <= limit {
		return strings.ToValidUTF8(s, "")
	}
	return strings.ToValidUTF8(s[:limit-len(more)], "") + more
}

// tail returns at most limit bytes of the end of s, in whole lines where they
// are not longer than that.
func tail(s string, limit int) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "")
	if len(s) <= limit {
		return s
	}
	s = s[len(s)-limit:]
	if _, rest, ok := strings.Cut(s, "\n"); ok {
		return rest
	}
	return strings.ToValidUTF8(s, "")
}
