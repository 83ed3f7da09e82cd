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

	// taggingTimeout is for one try.
	taggingTimeout = 30 * time.Second

	firstRetry = time.Second
	lastRetry  = 10 * time.Minute
)

// Background works on a request for each of many Functions, some at a time.
// There is one request at a time for a Function: the last.
type Background[Request comparable, Answer any] struct {
	do   func(context.Context, Request) (Answer, error)
	wake func(types.NamespacedName)

	// timeout is that of one try where requests are tried again. Where they are
	// not, the wait for a worker counts, too.
	timeout time.Duration
	retry   bool

	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu   sync.Mutex
	jobs map[types.NamespacedName]*job[Request, Answer]
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
	return newBackground("image-lookups", client.Find, wake, lookupTimeout, false)
}

// NewTaggings returns a Background that tags images. It tries until it succeeds,
// less and less often, or until it may forget the Function.
func NewTaggings(client *Client, wake func(types.NamespacedName)) *Background[Tagging, struct{}] {
	return newBackground("image-taggings", func(ctx context.Context, t Tagging) (struct{}, error) {
		return struct{}{}, client.Tag(ctx, t)
	}, wake, taggingTimeout, true)
}

func newBackground[Request comparable, Answer any](
	name string, do func(context.Context, Request) (Answer, error), wake func(types.NamespacedName), timeout time.Duration, retry bool,
) *Background[Request, Answer] {
	return &Background[Request, Answer]{
		do:      do,
		wake:    wake,
		timeout: timeout,
		retry:   retry,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: name}),
		jobs: map[types.NamespacedName]*job[Request, Answer]{},
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

// Ask has the request worked on for the Function of that key, instead of any
// other. To ask the same again changes nothing.
func (b *Background[Request, Answer]) Ask(key types.NamespacedName, request Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[key]; j != nil && j.request == request {
		return
	}
	b.jobs[key] = &job[Request, Answer]{request: request, since: time.Now()}
	b.queue.Forget(key)
	b.queue.Add(key)
}

// Answer returns the answer to the request, if it is there. Who awaits it is
// woken when it is.
func (b *Background[Request, Answer]) Answer(key types.NamespacedName, request Request, await bool) (answer Answer, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[key]
	if j == nil || j.request != request {
		return answer, false
	}
	j.awaited = j.awaited || await
	return j.answer, j.done
}

// Forget drops the request of the Function, and its answer.
func (b *Background[Request, Answer]) Forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.jobs[key] == nil {
		return
	}
	delete(b.jobs, key)
	b.queue.Forget(key)
}

// next works on the next request. It returns false when there will be none.
func (b *Background[Request, Answer]) next(ctx context.Context) bool {
	key, shutdown := b.queue.Get()
	if shutdown {
		return false
	}
	defer b.queue.Done(key)

	b.mu.Lock()
	j := b.jobs[key]
	if j == nil || j.done {
		b.mu.Unlock()
		return true
	}
	b.mu.Unlock()

	deadline := j.since
	if b.retry {
		deadline = time.Now()
	}
	try, cancel := context.WithDeadline(ctx, deadline.Add(b.timeout))
	defer cancel()
	answer, err := b.do(try, j.request)
	if b.finish(ctx, key, j, answer, err) {
		b.wake(key)
	}
	return true
}

// finish keeps the answer, or has the request tried again, and says whether the
// Function is to be woken.
func (b *Background[Request, Answer]) finish(ctx context.Context, key types.NamespacedName, j *job[Request, Answer], answer Answer, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.jobs[key] != j {
		// Nobody wants to know any more, or all begins anew.
		return false
	}
	if err != nil && !j.failed {
		j.failed = true
		logging.FromContext(ctx).Warnw("The registry did not do what it was asked", logkey.Key, key.String(), "error", err)
	}
	if err != nil && b.retry {
		b.queue.AddRateLimited(key)
		return false
	}
	b.queue.Forget(key)
	j.done, j.answer = true, answer
	return j.awaited
}
