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
	"github.com/kiln-dev/kiln/pkg/sources"
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
	// StepFailed says that a step of the build gave up; its log says why.
	StepFailed
	// TimedOut says that the build took too long.
	TimedOut
	// OutOfMemory says that a step needed more memory than it may use.
	OutOfMemory
	// Cancelled says that somebody ended the build.
	Cancelled
	// ImagePull says that an image to run the build with could not be pulled.
	ImagePull
	// Evicted says that the node, or who drains it, had no room for the build any
	// more.
	Evicted
	// Deleted says that the build's pod is gone, or going: somebody has deleted it,
	// or its node is lost.
	Deleted
	// NotRun says that what runs builds has failed, and not the build.
	NotRun
)

// Failure is how a build failed.
type Failure struct {
	// Cause is what ended the build.
	Cause Cause

	// Pushing says that it was the step that makes the image and pushes it, which
	// runs nothing of the Function's.
	Pushing bool

	// Fetching is the exit code of the step that fetches the source, if it was that
	// step; 0 otherwise.
	Fetching int32

	// Unscheduled says that no step was started: no node would have the build.
	Unscheduled bool

	// OwnDockerfile says that what the build runs, and upon which image, is in a
	// Dockerfile of the author's.
	OwnDockerfile bool

	// Message holds the words of what ran the build.
	Message string

	// Log is the end of the log of the step that failed; "" if there is none.
	Log string

	// DependencyFile is the file that lists the dependencies where they come with the
	// source, and which source that is; "" where they are in the Function.
	DependencyFile string

	// Secrets are values that nobody is to see.
	Secrets []string
}

// verdict is why a build failed, and what to do about it.
type verdict struct {
	// reason is that of the condition BuildReady.
	reason string

	// advice says what to do, or what is wrong where nothing is for the Function's
	// author to do.
	advice string

	// transient says that the same build may succeed later.
	transient bool
}

var (
	timedOut = verdict{v1alpha1.ReasonBuildTimeout,
		"The build took too long. Raise spec.build.timeout, up to the max-timeout in config-build.", false}
	heldUp = verdict{v1alpha1.ReasonBuildTimeout,
		"The build took too long, since something held it up. See to that, or raise spec.build.timeout, up to the max-timeout in config-build.", true}
	outOfMemory = verdict{v1alpha1.ReasonBuildOutOfMemory,
		"The build needs more memory than its limit. Raise spec.build.resources.limits.memory, up to the max-memory in config-build.", false}
	outOfMemoryPushing = verdict{v1alpha1.ReasonBuildOutOfMemory,
		"The step that pushes the image was killed for want of memory. It needs little, whatever the Function: the node may be short of memory.", true}
	cancelled = verdict{v1alpha1.ReasonBuildCancelled,
		"Somebody cancelled the build. Edit the Function, or set its annotation serverless.kiln.dev/rebuild, to build again.", false}
	toolMissing = verdict{v1alpha1.ReasonImagePullFailed,
		"The image that builds run with could not be pulled. See kaniko-image and compose-image in config-build.", true}
	baseMissing = verdict{v1alpha1.ReasonImagePullFailed,
		"The runtime's base image could not be pulled. See baseImage in config-runtimes, and whether builds reach its registry.", false}
	baseUnavailable = verdict{v1alpha1.ReasonImagePullFailed,
		"The registry of the runtime's base image was not reached, or failed. See whether builds reach it.", true}
	dependenciesMissing = verdict{v1alpha1.ReasonImagePullFailed,
		"The image with the Function's dependencies, which an earlier build had pushed, could not be pulled.", true}
	unauthorized = verdict{v1alpha1.ReasonRegistryUnauthorized,
		"The registry refused to take the image. See the registry's credentials, and the prefix in config-registry.", false}
	registryFull = verdict{v1alpha1.ReasonRegistryFull,
		"The registry has no room for the image. Ask its administrator to make room.", true}
	registryUnavailable = verdict{v1alpha1.ReasonRegistryUnavailable,
		"The registry to push the image to was not reached, or failed. See push in config-registry, and whether builds reach it.", true}
	registryMistaken = verdict{v1alpha1.ReasonRegistryUnavailable,
		"The registry to push the image to cannot be talked to. See push and insecure in config-registry.", false}
	dependencyMissing = verdict{v1alpha1.ReasonTaskRunFailed,
		"A dependency was not found. Correct it in spec.deps.", false}
	packagesRefused = verdict{v1alpha1.ReasonTaskRunFailed,
		"The package registry refused the build. Name a Secret with credentials for it in spec.build.secretName.", false}
	packagesUnavailable = verdict{v1alpha1.ReasonPackageRegistryUnavailable,
		"The package registry was not reached, or failed.", true}
	sourceRefused = verdict{v1alpha1.ReasonSourceUpdateFailed,
		"The source cannot be built.", false}
	sourceUnavailable = verdict{v1alpha1.ReasonSourceUpdateFailed,
		"The source was not to be had.", true}
	outOfMemoryFetching = verdict{v1alpha1.ReasonBuildOutOfMemory,
		"The step that fetches the source was killed for want of memory. For an archive it needs little, for a repository some times its largest files: have these elsewhere, or see to the memory of the node.", true}
	ownBaseMissing = verdict{v1alpha1.ReasonImagePullFailed,
		"An image that the Dockerfile builds upon could not be pulled. Correct its FROM; builds pull without credentials.", false}
	ownBaseUnavailable = verdict{v1alpha1.ReasonImagePullFailed,
		"The registry of an image that the Dockerfile builds upon was not reached, or failed. See its FROM, and whether builds reach it.", true}
	ownDependencyMissing = verdict{v1alpha1.ReasonTaskRunFailed,
		"A dependency was not found. Correct it where the source lists it.", false}
	evicted = verdict{v1alpha1.ReasonPodEvicted,
		"The build's pod was evicted from its node.", true}
	tooMuchStorage = verdict{v1alpha1.ReasonPodEvicted,
		"The build needs more room on the node's disk than its limit. Raise spec.build.resources.limits.ephemeral-storage.", false}
	deleted = verdict{v1alpha1.ReasonPodDeleted,
		"The build's pod was deleted, or went with its node, before it was known how the build ends.", true}
	notRun = verdict{v1alpha1.ReasonTaskRunFailed,
		"What runs builds failed, not the build.", true}
	logUnread = verdict{v1alpha1.ReasonTaskRunFailed,
		"The build's log could not be read.", true}
	diskFull = verdict{v1alpha1.ReasonTaskRunFailed,
		"The node has no room on its disk.", true}
	failed = verdict{v1alpha1.ReasonTaskRunFailed, "", false}
)

