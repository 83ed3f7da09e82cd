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
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"
	logtesting "knative.dev/pkg/logging/testing"
	pkgreconciler "knative.dev/pkg/reconciler"
)

// worker is a reconciler with one worker and the queue of a controller. The test takes
// each step.
type worker struct {
	fair *Queue
	keys workqueue.TypedInterface[types.NamespacedName]
	errs map[string]error
}

func startWorker(t *testing.T) *worker {
	t.Helper()
	w := &worker{keys: workqueue.NewTyped[types.NamespacedName](), errs: map[string]error{}}
	w.fair = New("test", nil, w.keys.Add)
	w.fair.Leader = w
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w.fair.Start(ctx, 1)
	return w
}

// work reconciles n keys, and returns them.
func (w *worker) work(t *testing.T, n int) (names []string) {
	t.Helper()
	for range n {
		key, _ := w.keys.Get()
		if got := w.keys.Len(); got > 0 {
			t.Errorf("%d more keys wait for the only worker", got)
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

// Promote implements pkgreconciler.LeaderAware. There are two keys.
func (w *worker) Promote(bucket pkgreconciler.Bucket, enqueue func(pkgreconciler.Bucket, types.NamespacedName)) error {
	if enqueue != nil {
		enqueue(bucket, types.NamespacedName{Namespace: "a", Name: "1"})
		enqueue(bucket, types.NamespacedName{Namespace: "b", Name: "1"})
	}
	return nil
}

// Demote implements pkgreconciler.LeaderAware.
func (*worker) Demote(pkgreconciler.Bucket) {}

// IsLeaderFor implements Leader.
func (*worker) IsLeaderFor(types.NamespacedName) bool { return true }

func TestQueue(t *testing.T) {
	w := startWorker(t)
	w.errs["a/2"] = controller.NewPermanentError(errors.New("permanent"))
	// The worker has the first key before the others come.
	w.fair.Add(types.NamespacedName{Namespace: "a", Name: "0"})
	first, _ := w.keys.Get()
	for i := range 5 {
		w.fair.Add(types.NamespacedName{Namespace: "a", Name: strconv.Itoa(i)})
	}
	for _, name := range []string{"b", "c", "b"} {
		w.fair.Add(types.NamespacedName{Namespace: name, Name: "1"})
		w.fair.Add(types.NamespacedName{Namespace: name, Name: "2"})
	}
	if err := w.fair.Reconcile(t.Context(), first.String()); err != nil {
		t.Error(err)
	}
	w.keys.Done(first)
	// Each key comes once. A key that changed while it was reconciled comes last.
	want := []string{"a/1", "b/1", "c/1", "a/2", "b/2", "c/2", "a/3", "a/4", "a/0"}
	if diff := cmp.Diff(want, w.work(t, len(want))); diff != "" {
		t.Errorf("the order (-want, +got):\n%s", diff)
	}
	w.fair.AddObject(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "1"}})
	if got, want := w.work(t, 1), "d/1"; got[0] != want {
		t.Errorf("%s was reconciled, want %s", got, want)
	}
	if got := w.fair.Len() + w.keys.Len(); got > 0 {
		t.Errorf("%d unexpected keys wait", got)
	}
}

// watched is a reconciler. The test ends each call of Reconcile, until ctx ends.
type watched struct {
	worker
	ctx    context.Context
	begins chan string
	ends   chan error
}

// Reconcile implements controller.Reconciler.
func (w *watched) Reconcile(_ context.Context, key string) error {
	select {
	case w.begins <- key:
	case <-w.ctx.Done():
		return nil
	}
	select {
	case err := <-w.ends:
		return err
	case <-w.ctx.Done():
		return nil
	}
}

// startWatched starts a real controller with one worker, and a Queue in front of it.
func startWatched(t *testing.T) (*watched, *controller.Impl) {
	t.Helper()
	ctx, cancel := context.WithCancel(logtesting.TestContextWithLogger(t))
	w := &watched{ctx: ctx, begins: make(chan string), ends: make(chan error)}
	impl := controller.NewContext(ctx, nil, controller.ControllerOptions{Logger: logging.FromContext(ctx), Concurrency: 1})
	w.fair = New("test", nil, impl.EnqueueKey)
	w.fair.Leader, impl.Reconciler = w, w.fair
	w.fair.Start(ctx, 1)
	var running sync.WaitGroup
	running.Go(func() { _ = impl.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return w, impl
}

// TestQueueRetries checks that retries take turns too: a key waits for only one failing
// key of another namespace.
func TestQueueRetries(t *testing.T) {
	conflict := apierrs.NewConflict(schema.GroupResource{}, "a", errors.New("the object has changed"))
	for name, failure := range map[string]error{
		"after a failure":      errors.New("retry"),
		"after a conflict":     fmt.Errorf("failed to update: %w", conflict),
		"a permanent conflict": controller.NewPermanentError(conflict),
		"later":                controller.NewRequeueAfter(time.Millisecond),
		"at once":              controller.NewRequeueImmediately(),
	} {
		t.Run(name, func(t *testing.T) {
			w, impl := startWatched(t)
			const failing = 5
			for i := range failing {
				w.fair.Add(types.NamespacedName{Namespace: "a", Name: strconv.Itoa(i)})
			}
			for range failing {
				<-w.begins
				w.ends <- failure
			}
			// The first retry keeps the worker busy until all other retries wait.
			<-w.begins
			if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
				return w.fair.Len()+impl.WorkQueue().Len() == failing-1, nil
			}); err != nil {
				t.Fatal("Not all keys are retried:", err)
			}
			w.fair.Add(types.NamespacedName{Namespace: "b", Name: "1"})
			w.ends <- nil
			var namespaces []string
			for range failing {
				namespaces = append(namespaces, strings.Split(<-w.begins, "/")[0])
				w.ends <- nil
			}
			if diff := cmp.Diff([]string{"a", "b", "a", "a", "a"}, namespaces); diff != "" {
				t.Errorf("the order of the namespaces (-want, +got):\n%s", diff)
			}
		})
	}
}

// TestQueueGivesUp checks that permanent errors and skipped keys are not retried, and
// that Reconcile returns the errors.
func TestQueueGivesUp(t *testing.T) {
	w := startWorker(t)
	permanent, skipped := controller.NewPermanentError(errors.New("permanent")), controller.NewSkipKey("a/1")
	failed := errors.New("failed")
	for _, test := range []struct {
		err, want error
		retries   int
	}{{failed, failed, 1}, {failed, failed, 2}, {permanent, permanent, 0}, {failed, failed, 1}, {skipped, skipped, 0}, {failed, failed, 1}, {nil, nil, 0}} {
		w.errs["a/1"] = test.err
		got := w.fair.Reconcile(t.Context(), "a/1")
		if !errors.Is(got, test.want) {
			t.Errorf("Reconcile() = %v, want %v", got, test.want)
		}
		if got != nil && !controller.IsPermanentError(got) && !controller.IsSkipKey(got) {
			t.Errorf("the controller would retry after %v", got)
		}
		if got := w.fair.keys.NumRequeues(types.NamespacedName{Namespace: "a", Name: "1"}); got != test.retries {
			t.Errorf("%v: %d retries, want %d", test.err, got, test.retries)
		}
	}
}

func TestQueuePromote(t *testing.T) {
	w := startWorker(t)
	// Before the controller starts, Promote adds no keys.
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
