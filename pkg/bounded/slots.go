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
	"sync"
	"time"
)

type slots struct {
	size     int
	patience time.Duration

	mu      sync.Mutex
	holders map[*slot]struct{}
}

type slot struct {
	source string
	evict  func()
	left   chan struct{}

	since time.Time
	// whole holders have all that they wait for from their caller. They leave only for a
	// source that holds less.
	whole bool
	// busy holders cannot be evicted: they end soon, on their own.
	busy bool
}

func newSlots(size int, patience time.Duration) *slots {
	return &slots{size: size, patience: patience, holders: map[*slot]struct{}{}}
}

// newSlot returns a claim of the source. evict makes the holder leave. It must neither
// block nor use the slots.
func newSlot(source string, evict func()) *slot {
	return &slot{source: source, evict: evict, left: make(chan struct{})}
}

// enter takes a slot. If there is none, another holder is evicted, whose memory is free
// once it has left. enter returns false if there is none to evict.
func (s *slots) enter(claim *slot) (victim *slot, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holders) >= s.size {
		if victim = s.victim(claim.source); victim == nil {
			return nil, false
		}
		delete(s.holders, victim)
		victim.evict()
	}
	claim.since = time.Now()
	s.holders[claim] = struct{}{}
	return victim, true
}

// victim returns the holder that leaves for a claim of the source: the oldest of the
// source that holds the most. A source with fewer slots than the claimant keeps all of
// them. One with as many, such as the claimant itself, keeps those of the last moment and
// those that do not wait for their caller.
func (s *slots) victim(claimant string) (victim *slot) {
	held := map[string]int{claimant: 1}
	for holder := range s.holders {
		held[holder.source]++
	}
	for holder := range s.holders {
		switch n := held[holder.source]; {
		case holder.busy, n < held[claimant]:
		case n == held[claimant] && (holder.whole || time.Since(holder.since) < s.patience):
		case victim == nil, n > held[victim.source],
			n == held[victim.source] && holder.since.Before(victim.since):
			victim = holder
		}
	}
	return victim
}

func (s *slots) leave(holder *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holders, holder)
	close(holder.left)
}

func (s *slots) touch(holder *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	holder.since = time.Now()
}

// setWhole notes whether the holder waits for its caller no more, or waits again.
func (s *slots) setWhole(holder *slot, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	holder.whole, holder.since = whole, time.Now()
}

// setBusy notes whether the holder cannot be evicted. It returns false for a holder that
// has been evicted.
func (s *slots) setBusy(holder *slot, busy bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	holder.busy = busy
	_, ok := s.holders[holder]
	return ok
}
