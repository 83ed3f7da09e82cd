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
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// world is a queue with a clock that stands still, and who was woken.
type world struct {
	*testing.T
	*Queue

	mu    sync.Mutex
	time  time.Time
	woken []string
	last  load
}

// newWorld returns an open queue.
func newWorld(t *testing.T, limits Limits) *world {
	w := closedWorld(t, limits)
	if err := w.Open(nil, func() ([]Build, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	return w
}

func closedWorld(t *testing.T, limits Limits) *world {
	w := &world{T: t, time: noon}
	w.Queue = New(t.Context(), limits, func(function types.NamespacedName) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.woken = append(w.woken, function.String())
	})
	// Each look at the clock is a little later.
	w.now = func() time.Time {
		w.time = w.time.Add(time.Microsecond)
		return w.time
	}
	return w
}

// newTimedWorld returns an open queue in a bubble of package synctest.
func newTimedWorld(t *testing.T, limits Limits) *world {
	w := closedWorld(t, limits)
	w.now = time.Now
	if err := w.Open(nil, func() ([]Build, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	return w
}

// pass advances the time of the bubble and runs due timers.
func (w *world) pass(d time.Duration) {
	// The queue's timer must see what the test has done so far.
	w.Queue.mu.Lock()
	w.mu.Lock()
	w.mu.Unlock() //nolint:staticcheck // Only the order matters.
	w.Queue.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func buildOf(function types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: function.Namespace, Name: function.Name + "-1"}
}

// start asks for a Function, and starts its build if that is granted.
func (w *world) start(namespace, name string, tickets ...Ticket) Place {
	w.Helper()
	function := key(namespace, name)
	var ticket Ticket
	if len(tickets) > 0 {
		ticket = tickets[0]
	}
	if place := w.Ask(function, ticket); !place.Granted {
		return place
	}
	return w.Start(function, ticket, buildOf(function))
}

func (w *world) end(namespace, name string) {
	w.End(buildOf(key(namespace, name)))
}

// wantWoken checks which Functions were woken since the last call.
func (w *world) wantWoken(want ...string) {
	w.Helper()
	got := slices.Sorted(slices.Values(w.woken))
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("woken (-want +got):\n%s", diff)
	}
	w.woken = nil
}

func (w *world) wantStarted(namespace, name string) {
	w.Helper()
	if place := w.start(namespace, name); !place.Granted {
		w.Errorf("%s/%s waits at %d, want that it starts", namespace, name, place.Number)
	}
}

func (w *world) wantWaiting(number int, namespace, name string, ticket ...Ticket) {
	w.Helper()
	if place := w.start(namespace, name, ticket...); place.Granted || place.Number != number {
		w.Errorf("%s/%s is at %+v, want number %d", namespace, name, place, number)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 2})
	w.wantStarted("a", "1")
	w.wantStarted("a", "2")
	w.wantWaiting(1, "a", "4")
	w.wantWaiting(2, "a", "3")
	w.wantWaiting(3, "a", "5")
	w.wantWaiting(2, "a", "3") // asking again changes nothing
	w.wantWoken()
	w.end("a", "1")
	w.wantWoken("a/4", "a/3", "a/5") // the others have moved up
	w.wantWaiting(1, "a", "3")
	w.wantStarted("a", "4")
	w.end("a", "1")
	w.end("a", "unknown")
	w.wantWoken()
}

func TestNoLimits(t *testing.T) {
	w := newWorld(t, Limits{})
	for i := range 100 {
		w.wantStarted("a", strconv.Itoa(i))
	}
	w.wantWoken()
}

func TestLimitOfNamespace(t *testing.T) {
	for name, limits := range map[string]Limits{
		"both":          {Cluster: 3, Namespace: 1},
		"namespace's":   {Namespace: 1},
		"both the same": {Cluster: 1, Namespace: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, limits)
			w.wantStarted("a", "1")
			w.wantWaiting(1, "a", "2")
			if limits.Cluster != 1 {
				w.wantStarted("b", "1")
				w.wantWoken()
			}
			w.end("a", "1")
			w.wantWoken("a/2")
		})
	}
}

