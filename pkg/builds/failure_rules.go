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

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/sources"
)

type failureRule struct {
	name string
	// cause, steps and exit select failures. An exit code of 0 selects all.
	cause Cause
	steps step
	exit  int32
	// in is the text that the patterns, if set, must match. The message quotes it after the
	// advice, but quotes only the last line of the log.
	in            text
	pattern, also *regexp.Regexp
	verdict       verdict
}

// failureRules lists the rules. The first that matches counts.
var failureRules = []failureRule{
	{name: "no node accepted the pod", cause: TimedOut, steps: noStep, verdict: heldUp},
	{name: "the message says what the pod waited for", cause: TimedOut, steps: anyStep, pattern: waited, verdict: heldUp},
	{name: "the steps took too long", cause: TimedOut, steps: anyStep, verdict: timedOut},
	{name: "the fetch step was killed", cause: OutOfMemory, steps: fetchStep, verdict: outOfMemoryFetching},
	{name: "the push step was killed", cause: OutOfMemory, steps: pushStep, verdict: outOfMemoryPushing},
	{name: "the install step was killed", cause: OutOfMemory, steps: anyStep, verdict: outOfMemory},
	{name: "somebody cancelled the build", cause: Cancelled, steps: anyStep, verdict: cancelled},
	{name: "the image of a step was not pulled", cause: ImagePull, steps: anyStep, verdict: toolMissing},
	{name: "the pod exceeded its own storage limit", cause: Evicted, steps: anyStep, pattern: ownLimit, verdict: outOfDisk},
	{name: "the node evicted the pod", cause: Evicted, steps: anyStep, verdict: evicted},
	{name: "somebody deleted the pod", cause: Deleted, steps: anyStep, verdict: deleted},
	{name: "the builder failed", cause: NotRun, steps: anyStep, verdict: notRun},

	{name: "the log was lost with its pod", cause: StepFailed, steps: anyStep, in: inLastLine, pattern: empty, verdict: logUnread},

	{name: "the source is invalid", cause: StepFailed, steps: fetchStep, exit: sources.ExitRefused, in: inLastLine, verdict: sourceRefused},
	{name: "the server of the source failed", cause: StepFailed, steps: fetchStep, exit: sources.ExitUnreachable, in: inLastLine, verdict: sourceUnavailable},
	{name: "the source exceeds the disk", cause: StepFailed, steps: fetchStep, in: inLastLine, pattern: noSpace, verdict: diskFull},

	{name: "the dependencies image was deleted", cause: StepFailed, steps: pushStep, in: inLastLine, pattern: pullDependencies, verdict: dependenciesMissing},
	{name: "the registry is full or over quota", cause: StepFailed, steps: pushStep, in: inLastLine, pattern: push, also: full, verdict: registryFull},
	{name: "the registry refused the credentials", cause: StepFailed, steps: pushStep, in: inLastLine, pattern: push, also: refused, verdict: unauthorized},
	{name: "the registry has another protocol or certificate", cause: StepFailed, steps: pushStep, in: inLastLine, pattern: push, also: insecure, verdict: registryMistaken},
	{name: "the registry is down", cause: StepFailed, steps: pushStep, in: inLastLine, pattern: push, also: unavailable, verdict: registryUnavailable},
	{name: "the push failed otherwise", cause: StepFailed, steps: pushStep, in: inLastLine, pattern: push, verdict: failed},

	{name: "the kernel killed a command", cause: StepFailed, steps: installStep, in: inLastLine, pattern: killed, verdict: outOfMemory},
	{name: "node exceeded its heap limit", cause: StepFailed, steps: installStep, in: inLog, pattern: heapFull, verdict: outOfMemory},
	{name: "the base image exceeds the disk", cause: StepFailed, steps: installStep, in: inLastLine, pattern: noSpace, verdict: diskFull},

	{name: "npm: package or version not found", cause: StepFailed, steps: installStep, in: inPackageError, pattern: npmNotFound, verdict: dependencyMissing},
	{name: "npm: credentials missing or wrong", cause: StepFailed, steps: installStep, in: inPackageError, pattern: npmRefused, verdict: packagesRefused},
	{name: "npm: registry down", cause: StepFailed, steps: installStep, in: inPackageError, pattern: npmUnavailable, verdict: packagesUnavailable},
	{name: "npm: disk full", cause: StepFailed, steps: installStep, in: inPackageError, pattern: npmNoSpace, verdict: diskFull},
	{name: "npm: the kernel killed a script", cause: StepFailed, steps: installStep, in: inPackageError, pattern: npmKilled, verdict: outOfMemory},
	{name: "pip: disk full", cause: StepFailed, steps: installStep, in: inPackageError, pattern: pipNoSpace, verdict: diskFull},
	{name: "pip: index down, so it also finds no distribution", cause: StepFailed, steps: installStep, in: inPackageError, pattern: pipUnavailable, verdict: packagesUnavailable},
	{name: "pip: package or version not found", cause: StepFailed, steps: installStep, in: inPackageError, pattern: pipNotFound, verdict: dependencyMissing},
	{name: "another error of the package manager", cause: StepFailed, steps: installStep, in: inPackageError, pattern: anything, verdict: failed},

	{name: "own Dockerfile: its registry cannot be trusted", cause: StepFailed, steps: ownInstallStep, in: inLastLine, pattern: base, also: insecure, verdict: ownBaseMissing},
	{name: "own Dockerfile: its registry is down", cause: StepFailed, steps: ownInstallStep, in: inLastLine, pattern: base, also: unavailable, verdict: ownBaseUnavailable},
	{name: "own Dockerfile: its base image was not found", cause: StepFailed, steps: ownInstallStep, in: inLastLine, pattern: base, verdict: ownBaseMissing},
	{name: "the base image moved during the build", cause: StepFailed, steps: pushStep, in: inLastLine, pattern: moved, verdict: baseMoved},
	{name: "the base image's registry cannot be trusted", cause: StepFailed, steps: runtimeInstallStep | pushStep, in: inLastLine, pattern: base, also: insecure, verdict: baseMissing},
	{name: "the base image's registry is down", cause: StepFailed, steps: runtimeInstallStep | pushStep, in: inLastLine, pattern: base, also: unavailable, verdict: baseUnavailable},
	{name: "the base image was not found", cause: StepFailed, steps: runtimeInstallStep | pushStep, in: inLastLine, pattern: base, verdict: baseMissing},
	{name: "another error of a step", cause: StepFailed, steps: anyStep, in: inLastLine, verdict: failed},
}

