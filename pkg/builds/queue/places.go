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
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

type surveyed struct {
	line    []*waiting
	running int
	// stuck reports whether stalled builds fill the namespace.
	stuck bool
}

type placed struct {
	*waiting
	ahead   int
	isStuck bool
}

// survey returns the lines in the order that breaks ties, and apart from them the lines
// that yield.
func (q *Queue) survey(l load) (lines, yielding []surveyed) {
	for lane, line := range q.lines {
		if s := (surveyed{line: line, running: int(l.running[lane.namespace]), stuck: q.isStuck(lane.namespace, l)}); lane.yields {
			yielding = append(yielding, s)
		} else {
			lines = append(lines, s)
		}
	}
	// With the same number of builds, the namespace that began with more goes first,
	// because it has waited for the others.
	before := func(a, b surveyed) int {
		return cmp.Or(cmp.Compare(b.running, a.running), q.compare(a.line[0], b.line[0], l))
	}
	slices.SortFunc(lines, before)
	slices.SortFunc(yielding, before)
	return lines, yielding
}

// places returns the place of each waiting Function, if nothing else changes. It takes one
// pass, because thousands may wait in as many namespaces.
func (q *Queue) places(l load) iter.Seq[placed] {
	return func(yield func(placed) bool) {
		lines, yielding := q.survey(l)
		before := 0
		for _, alike := range [][]surveyed{lines, yielding} {
			next := firsts(alike, before)
			for _, line := range alike {
				for i, w := range line.line {
					if !yield(placed{w, next[line.running+i], line.stuck && i == 0}) {
						return
					}
					next[line.running+i]++
					before++
				}
			}
		}
	}
}

// firsts returns, for each number of builds that a namespace can run at its turn, the
// place of the first such turn. The fewest builds go first.
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

func (q *Queue) place(w *waiting) Place {
	l := q.load()
	w.stuck = q.isStuck(w.function.Namespace, l) && q.lines[w.lane()][0] == w
	if w.reported == 0 {
		for other := range q.places(l) {
			if other.waiting == w {
				w.reported = round(other.ahead + 1)
				break
			}
		}
	}
	return Place{Number: w.reported, Since: w.Since, Stuck: w.stuck}
}

// news returns the Functions whose rounded place has improved, or whose Place.Stuck has
// changed. Rounding, and that only the first of a line is stuck, limits that to a few times
// for each, however long the queue is.
func (q *Queue) news() (functions []types.NamespacedName) {
	for w := range q.places(q.load()) {
		number := round(w.ahead + 1)
		improved := w.reported == 0 || w.reported > number
		if improved {
			w.reported = number
		}
		if improved || w.stuck != w.isStuck {
			w.stuck = w.isStuck
			functions = append(functions, w.function)
		}
	}
	return functions
}