func TestFewestFirst(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 3})
	w.wantStarted("a", "1")
	w.wantStarted("a", "2")
	w.wantStarted("b", "1")
	w.wantWaiting(1, "a", "3")
	w.wantWaiting(1, "b", "2") // b has fewer
	w.wantWaiting(3, "b", "3") // then as many as a, which came first
	w.wantWaiting(1, "c", "1")
	w.end("a", "1")
	w.wantWoken("c/1")
	w.end("a", "2")
	w.wantWoken("a/3", "b/3") // now a has the fewest
}

func TestServedLongestAgo(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 1})
	w.wantStarted("z", "1")
	for _, name := range []string{"1", "2", "3"} {
		w.start("a", name)
		w.start("b", name)
	}
	var order []string
	for ns, name := "z", "1"; len(order) < 6; {
		w.woken = nil
		w.end(ns, name)
		for function := range w.granted {
			ns, name = function.Namespace, function.Name
		}
		order = append(order, ns+name)
		w.wantStarted(ns, name)
	}
	if diff := cmp.Diff([]string{"a1", "b1", "a2", "b2", "a3", "b3"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// The place of a Function is reported at most a logarithmic number of times.
func TestPositions(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 1})
	w.wantStarted("a", "0000")
	const n = 1000
	for i := range n {
		w.wantWaiting(round(i+1), "a", fmt.Sprintf("%04d", i+1))
	}
	told := map[string]int{}
	for i := range n {
		w.end("a", fmt.Sprintf("%04d", i))
		for _, function := range w.woken {
			told[function]++
		}
		w.woken = nil
		w.wantStarted("a", fmt.Sprintf("%04d", i+1))
	}
	for function, times := range told {
		if times > 12 {
			t.Errorf("%s was woken %d times", function, times)
		}
	}
	if len(told) != n {
		t.Errorf("%d were woken, want %d", len(told), n)
	}
	for number, want := range map[int]int{1: 1, 4: 4, 5: 8, 8: 8, 9: 16, 16: 16, 17: 32, 5000: 8192} {
		if got := round(number); got != want {
			t.Errorf("round(%d) = %d, want %d", number, got, want)
		}
	}
}

// With one build at a time, places are the order in which Functions are served.
func TestPositionsAreTurns(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 1})
	w.wantStarted("z", "0")
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		w.start(fmt.Sprint("team-", random.IntN(random.IntN(6)+1)), strconv.Itoa(i))
	}
	expected := map[types.NamespacedName]int{}
	for f := range w.places(w.load()) {
		expected[f.function] = f.ahead
	}
	last := key("z", "0")
	for turn := range 40 {
		w.End(buildOf(last))
		last = slices.Collect(maps.Keys(w.granted))[0]
		if expected[last] != turn {
			t.Errorf("%s was told that %d go first, and %d went", last, expected[last], turn)
		}
		w.Start(last, Ticket{}, buildOf(last))
	}
}

func TestYields(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 1})
	w.wantStarted("z", "1")
	w.wantWaiting(1, "a", "auto-1", Ticket{Yields: true})
	w.wantWaiting(2, "b", "auto-2", Ticket{Yields: true})
	w.wantWaiting(1, "a", "edit")
	w.wantWaiting(4, "b", "auto-3", Ticket{Yields: true})
	w.wantWaiting(1, "a", "auto-1", Ticket{Yields: true}) // a worse place is not reported
	w.end("z", "1")
	w.wantWoken("a/edit", "b/auto-2", "b/auto-3")
	w.wantStarted("a", "edit")
	// Somebody edits a Function that waits for an automatic rebuild.
	w.wantWaiting(1, "b", "auto-3")
	w.end("a", "edit")
	w.wantWoken("b/auto-3")
	w.wantStarted("b", "auto-3")
	// Nobody waits forever.
	w.time = w.time.Add(yieldTimeout)
	w.wantWaiting(1, "a", "edit-2")
	w.end("b", "auto-3")
	w.wantWoken("a/auto-1")
}

