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

package gobuild

import (
	"context"
	"slices"
	"sync"
)

// slot serialises compiling. One compiler uses all cores, and two concurrent builds would
// compile shared packages twice.
var slot queue

// queue admits one caller at a time: those with first before the others, each in the
// order of their arrival.
type queue struct {
	mu      sync.Mutex
	busy    bool
	waiting []*waiter
}

type waiter struct {
	first bool
	enter chan struct{}
}

// run runs fn when it is its turn.
func (q *queue) run(ctx context.Context, first bool, fn func() error) error {
	w := q.join(first)
	select {
	case <-w.enter:
		defer q.leave()
		return fn()
	case <-ctx.Done():
		q.quit(w)
		return ctx.Err()
	}
}

func (q *queue) join(first bool) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := &waiter{first: first, enter: make(chan struct{})}
	if !q.busy {
		q.busy = true
		close(w.enter)
		return w
	}
	at := len(q.waiting)
	if first {
		if i := slices.IndexFunc(q.waiting, func(w *waiter) bool { return !w.first }); i >= 0 {
			at = i
		}
	}
	q.waiting = slices.Insert(q.waiting, at, w)
	return w
}

// leave admits the next caller.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.busy = false
		return
	}
	close(q.waiting[0].enter)
	q.waiting = q.waiting[1:]
}

// quit takes back a place in the queue, or the turn that came meanwhile.
func (q *queue) quit(w *waiter) {
	q.mu.Lock()
	i := slices.Index(q.waiting, w)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i < 0 {
		q.leave()
	}
}
