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
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// load counts the builds that run or may start.
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
		if b.doubtful || !b.unseen.IsZero() && q.now().Sub(b.unseen) > unseenTimeout {
			continue
		}
		l.by[name.Namespace]++
		if !b.stalled {
			l.total++
		}
	}
	return l
}

// serve grants the free slots, and returns the Functions that got one.
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

// next returns the first Function of the namespaces below their limit, or nil.
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

// compare orders the heads of two lines.
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

// yields reports whether others go first. That ends, so that nobody starves.
func (q *Queue) yields(w *waiting) bool {
	return w.Yields && q.now().Sub(w.Since) < yieldTimeout
}
