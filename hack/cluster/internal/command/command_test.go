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

package command

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	var log bytes.Buffer
	err := New("sh", "-c", "cat; echo $NAME; pwd; echo complaint >&2").
		In("/").With("NAME=kiln").Reading(strings.NewReader("input\n")).Run(t.Context(), &log)
	if err != nil {
		t.Fatalf("Run() = %v", err)
	}
	if got, want := log.String(), "input\nkiln\n/\ncomplaint\n"; got != want {
		t.Errorf("log = %q, want %q", got, want)
	}
}

func TestOutput(t *testing.T) {
	got, err := New("sh", "-c", "echo ' text '; echo noise >&2").Output(t.Context())
	if err != nil || got != "text" {
		t.Errorf("Output() = %q, %v, want text", got, err)
	}
	_, err = New("sh", "-c", "echo reason >&2; exit 3").Output(t.Context())
	if err == nil || !strings.Contains(err.Error(), "reason") || !strings.Contains(err.Error(), "failed to run sh -c") {
		t.Errorf("Output() = %v, want an error with what was printed", err)
	}
}

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := New("sleep", "60").Run(ctx, &bytes.Buffer{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run() = %v, want %v", err, context.DeadlineExceeded)
	}
}
