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
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"knative.dev/pkg/logging"
	pkgreconciler "knative.dev/pkg/reconciler"

	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/children"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/fairqueue"
)

const openRetry = time.Second

type queueLeader struct {
	fairqueue.Leader

	ctx       context.Context
	queue     *queue.Queue
	functions listers.FunctionLister
	builders  Builders

	// promoting is held while the queue is being opened. abandon stops that.
	promoting sync.Mutex
	abandon   atomic.Pointer[context.CancelFunc]
}

// NewLeader wraps the reconciler so that it opens the queue of builds before it leads.
func NewLeader(ctx context.Context, reconciler fairqueue.Leader, q *queue.Queue, functions listers.FunctionLister, builders Builders) fairqueue.Leader {
	return &queueLeader{Leader: reconciler, ctx: ctx, queue: q, functions: functions, builders: builders}
}

// Promote implements pkgreconciler.LeaderAware. No Function is reconciled before the
// queue is open.
func (l *queueLeader) Promote(bucket pkgreconciler.Bucket, enqueue func(pkgreconciler.Bucket, types.NamespacedName)) error {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	l.promoting.Lock()
	defer l.promoting.Unlock()
	l.abandon.Store(&cancel)
	err := wait.PollUntilContextCancel(ctx, openRetry, true, func(ctx context.Context) (bool, error) {
		err := l.open(ctx, bucket)
		if err != nil {
			logging.FromContext(ctx).Errorw("Failed to open the queue of builds, retrying", "error", err)
		}
		return err == nil, nil
	})
	if err != nil {
		// The process is ending, or another replica leads.
		return nil
	}
	return l.Leader.Promote(bucket, enqueue)
}

// Demote implements pkgreconciler.LeaderAware. It stops a Promote that still opens the
// queue.
func (l *queueLeader) Demote(bucket pkgreconciler.Bucket) {
	if abandon := l.abandon.Load(); abandon != nil {
		(*abandon)()
	}
	l.promoting.Lock()
	defer l.promoting.Unlock()
	l.Leader.Demote(bucket)
}

// open fills the queue with the Functions that wait, in their order, and with all builds
// that run. A cache may miss builds that the last leader has just started, so the builds
// come from a live list.
func (l *queueLeader) open(ctx context.Context, bucket pkgreconciler.Bucket) error {
	all, err := l.functions.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("failed to list Functions: %w", err)
	}
	waiting := map[types.NamespacedName]queue.Ticket{}
	for _, fn := range all {
		if b := fn.Status.Build; isQueued(fn) && b != nil && b.QueuedTime != nil && bucket.Has(children.KeyOf(fn)) {
			waiting[children.KeyOf(fn)] = ticketOf(fn, builds.Decision{Reason: b.Reason})
		}
	}
	return l.queue.Open(waiting, func() ([]queue.Build, error) { return l.builders.Running(ctx) })
}
