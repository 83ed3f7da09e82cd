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

// Package queue limits how many builds run at once, in the cluster and in each namespace.
// Its user reports builds that run and end, and asks whether a Function may start one.
package queue

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Grace is how long a build may be pending before it counts only in its namespace, and
// how long no build may start before one goes beyond the cluster limit.
const Grace = 30 * time.Second

const (
	// unseenTimeout is how long a started build counts as running without being seen.
	// It may have been deleted before the cache showed it.
	unseenTimeout = 5 * time.Minute

	// yieldTimeout is how long a build yields to others.
	yieldTimeout = time.Hour
)

// Queue knows which builds run and which Functions wait. Within a namespace, the first
// to come is the first served. Between namespaces, the one with the fewest running builds
// goes first, then the one served longest ago.
//
// One namespace cannot hold up the others:
//   - A build that has been pending for Grace is stalled. It counts only in its namespace.
//     Once it runs, it counts again, also beyond the limit.
//   - If no build has started for Grace, a namespace that runs none starts one beyond the
//     cluster limit. When that ends, the next such namespace may start one. Functions
//     whose Ticket.Yields never do.
//
// So a namespace that runs none waits at most Grace, and Grace for each other such
// namespace that was there before. At most one build of each namespace is beyond the limit,
// and these use none of its slots.
//
// A Function has one build at a time. All methods are safe for concurrent use.
type Queue struct {
	wake func(types.NamespacedName)
	now  func() time.Time

	mu     sync.Mutex
	limits Limits

	// opened counts the calls of Open less those of Leave.
	opened int

	// lines hold the waiting Functions in their order, and waiting finds them by name.
	lines   map[lane][]*waiting
	waiting map[types.NamespacedName]*waiting

	// granted are the Functions that may start a build and have not yet. The value
	// reports whether the build is beyond the cluster limit.
	granted map[types.NamespacedName]bool

	running map[types.NamespacedName]running

	// served is the turn in which each namespace was served last. It is cleared when
	// nobody waits.
	served map[string]int64
	turn   int64

	// moved is when a build was last granted, and surplus is how many may be beyond the
	// cluster limit.
	moved   time.Time
	surplus int32

	timer *time.Timer
}

type lane struct {
	namespace string
	yields    bool
}

type waiting struct {
	function types.NamespacedName
	Ticket
	reported int
	stuck    bool
}

func (w *waiting) lane() lane { return lane{namespace: w.function.Namespace, yields: w.Yields} }

func (w *waiting) compare(other *waiting) int {
	return cmp.Or(w.Since.Compare(other.Since), strings.Compare(w.function.Name, other.function.Name))
}

type running struct {
	function types.NamespacedName
	uid      types.UID
	// beyond reports whether the build was granted beyond the cluster limit.
	beyond bool
	// pending is since when the build is pending. It is zero if it runs.
	pending time.Time
	// unseen is when the build was started. It is zero once the build was seen.
	unseen time.Time
	// doubtful reports whether the build may not exist. It does not count then.
	doubtful bool
}

// New returns a Queue that grants nothing until it is opened. It calls wake for each
// Function that may start, and for each whose reported place has changed. wake must not
// block. Until ctx ends, builds also start because time passes.
func New(ctx context.Context, limits Limits, wake func(types.NamespacedName)) *Queue {
	q := &Queue{
		wake:    wake,
		now:     time.Now,
		limits:  limits,
		lines:   map[lane][]*waiting{},
		waiting: map[types.NamespacedName]*waiting{},
		granted: map[types.NamespacedName]bool{},
		running: map[types.NamespacedName]running{},
		served:  map[string]int64{},
		timer:   time.NewTimer(0),
	}
	q.timer.Stop()
	go q.watchTimer(ctx)
	return q
}

func (q *Queue) watchTimer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.timer.C:
			q.mu.Lock()
			q.advance()
		}
	}
}

// Open starts to grant builds. list returns all running builds, and waiting are the
// Functions that keep their place. The queue is locked meanwhile: a build that ends must
// not be added again from an older list.
func (q *Queue) Open(waiting map[types.NamespacedName]Ticket, list func() ([]Build, error)) error {
	q.mu.Lock()
	builds, err := list()
	if err != nil {
		q.mu.Unlock()
		return err
	}
	for _, b := range builds {
		if was, ok := q.running[b.Name]; ok && was.unseen.IsZero() && !was.doubtful {
			q.see(b)
			continue
		}
		// The build may end before a watch reports it. It must not count forever then.
		listed := q.seen(b)
		listed.unseen = q.now()
		q.running[b.Name] = listed
	}
	for function, ticket := range waiting {
		q.enter(function, ticket)
	}
	q.opened++
	// A restart must not start a build beyond the limit sooner.
	q.moved = q.now()
	q.advance()
	return nil
}

// Leave removes the Functions that another replica serves from now on. It undoes one call
// of Open.
func (q *Queue) Leave(isTheirs func(types.NamespacedName) bool) {
	q.mu.Lock()
	for function := range q.granted {
		if isTheirs(function) {
			delete(q.granted, function)
		}
	}
	for function, w := range q.waiting {
		if isTheirs(function) {
			q.remove(w)
		}
	}
	q.opened = max(q.opened-1, 0)
	q.advance()
}

