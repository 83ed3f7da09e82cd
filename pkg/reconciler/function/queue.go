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

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelineclientset "github.com/tektoncd/pipeline/pkg/client/clientset/versioned"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/kmeta"
	"knative.dev/pkg/logging"
	pkgreconciler "knative.dev/pkg/reconciler"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
)

const (
	// openRetry is how long it takes until the queue is tried to be opened again.
	openRetry = time.Second
	// openPatience is how long each page of builds may take to come. Nothing is built
	// meanwhile, so that an answer that has got lost must not be waited for.
	openPatience = 10 * time.Second
)

// isTurn says whether the Function may start the build that was decided, as far
// as the cache tells. Where it may not, its status says where it waits.
func (r *Reconciler) isTurn(fn *v1alpha1.Function, want *plan, decision builds.Decision) bool {
	place := r.queue.Ask(keyOf(fn), ticketOf(fn, decision))
	if !place.Granted {
		markQueued(fn, nextBuild(fn, want, decision, images.Found{}), place)
	}
	return place.Granted
}

// ticketOf returns the Function's ticket for the queue. A build for which nobody
// has edited the Function lets others go first: where this generation runs, it is
// what Functions are built with that has changed, and many may be built anew.
func ticketOf(fn *v1alpha1.Function, decision builds.Decision) queue.Ticket {
	ticket := queue.Ticket{UID: fn.UID, Yields: fn.Status.VersionTag == versionTag(fn) && builds.IsAutomatic(decision.Reason)}
	if b := fn.Status.Build; b != nil && b.QueuedTime != nil {
		ticket.Since = b.QueuedTime.Time
	}
	return ticket
}

// markQueued says that the build waits for its turn, since when, and where.
func markQueued(fn *v1alpha1.Function, build resources.Build, place queue.Place) {
	remember(fn, build)
	fn.Status.Build.QueuedTime = new(metav1.NewMicroTime(place.Since.Truncate(time.Microsecond)))
	where := "is number %d"
	if !place.IsExact() {
		where = "is among the first %d"
	}
	fn.Status.MarkBuildUnknown(v1alpha1.ReasonBuildQueued, "As many builds run as may run at once; this one "+where+" of those that wait.", place.Number)
}

// isQueued says whether the Function waits for its turn to be built.
func isQueued(fn *v1alpha1.Function) bool {
	return fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).GetReason() == v1alpha1.ReasonBuildQueued
}

// limitsOf returns how many builds may run at once.
func limitsOf(cfg *config.Build) queue.Limits {
	return queue.Limits{Cluster: cfg.MaxConcurrent, Namespace: cfg.MaxConcurrentPerNamespace}
}

// setLimits tells the queue of each change of config-build.
func setLimits(q *queue.Queue) func(string, any) {
	return func(_ string, value any) {
		if cfg, ok := value.(*config.Build); ok {
			q.SetLimits(limitsOf(cfg))
		}
	}
}

// leader is a reconciler that knows what it leads. Those of injection-gen are.
type leader interface {
	controller.Reconciler
	pkgreconciler.LeaderAware
	IsLeaderFor(types.NamespacedName) bool
}

// queueLeader opens the queue when it is to lead. The Reconciler leaves it.
type queueLeader struct {
	leader

	ctx       context.Context
	queue     *queue.Queue
	functions listers.FunctionLister
	tekton    pipelineclientset.Interface

	// promoting is held while the queue is being opened, which abandon ends.
	promoting sync.Mutex
	abandon   atomic.Pointer[context.CancelFunc]
}

// Promote implements pkgreconciler.LeaderAware. Nothing is reconciled before the
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
			logging.FromContext(ctx).Errorw("Failed to open the queue of builds; it is tried again", "error", err)
		}
		return err == nil, nil
	})
	if err != nil {
		// The process is about to end, or somebody else leads by now.
		return nil
	}
	return l.leader.Promote(bucket, enqueue)
}