func TestRelease(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 1})
	w.wantStarted("a", "1")
	w.start("a", "2")
	w.start("a", "3")
	w.start("a", "4")
	w.Release(key("a", "3"))
	w.wantWoken("a/4") // has moved up
	w.end("a", "1")
	w.wantWoken("a/2", "a/4")
	w.Release(key("a", "2")) // no longer needs a build
	w.wantWoken("a/4")
	w.Release(key("a", "4"))
	w.Release(key("a", "4"))
	w.Release(key("a", "unknown"))
	w.wantWoken()
	w.wantStarted("b", "1")
}

func TestLimitsAreLive(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 1})
	w.wantStarted("a", "1")
	w.start("a", "2")
	w.start("a", "3")
	w.start("a", "4")
	w.SetLimits(Limits{Cluster: 3})
	w.wantWoken("a/2", "a/3", "a/4")
	w.wantStarted("a", "2")
	w.wantStarted("a", "3")
	w.SetLimits(Limits{Cluster: 1})
	w.end("a", "1")
	w.end("a", "2")
	w.wantWoken()
	w.end("a", "3")
	w.wantWoken("a/4")
}

// Each build counts once, also if the queue did not start it.
func TestSeen(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 2})
	other := Build{Name: key("a", "other"), Function: key("a", "1")}
	w.See(other)
	w.See(other)
	w.wantStarted("b", "1")
	w.See(Build{Name: buildOf(key("b", "1")), Function: key("b", "1")})
	w.wantWaiting(1, "c", "1")
	w.End(other.Name)
	w.wantWoken("c/1")
}

// A Function may check on its own build. A deleted build frees its slot.
func TestOwnBuild(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 1})
	w.wantStarted("a", "1")
	w.wantWaiting(1, "b", "1")
	a := key("a", "1")
	if place := w.Ask(a, Ticket{}); !place.Granted {
		t.Errorf("the Function is at %+v", place)
	}
	if place := w.Start(a, Ticket{}, key("a", "1-2")); place.Granted || place.Number != 1 {
		t.Errorf("the Function whose build is gone is at %+v", place)
	}
	w.wantWoken("b/1")
}

// The build of a deleted Function counts while it runs, although another Function has the
// same name.
func TestPredecessor(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 1})
	before, after := Ticket{UID: "before"}, Ticket{UID: "after"}
	if place := w.start("a", "1", before); !place.Granted {
		t.Fatalf("the first Function is at %+v", place)
	}
	a := key("a", "1")
	if place := w.Ask(a, after); !place.Granted {
		t.Errorf("the second Function is not to look, but at %+v", place)
	}
	if place := w.Start(a, after, key("a", "1-2")); place.Granted {
		t.Error("the second Function starts a build while that of the first runs")
	}
	w.end("a", "1")
	w.wantWoken("a/1")
	if place := w.Start(a, after, key("a", "1-2")); !place.Granted {
		t.Errorf("the second Function is at %+v when the build of the first has ended", place)
	}
}

func TestOpen(t *testing.T) {
	w := closedWorld(t, Limits{Cluster: 2})
	w.wantWaiting(1, "a", "late")
	w.See(Build{Name: key("a", "known"), Function: key("a", "known")})
	failure := errors.New("no connection")
	if err := w.Open(nil, func() ([]Build, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("Open() = %v", err)
	}
	w.wantWoken()
	open := func() error {
		return w.Open(map[types.NamespacedName]Ticket{
			key("a", "second"): {Since: noon.Add(-time.Minute)},
			key("a", "first"):  {Since: noon.Add(-time.Hour)},
		}, func() ([]Build, error) {
			return []Build{{Name: key("a", "known"), Function: key("a", "known")}}, nil
		})
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	w.wantWoken("a/first", "a/second") // one is served, one moves up
	w.wantWaiting(1, "a", "second")
	w.wantWaiting(1, "a", "late") // the reported place stays
	if place := w.Ask(key("a", "second"), Ticket{}); !place.Since.Equal(noon.Add(-time.Minute)) {
		t.Errorf("waits since %s", place.Since)
	}

	w.Leave(func(types.NamespacedName) bool { return true })
	w.End(key("a", "known"))
	w.wantWoken()
	w.wantWaiting(1, "a", "in flight")
	w.Release(key("a", "in flight"))
	if err := open(); err != nil {
		t.Fatal(err)
	}
	w.wantWoken("a/first", "a/second")
}

// A build that was deleted before it was seen does not count forever.
func TestNeverSeen(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 1})
	w.wantStarted("a", "1")
	w.wantWaiting(1, "b", "1")
	w.time = w.time.Add(unseenTimeout)
	w.wantStarted("b", "1")
	w.See(Build{Name: buildOf(key("b", "1")), Function: key("b", "1")})
	w.time = w.time.Add(unseenTimeout)
	w.wantWaiting(1, "b", "2")
}

