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
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// npmWords stands for the package manager's own words.
func npmWords(log string) string {
	var words []string
	for line := range strings.Lines(log) {
		if text, ok := strings.CutPrefix(line, "npm error "); ok {
			words = append(words, strings.TrimSpace(text))
		}
	}
	return strings.Join(words, "\n")
}

// exited is how the builder ends when a command of the Dockerfile has failed.
const exited = "error building image: error building stage: failed to execute command: waiting for process to exit: exit status 1\n"

func TestDescribe(t *testing.T) {
	const stepMessage = `"step-install" exited with code 1`
	step := func(log string) Failure { return Failure{Cause: StepFailed, Message: stepMessage, Log: log} }
	tests := map[string]struct {
		failure Failure
		reason  string
		// words are what the message must say, among others.
		words []string
	}{
		"timeout": {
			Failure{Cause: TimedOut, Message: `TaskRun "greeter-1" failed to finish within "15m0s"`},
			v1alpha1.ReasonBuildTimeout, []string{"spec.build.timeout", "max-timeout in config-build", `"15m0s"`},
		},
		"out of memory, the builder itself": {
			Failure{Cause: OutOfMemory, Message: `"step-install" exited with code 137: OOMKilled`, Log: "INFO RUN npm install\n"},
			v1alpha1.ReasonBuildOutOfMemory, []string{"spec.build.resources", "max-memory in config-build", "OOMKilled"},
		},
		"out of memory, a command that the builder ran": {
			step("error building image: error building stage: failed to execute command: waiting for process to exit: signal: killed\n"),
			v1alpha1.ReasonBuildOutOfMemory, []string{"spec.build.resources", "waiting for process to exit: signal: killed"},
		},
		"out of memory, a command of the shell that the builder ran": {
			step("Killed\nerror building image: error building stage: failed to execute command: waiting for process to exit: exit status 137\n"),
			v1alpha1.ReasonBuildOutOfMemory, []string{"exit status 137"},
		},
		"out of memory, the heap of node": {
			step("<--- Last few GCs --->\n[12:0x1] 1001 ms: Mark-Compact 250.1 (258.3) -> 249.9 (258.6) MB\nFATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n----- Native stack trace -----\nAborted\nerror building image: error building stage: failed to execute command: waiting for process to exit: exit status 134\n"),
			v1alpha1.ReasonBuildOutOfMemory, []string{"spec.build.resources"},
		},
		"cancelled": {
			Failure{Cause: Cancelled, Message: `TaskRun "greeter-1" was cancelled`},
			v1alpha1.ReasonBuildCancelled, []string{"serverless.kiln.dev/rebuild"},
		},
		"evicted": {
			Failure{Cause: Evicted, Message: "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi."},
			v1alpha1.ReasonPodEvicted, []string{"low on resource: ephemeral-storage", "serverless.kiln.dev/rebuild"},
		},
		"executor not pulled": {
			Failure{Cause: ImagePull, Message: `The step "build" in TaskRun "greeter-1" failed to pull the image "". The pod errored with the message: "Back-off pulling image "registry.example.com/kaniko"."`},
			v1alpha1.ReasonImagePullFailed, []string{"kaniko-image in config-build", "Back-off pulling image"},
		},
		"something else": {
			Failure{Cause: Other, Message: "Maybe invalid TaskSpec"},
			v1alpha1.ReasonTaskRunFailed, []string{"Maybe invalid TaskSpec"},
		},
		"npm does not find a package": {
			step("\x1b[36mINFO\x1b[0m[0003] Running: [/bin/sh -c npm install]\n" +
				"npm error code E404\nnpm error 404 Not Found - GET https://npm.example.com/no-such-package - Not found\nnpm error 404\n" +
				"npm error 404  'no-such-package@1.0.0' is not in this registry.\n" + exited),
			v1alpha1.ReasonTaskRunFailed, []string{"spec.deps", "404 Not Found - GET https://npm.example.com/no-such-package", "'no-such-package@1.0.0' is not in this registry."},
		},
		"npm does not find a version": {
			step("npm error code ETARGET\nnpm error notarget No matching version found for ms@99.0.0.\n" + exited),
			v1alpha1.ReasonTaskRunFailed, []string{"spec.deps", "No matching version found for ms@99.0.0."},
		},
		"npm's own 401 is not the registry's": {
			step("npm error code E401\nnpm error Incorrect or missing password.\n" + exited),
			v1alpha1.ReasonTaskRunFailed, []string{"spec.build.secretName", "Incorrect or missing password."},
		},
		"npm does not reach the registry": {
			step("npm error code ECONNREFUSED\nnpm error syscall connect\nnpm error errno ECONNREFUSED\nnpm error FetchError: request to https://npm.example.com/ms failed, reason: connect ECONNREFUSED 192.0.2.1:443\n" + exited),
			v1alpha1.ReasonTaskRunFailed, []string{"was not reached", "connect ECONNREFUSED 192.0.2.1:443"},
		},
		"no room on the node's disk": {
			step("npm error code ENOSPC\nnpm error syscall write\nnpm error nospc ENOSPC: no space left on device, write\n" + exited),
			v1alpha1.ReasonTaskRunFailed, []string{"no room on its disk", "no space left on device"},
		},
		"a script of a dependency fails": {
			step("npm error code 1\nnpm error path /function/node_modules/native\nnpm error command failed\nnpm error command sh -c node-gyp rebuild\n" + exited),
			v1alpha1.ReasonTaskRunFailed, []string{"command sh -c node-gyp rebuild"},
		},
		"push refused, since nobody has logged in": {
			step(`error checking push permissions -- make sure you entered the correct tag name, and that you are authenticated correctly, and try again: checking push permission for "r.example.com/x": POST https://r.example.com/v2/x/blobs/uploads/: UNAUTHORIZED: authentication required; [map[Action:pull Class: Name:x Type:repository]]` + "\n"),
			v1alpha1.ReasonRegistryUnauthorized, []string{"config-registry", "UNAUTHORIZED: authentication required"},
		},
		"push refused, since the password is wrong": {
			step(`error checking push permissions -- make sure you entered the correct tag name, and that you are authenticated correctly, and try again: checking push permission for "r.example.com/x": POST https://r.example.com/v2/x/blobs/uploads/: unexpected status code 401 Unauthorized` + "\n"),
			v1alpha1.ReasonRegistryUnauthorized, []string{"config-registry", "401 Unauthorized"},
		},
		"push refused at the end": {
			step("error pushing image: failed to push to destination r.example.com/x:1: POST https://r.example.com/v2/x/blobs/uploads/: DENIED: requested access to the resource is denied\n"),
			v1alpha1.ReasonRegistryUnauthorized, []string{"DENIED"},
		},
		"push refused by the step that pushes": {
			step("failed to push image r.example.com/x:1: POST https://r.example.com/v2/x/blobs/uploads/: UNAUTHORIZED: authentication required; [map[Action:push Class: Name:x Type:repository]]\n"),
			v1alpha1.ReasonRegistryUnauthorized, []string{"config-registry", "UNAUTHORIZED: authentication required"},
		},
		"the step that pushes does not reach the registry": {
			step("failed to push image r.example.com/x:1: Get \"https://r.example.com/v2/\": dial tcp: lookup r.example.com on 10.96.0.10:53: no such host\n"),
			v1alpha1.ReasonTaskRunFailed, []string{"no such host"},
		},
		"base image that the step that pushes does not find": {
			step("failed to pull base image r.example.com/node:99: GET https://r.example.com/v2/node/manifests/99: MANIFEST_UNKNOWN: manifest unknown; unknown tag=99\n"),
			v1alpha1.ReasonImagePullFailed, []string{"config-runtimes", "r.example.com/node:99"},
		},
		"base image that the step that pushes may not see": {
			step("failed to pull base image r.example.com/node:99: unexpected status code 401 Unauthorized\n"),
			v1alpha1.ReasonImagePullFailed, []string{"config-runtimes", "r.example.com/node:99"},
		},
		"base image that is not there": {
			step("error building image: GET https://r.example.com/v2/node/manifests/99: MANIFEST_UNKNOWN: manifest unknown; unknown tag=99\n"),
			v1alpha1.ReasonImagePullFailed, []string{"config-runtimes", "node/manifests/99: MANIFEST_UNKNOWN"},
		},
		"base image that the registry shows to nobody": {
			step("error building image: GET https://index.docker.io/v2/library/nodee/manifests/24: UNAUTHORIZED: authentication required; [map[Action:pull Class: Name:library/nodee Type:repository]]\n"),
			v1alpha1.ReasonImagePullFailed, []string{"config-runtimes", "library/nodee"},
		},
		"base image whose registry is not there": {
			step("error building image: Get \"https://r.example.com/v2/\": dial tcp: lookup r.example.com on 10.96.0.10:53: no such host\n"),
			v1alpha1.ReasonImagePullFailed, []string{"no such host"},
		},
		"registry not reached": {
			step(`error checking push permissions -- make sure: checking push permission for "r.example.com/x": creating push check transport for r.example.com failed: Get "https://r.example.com/v2/": dial tcp: lookup r.example.com: no such host` + "\n"),
			v1alpha1.ReasonTaskRunFailed, []string{"no such host"},
		},
		"registry is full": {
			step("error pushing image: failed to push to destination r.example.com/x:1: PATCH https://r.example.com/v2/x/blobs/uploads/1: unexpected status code 507 Insufficient Storage\n"),
			v1alpha1.ReasonTaskRunFailed, []string{"507 Insufficient Storage"},
		},
		"a Dockerfile that is none": {
			step("error building image: parsing dockerfile: dockerfile parse error on line 3: unknown instruction: RUNN\n"),
			v1alpha1.ReasonTaskRunFailed, []string{"unknown instruction: RUNN"},
		},
		"step failed without a log": {
			step(""),
			v1alpha1.ReasonTaskRunFailed, []string{stepMessage, "could not be read"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := tc.failure.Describe(npmWords)
			if got.Reason != tc.reason {
				t.Errorf("Reason = %s, want %s", got.Reason, tc.reason)
			}
			for _, words := range tc.words {
				if !strings.Contains(got.Message, words) {
					t.Errorf("Message = %q, want it to say %q", got.Message, words)
				}
			}
			if strings.Contains(got.Message+got.Log, "\x1b") {
				t.Errorf("colours were left in: %q", got)
			}
		})
	}
}

