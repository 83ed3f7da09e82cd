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

// Package background handles slow requests of Functions outside their reconciles, such as
// requests to registries and Git servers. A new process makes the requests again.
package background

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"knative.dev/pkg/logging"
	"knative.dev/pkg/logging/logkey"

	"github.com/kiln-dev/kiln/pkg/fairqueue"
)

const (
	// FirstRetry is the shortest backoff of requests without an interval.
	FirstRetry = time.Second

	// LastRetry is the longest backoff of requests without an interval.
	LastRetry = 10 * time.Minute

	// longestPause bounds the backoff of a periodic request, unless its interval is longer.
	longestPause = time.Hour

	// mostWaiting bounds the waiting requests of a Function. The oldest are dropped.
	mostWaiting = 16
)

// Options configures a Worker.
type Options[Request, Answer comparable] struct {
	// Name is the name of the queue in metrics.
	Name string

	// Workers is the number of concurrent requests.
	Workers int

	// Do handles a request. Its context ends after Timeout.
	Do      func(context.Context, Request) (Answer, error)
	Timeout time.Duration

	// Wake is called for a Function that awaits an answer when the answer comes or
	// changes. It must not block.
	Wake func(types.NamespacedName)

	// Failed returns the answer that stands for an error. Without Failed, that is the
	// zero Answer, and the Worker logs the error.
	Failed func(error) Answer

	// Deadline bounds the wait for a worker and the request together. 0 means no bound.
	Deadline time.Duration

	// Retry repeats a failed request with a backoff until it succeeds.
	Retry bool

	// Interval makes requests periodic. The first comes at a random time within the
	// interval, so many Functions that start together are spread over it. Failures in
	// a row double the interval.
	Interval func(Request) time.Duration

	// Replaces reports whether a request drops an earlier one of its Function that waits.
	// Without Replaces, it always does.
	Replaces func(request, earlier Request) bool
}

// Worker handles the requests of many Functions, one at a time for each Function.
// Namespaces take turns. It keeps the answer to the last request of each Function.
type Worker[Request, Answer comparable] struct {
	options Options[Request, Answer]
	queue   workqueue.TypedDelayingInterface[types.NamespacedName]

	mu    sync.Mutex
	lines map[types.NamespacedName]*line[Request, Answer]
}

type line[Request, Answer comparable] struct {
	// last is the last request. It stays until its answer is dropped.
	last *job[Request, Answer]

	// waiting has the requests to handle, in the order of the tries. A failed request
	// goes to the end, so it does not delay the others.
	waiting []*job[Request, Answer]
}

type job[Request, Answer comparable] struct {
	// request and since do not change.
	request Request
	since   time.Time

	// The mutex guards the other fields. failures is the number of failures in a row.
	due      time.Time
	tried    time.Time
	failures int
	awaited  bool
	done     bool
	answer   Answer
}

// New returns a Worker. It handles nothing until Start.
func New[Request, Answer comparable](o Options[Request, Answer]) *Worker[Request, Answer] {
	return &Worker[Request, Answer]{
		options: o,
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
			Name: o.Name,
			// A namespace with slow servers does not delay the others.
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Name: o.Name, Queue: fairqueue.NewOrder(nil)}),
		}),
		lines: map[types.NamespacedName]*line[Request, Answer]{},
	}
}

// Start handles requests until ctx ends. It returns at once.
func (w *Worker[Request, Answer]) Start(ctx context.Context) {
	for range w.options.Workers {
		go func() {
			for w.next(ctx) {
			}
		}()
	}
	context.AfterFunc(ctx, w.queue.ShutDown)
}

// Ask adds a request of a Function. It goes before the Function's other requests, and
// drops those that it replaces. The same request again changes nothing.
func (w *Worker[Request, Answer]) Ask(key types.NamespacedName, request Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lines[key]
	if l == nil {
		l = &line[Request, Answer]{}
		w.lines[key] = l
	}
	if l.last != nil && l.last.request == request {
		return
	}
	l.last = &job[Request, Answer]{request: request, since: time.Now(), due: w.firstDue(request, l.last)}
	l.waiting = slices.DeleteFunc(l.waiting, func(j *job[Request, Answer]) bool {
		return w.options.Replaces == nil || w.options.Replaces(request, j.request)
	})
	l.waiting = slices.Insert(l.waiting, 0, l.last)
	if len(l.waiting) > mostWaiting {
		l.remove(slices.MinFunc(l.waiting, func(x, y *job[Request, Answer]) int { return x.since.Compare(y.since) }))
	}
	w.schedule(key)
}

// firstDue returns the time of the first try. A periodic request keeps the time of the
// one before, so edits of a Function add no tries.
func (w *Worker[Request, Answer]) firstDue(request Request, before *job[Request, Answer]) time.Time {
	if w.options.Interval == nil {
		return time.Now()
	}
	interval := w.options.Interval(request)
	latest := time.Now().Add(interval)
	switch {
	case before == nil:
		return latest.Add(-rand.N(interval))
	case before.due.Before(latest):
		return before.due
	default:
		return latest
	}
}

// Answer returns the answer to the request. It returns false while there is no answer.
// With await, the Worker wakes the Function when the answer comes or changes.
func (w *Worker[Request, Answer]) Answer(key types.NamespacedName, request Request, await bool) (answer Answer, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lines[key]
	if l == nil || l.last == nil || l.last.request != request {
		return answer, false
	}
	l.last.awaited = l.last.awaited || await
	return l.last.answer, l.last.done
}

