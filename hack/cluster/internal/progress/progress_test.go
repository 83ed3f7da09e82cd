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

package progress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func TestPartSucceeds(t *testing.T) {
	var out bytes.Buffer
	r := New(&out, t.TempDir())
	err := r.Part(t.Context(), "node image", func(ctx context.Context, _ io.Writer) error {
		Note(ctx, "cached")
		return nil
	})
	if err != nil {
		t.Fatalf("Part() = %v", err)
	}
	if got := out.String(); !strings.Contains(got, "node image: done in ") || !strings.Contains(got, "(cached)") {
		t.Errorf("printed %q, want the part's end and its note", got)
	}
}

func TestPartFails(t *testing.T) {
	var out bytes.Buffer
	r := New(&out, t.TempDir())
	cause := errors.New("no space left")
	err := r.Part(t.Context(), "node image", func(_ context.Context, log io.Writer) error {
		for i := range 30 {
			fmt.Fprintf(log, "line %d\n", i)
		}
		return cause
	})

	var part *PartError
	if !errors.As(err, &part) || !errors.Is(err, cause) {
		t.Fatalf("Part() = %v, want a PartError with the cause", err)
	}
	got := out.String()
	for _, want := range []string{"node image: FAILED", "| line 29\n", "| no space left\n", part.Log} {
		if !strings.Contains(got, want) {
			t.Errorf("printed %q, want it to contain %q", got, want)
		}
	}
	if strings.Contains(got, "line 10\n") {
		t.Errorf("printed %q, want only the last %d lines", got, tailLines)
	}
	if log, err := os.ReadFile(part.Log); err != nil || !strings.Contains(string(log), "line 0\n") {
		t.Errorf("log = %q, %v, want all lines", log, err)
	}
}

func TestPartStopped(t *testing.T) {
	var out bytes.Buffer
	r := New(&out, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	err := r.Part(ctx, "etcd", func(ctx context.Context, _ io.Writer) error {
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Part() = %v, want context.Canceled", err)
	}
	if got := out.String(); !strings.Contains(got, "etcd: stopped after") || strings.Contains(got, "FAILED") {
		t.Errorf("printed %q, want that the part was stopped", got)
	}
}

func TestPartInPartReportsOnce(t *testing.T) {
	var out bytes.Buffer
	r := New(&out, t.TempDir())
	err := r.Part(t.Context(), "outer", func(ctx context.Context, _ io.Writer) error {
		return r.Part(ctx, "inner", func(context.Context, io.Writer) error { return errors.New("broken") })
	})
	var part *PartError
	if !errors.As(err, &part) || part.Part != "inner" {
		t.Errorf("Part() = %v, want the inner part's error", err)
	}
	if got := strings.Count(out.String(), "its log is"); got != 1 {
		t.Errorf("printed %d logs, want 1:\n%s", got, out.String())
	}
}

func TestNoteOutsideOfPart(t *testing.T) {
	Note(t.Context(), "nobody is told") // Must not panic.
}

func TestFileName(t *testing.T) {
	tests := map[string]string{
		"etcd":                "etcd.log",
		"Kubernetes v1.36.3":  "kubernetes-v1.36.3.log",
		"kind's node image":   "kind-s-node-image.log",
		"../../etc: passwd/ ": "..-..-etc-passwd.log",
	}
	for part, want := range tests {
		if got := fileName(part); got != want {
			t.Errorf("fileName(%q) = %q, want %q", part, got, want)
		}
	}
}
