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

package bounded

import (
	"context"
	"slices"
	"sync"
)

// turns let a number of requests run at once. Sources take turns: each has one request
// run, in the order of arrival, before another source has its second.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting map[string][]chan struct{}
	next    []string
}

func newTurns(free int) *turns {
	return &turns{free: free, waiting: map[string][]chan struct{}{}}
}

func (t *turns) take(ctx context.Context, source string) bool {
	turn := t.join(source)
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	if t.withdraw(source, turn) {
		return false
	}
	// The turn came at the same moment.
	t.give()
	return false
}

func (t *turns) join(source string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn := make(chan struct{})
	if t.free > 0 {
		t.free--
		close(turn)
		return turn
	}
	if len(t.waiting[source]) == 0 {
		t.next = append(t.next, source)
	}
	t.waiting[source] = append(t.waiting[source], turn)
	return turn
}

// withdraw removes a waiting request. It returns false if the request has its turn.
func (t *turns) withdraw(source string, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[source], turn)
	if i < 0 {
		return false
	}
	t.waiting[source] = slices.Delete(t.waiting[source], i, i+1)
	if len(t.waiting[source]) == 0 {
		delete(t.waiting, source)
		t.next = slices.DeleteFunc(t.next, func(other string) bool { return other == source })
	}
	return true
}

func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.next) == 0 {
		t.free++
		return
	}
	source := t.next[0]
	t.next = t.next[1:]
	waiting := t.waiting[source]
	close(waiting[0])
	if waiting = waiting[1:]; len(waiting) > 0 {
		t.waiting[source] = waiting
		t.next = append(t.next, source)
		return
	}
	delete(t.waiting, source)
}
