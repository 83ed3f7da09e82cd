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

package fairqueue

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// NewOrder returns the order in which keys leave a work queue. Namespaces take turns, one
// key each. Within a namespace, the keys for which first returns true go before the
// others; otherwise keys leave in the order in which they came. The queue calls first
// while it holds its lock, so first must be quick and must not use the queue. It may be
// nil.
func NewOrder(first func(types.NamespacedName) bool) workqueue.Queue[types.NamespacedName] {
	return &order{first: first, waiting: map[string]*line{}}
}

type order struct {
	first   func(types.NamespacedName) bool
	waiting map[string]*line
	next    []string
	len     int
}

type line struct {
	first, others []types.NamespacedName
}

func (l *line) len() int { return len(l.first) + len(l.others) }

func (l *line) pop() types.NamespacedName {
	from := &l.first
	if len(*from) == 0 {
		from = &l.others
	}
	key := (*from)[0]
	*from = (*from)[1:]
	return key
}

// Touch implements workqueue.Queue. A key that is added again keeps its place.
func (*order) Touch(types.NamespacedName) {}

func (o *order) Push(key types.NamespacedName) {
	waiting, ok := o.waiting[key.Namespace]
	if !ok {
		waiting = &line{}
		o.waiting[key.Namespace] = waiting
		o.next = append(o.next, key.Namespace)
	}
	if o.first != nil && o.first(key) {
		waiting.first = append(waiting.first, key)
	} else {
		waiting.others = append(waiting.others, key)
	}
	o.len++
}

func (o *order) Len() int { return o.len }

func (o *order) Pop() types.NamespacedName {
	namespace := o.next[0]
	waiting := o.waiting[namespace]
	o.next = o.next[1:]
	key := waiting.pop()
	if waiting.len() > 0 {
		o.next = append(o.next, namespace)
	} else {
		delete(o.waiting, namespace)
	}
	o.len--
	return key
}
