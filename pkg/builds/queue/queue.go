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

// Package queue decides which builds run and which wait, so that never more run
// at once than a cluster, and a namespace, are to bear. It knows nothing of what
// runs builds: who uses it tells it what runs, and is told whose turn it is.
package queue

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// unseenPatience is how long a build that was started counts as running when
	// nobody has seen it: it was gone before anyone could.
	unseenPatience = 5 * time.Minute

	// yieldPatience is how long a build lets others go first.
	yieldPatience = time.Hour
)

// Limits says how many builds may run at once; 0 is no limit.
type Limits struct {
	// Cluster is for all builds together.
	Cluster int32

	// Namespace is for those of each namespace.
	Namespace int32
}

// perNamespace returns how many builds of a namespace may run at once.
func (l Limits) perNamespace() int32 {
	if l.Namespace == 0 || l.Cluster != 0 && l.Cluster < l.Namespace {
		return l.Cluster
	}
	return l.Namespace
}

// Ticket says what place a Function's build is to have.
type Ticket struct {
	// Since is when the build was first asked for. Zero is now.
	Since time.Time

	// Yields says that nobody waits for the build: all others go first, in all
	// namespaces, for an hour.
	Yields bool

	// UID is the Function's.
	UID types.UID
}

// Build is a build that there is.
type Build struct {
	// Name is its own.
	Name types.NamespacedName

	// Function is whose it is.
	Function types.NamespacedName

	// UID is that Function's. The build of one that was deleted goes on for a moment
	// in which there may be another of its name.
	UID types.UID

	// Stalled builds were started and may not run for now, by a quota of their
	// namespace. They take nothing from other namespaces.
	Stalled bool
}

// Queue knows what runs and what waits. Functions of a namespace are served in
// the order in which they came. Between namespaces the one goes first that has
// the fewest builds running, then the one that was served the longest ago, then
// the one that came first: many Functions of one do not keep another's waiting.
//
// A Function has one build at a time. It may be called by many at once.
type Queue struct {
	wake func(types.NamespacedName)
	now  func() time.Time

	mu     sync.Mutex
	limits Limits

	// opened counts how often the queue was opened and not left since.
	opened int

	// lines are who waits, first come first; by function finds them.
	lines   map[lane][]*waiting
	waiting map[types.NamespacedName]*waiting

	// granted may start a build and have not yet.
	granted map[types.NamespacedName]struct{}

	// running are the builds that there are, by name.
	running map[types.NamespacedName]running

	// served tells the turn in which a namespace was served last. It is forgotten
	// when nobody waits.
	served map[string]int64
	turn   int64
}

// lane is where a Function waits.
type lane struct {
	namespace string
	yields    bool
}

// waiting is a Function that waits.
type waiting struct {
	function types.NamespacedName
	Ticket
	// told is the place that the Function knows of.
	told int
}

func (w *waiting) lane() lane { return lane{namespace: w.function.Namespace, yields: w.Yields} }

func (w *waiting) compare(other *waiting) int {
	return cmp.Or(w.Since.Compare(other.Since), strings.Compare(w.function.Name, other.function.Name))
}

// running is a build that counts.
type running struct {
	function types.NamespacedName
	uid      types.UID
	stalled  bool
	// unseen is when the build was started, until it is seen.
	unseen time.Time
	// doubtful builds may not exist. They do not count.
	doubtful bool
}

// seen returns how a build counts that was seen.
func (b Build) seen() running {
	return running{function: b.Function, uid: b.UID, stalled: b.Stalled}
}

// New returns a Queue that lets nobody start until it is opened. It calls wake,
// which must not wait, for each Function whose turn it is, and for each whose
// place has become so much better that it is worth telling.
func New(limits Limits, wake func(types.NamespacedName)) *Queue {
	return &Queue{
		wake:    wake,
		now:     time.Now,
		limits:  limits,
		lines:   map[lane][]*waiting{},
		waiting: map[types.NamespacedName]*waiting{},
		granted: map[types.NamespacedName]struct{}{},
		running: map[types.NamespacedName]running{},
		served:  map[string]int64{},
	}
}

// Place is where a Function is.
type Place struct {
	// Granted says that it is the Function's turn.
	Granted bool

	// Number counts from 1, which is next. From 5 on it is rounded up to a power of
	// two: the Function is among so many that are next. It grows when others come
	// that are to go first, but that is not told.
	Number int

	// Since is when the Function's build was first asked for.
	Since time.Time
}

