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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kiln-dev/kiln/test/controlplane"
)

// audit reads the API server's audit log.
type audit struct {
	file string
	// read is the number of bytes of the file that were counted.
	read int64
}

// request is the key of a counter: the user, the verb, the resource, and the failure, if
// any.
type request struct {
	User, Verb, Resource, Failure string
}

// requests counts requests.
type requests map[request]int

// entry is a line of the log.
type entry struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	} `json:"responseStatus"`
}

// count adds the requests of a log.
func (r requests) count(log io.Reader) error {
	decoder := json.NewDecoder(bufio.NewReaderSize(log, 1<<20))
	for {
		var e entry
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("failed to read audit log: %w", err)
		}
		seen := request{User: e.User.Username, Verb: e.Verb, Resource: e.ObjectRef.Resource}
		if e.ObjectRef.Subresource != "" {
			seen.Resource += "/" + e.ObjectRef.Subresource
		}
		if e.ResponseStatus.Code >= 400 {
			seen.Failure = e.ResponseStatus.Reason
		}
		r[seen]++
	}
}

// settle waits until the audit log is quiet, and at most for patience. Leases are ignored:
// they are renewed every two seconds.
func (a *audit) settle(ctx context.Context, patience time.Duration) error {
	const quiet = 1500 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	size, since := int64(-1), time.Now()
	for time.Since(since) < quiet {
		info, err := os.Stat(a.file)
		if err != nil {
			return fmt.Errorf("failed to look at audit log: %w", err)
		}
		// The lines of one or two leases do not count.
		if grown := info.Size() - size; size < 0 || grown > 2500 {
			size, since = info.Size(), time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(quiet / 10):
		}
	}
	return nil
}

// take returns the requests since the last call.
func (a *audit) take() (requests, error) {
	file, err := os.Open(a.file)
	if err != nil {
		return nil, fmt.Errorf("failed to open audit log: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("failed to look at audit log: %w", err)
	}
	counted := requests{}
	if err := counted.count(io.NewSectionReader(file, a.read, info.Size()-a.read)); err != nil {
		return nil, err
	}
	a.read = info.Size()
	return counted, nil
}

// ofController returns the controller's requests that a condition selects.
func (r requests) ofController(selects func(request) bool) (n int) {
	for request, count := range r {
		if request.User == controlplane.ControllerUser && selects(request) {
			n += count
		}
	}
	return n
}

// isWrite reports whether a request writes an object of a Function. Leases are renewed in
// any case, and Events are counted separately.
func isWrite(r request) bool {
	switch r.Verb {
	case "get", "list", "watch":
		return false
	}
	return r.Resource != "leases" && r.Resource != "events"
}

func isEvent(r request) bool { return r.Resource == "events" && r.Verb != "list" && r.Verb != "watch" }

func isGet(r request) bool { return r.Verb == "get" && r.Resource != "leases" }

func isList(r request) bool { return r.Verb == "list" }

func isConflict(r request) bool {
	return isWrite(r) && r.Failure == "Conflict"
}
