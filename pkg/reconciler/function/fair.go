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
	"sync"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"knative.dev/pkg/controller"
	pkgreconciler "knative.dev/pkg/reconciler"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/turns"
)

// fairQueueName is the name that metrics have for the queue of Functions.
const fairQueueName = "functions"

// fairQueue has namespaces take turns: the one Function that is edited in a
// namespace waits for one of each other namespace, not for all 5,000 that were
// edited in one.
//
// The queue of a controller.Impl is first come, first served, in its slow lane too
// (both lanes are emptied into one queue at once), and it cannot be exchanged. So
// Functions wait here, those too that are to be tried again, and no more of them are
// in that queue than there are workers.
type fairQueue struct {
	Leader
	keys    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	enqueue func(types.NamespacedName)

	mu sync.Mutex
	// handed has the keys that were handed on, and are closed when they are done.
	handed map[types.NamespacedName]chan struct{}
}

// newFairQueue returns a queue that hands nothing on before start. Its leader is to be
// set by then. Of a namespace's Functions those that have begun go first.
func newFairQueue(begun func(types.NamespacedName) bool, enqueue func(types.NamespacedName)) *fairQueue {
	waiting := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Name: fairQueueName, Queue: turns.New(begun)})
	return &fairQueue{
		keys: workqueue.NewTypedRateLimitingQueueWithConfig(turns.NewRetries(), workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
				Name: fairQueueName, Queue: waiting,
			}),
		}),
		enqueue: enqueue,
		handed:  map[types.NamespacedName]chan struct{}{},
	}
}

// isBegun tells which Functions are being built or deployed. Of 5,000 that were applied
// at once, the first is ready before the last has begun, and a build that has ended
// makes room for the next one at once.
func isBegun(lister listers.FunctionLister) func(types.NamespacedName) bool {
	return func(key types.NamespacedName) bool {
		fn, err := lister.Functions(key.Namespace).Get(key.Name)
		return err == nil && (fn.Status.Phase == v1alpha1.FunctionBuilding || fn.Status.Phase == v1alpha1.FunctionDeploying)
	}
}

// start hands on as many keys at a time as there are workers, until ctx ends.
func (q *fairQueue) start(ctx context.Context, workers int) {
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

// handOn hands a key on, and waits until it was looked at.
func (q *fairQueue) handOn(ctx context.Context, key types.NamespacedName) {
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

// Reconcile implements controller.Reconciler. What it returns has nothing tried again
// past this queue.
func (q *fairQueue) Reconcile(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return q.Leader.Reconcile(ctx, key) // No such key was handed on.
	}
	k := types.NamespacedName{Namespace: namespace, Name: name}
	defer q.done(k)
	return q.tryAgain(k, q.Leader.Reconcile(ctx, key))
}

// tryAgain has the Function looked at again where, and when, a controller.Impl would
// have, and returns the error as one that the controller.Impl logs as before.
func (q *fairQueue) tryAgain(key types.NamespacedName, err error) error {
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

func (q *fairQueue) done(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if done, ok := q.handed[key]; ok {
		close(done)
		delete(q.handed, key)
	}
}

// Promote implements pkgreconciler.LeaderAware: who comes to lead looks at all
// Functions, in turns too.
func (q *fairQueue) Promote(bucket pkgreconciler.Bucket, enqueue func(pkgreconciler.Bucket, types.NamespacedName)) error {
	if enqueue == nil {
		// Nothing is worked on yet, and all Functions are about to be told of.
		return q.Leader.Promote(bucket, nil)
	}
	return q.Leader.Promote(bucket, func(bucket pkgreconciler.Bucket, key types.NamespacedName) {
		if bucket.Has(key) {
			q.Add(key)
		}
	})
}

// Add has the Function looked at when it is its turn.
func (q *fairQueue) Add(key types.NamespacedName) { q.keys.Add(key) }

// AddObject has the Function looked at when it is its turn. An informer tells of
// nothing but objects.
func (q *fairQueue) AddObject(obj any) {
	if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		q.Add(types.NamespacedName(key))
	}
}
