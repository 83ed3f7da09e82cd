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

// Package turns has namespaces take turns in a work queue, so that many keys of one do
// not keep another's waiting.
package turns

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// New returns the order in which keys leave a work queue: one of each namespace in
// turn, and of a namespace those that first is true of, then the others, as they came.
// It is asked when a key comes, while the queue is locked: it must be quick, and not use
// the queue. Without it all are others.
func New(first func(types.NamespacedName) bool) workqueue.Queue[types.NamespacedName] {
	return &turns{first: first, waiting: map[string]*line{}}
}

type turns struct {
	first   func(types.NamespacedName) bool
	waiting map[string]*line
	// next has the namespaces that wait, the one whose turn it is first.
	next []string
	len  int
}

// line has the keys of a namespace that wait.
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

// Touch implements workqueue.Queue: who asks again keeps its place.
func (*turns) Touch(types.NamespacedName) {}

// Push implements workqueue.Queue.
func (t *turns) Push(key types.NamespacedName) {
	waiting, ok := t.waiting[key.Namespace]
	if !ok {
		waiting = &line{}
		t.waiting[key.Namespace] = waiting
		t.next = append(t.next, key.Namespace)
	}
	if t.first != nil && t.first(key) {
		waiting.first = append(waiting.first, key)
	} else {
		waiting.others = append(waiting.others, key)
	}
	t.len++
}

// Len implements workqueue.Queue.
func (t *turns) Len() int { return t.len }

// Pop implements workqueue.Queue.
func (t *turns) Pop() types.NamespacedName {
	namespace := t.next[0]
	waiting := t.waiting[namespace]
	t.next = t.next[1:]
	key := waiting.pop()
	if waiting.len() > 0 {
		t.next = append(t.next, namespace)
	} else {
		delete(t.waiting, namespace)
	}
	t.len--
	return key
}