// Patterns in builders' messages.
var (
	waited   = regexp.MustCompile(`Previous status: \[`)
	ownLimit = regexp.MustCompile(`exceed\S* .*\blimit`)
)

// Patterns in the last line of a step's log, and in the log.
var (
	empty            = regexp.MustCompile(`^$`)
	noSpace          = regexp.MustCompile(`no space left on device`)
	killed           = regexp.MustCompile(`signal: killed|exit status 137`)
	heapFull         = regexp.MustCompile(`JavaScript heap out of memory`)
	base             = regexp.MustCompile(`failed to pull base image|\b(GET|HEAD) \S+/v2/\S+|\bGet "https?://|MANIFEST_UNKNOWN|NAME_UNKNOWN`)
	pullDependencies = regexp.MustCompile(`failed to pull dependencies image`)
	moved            = regexp.MustCompile(`failed to pull base image .*: it moved during the build`)
	push             = regexp.MustCompile(`failed to push`)
	refused          = regexp.MustCompile(`UNAUTHORIZED|DENIED|401 Unauthorized|403 Forbidden`)
	insecure         = regexp.MustCompile(`x509: |server gave HTTP response to HTTPS client`)

	// A registry with storage in files reports errno 28, others an HTTP status, and those
	// with quotas the exceeded quota.
	full = regexp.MustCompile(`507 Insufficient Storage|no space left on device|\bErr:28\b|(?i:exceed\S* .*\b(quota|limit)|quota\b.* exceed)`)

	unavailable = regexp.MustCompile(`dial tcp|no such host|i/o timeout|deadline exceeded|connection (refused|reset)|broken pipe|TLS handshake|\bEOF\b|` +
		`status code (429|5\d\d)|TOOMANYREQUESTS|UNAVAILABLE|\bUNKNOWN: `)
)

// Patterns in the errors of package managers.
var (
	npmNotFound    = regexp.MustCompile(`code E404|code ETARGET|code ENOVERSIONS`)
	npmRefused     = regexp.MustCompile(`code E401|code E403|code ENEEDAUTH`)
	npmUnavailable = regexp.MustCompile(`code (ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT|ERR_SOCKET_TIMEOUT|E429|E5\d\d)\b`)
	npmNoSpace     = regexp.MustCompile(`code ENOSPC`)
	npmKilled      = regexp.MustCompile(`signal SIGKILL`)
	pipNoSpace     = regexp.MustCompile(`\[Errno 28\]`)
	pipUnavailable = regexp.MustCompile(`connection broken by|Max retries exceeded|Read timed out`)
	pipNotFound    = regexp.MustCompile(`No matching distribution found`)
	anything       = regexp.MustCompile(`(?s).`)
)

type verdict struct {
	reason string

	advice string

	transient bool
}

