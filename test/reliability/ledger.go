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
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kiln-dev/kiln/test/controlplane"
)

// entry is a request of the controller or the webhook.
type entry struct {
	at time.Time
	// user is controller or webhook.
	user string
	// verb is the verb of the request, and resource its resource.
	verb, resource string
	// function is the Function that the request is for, or "".
	function string
	happens  fault
}

// functionName matches the Function in the names of its objects.
var functionName = regexp.MustCompile(`^fn-[0-9]{3}`)

// entryOf returns the entry of a request.
func entryOf(r *http.Request, body []byte, watches bool, happens fault) entry {
	e := entry{at: time.Now(), user: "controller", verb: strings.ToLower(r.Method), happens: happens}
	if strings.HasSuffix(r.Header.Get("Authorization"), controlplane.TokenOf(controlplane.WebhookUser)) {
		e.user = "webhook"
	}
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	namespace := ""
	if i := slices.Index(segments, "namespaces"); i >= 0 && i+2 < len(segments) {
		namespace, segments = segments[i+1], segments[i+2:]
	} else if len(segments) > 3 && segments[0] == "apis" {
		segments = segments[3:]
	} else if len(segments) > 2 {
		segments = segments[2:]
	}
	e.resource = segments[0]
	name := ""
	switch {
	case watches:
		e.verb = "watch"
	case len(segments) > 1:
		name = segments[1]
	case r.Method == http.MethodGet && len(segments) == 1 && strings.Contains(r.URL.Path, "/"+e.resource):
		e.verb = "list"
	case r.Method == http.MethodPost:
		var object struct {
			Metadata       struct{ Name string }
			InvolvedObject struct{ Name string }
		}
		if json.Unmarshal(body, &object) == nil {
			name = cmp.Or(object.InvolvedObject.Name, object.Metadata.Name)
		}
	}
	if fn := functionName.FindString(name); fn != "" {
		e.function = namespace + "/" + fn
	}
	return e
}

// isWork reports whether a request is work for a Function. Leases, watches, the LIST before
// a watch, and Events, which are sent in the background, are not.
func (e entry) isWork() bool {
	switch {
	case e.user != "controller", e.verb == "watch", e.verb == "list":
		return false
	}
	return e.resource != "leases" && e.resource != "events"
}

// ledger records the requests of Kiln.
type ledger struct {
	mu      sync.Mutex
	entries []entry
	drops   int
}

func newLedger() *ledger { return &ledger{} }

func (l *ledger) add(e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
}

func (l *ledger) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drops++
}

// take returns the entries since the last call.
func (l *ledger) take() tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := tallyOf(l.entries)
	if l.drops > 0 {
		t.faults[string(dropped)] = l.drops
	}
	l.entries, l.drops = nil, 0
	return t
}

// workSince reports whether there was any work since a time.
func (l *ledger) workSince(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range slices.Backward(l.entries) {
		if e.at.Before(since) {
			return false
		}
		if e.isWork() {
			return true
		}
	}
	return false
}

// tally is a summary of requests.
type tally struct {
	// work is the number of requests for Functions, events that of Events, and all that of
	// all requests of the controller.
	work, events, all int

	// faults counts each fault.
	faults map[string]int

	// by is the share of each Function.
	by map[string]*share
}

// share is the part of one Function.
type share struct {
	requests, faults int

	// busiest is the largest number of requests within a second.
	busiest int

	at []time.Time
}

func tallyOf(entries []entry) tally {
	t := tally{faults: map[string]int{}, by: map[string]*share{}}
	for _, e := range entries {
		if e.happens != fine {
			t.faults[string(e.happens)]++
		}
		if e.user != "controller" {
			continue
		}
		t.all++
		switch {
		case e.resource == "events" && e.verb != "watch" && e.verb != "list":
			t.events++
		case e.isWork():
			t.work++
			s := t.by[e.function]
			if s == nil {
				s = &share{}
				t.by[e.function] = s
			}
			s.add(e)
		}
	}
	return t
}

func (s *share) add(e entry) {
	s.requests++
	if e.happens != fine {
		s.faults++
	}
	s.at = append(s.at, e.at)
	since := len(s.at) - 1
	for since > 0 && e.at.Sub(s.at[since-1]) < time.Second {
		since--
	}
	s.busiest = max(s.busiest, len(s.at)-since)
}

// functions returns the sorted names of the Functions with requests.
func (t *tally) functions() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.by)), func(name string) bool { return name == "" })
}
