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

package images

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"knative.dev/pkg/logging"
	"knative.dev/pkg/logging/logkey"
)

const (
	// workers is how many requests of a kind there are at a time.
	workers = 8

	// lookupTimeout is less than what a build takes, which a look-up may save.
	lookupTimeout = 3 * time.Second

	// lookupPatience is for a look-up together with those before it: longer than many
	// of them take where the registry answers, and all there is where it does not.
	lookupPatience = 30 * time.Second

	// taggingTimeout is for one try.
	taggingTimeout = 30 * time.Second

	firstRetry = time.Second
	lastRetry  = 10 * time.Minute

	// mostTaggings bounds the taggings of a Function that a registry which does not
	// answer keeps waiting. Of more, the oldest are given up.
	mostTaggings = 16
)

// Background works on the requests of many Functions, some at a time, and one at
// a time for each Function. It answers the last request of a Function.
type Background[Request comparable, Answer any] struct {
	options[Request, Answer]

	wake  func(types.NamespacedName)
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu    sync.Mutex
	lines map[types.NamespacedName]*line[Request, Answer]
}

// options is how a kind of requests is dealt with.
type options[Request comparable, Answer any] struct {
	name string
	do   func(context.Context, Request) (Answer, error)

	// timeout is that of one try. Where requests are not tried again, patience is
	// how long the wait for a worker and the try may take together.
	timeout, patience time.Duration
	retry             bool

	// replaces says whether a request makes an earlier one of the Function needless.
	replaces func(request, earlier Request) bool
}

// line is what is asked for a Function.
type line[Request comparable, Answer any] struct {
	// last was asked last. It is kept with its answer.
	last *job[Request, Answer]

	// waiting are those without an answer, in the order in which they are tried: one
	// that fails goes to the end, so that it keeps no other waiting.
	waiting []*job[Request, Answer]
}

// job is a request and what has become of it.
type job[Request comparable, Answer any] struct {
	// request and since do not change.
	request Request
	since   time.Time

	// The others are guarded by the mutex.
	done    bool
	answer  Answer
	awaited bool
	failed  bool
}

// NewLookups returns a Background that finds images. What could not be found out
// in time is not found. A Function whose answer is awaited is woken.
func NewLookups(client *Client, wake func(types.NamespacedName)) *Background[Lookup, Found] {
	return newBackground(wake, options[Lookup, Found]{
		name:     "image-lookups",
		do:       client.Find,
		timeout:  lookupTimeout,
		patience: lookupPatience,
		replaces: func(Lookup, Lookup) bool { return true },
	})
}

// NewTaggings returns a Background that tags images. It tries until it succeeds,
// less and less often, or until it may forget the Function. The tags of earlier
// versions are still to be set when the next one is deployed.
func NewTaggings(client *Client, wake func(types.NamespacedName)) *Background[Tagging, struct{}] {
	return newBackground(wake, options[Tagging, struct{}]{
		name: "image-taggings",
		do: func(ctx context.Context, t Tagging) (struct{}, error) {
			return struct{}{}, client.Tag(ctx, t)
		},
		timeout: taggingTimeout,
		retry:   true,
		replaces: func(t, earlier Tagging) bool {
			return t.Repository != earlier.Repository || t.Tag == earlier.Tag
		},
	})
}

func newBackground[Request comparable, Answer any](wake func(types.NamespacedName), o options[Request, Answer]) *Background[Request, Answer] {
	return &Background[Request, Answer]{
		options: o,
		wake:    wake,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: o.name}),
		lines: map[types.NamespacedName]*line[Request, Answer]{},
	}
}

// Start has the requests worked on until the context is done. It does not wait.
func (b *Background[Request, Answer]) Start(ctx context.Context) {
	for range workers {
		go func() {
			for b.next(ctx) {
			}
		}()
	}
	context.AfterFunc(ctx, b.queue.ShutDown)
}