func TestDescribeHidesSecrets(t *testing.T) {
	for name, failure := range map[string]Failure{
		"in the log and the words": {Cause: StepFailed, Log: "INFO hunter2\nnpm error code E401\nnpm error hunter2 was refused\n" + exited},
		"in the last line":         {Cause: StepFailed, Log: "error building image: hunter2\n"},
		"in colours":               {Cause: StepFailed, Log: "error building image: hun\x1b[0mter2\n"},
		"in the message":           {Cause: Other, Message: "invalid value hunter2"},
		"at the edge of what is kept": {
			Cause: StepFailed, Log: strings.Repeat("x", 10) + "hunter2" + strings.Repeat("y", maxLog-4),
		},
		"at the edge of the message": {Cause: Other, Message: strings.Repeat("x", maxMessage-8) + "hunter2" + "y"},
	} {
		t.Run(name, func(t *testing.T) {
			failure.Secrets = []string{"hunter2"}
			got := failure.Describe(npmWords)
			for _, part := range []string{"hunt", "ter2"} {
				if strings.Contains(got.Message, part) || strings.Contains(got.Log, part) {
					t.Errorf("a secret is left in %q", got)
				}
			}
		})
	}
}

func TestDescribeBounds(t *testing.T) {
	long := strings.Repeat("npm error é is not a package\n", 10_000)
	got := Failure{Cause: StepFailed, Log: long + "error building image: exit status 1\n"}.Describe(npmWords)
	if len(got.Message) > maxMessage || len(got.Log) > maxLog {
		t.Errorf("message of %d and log of %d bytes, want at most %d and %d", len(got.Message), len(got.Log), maxMessage, maxLog)
	}
	if !utf8.ValidString(got.Message) || !utf8.ValidString(got.Log) {
		t.Error("a letter was cut in two")
	}
	if !strings.HasSuffix(got.Log, "exit status 1") || !strings.HasPrefix(got.Log, "npm error ") {
		t.Errorf("Log = %q, want whole lines up to the last", got.Log)
	}

	oneLine := Failure{Cause: StepFailed, Log: strings.Repeat("é", maxLog)}.Describe(npmWords)
	if !utf8.ValidString(oneLine.Log) || len(oneLine.Log) > maxLog || oneLine.Log == "" {
		t.Errorf("log of one line: %d bytes", len(oneLine.Log))
	}
}

func TestStateEnded(t *testing.T) {
	got := map[State]bool{}
	for _, s := range []State{Planned, Running, Succeeded, Failed} {
		got[s] = s.Ended()
	}
	if diff := cmp.Diff(map[State]bool{Planned: false, Running: false, Succeeded: true, Failed: true}, got); diff != "" {
		t.Errorf("Ended() (-want, +got):\n%s", diff)
	}
}
