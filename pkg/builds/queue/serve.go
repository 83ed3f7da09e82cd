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

package queue

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// load counts the builds that run or may start, at a moment.
type load struct {
	now time.Time
	// total are the builds that use a slot of the cluster, and beyond those that were
	// granted beyond its limit.
	total, beyond int32
	// running are the builds of each namespace without those that are stalled, and all
	// are the builds with them.
	running, all map[string]int32
	// next is when the load changes although nothing happens, or zero.
	next time.Time
}

func (q *Queue) load() load {
	l := load{now: q.now(), running: map[string]int32{}, all: map[string]int32{}}
	for function, beyond := range q.granted {
		l.all[function.Namespace]++
		l.run(function.Namespace, beyond)
	}
	for name, b := range q.running {
		if l.exists(b) {
			l.all[name.Namespace]++
		}
		if l.counts(b) {
			l.run(name.Namespace, b.beyond)
		}
	}
	return l
}

func (l *load) exists(b running) bool { return !b.doubtful && !l.isOver(b.unseen, unseenTimeout) }

func (l *load) counts(b running) bool { return l.exists(b) && !l.isOver(b.pending, Grace) }

func (l *load) run(namespace string, beyond bool) {
	l.running[namespace]++
	if beyond {
		l.beyond++
	} else {
		l.total++
	}
}

// isOver reports whether the timeout since start is over. If not, it notes when it will
// be. A start of zero has no timeout.
func (l *load) isOver(start time.Time, timeout time.Duration) bool {
	if start.IsZero() {
		return false
	}
	end := start.Add(timeout)
	if !end.After(l.now) {
		return true
	}
	if l.next.IsZero() || end.Before(l.next) {
		l.next = end
	}
	return false
}

// serve grants what may start now, and returns the Functions that may. It sets the timer
// for the moment at which more may start although nothing happens.
func (q *Queue) serve() (woken []types.NamespacedName) {
	q.timer.Stop()
	if len(q.waiting) == 0 {
		clear(q.served)
		q.surplus = 0
		return nil
	}
	if q.opened == 0 {
		return nil
	}
	l := q.load()
	for {
		room := q.limits.hasRoom(l.total)
		w := q.next(l, room)
		if w == nil {
			// Nobody needs a further build beyond the limit.
			q.surplus = l.beyond
			break
		}
		if !room && l.beyond >= q.surplus {
			if !l.isOver(q.moved, Grace) {
				break
			}
			q.surplus = l.beyond + 1
		}
		q.grant(w, !room)
		l.all[w.function.Namespace]++
		l.run(w.function.Namespace, !room)
		q.moved = l.now
		woken = append(woken, w.function)
	}
	if !l.next.IsZero() {
		q.timer.Reset(l.next.Sub(l.now))
	}
	return woken
}

func (q *Queue) grant(w *waiting, beyond bool) {
	q.remove(w)
	q.granted[w.function] = beyond
	q.turn++
	q.served[w.function.Namespace] = q.turn
}

// next returns the Function that starts next, or nil. Without room in the cluster limit,
// that is one that may go beyond the limit.
func (q *Queue) next(l load, room bool) *waiting {
	var first *waiting
	for lane, line := range q.lines {
		if q.isFull(lane.namespace, l) || !room && (lane.yields || l.running[lane.namespace] > 0) {
			continue
		}
		if first == nil || q.compare(line[0], first, l) < 0 {
			first = line[0]
		}
	}
	return first
}

func (q *Queue) isFull(namespace string, l load) bool {
	most, all := q.limits.perNamespace(), l.all[namespace]
	return most != 0 && (all > most || all == most && l.running[namespace] > 0)
}

func (q *Queue) isStuck(namespace string, l load) bool {
	return q.isFull(namespace, l) && l.running[namespace] == 0
}

func (q *Queue) compare(a, b *waiting, l load) int {
	if x, y := q.yields(a), q.yields(b); x != y {
		if x {
			return 1
		}
		return -1
	}
	m, n := a.function.Namespace, b.function.Namespace
	return cmp.Or(
		cmp.Compare(l.running[m], l.running[n]),
		cmp.Compare(q.served[m], q.served[n]),
		a.compare(b),
		strings.Compare(m, n),
	)
}

// yields reports whether others go first. That ends, so that nobody starves.
func (q *Queue) yields(w *waiting) bool {
	return w.Yields && q.now().Sub(w.Since) < yieldTimeout
}