// Ask has the request worked on for the Function of that key, before any other of
// the Function and instead of those that it replaces. To ask the same again
// changes nothing.
func (b *Background[Request, Answer]) Ask(key types.NamespacedName, request Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[key]
	if l == nil {
		l = &line[Request, Answer]{}
		b.lines[key] = l
	}
	if l.last != nil && l.last.request == request {
		return
	}
	l.last = &job[Request, Answer]{request: request, since: time.Now()}
	l.waiting = slices.DeleteFunc(l.waiting, func(j *job[Request, Answer]) bool { return b.replaces(request, j.request) })
	l.waiting = slices.Insert(l.waiting, 0, l.last)
	if len(l.waiting) > mostTaggings {
		l.remove(slices.MinFunc(l.waiting, func(x, y *job[Request, Answer]) int { return x.since.Compare(y.since) }))
	}
	b.queue.Forget(key)
	b.queue.Add(key)
}

// Answer returns the answer to the request, if it is there. Who awaits it is
// woken when it is.
func (b *Background[Request, Answer]) Answer(key types.NamespacedName, request Request, await bool) (answer Answer, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[key]
	if l == nil || l.last == nil || l.last.request != request {
		return answer, false
	}
	l.last.awaited = l.last.awaited || await
	return l.last.answer, l.last.done
}

// Acknowledge drops the answer to the last request of the Function. What has no
// answer yet goes on.
func (b *Background[Request, Answer]) Acknowledge(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[key]
	if l == nil || l.last == nil || !l.last.done {
		return
	}
	l.last = nil
	b.tidy(key)
}

// Forget drops all requests of the Function, and the answer.
func (b *Background[Request, Answer]) Forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(key)
}

// ForgetAll drops all requests of the Functions that are meant.
func (b *Background[Request, Answer]) ForgetAll(isMeant func(types.NamespacedName) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.lines {
		if isMeant(key) {
			b.forget(key)
		}
	}
}

func (b *Background[Request, Answer]) forget(key types.NamespacedName) {
	if b.lines[key] == nil {
		return
	}
	delete(b.lines, key)
	b.queue.Forget(key)
}

// tidy drops a line in which there is nothing any more.
func (b *Background[Request, Answer]) tidy(key types.NamespacedName) {
	if l := b.lines[key]; l.last == nil && len(l.waiting) == 0 {
		b.forget(key)
	}
}

// next works on the next request. It returns false when there will be none.
func (b *Background[Request, Answer]) next(ctx context.Context) bool {
	key, shutdown := b.queue.Get()
	if shutdown {
		return false
	}
	defer b.queue.Done(key)

	j := b.first(key)
	if j == nil {
		return true
	}
	timeout := b.timeout
	if !b.retry {
		timeout = min(timeout, b.patience-time.Since(j.since))
	}
	try, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := b.do(try, j.request)
	if b.finish(ctx, key, j, answer, err) {
		b.wake(key)
	}
	return true
}

// first returns the request of the Function to work on, or nil.
func (b *Background[Request, Answer]) first(key types.NamespacedName) *job[Request, Answer] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[key]; l != nil && len(l.waiting) > 0 {
		return l.waiting[0]
	}
	return nil
}

// finish keeps the answer, or has the request tried again, and says whether the
// Function is to be woken.
func (b *Background[Request, Answer]) finish(ctx context.Context, key types.NamespacedName, j *job[Request, Answer], answer Answer, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[key]
	if l == nil || !l.remove(j) {
		// Nobody wants to know any more, or all begins anew.
		return false
	}
	if err != nil && !j.failed {
		j.failed = true
		logging.FromContext(ctx).Warnw("The registry did not do what it was asked", logkey.Key, key.String(), "error", err)
	}
	if err != nil && b.retry {
		l.waiting = append(l.waiting, j)
		b.queue.AddRateLimited(key)
		return false
	}
	b.queue.Forget(key)
	j.done, j.answer = true, answer
	if len(l.waiting) > 0 {
		b.queue.Add(key)
	}
	b.tidy(key)
	return j.awaited && j == l.last
}

// remove takes the job out of those that wait, and says whether it was there.
func (l *line[Request, Answer]) remove(j *job[Request, Answer]) bool {
	i := slices.Index(l.waiting, j)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}