// adviceOn is what package managers say most often, npm and then pip. The first
// that is said counts.
var adviceOn = []struct {
	words *regexp.Regexp
	verdict
}{
	{regexp.MustCompile(`code E404|code ETARGET|code ENOVERSIONS`), dependencyMissing},
	{regexp.MustCompile(`code E401|code E403|code ENEEDAUTH`), packagesRefused},
	{regexp.MustCompile(`code (ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT|ERR_SOCKET_TIMEOUT|E429|E5\d\d)\b`), packagesUnavailable},
	{regexp.MustCompile(`code ENOSPC`), diskFull},
	// Where the kernel kills a script, and not all of the step.
	{regexp.MustCompile(`signal SIGKILL`), outOfMemory},
	{regexp.MustCompile(`\[Errno 28\]`), diskFull},
	// Without its index pip finds nothing, either.
	{regexp.MustCompile(`connection broken by|Max retries exceeded|Read timed out`), packagesUnavailable},
	{regexp.MustCompile(`No matching distribution found`), dependencyMissing},
}

// The words by which the steps of a build say, in their last line, what was wrong.
var (
	memoryWords       = regexp.MustCompile(`signal: killed|exit status 137`)
	diskWords         = regexp.MustCompile(`no space left on device`)
	baseWords         = regexp.MustCompile(`failed to pull base image|\b(GET|HEAD) \S+/v2/\S+|\bGet "https?://|MANIFEST_UNKNOWN|NAME_UNKNOWN`)
	dependenciesWords = regexp.MustCompile(`failed to pull dependencies image`)
	pushWords         = regexp.MustCompile(`failed to push`)
	refusalWords      = regexp.MustCompile(`UNAUTHORIZED|DENIED|401 Unauthorized|403 Forbidden`)
	// A registry that keeps images in files tells the number of the error, 28,
	// others an HTTP status, and those with quotas what is exceeded.
	fullWords = regexp.MustCompile(`507 Insufficient Storage|no space left on device|\bErr:28\b|(?i:exceed\S* .*\b(quota|limit)|quota\b.* exceed)`)
	// mistakeWords are of what no time mends.
	mistakeWords     = regexp.MustCompile(`x509: |server gave HTTP response to HTTPS client`)
	unavailableWords = regexp.MustCompile(`dial tcp|no such host|i/o timeout|deadline exceeded|connection (refused|reset)|broken pipe|TLS handshake|\bEOF\b|` +
		`status code (429|5\d\d)|TOOMANYREQUESTS|UNAVAILABLE|\bUNKNOWN: `)
	// ownStorage is of evictions for what the build's own limit says.
	ownStorage = regexp.MustCompile(`exceed\S* .*\blimit`)
	// heldUpWords tell what a build waited for when its time was over.
	heldUpWords = regexp.MustCompile(`Previous status: \[`)

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
	log := clean(f.Log, f.Secrets)
	why, message := f.judge(), advise(f.judge().advice, f.Message)
	if f.Cause == StepFailed {
		why, message = f.readLog(log, explain)
	}
	return &v1alpha1.BuildFailure{
		Reason:    why.reason,
		Message:   head(clean(message, f.Secrets), maxMessage),
		Transient: why.transient,
		Log:       tail(log, maxLog),
	}
}