// Acknowledge drops the answer to the last request of the Function. Requests without an
// answer continue.
func (w *Worker[Request, Answer]) Acknowledge(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lines[key]
	if l == nil || l.last == nil || !l.last.done {
		return
	}
	l.last = nil
	w.tidy(key)
}

// Hurry makes the next try of the Function's periodic request due at once, unless the last
// try was less than a tenth of its interval ago.
func (w *Worker[Request, Answer]) Hurry(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lines[key]
	if l == nil || w.options.Interval == nil {
		return
	}
	for _, j := range l.waiting {
		if soonest := j.tried.Add(w.options.Interval(j.request) / 10); soonest.Before(j.due) {
			j.due = soonest
		}
	}
	w.schedule(key)
}

// Forget drops all requests of the Function and their answers.
func (w *Worker[Request, Answer]) Forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lines, key)
}

// ForgetAll drops the requests of all Functions for which isMeant returns true.
func (w *Worker[Request, Answer]) ForgetAll(isMeant func(types.NamespacedName) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.lines {
		if isMeant(key) {
			delete(w.lines, key)
		}
	}
}

func (w *Worker[Request, Answer]) tidy(key types.NamespacedName) {
	if l := w.lines[key]; l.last == nil && len(l.waiting) == 0 {
		delete(w.lines, key)
	}
}

func (w *Worker[Request, Answer]) schedule(key types.NamespacedName) {
	if waiting := w.lines[key].waiting; len(waiting) > 0 {
		next := slices.MinFunc(waiting, func(x, y *job[Request, Answer]) int { return x.due.Compare(y.due) })
		w.queue.AddAfter(key, time.Until(next.due))
	}
}

func (w *Worker[Request, Answer]) next(ctx context.Context) bool {
	key, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(key)
	j := w.begin(key)
	if j == nil {
		return true
	}
	answer, err := w.try(ctx, key, j)
	if w.finish(ctx, key, j, answer, err) {
		w.options.Wake(key)
	}
	return true
}

func (w *Worker[Request, Answer]) begin(key types.NamespacedName) *job[Request, Answer] {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lines[key]
	if l == nil {
		return nil
	}
	now := time.Now()
	i := slices.IndexFunc(l.waiting, func(j *job[Request, Answer]) bool { return !j.due.After(now) })
	if i < 0 {
		w.schedule(key)
		return nil
	}
	j := l.waiting[i]
	j.tried = now
	if w.options.Interval != nil {
		// A request that replaces this one meanwhile waits as long.
		j.due = now.Add(w.pause(j))
	}
	return j
}

// try handles the request once. A panic of a library is an error.
func (w *Worker[Request, Answer]) try(ctx context.Context, key types.NamespacedName, j *job[Request, Answer]) (answer Answer, err error) {
	timeout := w.options.Timeout
	if w.options.Deadline > 0 {
		timeout = min(timeout, w.options.Deadline-time.Since(j.since))
	}
	try, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			logging.FromContext(ctx).Errorw("A background request panicked", "queue", w.options.Name,
				logkey.Key, key.String(), "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = errors.New("an internal error, which the controller has logged")
		}
	}()
	return w.options.Do(try, j.request)
}

// finish stores the answer, and schedules the next try. It reports whether to wake the
// Function.
func (w *Worker[Request, Answer]) finish(ctx context.Context, key types.NamespacedName, j *job[Request, Answer], answer Answer, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lines[key]
	if l == nil || !l.remove(j) {
		// The request was dropped meanwhile.
		return false
	}
	if err == nil {
		j.failures = 0
	} else {
		j.failures++
		answer = w.failed(ctx, key, j, err)
	}
	if w.options.Interval != nil || w.options.Retry && err != nil {
		j.due = time.Now().Add(w.pause(j))
		l.waiting = append(l.waiting, j)
	}
	changed := false
	if !w.options.Retry || err == nil {
		changed = !j.done || j.answer != answer
		j.done, j.answer = true, answer
	}
	w.schedule(key)
	w.tidy(key)
	return changed && j.awaited && j == l.last
}

func (w *Worker[Request, Answer]) failed(ctx context.Context, key types.NamespacedName, j *job[Request, Answer], err error) (none Answer) {
	if w.options.Failed != nil {
		return w.options.Failed(err)
	}
	if j.failures == 1 {
		logging.FromContext(ctx).Warnw("A background request failed", "queue", w.options.Name, logkey.Key, key.String(), "error", err)
	}
	return none
}

// pause returns the delay before the next try. Periodic requests wait up to 10 % longer,
// so that simultaneous ones drift apart.
func (w *Worker[Request, Answer]) pause(j *job[Request, Answer]) time.Duration {
	if w.options.Interval == nil {
		return backoff(FirstRetry, LastRetry, j.failures)
	}
	interval := w.options.Interval(j.request)
	return backoff(interval+rand.N(interval/10+1), max(interval, longestPause), j.failures)
}

func backoff(delay, most time.Duration, failures int) time.Duration {
	for range failures - 1 {
		if delay >= most {
			break
		}
		delay = min(2*delay, most)
	}
	return delay
}

func (l *line[Request, Answer]) remove(j *job[Request, Answer]) bool {
	i := slices.Index(l.waiting, j)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}
