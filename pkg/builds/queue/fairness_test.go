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
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// pends reports that the build of a Function has been pending since then.
func (w *world) pends(namespace, name string, since time.Time) {
	function := key(namespace, name)
	w.See(Build{Name: buildOf(function), Function: function, Pending: since})
}

// runs reports that the build of a Function runs.
func (w *world) runs(namespace, name string) {
	function := key(namespace, name)
	w.See(Build{Name: buildOf(function), Function: function})
}

// A build that does not start to run counts only in its namespace after Grace. Nothing else
// has to happen meanwhile.
func TestStalled(t *testing.T) {
	for name, limits := range map[string]Limits{"both": {Cluster: 2, Namespace: 2}, "cluster's": {Cluster: 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTimedWorld(t, limits)
				for _, name := range []string{"1", "2"} {
					w.wantStarted("a", name)
					w.pends("a", name, time.Now())
				}
				w.wantWaiting(1, "b", "1")
				w.wantWaiting(2, "b", "2", Ticket{Yields: true})
				w.pass(Grace - 1)
				w.wantWoken()
				w.pass(1)
				w.wantWoken("b/1", "b/2")
				w.wantStarted("b", "1")
				w.wantStarted("b", "2")
				w.runs("b", "1")
				w.wantWaiting(1, "b", "3")

				// They start to run, beyond the limit, and the next one waits for that.
				w.runs("a", "1")
				w.runs("a", "2")
				w.end("b", "1")
				w.end("b", "2")
				w.end("a", "1")
				w.wantWoken("b/3")
			})
		})
	}
}

// A new leader counts a pending build from its creation, and not longer than Grace where the
// clock of the API server is ahead.
func TestStalledAcrossRestart(t *testing.T) {
	for name, row := range map[string]struct{ since, stalls time.Duration }{
		"for long":            {since: -time.Hour, stalls: 0},
		"for a short time":    {since: -10 * time.Second, stalls: Grace - 10*time.Second},
		"the clock is behind": {since: time.Hour, stalls: Grace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := closedWorld(t, Limits{Cluster: 1})
				w.now = time.Now
				stuck := Build{Name: key("a", "stuck"), Function: key("a", "stuck"), Pending: time.Now().Add(row.since)}
				if err := w.Open(map[types.NamespacedName]Ticket{key("b", "1"): {Since: time.Now(), Yields: true}},
					func() ([]Build, error) { return []Build{stuck}, nil }); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					w.See(stuck)
					w.pass(row.stalls / 2)
				}
				if granted := slices.Contains(w.woken, "b/1") && w.Ask(key("b", "1"), Ticket{Yields: true}).Granted; !granted {
					t.Errorf("it waits for a build that has not run for %s", row.stalls)
				}
				if before := row.stalls > 0 && len(w.woken) < 2; before {
					t.Errorf("it did not wait for that build: %v", w.woken)
				}
			})
		})
	}
}

// A namespace with stalled builds may start only one more. The place of the next one
// reports that.
func TestStuckNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimedWorld(t, Limits{Cluster: 10, Namespace: 2})
		for _, name := range []string{"1", "2"} {
			w.wantStarted("a", name)
			w.pends("a", name, time.Now())
		}
		w.wantWaiting(1, "a", "3")
		w.wantWaiting(2, "a", "4")
		w.pass(Grace)
		w.wantWoken("a/3", "a/4")
		w.wantStarted("a", "3")
		w.pends("a", "3", time.Now())
		if place := w.Ask(key("a", "4"), Ticket{}); place.Granted || place.Stuck {
			t.Errorf("while a build has not stalled, the next one is at %+v", place)
		}
		w.pass(Grace)
		w.wantWoken("a/4")
		if place := w.Ask(key("a", "4"), Ticket{}); place.Granted || !place.Stuck {
			t.Errorf("when all builds of the namespace are stalled, the next one is at %+v", place)
		}
		if place := w.Ask(key("a", "5"), Ticket{}); place.Granted || place.Stuck {
			t.Errorf("another one is at %+v", place)
		}
		w.runs("a", "1")
		w.wantWoken("a/4")
		if place := w.Ask(key("a", "4"), Ticket{}); place.Granted || place.Stuck {
			t.Errorf("when one of the builds runs, the next one is at %+v", place)
		}
		w.end("a", "1")
		w.wantWoken("a/4", "a/5")
		w.wantStarted("a", "4")
	})
}