// exact is the last place that is told as it is.
const exact = 4

// round returns the number that is told of a place.
func round(number int) int {
	if number <= exact {
		return number
	}
	rounded := 2 * exact
	for rounded < number {
		rounded *= 2
	}
	return rounded
}

// IsExact says whether the number is not rounded.
func (p Place) IsExact() bool { return p.Number <= exact }

// Open lets Functions start builds. It asks for all builds that there are, and
// keeps everybody waiting meanwhile: what is told of a build that ends must not
// be overtaken by a list that still has it. Those waiting keep their order.
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
		// One that has ended since, and that no watch tells of, must not count for ever.
		listed := b.seen()
		listed.unseen = q.now()
		q.running[b.Name] = listed
	}
	for function, ticket := range waiting {
		q.enter(function, ticket)
	}
	q.opened++
	q.advance()
	return nil
}

// Leave forgets those who are somebody else's to serve from now on. Each call
// undoes one of Open, if there was one.
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

// SetLimits changes the limits. What runs goes on.
func (q *Queue) SetLimits(limits Limits) {
	q.mu.Lock()
	q.limits = limits
	q.advance()
}

// Ask returns whether a Function may start a build, and else has it wait for its
// turn. To ask again changes nothing, unless to let others go first has become
// wrong, or right. A Function that is thought to have a build is granted, for it
// to look: see Start.
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

// Start is Ask for a Function of which it is known that it has no build now. Where
// it is granted, the build of that name counts as running, until End is called.
func (q *Queue) Start(function types.NamespacedName, ticket Ticket, build types.NamespacedName) Place {
	q.mu.Lock()
	for name, b := range q.running {
		if b.function == function && b.uid == ticket.UID {
			delete(q.running, name)
		}
	}
	place, woken := q.ask(function, ticket)
	if place.Granted {
		delete(q.granted, function)
		q.running[build] = running{function: function, uid: ticket.UID, unseen: q.now()}
	}
	q.mu.Unlock()
	q.wakeAll(woken)
	return place
}

// ask returns the place of a Function, and who is to be woken besides.
func (q *Queue) ask(function types.NamespacedName, ticket Ticket) (Place, []types.NamespacedName) {
	if _, ok := q.granted[function]; !ok {
		q.enter(function, ticket)
	}
	woken := slices.DeleteFunc(q.serve(), func(other types.NamespacedName) bool { return other == function })
	w := q.waiting[function]
	if w == nil {
		return Place{Granted: true}, woken
	}
	if w.told == 0 {
		w.told = q.place(w)
	}
	return Place{Number: w.told, Since: w.Since}, woken
}

// Doubt tells of a build that was started, but may not exist: it takes nobody's
// place until it is seen.
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

// Running returns the builds of a Function that are known to run, or may: those
// that were seen and have not ended, and those that were started and are not seen
// yet. Whoever has opened the queue, and started all builds since, hears of all.
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

// Release gives back what a Function was granted and has not used, or its place.
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

// See tells of a build that runs.
func (q *Queue) See(b Build) {
	q.mu.Lock()
	if !q.see(b) {
		q.mu.Unlock()
		return
	}
	q.advance()
}

// see says whether there is news.
func (q *Queue) see(b Build) bool {
	now := b.seen()
	if was, ok := q.running[b.Name]; ok && was == now {
		return false
	}
	q.running[b.Name] = now
	return true
}

// End tells of a build that does not run any more, or has never.
func (q *Queue) End(build types.NamespacedName) {
	q.mu.Lock()
	if _, ok := q.running[build]; !ok {
		q.mu.Unlock()
		return
	}
	delete(q.running, build)
	q.advance()
}

// advance serves who can be, and unlocks the queue.
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

// enter has a Function wait, at the place of its ticket.
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

// remove has a Function not wait any more.
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

// load is what runs, or is about to.
type load struct {
	total int32
	by    map[string]int32
}

func (q *Queue) load() load {
	l := load{by: map[string]int32{}}
	for function := range q.granted {
		l.total++
		l.by[function.Namespace]++
	}
	for name, b := range q.running {
		if b.doubtful || !b.unseen.IsZero() && q.now().Sub(b.unseen) > unseenPatience {
			continue
		}
		l.by[name.Namespace]++
		if !b.stalled {
			l.total++
		}
	}
	return l
}

