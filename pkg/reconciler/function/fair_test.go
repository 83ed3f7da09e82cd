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

package function

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	pkgreconciler "knative.dev/pkg/reconciler"
)

// worker is a reconciler with one worker, whose every step the test takes, and the
// queue of a controller before it.
type worker struct {
	fair *fairQueue
	keys workqueue.TypedInterface[types.NamespacedName]
	errs map[string]error
	// retries is how many keys may be there that did not come by the fair queue.
	retries int
}

func startWorker(t *testing.T) *worker {
	t.Helper()
	w := &worker{keys: workqueue.NewTyped[types.NamespacedName](), errs: map[string]error{}}
	w.fair = newFairQueue(w.keys.Add)
	w.fair.leader = w
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w.fair.start(ctx, 1)
	return w
}

// work looks at n Functions, and returns their names.
func (w *worker) work(t *testing.T, n int) (names []string) {
	t.Helper()
	for range n {
		key, _ := w.keys.Get()
		if got := w.keys.Len(); got > w.retries {
			t.Errorf("%d more wait for the only worker", got)
		}
		if err := w.fair.Reconcile(t.Context(), key.String()); !errors.Is(err, w.errs[key.String()]) {
			t.Errorf("Reconcile(%s) = %v", key, err)
		}
		w.keys.Done(key)
		names = append(names, key.String())
	}
	return names
}

// Reconcile implements controller.Reconciler.
func (w *worker) Reconcile(_ context.Context, key string) error { return w.errs[key] }

// Promote implements pkgreconciler.LeaderAware. There are two Functions.
func (w *worker) Promote(bucket pkgreconciler.Bucket, enqueue func(pkgreconciler.Bucket, types.NamespacedName)) error {
	if enqueue != nil {
		enqueue(bucket, types.NamespacedName{Namespace: "a", Name: "1"})
		enqueue(bucket, types.NamespacedName{Namespace: "b", Name: "1"})
	}
	return nil
}

// Demote implements pkgreconciler.LeaderAware.
func (*worker) Demote(pkgreconciler.Bucket) {}

// IsLeaderFor implements leader.
func (*worker) IsLeaderFor(types.NamespacedName) bool { return true }

func TestFairQueue(t *testing.T) {
	w := startWorker(t)
	w.errs["a/2"] = errors.New("it is tried again by the controller")
	// The first one is with the worker by then, whatever comes.
	w.fair.Add(types.NamespacedName{Namespace: "a", Name: "0"})
	first, _ := w.keys.Get()
	for i := range 5 {
		w.fair.Add(types.NamespacedName{Namespace: "a", Name: fmt.Sprint(i)})
	}
	for _, name := range []string{"b", "c", "b"} {
		w.fair.Add(types.NamespacedName{Namespace: name, Name: "1"})
		w.fair.Add(types.NamespacedName{Namespace: name, Name: "2"})
	}
	if err := w.fair.Reconcile(t.Context(), first.String()); err != nil {
		t.Error(err)
	}
	w.keys.Done(first)
	// One of each namespace in turn, each as it came, and once; what has changed
	// while it was looked at, after those that were there before.
	want := []string{"a/1", "b/1", "c/1", "a/2", "b/2", "c/2", "a/3", "a/4", "a/0"}
	if diff := cmp.Diff(want, w.work(t, len(want))); diff != "" {
		t.Errorf("the order (-want, +got):\n%s", diff)
	}
	w.fair.AddObject(function())
	if got, want := w.work(t, 1), keyOf(function()).String(); got[0] != want {
		t.Errorf("%s was looked at, want %s", got, want)
	}
	if got := w.fair.keys.Len() + w.keys.Len(); got > 0 {
		t.Errorf("%d wait that nobody has asked for", got)
	}
}

// TestFairQueueRetry wants that a Function which is looked at for another reason,
// while it waits to be looked at, holds up nobody.
func TestFairQueueRetry(t *testing.T) {
	w := startWorker(t)
	w.retries = 1
	a, b := types.NamespacedName{Namespace: "a", Name: "1"}, types.NamespacedName{Namespace: "b", Name: "1"}
	w.keys.Add(a)
	w.fair.Add(a)
	w.fair.Add(b)
	if diff := cmp.Diff([]string{"a/1", "b/1"}, w.untilDone(t, b)); diff != "" {
		t.Errorf("the order (-want, +got):\n%s", diff)
	}
}

// untilDone works until the Function was looked at, and returns which were, each
// of them once.
func (w *worker) untilDone(t *testing.T, last types.NamespacedName) (names []string) {
	t.Helper()
	for len(names) == 0 || names[len(names)-1] != last.String() {
		name := w.work(t, 1)[0]
		if len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return names
}

func TestFairQueuePromote(t *testing.T) {
	w := startWorker(t)
	// Before anything is worked on, all are about to be told of.
	if err := w.fair.Promote(pkgreconciler.UniversalBucket(), nil); err != nil {
		t.Error(err)
	}
	if err := w.fair.Promote(pkgreconciler.UniversalBucket(), func(_ pkgreconciler.Bucket, key types.NamespacedName) {
		t.Errorf("%s does not wait for its turn", key)
	}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"a/1", "b/1"}, w.work(t, 2)); diff != "" {
		t.Errorf("the order (-want, +got):\n%s", diff)
	}
}