// A namespace that runs nothing does not wait for long builds of others. Automatic rebuilds
// do, and so do further builds of a namespace.
func TestBeyondLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimedWorld(t, Limits{Cluster: 2})
		for _, name := range []string{"1", "2"} {
			w.wantStarted("hog", name)
			w.runs("hog", name)
		}
		w.pass(time.Hour)
		w.wantStarted("a", "1") // nothing has started for long
		w.runs("a", "1")
		w.wantWaiting(1, "b", "1")
		w.wantWaiting(2, "c", "1")
		w.wantWaiting(3, "a", "2")
		w.wantWaiting(4, "d", "1", Ticket{Yields: true})
		w.pass(Grace - 1)
		w.wantWoken()
		w.pass(1)
		w.wantWoken("b/1", "c/1", "a/2", "d/1") // one starts, the others move up
		w.wantStarted("b", "1")
		w.runs("b", "1")
		w.end("a", "1")
		w.wantWoken("c/1", "a/2", "d/1") // c takes the place of a
		w.wantStarted("c", "1")
		w.runs("c", "1")
		w.end("b", "1")
		w.wantWoken("a/2", "d/1")
		w.wantStarted("a", "2")
		w.end("a", "2")
		w.end("c", "1")
		w.wantWaiting(1, "e", "1") // nobody needed the place when it was free
		w.pass(10 * Grace)
		w.wantWoken("e/1")
		w.wantStarted("e", "1")
		w.wantWaiting(1, "d", "1", Ticket{Yields: true})
		// The build beyond the limit uses no slot.
		w.end("hog", "1")
		w.wantWoken("d/1")
	})
}

// A place beyond the limit is not kept while nobody waits for it.
func TestPlaceBeyondLimitIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimedWorld(t, Limits{Cluster: 1})
		w.wantStarted("hog", "1")
		w.pass(Grace)
		w.wantStarted("a", "1")
		w.end("a", "1")
		w.wantWaiting(1, "b", "1")
		w.pass(Grace)
		w.wantStarted("b", "1")
	})
}

// Automatic rebuilds are not starved by namespaces that always build.
func TestAutomaticRebuildsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const busy, limit = 30, 3
		w := newTimedWorld(t, Limits{Cluster: limit})
		for i := range busy {
			for name := range 2 {
				w.start(fmt.Sprint("busy-", i), strconv.Itoa(name))
			}
		}
		asked := time.Now()
		w.start("calm", "rebuild", Ticket{Yields: true})
		for range 2 * int(yieldTimeout/time.Minute) {
			for _, function := range slices.SortedFunc(maps.Keys(w.granted), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
				if function.Namespace == "calm" {
					return
				}
				if w.Start(function, Ticket{}, buildOf(function)).Granted {
					w.runs(function.Namespace, function.Name)
				}
			}
			w.pass(time.Minute)
			// Each minute the builds of some namespaces end, and each comes again.
			running := slices.SortedFunc(maps.Values(w.running), func(a, b running) int { return strings.Compare(a.function.String(), b.function.String()) })
			for i, b := range running {
				if i%3 == time.Now().Minute()%3 {
					w.End(buildOf(b.function))
					w.Ask(b.function, Ticket{})
				}
			}
		}
		t.Errorf("the rebuild has not started after %s: %d builds run", time.Since(asked), len(w.running))
	})
}

