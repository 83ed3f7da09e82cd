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
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// generic is the builder's generic reason, as docs/builds.md shows it.
const generic = v1alpha1.ReasonTaskRunFailed

// npmWords stands for any package manager.
func npmWords(log string) string {
	var words []string
	for line := range strings.Lines(log) {
		if text, ok := strings.CutPrefix(line, "npm error "); ok {
			words = append(words, strings.TrimSpace(text))
		}
	}
	return strings.Join(words, "\n")
}

// exited is the last line of the log when a command of the Dockerfile failed.
const exited = "error building image: error building stage: failed to execute command: waiting for process to exit: exit status 1\n"

// failureCase is a failure and its description.
type failureCase struct {
	failure   Failure
	reason    string
	transient bool
	// words must be in the message.
	words []string
}

func failureCases() map[string]failureCase {
	const stepMessage = `"step-install" exited with code 1`
	install := func(log string) Failure { return Failure{Cause: StepFailed, Message: stepMessage, Log: log} }
	push := func(log string) Failure {
		return Failure{Cause: StepFailed, Pushing: true, Message: stepMessage, Log: log}
	}
	fetch := func(code int32, log string) Failure {
		return Failure{Cause: StepFailed, Fetching: code, Message: stepMessage, Log: "Fetching https://example.com/a.zip\n" + log}
	}
	own := func(failure Failure) Failure {
		failure.OwnDockerfile = true
		return failure
	}
	const pushed = "failed to push image r.example.com/x:1: "
	return map[string]failureCase{
		"timeout": {
			Failure{Cause: TimedOut, Message: `TaskRun "greeter-1" failed to finish within "15m0s"`},
			v1alpha1.ReasonBuildTimeout, false, []string{"spec.build.timeout", "max-timeout in config-build", `"15m0s"`},
		},
		"timeout of a pod that never started": {
			Failure{Cause: TimedOut, Message: "TaskRun \"greeter-1\" failed to finish within \"15m0s\"\nPrevious status: [ExceededNodeResources] TaskRun Pod exceeded available resources"},
			v1alpha1.ReasonBuildTimeout, true, []string{"held up", "exceeded available resources"},
		},
		"timeout of a pod without a node": {
			Failure{Cause: TimedOut, Unscheduled: true, Message: `TaskRun "greeter-1" failed to finish within "15m0s"`},
			v1alpha1.ReasonBuildTimeout, true, []string{"held up", `"15m0s"`},
		},
		"out of memory, the install step": {
			Failure{Cause: OutOfMemory, Message: `"step-install" exited with code 137: OOMKilled`, Log: "INFO RUN npm install\n"},
			v1alpha1.ReasonBuildOutOfMemory, false, []string{"spec.build.resources", "max-memory in config-build", "OOMKilled"},
		},
		"out of memory, the push step": {
			Failure{Cause: OutOfMemory, Pushing: true, Message: `"step-push" exited with code 137: OOMKilled`},
			v1alpha1.ReasonBuildOutOfMemory, true, []string{"the node may be short of memory", "OOMKilled"},
		},
		"out of memory, a command of the Dockerfile": {
			install("error building image: error building stage: failed to execute command: waiting for process to exit: signal: killed\n"),
			v1alpha1.ReasonBuildOutOfMemory, false, []string{"spec.build.resources", "waiting for process to exit: signal: killed"},
		},
		"out of memory, a shell command of the Dockerfile": {
			install("Killed\nerror building image: error building stage: failed to execute command: waiting for process to exit: exit status 137\n"),
			v1alpha1.ReasonBuildOutOfMemory, false, []string{"exit status 137"},
		},
		"out of memory, a script of a dependency": {
			install("npm error path /function\nnpm error command failed\nnpm error signal SIGKILL\nnpm error command sh -c node build.js\n" + exited),
			v1alpha1.ReasonBuildOutOfMemory, false, []string{"spec.build.resources", "sh -c node build.js"},
		},
		"out of memory, the heap of node": {
			install("<--- Last few GCs --->\n[12:0x1] 1001 ms: Mark-Compact 250.1 (258.3) -> 249.9 (258.6) MB\nFATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n----- Native stack trace -----\nAborted\nerror building image: error building stage: failed to execute command: waiting for process to exit: exit status 134\n"),
			v1alpha1.ReasonBuildOutOfMemory, false, []string{"spec.build.resources"},
		},
		"invalid source": {
			fetch(65, "the archive https://example.com/a.zip cannot be used: it is no .zip or .tar.gz\n"),
			v1alpha1.ReasonSourceUpdateFailed, false, []string{"The source cannot be built.", "it is no .zip or .tar.gz"},
		},
		"source whose server fails": {
			fetch(75, "the archive https://example.com/a.zip cannot be used: its server answered 503 Service Unavailable\n"),
			v1alpha1.ReasonSourceUpdateFailed, true, []string{"The source could not be downloaded.", "503"},
		},
		"source that exceeds the disk": {
			fetch(1, "failed to write source: no space left on device\n"),
			generic, true, []string{"The node's disk is full."},
		},
		"fetch step with an unknown error": {
			fetch(2, "panic: oh\n"), generic, false, []string{"panic: oh"},
		},
		"out of memory, the fetch step": {
			Failure{Cause: OutOfMemory, Fetching: 137, Message: `"step-fetch" exited with code 137: OOMKilled`},
			v1alpha1.ReasonBuildOutOfMemory, true, []string{"The step that fetches the source", "OOMKilled"},
		},
		"cancelled": {
			Failure{Cause: Cancelled, Message: `TaskRun "greeter-1" was cancelled`},
			v1alpha1.ReasonBuildCancelled, false, []string{"serverless.kiln.dev/rebuild"},
		},
		"evicted by a node under pressure": {
			Failure{Cause: Evicted, Message: "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi."},
			v1alpha1.ReasonPodEvicted, true, []string{"low on resource: ephemeral-storage"},
		},
		"evicted by a drain": {
			Failure{Cause: Evicted, Message: "Eviction API: evicting"},
			v1alpha1.ReasonPodEvicted, true, []string{"Eviction API: evicting"},
		},
		"evicted for its own limit": {
			Failure{Cause: Evicted, Message: "Pod ephemeral local storage usage exceeds the total limit of containers 50Mi. "},
			v1alpha1.ReasonBuildOutOfDisk, false, []string{"spec.build.resources.limits.ephemeral-storage", "max-ephemeral-storage in config-build", "50Mi"},
		},
		"evicted for the limit of its container": {
			Failure{Cause: Evicted, Message: `Container step-install exceeded its local ephemeral storage limit "50Mi". `},
			v1alpha1.ReasonBuildOutOfDisk, false, []string{"spec.build.resources.limits.ephemeral-storage", "50Mi"},
		},
		"pod deleted": {
			Failure{Cause: Deleted, Message: `"step-install" exited with code 2: Error`, Log: "INFO RUN npm install\n"},
			v1alpha1.ReasonPodDeleted, true, []string{"was deleted", "exited with code 2"},
		},
		"builder failed": {
			Failure{Cause: NotRun, Message: `failed to create task run pod "greeter-1": etcdserver: leader changed. Maybe invalid TaskSpec`},
			generic, true, []string{"The builder failed", "etcdserver: leader changed"},
		},
		"image of a step not pulled": {
			Failure{Cause: ImagePull, Message: `The step "build" in TaskRun "greeter-1" failed to pull the image "". The pod errored with the message: "Back-off pulling image "registry.example.com/kaniko"."`},
			v1alpha1.ReasonImagePullFailed, true, []string{"kaniko-image and compose-image in config-build", "Back-off pulling image"},
		},
		"something else": {
			Failure{Cause: Other, Message: "Maybe invalid TaskSpec"},
			generic, false, []string{"Maybe invalid TaskSpec"},
		},
		"npm does not find a package": {
			install("\x1b[36mINFO\x1b[0m[0003] Running: [/bin/sh -c npm install]\n" +
				"npm error code E404\nnpm error 404 Not Found - GET https://npm.example.com/no-such-package - Not found\nnpm error 404\n" +
				"npm error 404  'no-such-package@1.0.0' is not in this registry.\n" + exited),
			generic, false, []string{"spec.deps", "404 Not Found - GET https://npm.example.com/no-such-package", "'no-such-package@1.0.0' is not in this registry."},
		},
		"npm does not find a version": {
			install("npm error code ETARGET\nnpm error notarget No matching version found for ms@99.0.0.\n" + exited),
			generic, false, []string{"spec.deps", "No matching version found for ms@99.0.0."},
		},
		"npm's own 401 is not the registry's": {
			install("npm error code E401\nnpm error Incorrect or missing password.\n" + exited),
			generic, false, []string{"spec.build.secretName", "Incorrect or missing password."},
		},
		"npm does not reach the registry": {
			install("npm error code ECONNREFUSED\nnpm error syscall connect\nnpm error errno ECONNREFUSED\nnpm error FetchError: request to https://npm.example.com/ms failed, reason: connect ECONNREFUSED 192.0.2.1:443\n" + exited),
			v1alpha1.ReasonPackageRegistryUnavailable, true, []string{"could not be reached", "connect ECONNREFUSED 192.0.2.1:443"},
		},
		"pip does not find a package": {
			install("npm error Could not find a version that satisfies the requirement nope==1 (from versions: none)\nnpm error No matching distribution found for nope==1\n" + exited),
			generic, false, []string{"spec.deps", "nope==1"},
		},
		"pip does not reach the index": {
			install("npm error connection broken by 'NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused')': /simple/ms/\nnpm error No matching distribution found for ms\n" + exited),
			v1alpha1.ReasonPackageRegistryUnavailable, true, []string{"Connection refused"},
		},
		"disk full, pip": {
			install("npm error Could not install packages due to an OSError: [Errno 28] No space left on device\n" + exited),
			generic, true, []string{"disk is full"},
		},
		"npm's registry fails": {
			install("npm error code E503\nnpm error 503 Service Unavailable - GET https://npm.example.com/ms\n" + exited),
			v1alpha1.ReasonPackageRegistryUnavailable, true, []string{"503 Service Unavailable"},
		},
		"disk full, npm": {
			install("npm error code ENOSPC\nnpm error syscall write\nnpm error nospc ENOSPC: no space left on device, write\n" + exited),
			generic, true, []string{"disk is full", "no space left on device"},
		},
		"disk full, base image": {
			install("error building image: error building stage: failed to get filesystem from image: write /usr/bin/node: no space left on device\n"),
			generic, true, []string{"disk is full", "/usr/bin/node"},
		},
		"a dependency of a fetched source is not found": {
			Failure{
				Cause: StepFailed, Message: stepMessage, DependencyFile: "package.json of the archive",
				Log: "npm error code ETARGET\nnpm error notarget No matching version found for ms@99.0.0.\n" + exited,
			},
			generic, false, []string{"Correct it in package.json of the archive.\ncode ETARGET", "ms@99.0.0"},
		},
		"a script of a dependency fails": {
			install("npm error code 1\nnpm error path /function/node_modules/native\nnpm error command failed\nnpm error command sh -c node-gyp rebuild\n" + exited),
			generic, false, []string{"command sh -c node-gyp rebuild"},
		},
		"an invalid Dockerfile": {
			install("error building image: parsing dockerfile: dockerfile parse error on line 3: unknown instruction: RUNN\n"),
			generic, false, []string{"unknown instruction: RUNN"},
		},
		"step failed without a log": {
			install(""),
			generic, true, []string{stepMessage, "could not be read"},
		},
		"missing base image": {
			install("error building image: GET https://r.example.com/v2/node/manifests/99: MANIFEST_UNKNOWN: manifest unknown; unknown tag=99\n"),
			v1alpha1.ReasonImagePullFailed, false, []string{"config-runtimes", "node/manifests/99: MANIFEST_UNKNOWN"},
		},
		"base image that needs credentials": {
			install("error building image: GET https://index.docker.io/v2/library/nodee/manifests/24: UNAUTHORIZED: authentication required; [map[Action:pull Class: Name:library/nodee Type:repository]]\n"),
			v1alpha1.ReasonImagePullFailed, false, []string{"config-runtimes", "library/nodee"},
		},
		"layer of the base image that needs credentials": {
			install("error building image: error building stage: failed to get filesystem from image: GET https://r.example.com/v2/node/blobs/sha256:0: unexpected status code 401 Unauthorized\n"),
			v1alpha1.ReasonImagePullFailed, false, []string{"config-runtimes", "401"},
		},
		"missing base image of the author's Dockerfile": {
			own(install("error building image: GET https://r.example.com/v2/golang/manifests/99: MANIFEST_UNKNOWN: manifest unknown; unknown tag=99\n")),
			v1alpha1.ReasonImagePullFailed, false, []string{"Correct its FROM", "without credentials", "golang/manifests/99: MANIFEST_UNKNOWN"},
		},
		"missing registry of the author's Dockerfile": {
			own(install("error building image: Get \"https://r.example.com/v2/\": dial tcp: lookup r.example.com on 10.96.0.10:53: no such host\n")),
			v1alpha1.ReasonImagePullFailed, true, []string{"Check its FROM", "no such host"},
		},
		"missing dependency of the author's Dockerfile": {
			own(install("npm error code E404\nnpm error 404 Not Found - GET https://npm.example.com/no-such-package - Not found\n" + exited)),
			generic, false, []string{"Correct it where the source lists it", "no-such-package"},
		},
		"image that runs as root": {
			own(push("the image runs as root, and functions must not: end the Dockerfile with a numeric user, such as USER 1000:1000\n")),
			generic, false, []string{"the image runs as root", "USER 1000:1000"},
		},
		"base image whose registry is missing": {
			install("error building image: Get \"https://r.example.com/v2/\": dial tcp: lookup r.example.com on 10.96.0.10:53: no such host\n"),
			v1alpha1.ReasonImagePullFailed, true, []string{"base image could not be reached", "no such host"},
		},
		"base image whose registry fails": {
			install("error building image: failed to pull base image r.example.com/node:99: GET https://r.example.com/v2/node/manifests/99: unexpected status code 503 Service Unavailable\n"),
			v1alpha1.ReasonImagePullFailed, true, []string{"503 Service Unavailable"},
		},
		"push step: missing base image": {
			push("failed to pull base image r.example.com/node:99: GET https://r.example.com/v2/node/manifests/99: MANIFEST_UNKNOWN: manifest unknown; unknown tag=99\n"),
			v1alpha1.ReasonImagePullFailed, false, []string{"config-runtimes", "r.example.com/node:99"},
		},
		"push step: base image that needs credentials": {
			push("failed to pull base image r.example.com/node:99: unexpected status code 401 Unauthorized\n"),
			v1alpha1.ReasonImagePullFailed, false, []string{"config-runtimes", "r.example.com/node:99"},
		},
		"push step: base image whose registry fails": {
			push("failed to pull base image r.example.com/node:99: GET https://r.example.com/v2/node/blobs/sha256:0: unexpected status code 502 Bad Gateway\n"),
			v1alpha1.ReasonImagePullFailed, true, []string{"base image could not be reached", "r.example.com/node:99"},
		},
		"push step: base image that moved": {
			push("failed to pull base image r.example.com/node:99: it moved during the build: the dependencies were installed on sha256:0\n"),
			v1alpha1.ReasonImagePullFailed, true, []string{"moved during the build", "r.example.com/node:99"},
		},
		"deleted dependencies image": {
			push("failed to pull dependencies image r.example.com/x@sha256:0: GET https://r.example.com/v2/x/manifests/sha256:0: MANIFEST_UNKNOWN: manifest unknown\n"),
			v1alpha1.ReasonImagePullFailed, true, []string{"dependencies", "MANIFEST_UNKNOWN"},
		},
		"push refused without credentials": {
			push(pushed + "POST https://r.example.com/v2/x/blobs/uploads/: UNAUTHORIZED: authentication required; [map[Action:push Class: Name:x Type:repository]]\n"),
			v1alpha1.ReasonRegistryUnauthorized, false, []string{"config-registry", "UNAUTHORIZED: authentication required"},
		},
		"push refused with a wrong password": {
			push("failed to push dependencies image r.example.com/x:1: POST https://r.example.com/v2/x/blobs/uploads/: unexpected status code 401 Unauthorized\n"),
			v1alpha1.ReasonRegistryUnauthorized, false, []string{"config-registry", "401 Unauthorized"},
		},
		"push refused for the user": {
			push(pushed + "POST https://r.example.com/v2/x/blobs/uploads/: DENIED: requested access to the resource is denied\n"),
			v1alpha1.ReasonRegistryUnauthorized, false, []string{"DENIED"},
		},
		"registry not found": {
			push(pushed + "Get \"https://r.example.com/v2/\": dial tcp: lookup r.example.com on 10.96.0.10:53: no such host\n"),
			v1alpha1.ReasonRegistryUnavailable, true, []string{"push in config-registry", "no such host"},
		},
		"registry down": {
			push(pushed + "Get \"http://10.0.0.1:5000/v2/\": dial tcp 10.0.0.1:5000: connect: connection refused\n"),
			v1alpha1.ReasonRegistryUnavailable, true, []string{"connection refused"},
		},
		"registry fails": {
			push(pushed + "PUT https://r.example.com/v2/x/manifests/1: unexpected status code 500 Internal Server Error\n"),
			v1alpha1.ReasonRegistryUnavailable, true, []string{"500 Internal Server Error"},
		},
		"registry hangs up": {
			push(pushed + "Patch \"https://r.example.com/v2/x/blobs/uploads/1\": EOF\n"),
			v1alpha1.ReasonRegistryUnavailable, true, []string{"EOF"},
		},
		"registry of an unknown authority": {
			push(pushed + "Get \"https://r.example.com/v2/\": tls: failed to verify certificate: x509: certificate signed by unknown authority\n"),
			v1alpha1.ReasonRegistryUnavailable, false, []string{"config-registry", "unknown authority"},
		},
		"registry that uses plain HTTP": {
			push(pushed + "Get \"https://r.example.com/v2/\": http: server gave HTTP response to HTTPS client\n"),
			v1alpha1.ReasonRegistryUnavailable, false, []string{"insecure in config-registry"},
		},
		"registry is full, HTTP status": {
			push(pushed + "PATCH https://r.example.com/v2/x/blobs/uploads/1: unexpected status code 507 Insufficient Storage\n"),
			v1alpha1.ReasonRegistryFull, true, []string{"make room", "507 Insufficient Storage"},
		},
		"registry is full, errno": {
			push(pushed + "POST https://r.example.com/v2/x/blobs/uploads/: UNKNOWN: unknown error; map[DriverName:filesystem Enclosed:map[Err:28 Op:mkdir Path:/var/lib/registry]]\n"),
			v1alpha1.ReasonRegistryFull, true, []string{"Err:28"},
		},
		"registry is full, error text": {
			push(pushed + "PATCH https://r.example.com/v2/x/blobs/uploads/1: unexpected status code 500 Internal Server Error: write /data/1: no space left on device\n"),
			v1alpha1.ReasonRegistryFull, true, []string{"no space left on device"},
		},
		"registry has a quota": {
			push(pushed + "PUT https://r.example.com/v2/x/manifests/1: DENIED: adding 1.0 MiB of storage resource, which when updated to current usage of 9.5 MiB will exceed the configured upper limit of 10.0 MiB.\n"),
			v1alpha1.ReasonRegistryFull, true, []string{"upper limit of 10.0 MiB"},
		},
		"push that fails for an unknown reason": {
			push(pushed + "manifest has no config\n"),
			generic, false, []string{"manifest has no config"},
		},
		"base image whose registry has an unknown certificate": {
			install("error building image: Get \"https://r.example.com/v2/\": tls: failed to verify certificate: x509: certificate signed by unknown authority\n"),
			v1alpha1.ReasonImagePullFailed, false, []string{"config-runtimes", "unknown authority"},
		},
		"author's Dockerfile whose registry has an unknown certificate": {
			own(install("error building image: Get \"https://r.example.com/v2/\": tls: failed to verify certificate: x509: certificate signed by unknown authority\n")),
			v1alpha1.ReasonImagePullFailed, false, []string{"Correct its FROM", "unknown authority"},
		},
		"push step: invalid layer": {
			push("failed to read layer 0000.tar.gz: it is not a regular file\n"),
			generic, false, []string{"it is not a regular file"},
		},
	}
}