// Demote implements pkgreconciler.LeaderAware. Who has lost the lease while the
// queue was being opened does not come to lead when it is.
func (l *queueLeader) Demote(bucket pkgreconciler.Bucket) {
	if abandon := l.abandon.Load(); abandon != nil {
		(*abandon)()
	}
	l.promoting.Lock()
	defer l.promoting.Unlock()
	l.leader.Demote(bucket)
}

// open opens the queue to the one who is to lead: with the Functions that wait, in
// the order in which they came, and all builds that run. Who leads must not rely
// on a cache for these, as the leader before may just have started some.
func (l *queueLeader) open(ctx context.Context, bucket pkgreconciler.Bucket) error {
	all, err := l.functions.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("failed to list Functions: %w", err)
	}
	waiting := map[types.NamespacedName]queue.Ticket{}
	for _, fn := range all {
		if b := fn.Status.Build; isQueued(fn) && b != nil && b.QueuedTime != nil && bucket.Has(keyOf(fn)) {
			waiting[keyOf(fn)] = ticketOf(fn, builds.Decision{Reason: b.Reason})
		}
	}
	return l.queue.Open(waiting, func() (running []queue.Build, err error) {
		list := pager.New(pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, openPatience)
			defer cancel()
			return l.tekton.TektonV1().TaskRuns(metav1.NamespaceAll).List(ctx, opts)
		}))
		err = list.EachListItem(ctx, metav1.ListOptions{LabelSelector: ChildSelector}, func(obj runtime.Object) error {
			if tr := obj.(*pipelinev1.TaskRun); !stateOf(tr).Ended() {
				running = append(running, queuedBuild(tr))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("failed to list TaskRuns: %w", err)
		}
		return running, nil
	})
}

// queuedBuild tells the queue of a TaskRun that has not ended. Its pod may go on
// for a moment after it has: what its place was for is done.
func queuedBuild(tr *pipelinev1.TaskRun) queue.Build {
	return queue.Build{
		Name:     types.NamespacedName{Namespace: tr.Namespace, Name: tr.Name},
		Function: types.NamespacedName{Namespace: tr.Namespace, Name: tr.Labels[serverless.FunctionNameLabelKey]},
		UID:      types.UID(tr.Labels[serverless.FunctionUIDLabelKey]),
		Stalled:  tr.Status.GetCondition(apis.ConditionSucceeded).GetReason() == exceededQuota,
	}
}

// countBuilds tells the queue of all TaskRuns, and then others: who hears of the
// end of a build must find its place free.
func countBuilds(q *queue.Queue, then func(any)) cache.ResourceEventHandler {
	see := func(obj any) {
		if tr, ok := obj.(*pipelinev1.TaskRun); ok && !stateOf(tr).Ended() {
			q.See(queuedBuild(tr))
		} else if ok {
			q.End(types.NamespacedName{Namespace: tr.Namespace, Name: tr.Name})
		}
		then(obj)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, obj any) { see(obj) },
		DeleteFunc: func(obj any) {
			if tr, err := kmeta.DeletionHandlingAccessor(obj); err == nil {
				q.End(types.NamespacedName{Namespace: tr.GetNamespace(), Name: tr.GetName()})
			}
			then(obj)
		},
	}
}

// releaseDeleted has Functions forgotten that are, or are about to be, gone: those
// that wait for a finalizer are not reconciled any more.
func releaseDeleted(forget ...func(types.NamespacedName)) cache.ResourceEventHandler {
	release := func(obj any) {
		if fn, err := kmeta.DeletionHandlingAccessor(obj); err == nil {
			for _, f := range forget {
				f(types.NamespacedName{Namespace: fn.GetNamespace(), Name: fn.GetName()})
			}
		}
	}
	return cache.FilteringResourceEventHandler{
		FilterFunc: func(obj any) bool {
			fn, ok := obj.(*v1alpha1.Function)
			return !ok || fn.DeletionTimestamp != nil
		},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: release, DeleteFunc: release},
	}
}
