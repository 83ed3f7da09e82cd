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

// Package poll polls the branches of Git repositories in the background. A new process
// starts without results and polls again.
package poll

import (
	"context"
	"math/rand/v2"
	"regexp"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/kiln-dev/kiln/pkg/fairqueue"
)

const (
	// queueName is the name of the queue of due branches in metrics.
	queueName = "followed-branches"

	// workers is the number of concurrent requests.
	workers = 4

	// timeout bounds one request.
	timeout = 30 * time.Second

	// longestPause bounds the backoff after failures, unless the interval is longer.
	longestPause = time.Hour
)

// Branch is the branch of a repository that is polled for a Function.
type Branch struct {
	// URL and Revision are those of the repository. The revision may be a tag.
	URL, Revision string

	// Secret is the name of the Secret with credentials for the server, in the
	// Function's namespace. It may be empty.
	Namespace, Secret string

	// Built is the commit that was built last. A new build makes older results void.
	Built string

	// Interval is the time between two polls. It must be positive.
	Interval time.Duration
}

// Found is the result of a poll.
type Found struct {
	// Commit is the head of the branch. It is empty if the poll failed.
	Commit string

	// Failure is why the poll failed. It is empty if the poll succeeded.
	Failure string
}

// Resolve returns the commit at the head of a branch.
type Resolve func(context.Context, Branch) (string, error)

// Poller polls the branches of many Functions, one branch for each Function.
type Poller struct {
	resolve Resolve
	wake    func(types.NamespacedName)
	queue   workqueue.TypedDelayingInterface[types.NamespacedName]

	mu    sync.Mutex
	lines map[types.NamespacedName]*line
}

// line is the state of a Function's branch.
type line struct {
	branch Branch

	// next is the time of the next poll.
	next time.Time

	// failures is the number of failures in a row.
	failures int

	found Found
	known bool
}

// New returns a Poller. It calls wake for a Function when its result has changed.
func New(resolve Resolve, wake func(types.NamespacedName)) *Poller {
	return &Poller{
		resolve: resolve,
		wake:    wake,
		queue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
				Name: queueName,
				// A namespace with slow servers does not delay the others.
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Name: queueName, Queue: fairqueue.NewOrder(nil)}),
			}),
		lines: map[types.NamespacedName]*line{},
	}
}

// Start polls until ctx ends. It returns at once.
func (p *Poller) Start(ctx context.Context) {
	for range workers {
		go func() {
			for p.work(ctx) {
			}
		}()
	}
	context.AfterFunc(ctx, p.queue.ShutDown)
}

// Poll sets the branch that is polled for a Function. The same branch again changes
// nothing. The first poll comes at a random time within the interval, so many Functions
// that start together are polled one by one. Edits of a Function add no polls.
func (p *Poller) Poll(key types.NamespacedName, branch Branch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[key]
	if l != nil && l.branch == branch {
		return
	}
	latest := time.Now().Add(branch.Interval)
	next := latest.Add(-rand.N(branch.Interval))
	if l != nil {
		next = l.next
		if next.After(latest) {
			next = latest
		}
	}
	p.lines[key] = &line{branch: branch, next: next}
	p.queue.AddAfter(key, time.Until(next))
}

// Found returns the result for the branch. It returns false before the first poll.
func (p *Poller) Found(key types.NamespacedName, branch Branch) (found Found, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[key]
	if l == nil || l.branch != branch {
		return found, false
	}
	return l.found, l.known
}

// Forget stops the polls for a Function.
func (p *Poller) Forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lines, key)
}

// ForgetAll stops the polls for all Functions for which isMeant returns true.
func (p *Poller) ForgetAll(isMeant func(types.NamespacedName) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.lines {
		if isMeant(key) {
			delete(p.lines, key)
		}
	}
}

// work polls the next due branch. It returns false after shutdown.
func (p *Poller) work(ctx context.Context) bool {
	key, shutdown := p.queue.Get()
	if shutdown {
		return false
	}
	defer p.queue.Done(key)
	branch, ok := p.due(key)
	if !ok {
		return true
	}
	try, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	commit, err := p.resolve(try, branch)
	if p.keep(key, branch, commit, err) {
		p.wake(key)
	}
	return true
}

// due returns the branch of a Function, if a poll is due.
func (p *Poller) due(key types.NamespacedName) (Branch, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[key]
	if l == nil {
		return Branch{}, false
	}
	if wait := time.Until(l.next); wait > 0 {
		p.queue.AddAfter(key, wait)
		return Branch{}, false
	}
	return l.branch, true
}

// keep stores the result of a poll. It reports whether the result has changed.
func (p *Poller) keep(key types.NamespacedName, branch Branch, commit string, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[key]
	if l == nil {
		return false
	}
	found := Found{Commit: commit}
	if err != nil {
		l.failures++
		found = Found{Failure: steady(err.Error())}
	} else {
		l.failures = 0
	}
	wait := pause(branch.Interval, l.failures)
	l.next = time.Now().Add(wait)
	p.queue.AddAfter(key, wait)
	if l.branch != branch || l.known && l.found == found {
		return false
	}
	l.found, l.known = found, true
	return true
}

// pause returns the delay until the next poll: the interval and up to 10 % more, so
// that simultaneous polls drift apart. Each failure after the first doubles it.
func pause(interval time.Duration, failures int) time.Duration {
	wait := interval + rand.N(interval/10+1)
	for range failures - 1 {
		if wait >= longestPause {
			break
		}
		wait = min(2*wait, max(interval, longestPause))
	}
	return wait
}

// passing matches the parts of errors that differ each time: local ports and times.
var passing = regexp.MustCompile(`(read|write) (tcp|udp) \S+->\S+: |: current time \S+ is (before|after) \S+`)

// steady removes the parts of an error that differ each time.
func steady(text string) string {
	return passing.ReplaceAllString(text, "")
}