// SetLimits changes the limits. Running builds continue.
func (q *Queue) SetLimits(limits Limits) {
	q.mu.Lock()
	q.limits = limits
	q.advance()
}

// Ask returns the place of a Function, and adds it to the queue. Another call can change
// only Ticket.Yields. A Function with a running build is granted, so that its user can
// check that build and call Start.
func (q *Queue) Ask(function types.NamespacedName, ticket Ticket) Place {
	q.mu.Lock()
	for _, b := range q.running {
		if b.function == function && !b.doubtful {
			q.mu.Unlock()
			return Place{Granted: true}
		}
	}
	place, woken := q.ask(function, ticket)
	q.mu.Unlock()
	q.wakeAll(woken)
	return place
}

// Start is Ask for a Function that certainly has no running build. If it is granted, the
// build of that name counts as running until End.
func (q *Queue) Start(function types.NamespacedName, ticket Ticket, build types.NamespacedName) Place {
	q.mu.Lock()
	for name, b := range q.running {
		if b.function == function && b.uid == ticket.UID {
			delete(q.running, name)
		}
	}
	place, woken := q.ask(function, ticket)
	if place.Granted {
		q.running[build] = running{function: function, uid: ticket.UID, beyond: q.granted[function], unseen: q.now()}
		delete(q.granted, function)
	}
	q.mu.Unlock()
	q.wakeAll(woken)
	return place
}

func (q *Queue) ask(function types.NamespacedName, ticket Ticket) (Place, []types.NamespacedName) {
	if _, ok := q.granted[function]; !ok {
		q.enter(function, ticket)
	}
	woken := slices.DeleteFunc(q.serve(), func(other types.NamespacedName) bool { return other == function })
	w := q.waiting[function]
	if w == nil {
		return Place{Granted: true}, woken
	}
	return q.place(w), woken
}

// Doubt reports that a started build may not exist. It does not count until it is seen.
func (q *Queue) Doubt(build types.NamespacedName) {
	q.mu.Lock()
	b, ok := q.running[build]
	if !ok {
		q.mu.Unlock()
		return
	}
	b.doubtful = true
	q.running[build] = b
	q.advance()
}

// Running returns the builds of a Function that run or may run. That is complete after
// Open, if all later builds call Start.
func (q *Queue) Running(function types.NamespacedName, uid types.UID) (builds []types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, b := range q.running {
		if b.function == function && b.uid == uid {
			builds = append(builds, name)
		}
	}
	return builds
}

// Release gives up the place of a Function, or its grant if it has not been used.
func (q *Queue) Release(function types.NamespacedName) {
	q.mu.Lock()
	_, granted := q.granted[function]
	w := q.waiting[function]
	if !granted && w == nil {
		q.mu.Unlock()
		return
	}
	delete(q.granted, function)
	if w != nil {
		q.remove(w)
	}
	q.advance()
}

// See reports that a build runs.
func (q *Queue) See(b Build) {
	q.mu.Lock()
	if !q.see(b) {
		q.mu.Unlock()
		return
	}
	q.advance()
}

func (q *Queue) see(b Build) bool {
	now := q.seen(b)
	if was, ok := q.running[b.Name]; ok && was == now {
		return false
	}
	q.running[b.Name] = now
	return true
}

// seen returns how a build counts from now on.
func (q *Queue) seen(b Build) running {
	was, now := q.running[b.Name], q.now()
	seen := running{function: b.Function, uid: b.UID, pending: b.Pending}
	switch {
	case b.Pending.IsZero():
	case !was.pending.IsZero():
		seen.pending = was.pending
	case b.Pending.After(now):
		// The clock of the API server is ahead.
		seen.pending = now
	}
	// A build that did not count has made way for another one.
	seen.beyond = was.beyond && (&load{now: now}).counts(was)
	return seen
}

// End reports that a build does not run.
func (q *Queue) End(build types.NamespacedName) {
	q.mu.Lock()
	if _, ok := q.running[build]; !ok {
		q.mu.Unlock()
		return
	}
	delete(q.running, build)
	q.advance()
}

func (q *Queue) advance() {
	woken := q.serve()
	woken = append(woken, q.news()...)
	q.mu.Unlock()
	q.wakeAll(woken)
}

func (q *Queue) wakeAll(functions []types.NamespacedName) {
	for _, function := range functions {
		q.wake(function)
	}
}

func (q *Queue) enter(function types.NamespacedName, ticket Ticket) {
	if w := q.waiting[function]; w != nil {
		if w.Yields == ticket.Yields {
			return
		}
		q.remove(w)
		ticket.Since = w.Since
	}
	if ticket.Since.IsZero() {
		ticket.Since = q.now()
	}
	w := &waiting{function: function, Ticket: ticket}
	line := q.lines[w.lane()]
	at, _ := slices.BinarySearchFunc(line, w, (*waiting).compare)
	q.lines[w.lane()] = slices.Insert(line, at, w)
	q.waiting[function] = w
}

func (q *Queue) remove(w *waiting) {
	delete(q.waiting, w.function)
	line := q.lines[w.lane()]
	at, _ := slices.BinarySearchFunc(line, w, (*waiting).compare)
	if line = slices.Delete(line, at, at+1); len(line) > 0 {
		q.lines[w.lane()] = line
	} else {
		delete(q.lines, w.lane())
	}
}