// dependenciesPlace stands in advice for the place where the dependencies are listed.
const dependenciesPlace = "{dependencies}"

var (
	timedOut = verdict{v1alpha1.ReasonBuildTimeout,
		"The build took too long. Raise spec.build.timeout, up to the max-timeout in config-build.", false}
	heldUp = verdict{v1alpha1.ReasonBuildTimeout,
		"The build was held up and took too long. Fix the cause, or raise spec.build.timeout, up to the max-timeout in config-build.", true}
	outOfMemory = verdict{v1alpha1.ReasonBuildOutOfMemory,
		"The build needs more memory than its limit. Raise spec.build.resources.limits.memory, up to the max-memory in config-build.", false}
	outOfMemoryPushing = verdict{v1alpha1.ReasonBuildOutOfMemory,
		"The step that pushes the image ran out of memory. It needs little memory, so the node may be short of memory.", true}
	outOfMemoryFetching = verdict{v1alpha1.ReasonBuildOutOfMemory,
		"The step that fetches the source ran out of memory. Remove large files from the Git repository, or check the memory of the node.", true}
	outOfDisk = verdict{v1alpha1.ReasonBuildOutOfDisk,
		"The build needs more disk space than its limit. Raise spec.build.resources.limits.ephemeral-storage, up to the max-ephemeral-storage in config-build.", false}
	cancelled = verdict{v1alpha1.ReasonBuildCancelled,
		"Somebody cancelled the build. Edit the Function, or set its annotation serverless.kiln.dev/rebuild, to build again.", false}
	evicted = verdict{v1alpha1.ReasonPodEvicted,
		"The build's pod was evicted from its node.", true}
	deleted = verdict{v1alpha1.ReasonPodDeleted,
		"The build's pod was deleted, or lost with its node, before Kiln read the result.", true}

	toolMissing = verdict{v1alpha1.ReasonImagePullFailed,
		"The image of a build step could not be pulled. Check kaniko-image and compose-image in config-build.", true}
	baseMissing = verdict{v1alpha1.ReasonImagePullFailed,
		"The runtime's base image could not be pulled. Check baseImage in config-runtimes, and that builds can reach its registry.", false}
	baseUnavailable = verdict{v1alpha1.ReasonImagePullFailed,
		"The registry of the runtime's base image could not be reached, or failed. Check that builds can reach it.", true}
	baseMoved = verdict{v1alpha1.ReasonImagePullFailed,
		"The tag of the runtime's base image moved during the build.", true}
	ownBaseMissing = verdict{v1alpha1.ReasonImagePullFailed,
		"A base image in the Dockerfile could not be pulled. Correct its FROM line; builds pull without credentials.", false}
	ownBaseUnavailable = verdict{v1alpha1.ReasonImagePullFailed,
		"The registry of a base image in the Dockerfile could not be reached, or failed. Check its FROM line, and that builds can reach the registry.", true}
	dependenciesMissing = verdict{v1alpha1.ReasonImagePullFailed,
		"The dependencies image of an earlier build could not be pulled.", true}

	unauthorized = verdict{v1alpha1.ReasonRegistryUnauthorized,
		"The registry refused the image. Check the registry's credentials, and the prefix in config-registry.", false}
	registryFull = verdict{v1alpha1.ReasonRegistryFull,
		"The registry has no room for the image. Ask its administrator to make room.", true}
	registryUnavailable = verdict{v1alpha1.ReasonRegistryUnavailable,
		"The registry to push to could not be reached, or failed. Check push in config-registry, and that builds can reach it.", true}
	registryMistaken = verdict{v1alpha1.ReasonRegistryUnavailable,
		"The registry to push to uses plain HTTP or an unknown certificate. Check push and insecure in config-registry.", false}
	packagesUnavailable = verdict{v1alpha1.ReasonPackageRegistryUnavailable,
		"The package registry could not be reached, or failed.", true}

	sourceRefused = verdict{v1alpha1.ReasonSourceUpdateFailed,
		"The source cannot be built.", false}
	sourceUnavailable = verdict{v1alpha1.ReasonSourceUpdateFailed,
		"The source could not be downloaded.", true}

	dependencyMissing = verdict{"",
		"A dependency was not found. Correct it " + dependenciesPlace + ".", false}
	packagesRefused = verdict{"",
		"The package registry refused the build. Name a Secret with credentials for it in spec.build.secretName.", false}
	diskFull = verdict{"",
		"The node's disk is full.", true}
	logUnread = verdict{"",
		"The build's log could not be read.", true}
	notRun = verdict{"",
		"The builder failed, not the build.", true}
	failed = verdict{"", "", false}
)
