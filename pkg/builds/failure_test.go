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

func TestDescribe(t *testing.T) {
	const stepMessage = `"step-build" exited with code 1`
	tests := map[string]struct {
		failure Failure
		reason  string
		// message is what the message must say, among others.
		message string
	}{
		"timeout": {
			Failure{Cause: TimedOut, Message: `TaskRun "x" failed to finish within "15m0s"`},
			v1alpha1.ReasonBuildTimeout, "timeout in config-build",
		},
		"out of memory": {
			Failure{Cause: OutOfMemory, Message: "OOMKilled", Log: "INFO RUN npm install\n"},
			v1alpha1.ReasonBuildOutOfMemory, "memory-limit in config-build",
		},
		"out of memory, of a command that the builder ran": {
			Failure{Cause: StepFailed, Message: stepMessage, Log: "error building image: error building stage: failed to execute command: waiting for process to exit: signal: killed\n"},
			v1alpha1.ReasonBuildOutOfMemory, "waiting for process to exit: signal: killed",
		},
		"cancelled": {
			Failure{Cause: Cancelled, Message: `TaskRun "x" was cancelled`},
			v1alpha1.ReasonBuildCancelled, "serverless.kiln.dev/rebuild",
		},
		"evicted": {
			Failure{Cause: Evicted, Message: "The node was low on resource: ephemeral-storage."},
			v1alpha1.ReasonPodEvicted, "low on resource",
		},
		"executor not pulled": {
			Failure{Cause: ImagePull, Message: "the step \"build\" failed to pull the image"},
			v1alpha1.ReasonImagePullFailed, "failed to pull",
		},
		"something else": {
			Failure{Cause: Other, Message: "Maybe invalid TaskSpec"},
			v1alpha1.ReasonTaskRunFailed, "Maybe invalid TaskSpec",
		},
		"npm": {
			Failure{Cause: StepFailed, Message: stepMessage, Log: "\x1b[36mINFO\x1b[0m[0003] Running\nnpm error code E404\nnpm error 404 Not Found - GET https://example.com/nope\nerror building image: error building stage: failed to execute command: waiting for process to exit: exit status 1\n"},
			v1alpha1.ReasonTaskRunFailed, "code E404\n404 Not Found - GET https://example.com/nope",
		},
		"npm's own 401 is not the registry's": {
			Failure{Cause: StepFailed, Message: stepMessage, Log: "npm error code E401\nnpm error 401 Unauthorized\nerror building image: exit status 1\n"},
			v1alpha1.ReasonTaskRunFailed, "code E401",
		},
		"push refused": {
			Failure{Cause: StepFailed, Message: stepMessage, Log: `error checking push permissions -- make sure you entered the correct tag name, and that you are authenticated correctly, and try again: checking push permission for "r.example.com/x": POST https://r.example.com/v2/x/blobs/uploads/: UNAUTHORIZED: authentication required` + "\n"},
			v1alpha1.ReasonRegistryUnauthorized, "UNAUTHORIZED: authentication required",
		},
		"base image that is not there": {
			Failure{Cause: StepFailed, Message: stepMessage, Log: "error building image: GET https://r.example.com/v2/node/manifests/99: MANIFEST_UNKNOWN: manifest unknown\n"},
			v1alpha1.ReasonImagePullFailed, "MANIFEST_UNKNOWN",
		},
		"registry not reached": {
			Failure{Cause: StepFailed, Message: stepMessage, Log: `error checking push permissions -- make sure: checking push permission for "r.example.com/x": creating push check transport for r.example.com failed: Get "https://r.example.com/v2/": dial tcp: lookup r.example.com: no such host` + "\n"},
			v1alpha1.ReasonTaskRunFailed, "no such host",
		},
		"step failed without a log": {
			Failure{Cause: StepFailed, Message: stepMessage},
			v1alpha1.ReasonTaskRunFailed, stepMessage,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := tc.failure.Describe(npmWords)
			if got.Reason != tc.reason {
				t.Errorf("Reason = %s, want %s", got.Reason, tc.reason)
			}
			if !strings.Contains(got.Message, tc.message) {
				t.Errorf("Message = %q, want it to say %q", got.Message, tc.message)
			}
			if strings.Contains(got.Message+got.Log, "\x1b") {
				t.Errorf("colours were left in: %q", got)
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
