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

// Package progress prints a line for each part of the work with its duration, and the end
// of the log of a failed part.
package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	// quiet is the delay of the line about the start of a part.
	quiet = 2 * time.Second
	// heartbeat is the interval of the lines about a running part.
	heartbeat = 30 * time.Second
	// tailLines is the number of shown lines of a failed part's log.
	tailLines = 20
)

// Reporter prints the progress of parts that may run concurrently. Each part
// has a log file of its own.
type Reporter struct {
	logDir string
	start  time.Time

	mu  sync.Mutex
	out io.Writer
}

// New returns a Reporter that prints to out and keeps the logs in logDir.
func New(out io.Writer, logDir string) *Reporter {
	return &Reporter{logDir: logDir, start: time.Now(), out: out}
}

// PartError is the error of a part that has been reported to the user.
type PartError struct {
	// Part is the name of the part.
	Part string
	// Log is the path of its log.
	Log string
	// Err is why it failed.
	Err error
}

// Error returns the name of the part and why it failed.
func (e *PartError) Error() string { return e.Part + ": " + e.Err.Error() }

// Unwrap returns why the part failed.
func (e *PartError) Unwrap() error { return e.Err }

// note is the remark on the last line of a part.
type note struct {
	mu   sync.Mutex
	text string
}

type noteKey struct{}

// Note adds a remark, such as "cached", to the line that ends the current part.
func Note(ctx context.Context, text string) {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.text = text
	}
}

// Part runs fn as the part of that name and reports its progress. The part's log file
// keeps the output of fn.
func (r *Reporter) Part(ctx context.Context, name string, fn func(ctx context.Context, log io.Writer) error) error {
	log, err := r.openLog(name)
	if err != nil {
		return err
	}
	defer log.Close()

	n := &note{}
	start := time.Now()
	stop := r.watch(name, start)
	err = fn(context.WithValue(ctx, noteKey{}, n), log)
	stop()

	took := time.Since(start)
	if err == nil {
		r.done(name, took, n)
		return nil
	}
	fmt.Fprintln(log, err)
	return r.failed(ctx, name, took, log.Name(), err)
}

// Printf prints a line that belongs to no part.
func (r *Reporter) Printf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
}

// Elapsed returns the time since the Reporter was made.
func (r *Reporter) Elapsed() time.Duration { return time.Since(r.start) }

func (r *Reporter) openLog(name string) (*os.File, error) {
	if err := os.MkdirAll(r.logDir, 0o755); err != nil {
		return nil, fmt.Errorf("failed to create log directory: %w", err)
	}
	log, err := os.Create(filepath.Join(r.logDir, fileName(name)))
	if err != nil {
		return nil, fmt.Errorf("failed to create log of %s: %w", name, err)
	}
	return log, nil
}

// watch reports the start of a part, unless it ends at once, and that it still runs. The
// returned function ends the watch.
func (r *Reporter) watch(name string, start time.Time) func() {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		wait := time.NewTimer(quiet)
		defer wait.Stop()
		for text := "…"; ; text = "still at it" {
			select {
			case <-done:
				return
			case <-wait.C:
				if text == "…" {
					r.line(name, text)
				} else {
					r.line(name, fmt.Sprintf("%s, %s", text, round(time.Since(start))))
				}
				wait.Reset(heartbeat)
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

func (r *Reporter) done(name string, took time.Duration, n *note) {
	text := "done in " + round(took)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text != "" {
		text += " (" + n.text + ")"
	}
	r.line(name, text)
}

func (r *Reporter) failed(ctx context.Context, name string, took time.Duration, log string, err error) error {
	var reported *PartError
	switch {
	case ctx.Err() != nil:
		// Another part failed first, or the user pressed Ctrl-C.
		r.line(name, "stopped after "+round(took))
	case errors.As(err, &reported):
		r.line(name, "failed after "+round(took))
		return err
	default:
		r.line(name, fmt.Sprintf("FAILED after %s\n%s  its log is %s", round(took), tail(log), log))
	}
	return &PartError{Part: name, Log: log, Err: err}
}

func (r *Reporter) line(name, text string) {
	elapsed := time.Since(r.start)
	r.Printf("[%2d:%02d] %s: %s", int(elapsed.Minutes()), int(elapsed.Seconds())%60, name, text)
}

// tail returns the last lines of a log, indented.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "  " + err.Error() + "\n"
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return "  | " + strings.Join(lines, "\n  | ") + "\n"
}

func round(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

var notInFileNames = regexp.MustCompile(`[^a-z0-9.]+`)

// fileName makes the name of a part's log file from the part's name.
func fileName(part string) string {
	return strings.Trim(notInFileNames.ReplaceAllString(strings.ToLower(part), "-"), "-") + ".log"
}
