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
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// load is the result of a server under load.
type load struct {
	// requests is the number of answers with status 200.
	requests int
	// took is the duration.
	took time.Duration
	// p99 is the 99th percentile of the time of an answer.
	p99 time.Duration
}

// perRequest returns the time between two answers.
func (l load) perRequest() time.Duration { return l.took / time.Duration(max(l.requests, 1)) }

// send repeats the request on each connection until the time is up.
func send(address string, request []byte, connections int, during time.Duration) (load, error) {
	times := make([][]time.Duration, connections)
	start := time.Now()
	var group errgroup.Group
	for i := range connections {
		group.Go(func() (err error) {
			times[i], err = sendOne(address, request, start.Add(during), connections == 1)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return load{}, err
	}
	took := time.Since(start)
	all := slices.Sorted(slices.Values(slices.Concat(times...)))
	if len(all) == 0 {
		return load{}, fmt.Errorf("failed to get an answer from %s within %v", address, during)
	}
	return load{requests: len(all), took: took, p99: all[(len(all)-1)*99/100]}, nil
}

// sendOne is send on one connection. It does as little work as possible, so it measures
// the server. A single connection reads without sleeping: see eager.
func sendOne(address string, request []byte, until time.Time, alone bool) ([]time.Duration, error) {
	conn, err := net.DialTimeout("tcp", address, time.Minute) //nolint:noctx // It has no context, and a limit.
	if err != nil {
		return nil, fmt.Errorf("failed to connect: %w", err)
	}
	defer conn.Close()
	var from io.Reader = conn
	if alone {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			return nil, fmt.Errorf("failed to read without sleep: %w", err)
		}
		from = eager{raw}
	}
	answers := bufio.NewReader(from)
	var times []time.Duration
	for before := time.Now(); before.Before(until); {
		if _, err := conn.Write(request); err != nil {
			return nil, fmt.Errorf("failed to send request: %w", err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			return nil, fmt.Errorf("failed to read answer: %w", err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return nil, fmt.Errorf("failed to read answer: %w", err)
		}
		if answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("failed to get an answer: %s", answer.Status)
		}
		after := time.Now()
		times = append(times, after.Sub(before))
		before = after
	}
	return times, nil
}

// eager reads from a connection without sleeping. A sleeping core takes longer to wake
// than a fast server takes to answer, which would favour slower servers.
type eager struct{ conn syscall.RawConn }

// answerTimeout is how long an answer may take.
const answerTimeout = 20 * time.Second

// Read implements io.Reader.
func (e eager) Read(p []byte) (n int, err error) {
	deadline := time.Now().Add(answerTimeout)
	failed := e.conn.Read(func(fd uintptr) bool {
		for time.Now().Before(deadline) {
			n, err = syscall.Read(int(fd), p)
			if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
				return true
			}
		}
		err = os.ErrDeadlineExceeded
		return true
	})
	switch {
	case failed != nil:
		return 0, failed
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