// The same holds for a listed build that no watch reports.
func TestNeverSeenAgain(t *testing.T) {
	w := closedWorld(t, Limits{Cluster: 2})
	builds := []Build{{Name: key("a", "gone"), Function: key("a", "gone")}, {Name: key("a", "seen"), Function: key("a", "seen")}}
	if err := w.Open(nil, func() ([]Build, error) { return builds, nil }); err != nil {
		t.Fatal(err)
	}
	w.See(builds[1])
	w.wantWaiting(1, "b", "1")
	w.time = w.time.Add(unseenTimeout)
	w.wantStarted("b", "1")
	w.wantWaiting(1, "b", "2")
}

// TestInvariants plays random steps. The limits hold at each step, nobody waits for a free
// slot, and in the end everybody is served.
func TestInvariants(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playAny(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func playAny(t *testing.T, random *rand.Rand) {
	limits := Limits{Cluster: int32(random.IntN(6)), Namespace: int32(random.IntN(4))}
	w := newTimedWorld(t, limits)
	wanting := map[types.NamespacedName]Ticket{}
	building := map[types.NamespacedName]bool{}
	try := func(function types.NamespacedName) {
		ticket, ok := wanting[function]
		if !ok || building[function] {
			w.Release(function)
			return
		}
		if place := w.Ask(function, ticket); !place.Granted {
			return
		}
		switch random.IntN(10) {
		case 0: // A failed step is retried.
			w.Release(function)
			w.woken = append(w.woken, function.String())
		default:
			if w.Start(function, ticket, buildOf(function)).Granted {
				building[function] = true
				delete(wanting, function)
			}
		}
	}
	drain := func() {
		for len(w.woken) > 0 {
			i := random.IntN(len(w.woken))
			namespace, name, _ := strings.Cut(w.woken[i], "/")
			w.woken = slices.Delete(w.woken, i, i+1)
			try(key(namespace, name))
			checkInvariants(w, limits, wanting, building)
		}
	}
	for i := range 300 {
		w.pass(time.Microsecond)
		function := key(fmt.Sprint("team-", random.IntN(4)), strconv.Itoa(random.IntN(30)))
		switch random.IntN(11) {
		case 0, 1, 2, 3:
			wanting[function] = Ticket{Yields: random.IntN(4) == 0}
			try(function)
		case 4: // The Function is deleted, or edited back.
			delete(wanting, function)
			w.Release(function)
		case 5, 6:
			for function := range building {
				delete(building, function)
				w.End(buildOf(function))
				break
			}
		case 7:
			if i%10 == 0 {
				limits = Limits{Cluster: int32(random.IntN(6)), Namespace: int32(random.IntN(4))}
				w.SetLimits(limits)
			}
		case 8: // A build has no pod yet, or no longer.
			for function := range building {
				w.See(Build{Name: buildOf(function), Function: function, Pending: time.Now()})
				w.last = w.load()
				break
			}
		case 9: // A build starts to run, perhaps beyond the limits.
			for function := range building {
				w.See(Build{Name: buildOf(function), Function: function})
				w.last = w.load()
				break
			}
		case 10:
			w.pass(time.Duration(random.Int64N(int64(2 * Grace))))
		}
		checkInvariants(w, limits, wanting, nil)
		if random.IntN(2) == 0 {
			drain()
		}
	}
	// Waiting Functions are served, although others come later.
	for rounds := 0; len(wanting) > 0; rounds++ {
		if rounds > 1000 {
			t.Fatalf("%d are never served: %v", len(wanting), wanting)
		}
		drain()
		for function := range wanting {
			try(function)
		}
		for function := range building {
			delete(building, function)
			w.End(buildOf(function))
		}
	}
	drain()
	for function := range building {
		w.End(buildOf(function))
	}
	if len(w.granted)+len(w.running)+len(w.waiting)+len(w.lines) > 0 {
		t.Errorf("there is left: granted %v, running %v, waiting %v, lines %v", w.granted, w.running, w.waiting, w.lines)
	}
}

// checkInvariants checks each step. More builds than the limits run only after the limits
// were lowered or a stalled build has started, and then no further build starts.
func checkInvariants(w *world, limits Limits, wanting map[types.NamespacedName]Ticket, building map[types.NamespacedName]bool) {
	w.Helper()
	l := w.load()
	if room := limits.hasRoom(l.total); room && w.next(l, true) != nil {
		w.Fatalf("there is room, and somebody waits: %+v, %v", l, w.waiting)
	}
	if next := w.next(l, false); next != nil && (l.beyond < w.surplus || l.isOver(w.moved, Grace)) {
		w.Fatalf("a namespace that runs nothing waits for longer than %s: %+v, %v", Grace, l, next.function)
	}
	most := limits.perNamespace()
	for namespace, n := range l.all {
		if most > 0 && n > most && n > w.last.all[namespace] && (n > most+1 || l.running[namespace] > 1) {
			w.Fatalf("%d of %s count, of which %d run; the limit is %d, and one if all are stalled", n, namespace, l.running[namespace], most)
		}
	}
	if limits.Cluster > 0 && l.total > limits.Cluster && l.total > w.last.total {
		w.Fatalf("%d run, the limit is %d", l.total, limits.Cluster)
	}
	w.last = l
	checkBeyond(w, wanting)
	if building != nil && len(w.running) != len(building) {
		w.Fatalf("%d builds count, and %d run", len(w.running), len(building))
	}
	for function := range w.granted {
		if _, both := w.waiting[function]; both {
			w.Fatalf("%s waits and is granted", function)
		}
	}
	total := 0
	for lane, line := range w.lines {
		total += len(line)
		if len(line) == 0 || !slices.IsSortedFunc(line, (*waiting).compare) {
			w.Fatalf("lane %+v is %v", lane, line)
		}
	}
	if total != len(w.waiting) {
		w.Fatalf("%d in lines, %d wait", total, len(w.waiting))
	}
}

// checkBeyond checks that each namespace has one build beyond the limit at most, and that
// it is no automatic rebuild.
func checkBeyond(w *world, wanting map[types.NamespacedName]Ticket) {
	w.Helper()
	beyond := map[string]int{}
	for function, isBeyond := range w.granted {
		if isBeyond {
			beyond[function.Namespace]++
		}
		if isBeyond && wanting[function].Yields {
			w.Fatalf("the automatic rebuild of %s is beyond the limit", function)
		}
	}
	l := load{now: w.now()}
	for build, b := range w.running {
		if b.beyond && l.counts(b) {
			beyond[build.Namespace]++
		}
	}
	for namespace, n := range beyond {
		if n > 1 {
			w.Fatalf("%d builds of %s are beyond the limit", n, namespace)
		}
	}
}

// A Function is served soon, whatever other namespaces do.
func TestStarvation(t *testing.T) {
	w := newWorld(t, Limits{Cluster: 2})
	const flood = 5000
	for i := range flood {
		w.start("flood", fmt.Sprintf("%04d", i))
	}
	place := w.start("small", "only")
	if place.Granted || place.Number > 2 {
		t.Errorf("the one waits at %+v", place)
	}
	w.woken = nil
	w.end("flood", "0000")
	if !slices.Contains(w.woken, "small/only") {
		t.Errorf("woken are %v", w.woken)
	}
}

// BenchmarkEnd measures the end of a build while 10,000 Functions wait in 1,000
// namespaces. The queue is locked meanwhile.
func BenchmarkEnd(b *testing.B) {
	q := New(b.Context(), Limits{Cluster: 10}, func(types.NamespacedName) {})
	if err := q.Open(nil, func() ([]Build, error) { return nil, nil }); err != nil {
		b.Fatal(err)
	}
	var granted []types.NamespacedName
	for i := range 10000 {
		if function := key(fmt.Sprintf("team-%03d", i%1000), strconv.Itoa(i)); q.Ask(function, Ticket{}).Granted {
			granted = append(granted, function)
		}
	}
	for b.Loop() {
		for _, function := range granted {
			q.Start(function, Ticket{}, buildOf(function))
			q.End(buildOf(function))
			q.Ask(function, Ticket{})
		}
		granted = slices.Collect(maps.Keys(q.granted))
	}
}

// TestConcurrency finds races when the race detector is on.
func TestConcurrency(t *testing.T) {
	const functions, limit = 200, 3
	work := make(chan types.NamespacedName, 100*functions)
	q := New(t.Context(), Limits{Cluster: limit}, func(function types.NamespacedName) { work <- function })
	var mu sync.Mutex
	runs, most := 0, 0
	done := make(chan struct{}, functions)
	var started sync.Map
	for range 8 {
		go func() {
			for function := range work {
				if _, ok := started.Load(function); ok || !q.Ask(function, Ticket{}).Granted {
					continue
				}
				if _, again := started.LoadOrStore(function, true); again {
					continue
				}
				if !q.Start(function, Ticket{}, buildOf(function)).Granted {
					started.Delete(function)
					continue
				}
				go func() {
					mu.Lock()
					runs++
					most = max(most, runs)
					mu.Unlock()
					q.See(Build{Name: buildOf(function), Function: function})
					time.Sleep(time.Millisecond)
					mu.Lock()
					runs--
					mu.Unlock()
					done <- struct{}{}
					q.End(buildOf(function))
				}()
			}
		}()
	}
	for i := range functions {
		work <- key(fmt.Sprint("team-", i%7), strconv.Itoa(i))
	}
	if err := q.Open(nil, func() ([]Build, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	for range functions {
		<-done
	}
	if most != limit {
		t.Errorf("%d ran at once, want %d", most, limit)
	}
}

func TestDoubt(t *testing.T) {
	function, other := types.NamespacedName{Namespace: "a", Name: "fn"}, types.NamespacedName{Namespace: "b", Name: "fn"}
	build := types.NamespacedName{Namespace: "a", Name: "fn-1"}
	q := New(t.Context(), Limits{Cluster: 1}, func(types.NamespacedName) {})
	if err := q.Open(nil, func() ([]Build, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	ticket := Ticket{UID: "uid"}
	if !q.Start(function, ticket, build).Granted {
		t.Fatal("the only one waits")
	}
	if q.Ask(other, Ticket{}).Granted {
		t.Fatal("there are two")
	}
	q.Doubt(build)
	if !q.Ask(other, Ticket{}).Granted {
		t.Error("what may not exist takes a place")
	}
	if q.Ask(function, ticket).Granted {
		t.Error("there is a place for a second one")
	}
	if got := q.Running(function, ticket.UID); !slices.Equal(got, []types.NamespacedName{build}) {
		t.Errorf("Running() = %v, want %v", got, build)
	}
	if got := q.Running(function, "another"); got != nil {
		t.Errorf("Running() of another Function of that name = %v", got)
	}
	q.Release(other)
	q.See(Build{Name: build, Function: function, UID: ticket.UID})
	if q.Ask(other, Ticket{}).Granted {
		t.Error("what was seen takes no place")
	}
	q.End(build)
	if got := q.Running(function, ticket.UID); got != nil {
		t.Errorf("Running() = %v when it has ended", got)
	}
}