func TestDescribe(t *testing.T) {
	for name, tc := range failureCases() {
		t.Run(name, func(t *testing.T) {
			got := tc.failure.Describe(generic, npmWords)
			if got.Reason != tc.reason {
				t.Errorf("Reason = %s, want %s", got.Reason, tc.reason)
			}
			if got.Transient != tc.transient {
				t.Errorf("Transient = %t, want %t", got.Transient, tc.transient)
			}
			for _, words := range tc.words {
				if !strings.Contains(got.Message, words) {
					t.Errorf("Message = %q, want it to contain %q", got.Message, words)
				}
			}
			if strings.Contains(got.Message+got.Log, "\x1b") {
				t.Errorf("colours are left: %q", []string{got.Message, got.Log})
			}
		})
	}
}

func TestEachFailureRuleMatchesACase(t *testing.T) {
	matched := map[string]bool{}
	for _, tc := range failureCases() {
		e := tc.failure.evidence(npmWords)
		rule := e.match()
		matched[rule.name] = true
	}
	for _, rule := range failureRules {
		if !matched[rule.name] {
			t.Errorf("no case matches the rule %q", rule.name)
		}
	}
}

// TestPageHasEachFailure compares the table in docs/builds.md with the code.
func TestPageHasEachFailure(t *testing.T) {
	text, err := os.ReadFile("../../docs/builds.md")
	if err != nil {
		t.Fatal("failed to read page: ", err)
	}
	type row struct{ reason, words, again string }
	seen := map[row]bool{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, " | "); len(cells) == 5 && strings.HasPrefix(cells[1], "`") {
			seen[row{strings.Trim(cells[1], "`"), cells[2], cells[3]}] = false
		}
	}
	const other = "the words of the package manager, or the last line of the log"
	for name, tc := range failureCases() {
		got := tc.failure.Describe(generic, npmWords)
		want := row{got.Reason, other, map[bool]string{true: "yes", false: "no"}[got.Transient]}
		for there := range seen {
			if strings.HasPrefix(got.Message, there.words) {
				want.words = there.words
			}
		}
		if _, ok := seen[want]; !ok {
			t.Errorf("%s: the table has no row that begins with these words, of reason %s and tried again %s: %q", name, want.reason, want.again, got.Message)
		}
		seen[want] = true
	}
	for there, ok := range seen {
		if !ok {
			t.Errorf("no failure has this row of the table: %+v", there)
		}
	}
	for _, bound := range []string{fmt.Sprintf("%d attempts in all", MaxAttempts), fmt.Sprintf("deleted %d times", MaxAttempts)} {
		if !strings.Contains(string(text), bound) {
			t.Errorf("the page does not say %q", bound)
		}
	}
}

