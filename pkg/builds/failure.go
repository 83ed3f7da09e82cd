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
	"github.com/kiln-dev/kiln/pkg/redact"
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

	// Secrets are values that nobody is to see.
	Secrets []string
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
	outOfMemory  = regexp.MustCompile(`signal: killed|exit status 137`)
	unauthorized = regexp.MustCompile(`UNAUTHORIZED|DENIED|401 Unauthorized|403 Forbidden`)
	pushing      = regexp.MustCompile(`push permission|error pushing image|failed to push`)
	pulling      = regexp.MustCompile(`failed to pull base image|\b(GET|HEAD) \S+/v2/\S+|\bGet "https?://|MANIFEST_UNKNOWN|NAME_UNKNOWN`)
	// verbose is what the builder puts before what matters.
	verbose = regexp.MustCompile(`^(error building image: |error building stage: |failed to execute command: )+`)

	ansiEscape = regexp.MustCompile("\x1b\\[[0-9;]*m")
)

// heapFull is what a program says anywhere in the log that has set itself a
// limit of memory, as node does, and has reached it.
const heapFull = "JavaScript heap out of memory"

// Describe tells why the build failed, and what to do about it. explain picks
// the words of the language's package manager from a log; it returns "" when
// they are not there. Nothing that it returns has secrets.
func (f Failure) Describe(explain func(log string) string) *v1alpha1.BuildFailure {
	log := redact.Text(ansiEscape.ReplaceAllString(f.Log, ""), f.Secrets...)
	reason, message := causeReasons[f.Cause], advise(adviceFor[causeReasons[f.Cause]], f.Message)
	if f.Cause == StepFailed {
		if r, m := readLog(log, explain); m != "" {
			reason, message = r, m
		} else {
			message = advise("The build's log could not be read.", f.Message)
		}
	}
	return &v1alpha1.BuildFailure{
		Reason:  reason,
		Message: head(redact.Text(message, f.Secrets...), maxMessage),
		Log:     tail(log, maxLog),
	}
}

// readLog returns the reason and the words that the log of a failed build
// gives. The package manager knows best what the author is to fix.
func readLog(log string, explain func(string) string) (reason, message string) {
	last := lastLine(log)
	words := explain(log)
	switch {
	case outOfMemory.MatchString(last), strings.Contains(log, heapFull):
		reason, message = v1alpha1.ReasonBuildOutOfMemory, last
	case words != "":
		return v1alpha1.ReasonTaskRunFailed, strings.TrimSpace(adviseAuthor(words) + "\n" + words)
	case unauthorized.MatchString(last) && (pushing.MatchString(last) || !pulling.MatchString(last)):
		reason, message = v1alpha1.ReasonRegistryUnauthorized, last
	case pulling.MatchString(last) && !pushing.MatchString(last):
		reason, message = v1alpha1.ReasonImagePullFailed, last
	default:
		return v1alpha1.ReasonTaskRunFailed, last
	}
	return reason, advise(adviceFor[reason], message)
}

// adviceFor tells what to do about a failure whose reason says enough.
var adviceFor = map[string]string{
	v1alpha1.ReasonBuildTimeout:         "The build took too long. Raise spec.build.timeout, up to the max-timeout in config-build.",
	v1alpha1.ReasonBuildOutOfMemory:     "The build needs more memory than its limit. Raise spec.build.resources.limits.memory, up to the max-memory in config-build.",
	v1alpha1.ReasonBuildCancelled:       "Somebody cancelled the build. Edit the Function, or set its annotation serverless.kiln.dev/rebuild, to build again.",
	v1alpha1.ReasonPodEvicted:           "The node evicted the build. Set the Function's annotation serverless.kiln.dev/rebuild to build again.",
	v1alpha1.ReasonRegistryUnauthorized: "The registry in config-registry refused the image. Check the credentials and the prefix there.",
	v1alpha1.ReasonImagePullFailed:      "An image that the build needs was not pulled. Check the base image in config-runtimes, and kaniko-image in config-build.",
}

// adviceOn tells what to do about what package managers say most often.
var adviceOn = []struct {
	words  *regexp.Regexp
	advice string
}{
	{regexp.MustCompile(`code E404|code ETARGET|code ENOVERSIONS`), "A dependency was not found. Correct it in spec.deps."},
	{regexp.MustCompile(`code E401|code E403|code ENEEDAUTH`), "The package registry refused the build. Name a Secret with credentials for it in spec.build.secretName."},
	{regexp.MustCompile(`code (ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT)`), "The package registry was not reached. Set the Function's annotation serverless.kiln.dev/rebuild to build again."},
	{regexp.MustCompile(`code ENOSPC`), "The node has no room on its disk. Set the Function's annotation serverless.kiln.dev/rebuild to build again."},
}

func adviseAuthor(words string) string {
	for _, a := range adviceOn {
		if a.words.MatchString(words) {
			return a.advice
		}
	}
	return ""
}

func advise(advice, message string) string {
	return strings.TrimSpace(advice + " " + strings.TrimSpace(message))
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