// serve grants what the limits leave, and returns whose turn it is.
func (q *Queue) serve() (woken []types.NamespacedName) {
	if len(q.waiting) == 0 {
		clear(q.served)
		return nil
	}
	l := q.load()
	for q.opened > 0 && (q.limits.Cluster == 0 || l.total < q.limits.Cluster) {
		w := q.next(l)
		if w == nil {
			break
		}
		q.remove(w)
		q.granted[w.function] = struct{}{}
		l.total++
		l.by[w.function.Namespace]++
		q.turn++
		q.served[w.function.Namespace] = q.turn
		woken = append(woken, w.function)
	}
	return woken
}

// next returns who is next among those whose namespace has not reached its limit.
func (q *Queue) next(l load) *waiting {
	var first *waiting
	most := q.limits.perNamespace()
	for lane, line := range q.lines {
		if most != 0 && l.by[lane.namespace] >= most {
			continue
		}
		if first == nil || q.compare(line[0], first, l) < 0 {
			first = line[0]
		}
	}
	return first
}

// compare says which of the heads of two lines goes first.
func (q *Queue) compare(a, b *waiting, l load) int {
	if x, y := q.yields(a), q.yields(b); x != y {
		if x {
			return 1
		}
		return -1
	}
	m, n := a.function.Namespace, b.function.Namespace
	return cmp.Or(
		cmp.Compare(l.by[m], l.by[n]),
		cmp.Compare(q.served[m], q.served[n]),
		a.compare(b),
		strings.Compare(m, n),
	)
}

// yields says whether others go first. Nobody is kept waiting for ever.
func (q *Queue) yields(w *waiting) bool {
	return w.Yields && q.now().Sub(w.Since) < yieldPatience
}

// surveyed is a line, and how many builds of its namespace run.
type surveyed struct {
	line    []*waiting
	running int
}

// survey returns the lines in the order in which ties between them are broken, and
// apart from them those that let all others go first.
func (q *Queue) survey() (lines, yielding []surveyed) {
	l := q.load()
	for lane, line := range q.lines {
		if s := (surveyed{line: line, running: int(l.by[lane.namespace])}); lane.yields {
			yielding = append(yielding, s)
		} else {
			lines = append(lines, s)
		}
	}
	// Among namespaces that have come to the same number of builds, the one goes
	// first that began with more: it has waited for the others.
	before := func(a, b surveyed) int {
		return cmp.Or(cmp.Compare(b.running, a.running), q.compare(a.line[0], b.line[0], l))
	}
	slices.SortFunc(lines, before)
	slices.SortFunc(yielding, before)
	return lines, yielding
}

// places returns who waits, and how many go before each if all namespaces go on as
// they do. It counts each once, since thousands may wait in as many namespaces.
func (q *Queue) places() iter.Seq2[*waiting, int] {
	return func(yield func(*waiting, int) bool) {
		lines, yielding := q.survey()
		before := 0
		for _, alike := range [][]surveyed{lines, yielding} {
			next := firsts(alike, before)
			for _, line := range alike {
				for i, w := range line.line {
					if !yield(w, next[line.running+i]) {
						return
					}
					next[line.running+i]++
					before++
				}
			}
		}
	}
}

// firsts returns the place of the first one whose namespace has no build when it is
// its turn, of the first whose has one, and so on: the fewest go first.
func firsts(lines []surveyed, before int) []int {
	var places []int
	for _, line := range lines {
		places = append(places, make([]int, max(0, line.running+len(line.line)-len(places)))...)
		for i := range line.line {
			places[line.running+i]++
		}
	}
	for running, n := range places {
		places[running] = before
		before += n
	}
	return places
}

// place returns the number to tell to a Function that waits.
func (q *Queue) place(w *waiting) int {
	for other, ahead := range q.places() {
		if other == w {
			return round(ahead + 1)
		}
	}
	return 0 // It waits.
}

// news notes who has got so much nearer that it is worth telling, and returns
// them. That happens to each a few times at most, however long the queue is.
func (q *Queue) news() (functions []types.NamespacedName) {
	for w, ahead := range q.places() {
		if number := round(ahead + 1); w.told == 0 || w.told > number {
			w.told = number
			functions = append(functions, w.function)
		}
	}
	return functions
}