func TestDescribeHidesSecrets(t *testing.T) {
	for name, failure := range map[string]Failure{
		"in the log and the words": {Cause: StepFailed, Log: "INFO hunter2\nnpm error code E401\nnpm error hunter2 was refused\n" + exited},
		"in the last line":         {Cause: StepFailed, Log: "error building image: hunter2\n"},
		"in colours":               {Cause: StepFailed, Log: "error building image: hun\x1b[0mter2\n"},
		"in the message":           {Cause: Other, Message: "invalid value hunter2"},
		"at the edge of the log": {
			Cause: StepFailed, Log: strings.Repeat("x", 10) + "hunter2" + strings.Repeat("y", maxLog-4),
		},
		"at the edge of the message": {Cause: Other, Message: strings.Repeat("x", maxMessage-8) + "hunter2" + "y"},
	} {
		t.Run(name, func(t *testing.T) {
			failure.Secrets = []string{"hunter2"}
			got := failure.Describe(generic, npmWords)
			for _, part := range []string{"hunt", "ter2"} {
				if strings.Contains(got.Message, part) || strings.Contains(got.Log, part) {
					t.Errorf("a secret is left in %q", []string{got.Message, got.Log})
				}
			}
		})
	}
}

func TestDescribeBounds(t *testing.T) {
	long := strings.Repeat("npm error é is not a package\n", 10_000)
	got := Failure{Cause: StepFailed, Log: long + "error building image: exit status 1\n"}.Describe(generic, npmWords)
	if len(got.Message) > maxMessage || len(got.Log) > maxLog {
		t.Errorf("message of %d and log of %d bytes, want at most %d and %d", len(got.Message), len(got.Log), maxMessage, maxLog)
	}
	if !utf8.ValidString(got.Message) || !utf8.ValidString(got.Log) {
		t.Error("a letter is cut in two")
	}
	if !strings.HasSuffix(got.Log, "exit status 1") || !strings.HasPrefix(got.Log, "npm error ") {
		t.Errorf("Log = %q, want whole lines up to the last", got.Log)
	}

	oneLine := Failure{Cause: StepFailed, Log: strings.Repeat("é", maxLog)}.Describe(generic, npmWords)
	if !utf8.ValidString(oneLine.Log) || len(oneLine.Log) > maxLog || oneLine.Log == "" {
		t.Errorf("log of one line: %d bytes", len(oneLine.Log))
	}
}
