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

// These are the allowed requests of a Function. Each step of a user, with its build and
// roll-out, costs less than ten requests without faults. A fault causes another reconcile,
// which repeats the request and the checks before it. While watches are dropped, Kiln does
// not see its own writes, and each event can cause a redundant one.
const (
	perStep   = 10
	perFault  = 5
	perMinute = 20
	// perSecond is the limit within any second. It allows a whole story in one second, with
	// faults. Retries start 5 ms apart, and the delay doubles each time.
	perSecond = 40
)

// These limit the growth of the controller since the first round, which has no faults. They
// allow for goroutines of connections that are about to end, and for what Go keeps of ended
// ones.
const (
	moreGoroutines = 12
	moreHeap       = 1.4
	// Between two days without faults, heap may grow for each Event: client-go keeps the
	// last 4,096 to aggregate them. Kiln's own caches are full by then, so a leak per
	// deleted Function would show.
	moreForEvent      = 2 << 10
	moreOnNextFineDay = 1.02
)

// verdict returns an error that lists everything wrong.
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
				// A Function that is deleted early may never be reconciled.
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
	// A killed controller starts with an empty heap.
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

// allowed returns the allowed number of requests of a Function, including its deletion.
func allowed(s *story, found *share, r round) int {
	return perStep*(len(s.steps)+1) + perFault*found.faults + int(perMinute*r.took.Minutes())
}

// most returns the Function with the largest number.
func (t *tally) most(of func(*share) int) (name string, n int) {
	for _, fn := range t.functions() {
		if found := of(t.by[fn]); found > n {
			name, n = fn, found
		}
	}
	return name, n
}

// faultsOf returns the number of faults of a Function's requests.
func (t *tally) faultsOf(name string) int {
	if s := t.by[name]; s != nil {
		return s.faults
	}
	return 0
}
