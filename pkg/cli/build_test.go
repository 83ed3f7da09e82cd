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

package cli

import (
	"testing"
)

func TestBuildStatus(t *testing.T) {
	w := newWorld(t, newFunction("fn", built), taskRun())
	w.want(`
Image    completed: TaskRun fn-1 built it.
Name     registry.example/fn@sha256:01
Build    version 2, reason SourceChanged, attempt 1
Ended    4m ago, after 60s
TaskRun  fn-1

Next: kubectl fn build-logs fn
`, "build-status", "fn")
	w.want("completed fn-1", "build-status", "fn", "-o", "jsonpath={.image} {.build.ref.name}")

	w = newWorld(t, newFunction("fn", buildFailed))
	w.want(`
Image    error: Correct it.
Build    version 2, reason SourceChanged, attempt 1
Started  5m ago
TaskRun  fn-1

Failed: TaskRunFailed
  Correct it.

Next: kubectl fn build-logs fn
`, "build-status", "fn")
	newWorld(t, newFunction("fn", built)).want("not_found", "build-status", "fn", "-o", "jsonpath={.image}")
}

func TestBuildLogs(t *testing.T) {
	newWorld(t, newFunction("fn", built), taskRun(), buildPod()).want("fake logs", "build-logs", "fn")

	w := newWorld(t, newFunction("fn", buildFailed), taskRun())
	w.want("npm error\n", "build-logs", "fn")
	if got, want := w.errOut.String(), "The pod of the build is gone. These are the last lines of its log:\n"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	newWorld(t, newFunction("fn", built)).wantError("the pod of the build is gone, and the build installed no dependencies", "kubectl fn rebuild fn", "build-logs", "fn")
	newWorld(t, newFunction("fn")).wantError("has not been built yet", "kubectl fn status fn", "build-logs", "fn")
}

func TestBuildLogsFollow(t *testing.T) {
	w := newWorld(t, newFunction("fn", builds), taskRun(), buildPod())
	w.onWatch(func() { w.update("fn", built) })
	w.want("fake logs", "build-logs", "--follow", "fn")

	w = newWorld(t, newFunction("fn", builds), taskRun(), buildPod())
	w.onWatch(func() { w.update("fn", buildFailed) })
	w.wantError("the build failed: Correct it.", "kubectl fn status fn", "build-logs", "--follow", "fn")
	if got := w.out.String(); got != "fake logs" {
		t.Errorf("it prints %q, want the log", got)
	}
}
