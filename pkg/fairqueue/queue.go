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

// Package fairqueue is a work queue in which namespaces take turns. Many keys of one
// namespace do not delay the keys of another.
package fairqueue

import (
	"context"
	"sync"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"knative.dev/pkg/controller"
	pkgreconciler "knative.dev/pkg/reconciler"
)

// Leader is a reconciler that knows which keys it leads. The generated reconcilers
// implement it.
type Leader interface {
	controller.Reconciler
	pkgreconciler.LeaderAware
	IsLeaderFor(types.NamespacedName) bool
}

// Queue is a reconciler with its own queue, in front of the queue of a controller.Impl.
//
// The queue of a controller.Impl is first come, first served, in its slow lane too, and
// it cannot be replaced. So keys wait in a Queue, retries included. A Queue hands at
// most one key for each worker to the controller.Impl.
type Queue struct {
	Leader
	keys    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	enqueue func(types.NamespacedName)

	mu sync.Mutex
	// handed has a channel for each key that was handed on. Done closes it.
	handed map[types.NamespacedName]chan struct{}
}

// New returns a Queue that hands keys to enqueue. The metrics of the queue carry the
// name. See NewOrder for first. The caller must set Leader before Start.
func New(name string, first func(types.NamespacedName) bool, enqueue func(types.NamespacedName)) *Queue {
	waiting := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Name: name, Queue: NewOrder(first)})
	return &Queue{
		keys: workqueue.NewTypedRateLimitingQueueWithConfig(newRetries(), workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
				Name: name, Queue: waiting,
			}),
		}),
		enqueue: enqueue,
		handed:  map[types.NamespacedName]chan struct{}{},
	}
}

// Start hands on at most one key for each worker at a time, until ctx ends. It returns
// at once.
func (q *Queue) Start(ctx context.Context, workers int) {
	context.AfterFunc(ctx, q.keys.ShutDown)
	for range workers {
		go func() {
			for {
				key, shutdown := q.keys.Get()
				if shutdown {
					return
				}
				q.handOn(ctx, key)
				q.keys.Done(key)
			}
		}()
	}
}

// handOn hands a key to the controller, and waits until Done is called for the key.
func (q *Queue) handOn(ctx context.Context, key types.NamespacedName) {
	done := make(chan struct{})
	q.mu.Lock()
	q.handed[key] = done
	q.mu.Unlock()
	q.enqueue(key)
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Reconcile implements controller.Reconciler. The controller.Impl retries none of the
// errors that it returns: failed keys wait in this queue.
func (q *Queue) Reconcile(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return q.Leader.Reconcile(ctx, key) // The queue never hands on such a key.
	}
	k := types.NamespacedName{Namespace: namespace, Name: name}
	defer q.Done(k)
	return q.retry(k, q.Leader.Reconcile(ctx, key))
}

// retry adds the key again in the cases in which a controller.Impl would. It returns an
// error that the controller.Impl logs but does not retry.
func (q *Queue) retry(key types.NamespacedName, err error) error {
	requeued, after := controller.IsRequeueKey(err)
	switch {
	case err == nil, controller.IsSkipKey(err):
		q.keys.Forget(key)
		return err
	case requeued:
		q.keys.AddAfter(key, after)
		return nil
	case apierrs.IsConflict(err):
		q.keys.AddRateLimited(key)
		return controller.NewSkipKey(key.String())
	case controller.IsPermanentError(err):
		q.keys.Forget(key)
		return err
	default:
		q.keys.AddRateLimited(key)
		return controller.NewPermanentError(err)
	}
}

// Done reports that a key was reconciled. Its worker may hand on the next key.
func (q *Queue) Done(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if done, ok := q.handed[key]; ok {
		close(done)
		delete(q.handed, key)
	}
}

// Promote implements pkgreconciler.LeaderAware. A new leader reconciles all keys of its
// bucket, in turns too.
func (q *Queue) Promote(bucket pkgreconciler.Bucket, enqueue func(pkgreconciler.Bucket, types.NamespacedName)) error {
	if enqueue == nil {
		// The controller has not started: the informers will add all keys.
		return q.Leader.Promote(bucket, nil)
	}
	return q.Leader.Promote(bucket, func(bucket pkgreconciler.Bucket, key types.NamespacedName) {
		if bucket.Has(key) {
			q.Add(key)
		}
	})
}

// Len returns how many keys wait for their turn. Delayed keys do not count.
func (q *Queue) Len() int { return q.keys.Len() }

// Add adds a key. Its namespace's turn decides when it is reconciled.
func (q *Queue) Add(key types.NamespacedName) { q.keys.Add(key) }

// AddObject adds the key of an object or of a cache.DeletedFinalStateUnknown.
func (q *Queue) AddObject(obj any) {
	if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		q.Add(types.NamespacedName(key))
	}
}
