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
	// workers is the number of concurrent requests of a kind.
	workers = 8

	// lookupTimeout is shorter than a build, which a lookup may save.
	lookupTimeout = 3 * time.Second

	// lookupDeadline bounds a lookup and its wait for a worker. Many lookups fit in it
	// while the registry answers.
	lookupDeadline = 30 * time.Second

	// taggingTimeout bounds one try.
	taggingTimeout = 30 * time.Second

	firstRetry = time.Second
	lastRetry  = 10 * time.Minute

	// mostTaggings bounds the waiting taggings of a Function. The oldest are dropped.
	mostTaggings = 16
)

// Background handles the requests of many Functions, one at a time for each Function.
// It keeps the answer to the last request of each Function.
type Background[Request comparable, Answer any] struct {
	options[Request, Answer]

	wake  func(types.NamespacedName)
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu    sync.Mutex
	lines map[types.NamespacedName]*line[Request, Answer]
}

// options configures a kind of requests.
type options[Request comparable, Answer any] struct {
	name string
	do   func(context.Context, Request) (Answer, error)

	// timeout bounds one try. Without retry, deadline bounds the wait for a worker
	// and the try together.
	timeout, deadline time.Duration
	retry             bool

	// replaces reports whether a request replaces an earlier one of the Function.
	replaces func(request, earlier Request) bool
}

// line has the requests of a Function.
type line[Request comparable, Answer any] struct {
	// last is the last request. It stays until its answer is dropped.
	last *job[Request, Answer]

	// waiting has the requests without an answer, in the order of the tries. A failed
	// request goes to the end, so it does not delay the others.
	waiting []*job[Request, Answer]
}

// job is a request and its state.
type job[Request comparable, Answer any] struct {
	// request and since do not change.
	request Request
	since   time.Time

	// The mutex guards the other fields.
	done    bool
	answer  Answer
	awaited bool
	failed  bool
}

// NewLookups returns a Background that finds images. A lookup that fails or takes too
// long finds no image. The Background calls wake for a Function that awaits the answer.
func NewLookups(client *Client, wake func(types.NamespacedName)) *Background[Lookup, Found] {
	return newBackground(wake, options[Lookup, Found]{
		name:     "image-lookups",
		do:       client.Find,
		timeout:  lookupTimeout,
		deadline: lookupDeadline,
		replaces: func(Lookup, Lookup) bool { return true },
	})
}

// NewTaggings returns a Background that tags images. It retries with a backoff until it
// succeeds or forgets the Function. A new version does not cancel the tags of earlier
// versions.
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

// Start handles requests until ctx ends. It returns at once.
func (b *Background[Request, Answer]) Start(ctx context.Context) {
	for range workers {
		go func() {
			for b.next(ctx) {
			}
		}()
	}
	context.AfterFunc(ctx, b.queue.ShutDown)
}

// Ask adds a request of a Function. It goes before the Function's other requests, and
// drops those that it replaces. The same request again changes nothing.
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

// Answer returns the answer to the request. It returns false while there is no answer.
// With await, the Background wakes the Function when the answer comes.
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

// Acknowledge drops the answer to the last request of the Function. Requests without an
// answer continue.
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

// Forget drops all requests of the Function and their answers.
func (b *Background[Request, Answer]) Forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(key)
}

// ForgetAll drops the requests of all Functions for which isMeant returns true.
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

// tidy drops an empty line.
func (b *Background[Request, Answer]) tidy(key types.NamespacedName) {
	if l := b.lines[key]; l.last == nil && len(l.waiting) == 0 {
		b.forget(key)
	}
}

// next handles the next request. It returns false after shutdown.
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
		timeout = min(timeout, b.deadline-time.Since(j.since))
	}
	try, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := b.do(try, j.request)
	if b.finish(ctx, key, j, answer, err) {
		b.wake(key)
	}
	return true
}

// first returns the next request of the Function, or nil.
func (b *Background[Request, Answer]) first(key types.NamespacedName) *job[Request, Answer] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[key]; l != nil && len(l.waiting) > 0 {
		return l.waiting[0]
	}
	return nil
}

// finish stores the answer, or retries the request. It reports whether to wake the
// Function.
func (b *Background[Request, Answer]) finish(ctx context.Context, key types.NamespacedName, j *job[Request, Answer], answer Answer, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[key]
	if l == nil || !l.remove(j) {
		// The request was dropped meanwhile.
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

// remove removes a waiting job. It reports whether the job was waiting.
func (l *line[Request, Answer]) remove(j *job[Request, Answer]) bool {
	i := slices.Index(l.waiting, j)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}