// TestHostileNamespaces simulates hostile namespaces: builds that are stuck, long, or
// both in turns, storms of requests, edits, deletions and retries. The controller
// restarts now and then.
//
// Hostile namespaces delay another namespace's first build by at most Grace for each of
// them, and Grace. The first build is one of a namespace that runs none, although others
// of it may be stuck. At most Limits.Cluster builds are granted at once, and one for each
// namespace that had none running. Stalled builds may run in addition. No namespace has
// more than its limit and one.
func TestHostileNamespaces(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playHostile(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// hostility is a cluster with hostile namespaces and a good one.
type hostility struct {
	*world
	random  *rand.Rand
	limits  Limits
	hostile int
	builds  map[types.NamespacedName]*hostileBuild
	tickets map[types.NamespacedName]Ticket
	// asked is when the good Function asked, or when the controller restarted meanwhile.
	asked time.Time
}

// hostileBuild is a build that is stuck until runs, and ends at ends.
type hostileBuild struct {
	created, runs, ends time.Time
	// revived reports whether it was stalled.
	revived bool
}

var good = key("good", "fn")

func playHostile(t *testing.T, random *rand.Rand) {
	h := &hostility{
		random: random, limits: Limits{Cluster: 1 + random.Int32N(5), Namespace: 1 + random.Int32N(4)}, hostile: 1 + random.IntN(6),
		builds: map[types.NamespacedName]*hostileBuild{}, tickets: map[types.NamespacedName]Ticket{},
	}
	h.world = newTimedWorld(t, h.limits)
	if random.IntN(2) == 0 {
		// Another build of the good namespace is stuck.
		h.tickets[key("good", "stuck")] = Ticket{}
		h.try(key("good", "stuck"))
	}
	h.pass(Grace)
	// Few attacks let builds run for long, beyond the limit too. Many end them.
	most := []int{6, 60}[random.IntN(2)]
	for range 1500 {
		for range max(random.IntN(most)-most+6, 0) {
			h.attack(key(fmt.Sprint("hostile-", random.IntN(h.hostile)), strconv.Itoa(random.IntN(12))))
		}
		if random.IntN(400) == 0 {
			h.restart()
		}
		if _, builds := h.builds[good]; h.asked.IsZero() && !builds && random.IntN(20) == 0 {
			h.asked = time.Now()
			h.tickets[good] = Ticket{}
			h.try(good)
		}
		h.pass(time.Second)
		h.progress()
		h.drain()
		h.judge()
	}
}

// attack does something with a hostile Function.
func (h *hostility) attack(function types.NamespacedName) {
	switch h.random.IntN(8) {
	case 0, 1, 2, 3, 4:
		if h.builds[function] == nil {
			h.tickets[function] = Ticket{Yields: h.random.IntN(5) == 0}
			h.try(function)
		}
	case 5: // It is deleted.
		delete(h.tickets, function)
		h.Release(function)
		if h.builds[function] != nil {
			h.end(function)
		}
	case 6: // It is edited during its build.
		if h.builds[function] != nil {
			h.tickets[function] = Ticket{}
			h.end(function)
			h.try(function)
		}
	case 7: // The response to its creation was lost, and it does not exist.
		if h.builds[function] != nil {
			h.tickets[function] = Ticket{}
			delete(h.builds, function)
			h.Doubt(buildOf(function))
			h.try(function)
		}
	}
}

// try does what a reconcile does.
func (h *hostility) try(function types.NamespacedName) {
	ticket, wants := h.tickets[function]
	if !wants {
		h.Release(function)
		return
	}
	if h.builds[function] != nil || !h.Ask(function, ticket).Granted || !h.Start(function, ticket, buildOf(function)).Granted {
		return
	}
	delete(h.tickets, function)
	now := time.Now()
	b := &hostileBuild{created: now, runs: now.Add(2 * time.Second), ends: now.Add(time.Hour)}
	never := now.Add(24 * time.Hour)
	switch {
	case function == good:
		h.asked, b.ends = time.Time{}, now.Add(5*time.Second)
	case function.Namespace == good.Namespace:
		b.runs, b.ends = never, never
	default:
		switch h.random.IntN(4) {
		case 0: // It is stuck, until its timeout.
			b.runs, b.ends = never, now.Add(time.Duration(10+h.random.IntN(600))*time.Second)
		case 1: // It is stuck for a while.
			b.runs = now.Add(time.Duration(h.random.IntN(90)) * time.Second)
		case 2:
			b.ends = now.Add(time.Duration(h.random.IntN(10)) * time.Second)
		}
	}
	h.builds[function] = b
	h.checkStart(function)
}

// end ends a build.
func (h *hostility) end(function types.NamespacedName) {
	delete(h.builds, function)
	h.End(buildOf(function))
}

// progress reports all builds, as a watch does. A build that fails because it was stuck is
// retried.
func (h *hostility) progress() {
	for function, b := range h.builds {
		now := time.Now()
		switch {
		case !now.Before(b.ends):
			if now.Before(b.runs) {
				h.tickets[function] = Ticket{}
			}
			h.end(function)
			h.try(function)
		case now.Before(b.runs):
			b.revived = now.Sub(b.created) >= Grace
			h.pends(function.Namespace, function.Name, b.created)
		default:
			h.runs(function.Namespace, function.Name)
		}
	}
}

// restart replaces the controller.
func (h *hostility) restart() {
	h.world = closedWorld(h.T, h.limits)
	h.now = time.Now
	err := h.Open(maps.Clone(h.tickets), func() (all []Build, err error) {
		for function, b := range h.builds {
			build := Build{Name: buildOf(function), Function: function}
			if time.Now().Before(b.runs) {
				build.Pending = b.created
			}
			all = append(all, build)
		}
		return all, nil
	})
	if err != nil {
		h.Fatal(err)
	}
	if !h.asked.IsZero() {
		h.asked = time.Now()
	}
	for function := range h.tickets {
		h.try(function)
	}
}

// drain tries the Functions that were woken. The queue before a restart can still wake some.
func (h *hostility) drain() {
	for {
		h.mu.Lock()
		woken := h.woken
		h.woken = nil
		h.mu.Unlock()
		if len(woken) == 0 {
			return
		}
		for _, function := range woken {
			namespace, name, _ := strings.Cut(function, "/")
			h.try(key(namespace, name))
		}
	}
}

// judge fails the test if the good Function waits for too long.
func (h *hostility) judge() {
	most := time.Duration(h.hostile+1)*Grace + time.Second // The test looks each second.
	if waits := time.Since(h.asked); !h.asked.IsZero() && waits > most {
		h.Fatalf("hostile namespaces delay another namespace's first build by at most %s for each of them, and %s. "+
			"%d namespaces have delayed it by %s, with the limits %+v: %+v", Grace, Grace, h.hostile, waits, h.limits, h.load())
	}
}

// checkStart fails the test if a build starts beyond the bounds.
func (h *hostility) checkStart(started types.NamespacedName) {
	namespaces, here, running := map[string]bool{}, int32(0), int32(0)
	for function, b := range h.builds {
		if function.Namespace == started.Namespace {
			here++
		}
		namespaces[function.Namespace] = true
		if stalled := time.Now().Before(b.runs) && time.Since(b.created) >= Grace; !stalled && !b.revived {
			running++
		}
	}
	if here > h.limits.perNamespace()+1 {
		h.Fatalf("%d builds of %s count, the limit is %d and one", here, started.Namespace, h.limits.perNamespace())
	}
	if most := h.limits.Cluster + int32(len(namespaces)); running > most {
		h.Fatalf("%d builds run at once, the limit is %d, and one for each of %d namespaces", running, h.limits.Cluster, len(namespaces))
	}
}
