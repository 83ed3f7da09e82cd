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

package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
)

// The parts of the time from the write of a Function to its Ready, in order.
const (
	admission = "admission"
	configure = "configure"
	queue     = "queue"
	podStart  = "pod-start"
	fetch     = "fetch"
	unpack    = "unpack"
	run       = "run"
	push      = "push"
	finish    = "finish"
	revision  = "revision"
	route     = "route"
	// rollout takes the place of the last two where a Deployment serves.
	rollout = "rollout"

	// The parts of the floor.
	emptyTaskRun = "empty-taskrun"
	emptyJob     = "empty-job"
	service      = "service"
)

// parts are all parts in the order of time.
var parts = []string{
	admission, configure, queue, podStart, fetch, unpack, run, push, finish, revision, route, rollout,
	emptyTaskRun, emptyJob, service,
}

// marks are the times at which the steps to Ready were first seen. Without a build, its
// marks are zero.
type marks struct {
	// start is just before the write, written when it was answered.
	start, written time.Time

	// build and pod are the times of the creation of the TaskRun or Job, and of its pod.
	build, pod time.Time

	// log has the times of the builder's log.
	log buildLog

	// image is when the status had the image of this generation.
	image time.Time

	// revision is when the newest revision was ready, ready when the Function was.
	revision, ready time.Time

	// rollout reports that a Deployment serves, which has no revision to wait for.
	rollout bool
}

// split returns the parts of the time, in seconds. A mark that comes before its
// predecessor, because of two watches, counts as no time.
func (m marks) split() map[string]float64 {
	split := map[string]float64{}
	last := m.start
	part := func(name string, end time.Time) {
		if end.IsZero() {
			return
		}
		split[name] = max(0, end.Sub(last).Seconds())
		if end.After(last) {
			last = end
		}
	}
	part(admission, m.written)
	part(configure, m.build)
	part(queue, m.pod)
	part(podStart, m.log.begun)
	part(fetch, m.log.fetched)
	part(unpack, m.log.unpacked)
	part(run, m.log.ran)
	part(push, m.log.ended)
	part(finish, m.image)
	if m.rollout {
		part(rollout, m.ready)
		return split
	}
	part(revision, m.revision)
	part(route, m.ready)
	return split
}

// split measures the parts of a time that follow each other.
type split struct {
	start, last time.Time
	parts       map[string]float64
}

func newSplit() *split {
	now := time.Now()
	return &split{start: now, last: now, parts: map[string]float64{}}
}

// mark ends a part.
func (s *split) mark(part string) {
	now := time.Now()
	s.parts[part] = now.Sub(s.last).Seconds()
	s.last = now
}

// total returns the time from the start to the last mark.
func (s *split) total() time.Duration { return s.last.Sub(s.start) }

// buildLog has the times in the logs of a build: its start; when Kaniko had resolved the
// base image, unpacked it and run all instructions; and the end of the push. Without
// dependencies Kaniko does not run.
type buildLog struct {
	begun, fetched, unpacked, ran, ended time.Time
}

// readInstall reads the log of Kaniko.
func (b *buildLog) readInstall(log io.Reader) error {
	unpacking := false
	return readLines(log, func(at time.Time, text string) {
		if b.begun.IsZero() {
			b.begun = at
		}
		if unpacking {
			unpacking, b.unpacked = false, at
		}
		if strings.Contains(text, "Unpacking rootfs") {
			unpacking, b.fetched = true, at
		}
		b.ran = at
	})
}

// readPush reads the log of the step after that.
func (b *buildLog) readPush(log io.Reader) error {
	return readLines(log, func(at time.Time, _ string) {
		if b.begun.IsZero() {
			b.begun = at
		}
		b.ended = at
	})
}

// readLines reads a log in which each line begins with its time as the kubelet
// noted it.
func readLines(log io.Reader, visit func(at time.Time, text string)) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		stamp, text, _ := strings.Cut(lines.Text(), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			return fmt.Errorf("failed to read the time of a line of the log: %w", err)
		}
		visit(at, text)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("failed to read the log: %w", err)
	}
	return nil
}
