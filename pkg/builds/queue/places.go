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

// surveyed is a line and the number of running builds of its namespace.
type surveyed struct {
	line    []*waiting
	running int
}

// survey returns the lines in the order that breaks ties, and apart from them the lines
// that yield.
func (q *Queue) survey() (lines, yielding []surveyed) {
	l := q.load()
	for lane, line := range q.lines {
		if s := (surveyed{line: line, running: int(l.by[lane.namespace])}); lane.yields {
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

// places returns each waiting Function and the number of Functions before it, if nothing
// else changes. It takes one pass, because thousands may wait in as many namespaces.
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

// place returns the rounded place of a waiting Function.
func (q *Queue) place(w *waiting) int {
	for other, ahead := range q.places() {
		if other == w {
			return round(ahead + 1)
		}
	}
	return 0 // Not reached, because w waits.
}

// news returns the Functions whose rounded place has improved. Rounding limits that to a
// few times for each, however long the queue is.
func (q *Queue) news() (functions []types.NamespacedName) {
	for w, ahead := range q.places() {
		if number := round(ahead + 1); w.reported == 0 || w.reported > number {
			w.reported = number
			functions = append(functions, w.function)
		}
	}
	return functions
}
