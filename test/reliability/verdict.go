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
	"errors"
	"fmt"
	"slices"
	"strings"
)

// What a Function may ask for. Each step of a user, with the build and the roll-out
// that follow, costs less than ten requests when nothing happens to them. What happens to
// one has the Function looked at again, which repeats that request and those that make
// sure before it. And while watches are dropped Kiln does not know what it has done: each
// time that it learns something, it may try in vain what is done already.
const (
	perStep   = 10
	perFault  = 5
	perMinute = 20
	// perSecond is how much a Function may ask for in any second: a user who does all
	// of a story within that, each step with its faults. The tries of what fails begin
	// 5 ms apart, and get twice as far apart each time.
	perSecond = 40
)

// How much more the controller may have in the end than after the first round, in
// which nothing happened: goroutines that wait for a connection that is about to end,
// and what Go keeps for those there were.
const (
	moreGoroutines = 12
	moreHeap       = 1.4
	// On a fine day that follows a fine day there may be more for each Event: client-go
	// remembers the last 4,096, to tell which are told again. What else Kiln keeps for
	// itself it has by then, and what it would keep of each Function that is gone comes anew.
	moreForEvent      = 2 << 10
	moreOnNextFineDay = 1.02
)

// verdict returns what is wrong with what was found.
func (j *judge) verdict(w *weather) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	wrong := slices.Clone(j.wrong)
	for _, r := range w.rounds {
		stories := storiesOf(w.functions, w.seed)
		for _, s := range stories {
			name := key(s.key)
			found := r.tally.by[name]
			if found == nil {
				// One that is deleted soon may be gone before it is looked at.
				continue
			}
			if most := allowed(s, found, r); found.requests > most {
				wrong = append(wrong, fmt.Sprintf("at %g %%: Function %s asked for %d requests, %d faults happened to them: at most %d were to be",
					100*r.rate, name, found.requests, found.faults, most))
			}
			if found.busiest > perSecond {
				wrong = append(wrong, fmt.Sprintf("at %g %%: Function %s asked for %d requests within a second", 100*r.rate, name, found.busiest))
			}
		}
		if r.starts > 0 && !r.killed {
			wrong = append(wrong, fmt.Sprintf("at %g %%: the controller ended %d times", 100*r.rate, r.starts))
		}
		if r.webhookStarts > 0 && !r.killed {
			wrong = append(wrong, fmt.Sprintf("at %g %%: the webhook ended %d times", 100*r.rate, r.webhookStarts))
		}
	}
	// One that was killed begins anew.
	first, last := w.rounds[0].after, w.rounds[0].after
	for _, r := range w.rounds {
		if r.killed {
			break
		}
		last = r.after
	}
	if last.goroutines > first.goroutines+moreGoroutines {
		wrong = append(wrong, fmt.Sprintf("the controller has %d goroutines in the end, and had %d", last.goroutines, first.goroutines))
	}
	if last.heap > first.heap*moreHeap {
		wrong = append(wrong, fmt.Sprintf("the controller uses %.1f MiB in the end, and used %.1f MiB", last.heap/(1<<20), first.heap/(1<<20)))
	}
	for i, r := range w.rounds[1:] {
		if before := w.rounds[i]; before.rate == 0 && r.rate == 0 && r.after.heap > before.after.heap*moreOnNextFineDay+moreForEvent*float64(r.tally.events) {
			wrong = append(wrong, fmt.Sprintf("the controller uses %.1f MiB after a fine day, and used %.1f MiB after the fine day before", r.after.heap/(1<<20), before.after.heap/(1<<20)))
		}
	}
	j.wrong = wrong
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// allowed returns how many requests a Function may ask for. In the end it is deleted.
func allowed(s *story, found *share, r round) int {
	return perStep*(len(s.steps)+1) + perFault*found.faults + int(perMinute*r.took.Minutes())
}

// most returns the Function of which there is the most.
func (t *tally) most(of func(*share) int) (name string, n int) {
	for _, fn := range t.functions() {
		if found := of(t.by[fn]); found > n {
			name, n = fn, found
		}
	}
	return name, n
}

// faultsOf returns how often something happened to the requests of a Function.
func (t *tally) faultsOf(name string) int {
	if s := t.by[name]; s != nil {
		return s.faults
	}
	return 0
}