// Excerpt returns what the status keeps of a log: its last lines, at most 4 KiB,
// without secrets.
func Excerpt(log string, secrets ...string) string {
	return tail(clean(log, secrets), maxLog)
}

// clean takes secrets out of a text, and before that what would have hidden them:
// colours, and bytes that are no text.
func clean(text string, secrets []string) string {
	return redact.Text(strings.ToValidUTF8(ansiEscape.ReplaceAllString(text, ""), ""), secrets...)
}

// judge tells why a build failed whose log does not matter.
func (f Failure) judge() verdict {
	switch f.Cause {
	case TimedOut:
		if f.Unscheduled || heldUpWords.MatchString(f.Message) {
			return heldUp
		}
		return timedOut
	case OutOfMemory:
		switch {
		case f.Pushing:
			return outOfMemoryPushing
		case f.Fetching != 0:
			return outOfMemoryFetching
		}
		return outOfMemory
	case Cancelled:
		return cancelled
	case ImagePull:
		return toolMissing
	case Evicted:
		if ownStorage.MatchString(f.Message) {
			return tooMuchStorage
		}
		return evicted
	case Deleted:
		return deleted
	case NotRun:
		return notRun
	default:
		return failed
	}
}

// readLog tells why the step failed whose log that is, in its own words. The
// package manager knows best what the author is to fix.
func (f Failure) readLog(log string, explain func(string) string) (why verdict, message string) {
	last := lastLine(log)
	if last == "" {
		return logUnread, advise(logUnread.advice, f.Message)
	}
	if f.Fetching != 0 {
		why = judgeFetch(f.Fetching, last)
		return why, advise(why.advice, last)
	}
	if f.Pushing {
		why = judgePush(last)
		return why, advise(why.advice, last)
	}
	if why = judgeInstallation(log, last); why == failed {
		if words := explain(log); words != "" {
			why = f.own(judgePackages(words))
			if why == dependencyMissing && f.DependencyFile != "" {
				why.advice = "A dependency was not found. Correct it in " + f.DependencyFile + "."
			}
			return why, strings.TrimSpace(why.advice + "\n" + words)
		}
		why = f.own(judgeBase(last))
	}
	return why, advise(why.advice, last)
}

// own returns the verdict in words for the author of a Dockerfile, who has neither
// spec.deps nor a base image of the runtime's.
func (f Failure) own(why verdict) verdict {
	if !f.OwnDockerfile {
		return why
	}
	switch why {
	case baseMissing:
		return ownBaseMissing
	case baseUnavailable:
		return ownBaseUnavailable
	case dependencyMissing:
		return ownDependencyMissing
	default:
		return why
	}
}

// judgeInstallation tells what the package manager has no words for.
func judgeInstallation(log, last string) verdict {
	switch {
	case memoryWords.MatchString(last), strings.Contains(log, heapFull):
		return outOfMemory
	case diskWords.MatchString(last):
		return diskFull
	default:
		return failed
	}
}

func judgePackages(words string) verdict {
	for _, a := range adviceOn {
		if a.words.MatchString(words) {
			return a.verdict
		}
	}
	return failed
}

// judgeBase tells whether the step that installs, which talks to no other
// registry of images, did not get its base image.
func judgeBase(last string) verdict {
	switch {
	case !baseWords.MatchString(last):
		return failed
	case isUnavailable(last):
		return baseUnavailable
	default:
		return baseMissing
	}
}

// judgeFetch tells why the step failed that fetches the source: its exit code says
// whose fault that is.
func judgeFetch(code int32, last string) verdict {
	switch {
	case code == sources.ExitRefused:
		return sourceRefused
	case code == sources.ExitUnreachable:
		return sourceUnavailable
	case diskWords.MatchString(last):
		return diskFull
	default:
		return failed
	}
}

// judgePush tells why the step failed that pushes.
func judgePush(last string) verdict {
	switch {
	case dependenciesWords.MatchString(last):
		return dependenciesMissing
	case !pushWords.MatchString(last):
		return judgeBase(last)
	case fullWords.MatchString(last):
		return registryFull
	case refusalWords.MatchString(last):
		return unauthorized
	case mistakeWords.MatchString(last):
		return registryMistaken
	case isUnavailable(last):
		return registryUnavailable
	default:
		return failed
	}
}

func isUnavailable(words string) bool {
	return unavailableWords.MatchString(words) && !mistakeWords.MatchString(words)
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
