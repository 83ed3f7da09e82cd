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
// turn, and those of a namespace as they came.
func New() workqueue.Queue[types.NamespacedName] {
	return &turns{waiting: map[string][]types.NamespacedName{}}
}

type turns struct {
	waiting map[string][]types.NamespacedName
	// next has the namespaces that wait, the one whose turn it is first.
	next []string
	len  int
}

// Touch implements workqueue.Queue: who asks again keeps its place.
func (*turns) Touch(types.NamespacedName) {}

// Push implements workqueue.Queue.
func (t *turns) Push(key types.NamespacedName) {
	if len(t.waiting[key.Namespace]) == 0 {
		t.next = append(t.next, key.Namespace)
	}
	t.waiting[key.Namespace] = append(t.waiting[key.Namespace], key)
	t.len++
}

// Len implements workqueue.Queue.
func (t *turns) Len() int { return t.len }

// Pop implements workqueue.Queue.
func (t *turns) Pop() types.NamespacedName {
	namespace := t.next[0]
	keys := t.waiting[namespace]
	t.next = t.next[1:]
	if len(keys) > 1 {
		t.waiting[namespace] = keys[1:]
		t.next = append(t.next, namespace)
	} else {
		delete(t.waiting, namespace)
	}
	t.len--
	return keys[0]
}
