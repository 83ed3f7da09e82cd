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

// Package follow finds out which commits branches are at, again and again, away from
// the reconciler. What it knows can be asked again: it is forgotten with the process.
package follow

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
	// queueName is the name that metrics have for the branches that are due.
	queueName = "followed-branches"

	// workers is how many servers are asked at a time.
	workers = 4

	// timeout is how long one may take to answer.
	timeout = 30 * time.Second

	// longestPause is how long it takes at most until a server is asked again that has
	// failed, unless the interval is longer.
	longestPause = time.Hour
)

// Branch is what is followed for a Function.
type Branch struct {
	// URL and Revision are those of the repository. A tag can be followed like a
	// branch.
	URL, Revision string

	// Secret is the name of the Secret with credentials for its server, in the
	// Function's namespace; "" is none.
	Namespace, Secret string

	// Built is the commit that was built last. What was found before it was built
	// says nothing of what to build after it.
	Built string

	// Interval is how often the branch is asked for.
	Interval time.Duration
}

// Found is what was found out.
type Found struct {
	// Commit is where the branch is. It is "" where that could not be found out.
	Commit string

	// Failure says why not.
	Failure string
}

// Resolve returns the commit that a branch is at.
type Resolve func(context.Context, Branch) (string, error)

// Follower follows the branches of many Functions, one for each.
type Follower struct {
	resolve Resolve
	wake    func(types.NamespacedName)
	queue   workqueue.TypedDelayingInterface[types.NamespacedName]

	mu    sync.Mutex
	lines map[types.NamespacedName]*line
}

// line is what is known of a Function's branch.
type line struct {
	branch Branch

	// next is when it is asked for.
	next time.Time

	// failures is how often that has failed in a row.
	failures int

	found Found
	known bool
}

// New returns a Follower. A Function is woken when what was found has changed.
func New(resolve Resolve, wake func(types.NamespacedName)) *Follower {
	return &Follower{
		resolve: resolve,
		wake:    wake,
		queue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
				Name: queueName,
				// A namespace whose servers do not answer keeps no other's waiting.
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Name: queueName, Queue: fairqueue.NewOrder(nil)}),
			}),
		lines: map[types.NamespacedName]*line{},
	}
}

// Start has branches asked for until the context is done. It does not wait.
func (f *Follower) Start(ctx context.Context) {
	for range workers {
		go func() {
			for f.work(ctx) {
			}
		}()
	}
	context.AfterFunc(ctx, f.queue.ShutDown)
}

// Follow has the branch followed for the Function of that key, instead of any other.
// To say the same again changes nothing. The first time it is asked for is anywhere
// within the interval, so that many that begin at once are asked for one by one; a
// Function that is edited has its branch asked for no more often.
func (f *Follower) Follow(key types.NamespacedName, branch Branch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lines[key]
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
	f.lines[key] = &line{branch: branch, next: next}
	f.queue.AddAfter(key, time.Until(next))
}

// Found returns what was found of the branch, if that is known.
func (f *Follower) Found(key types.NamespacedName, branch Branch) (found Found, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lines[key]
	if l == nil || l.branch != branch {
		return found, false
	}
	return l.found, l.known
}

// Forget has nothing followed for the Function any more.
func (f *Follower) Forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.lines, key)
}

// ForgetAll has nothing followed for the Functions that are meant.
func (f *Follower) ForgetAll(isMeant func(types.NamespacedName) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.lines {
		if isMeant(key) {
			delete(f.lines, key)
		}
	}
}

// work asks for the next branch. It returns false when there will be none.
func (f *Follower) work(ctx context.Context) bool {
	key, shutdown := f.queue.Get()
	if shutdown {
		return false
	}
	defer f.queue.Done(key)
	branch, ok := f.due(key)
	if !ok {
		return true
	}
	try, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	commit, err := f.resolve(try, branch)
	if f.keep(key, branch, commit, err) {
		f.wake(key)
	}
	return true
}

// due returns the branch of the Function, if its time has come.
func (f *Follower) due(key types.NamespacedName) (Branch, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lines[key]
	if l == nil {
		return Branch{}, false
	}
	if wait := time.Until(l.next); wait > 0 {
		f.queue.AddAfter(key, wait)
		return Branch{}, false
	}
	return l.branch, true
}

// keep remembers what was found, and says whether the Function is to be told.
func (f *Follower) keep(key types.NamespacedName, branch Branch, commit string, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lines[key]
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
	f.queue.AddAfter(key, wait)
	if l.branch != branch || l.known && l.found == found {
		return false
	}
	l.found, l.known = found, true
	return true
}

// pause returns how long it takes until a branch is asked for again: a little longer
// than the interval, so that those that were asked for at once drift apart, and twice
// as long after each failure.
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

// passing is what errors tell of one moment: the own port of a connection, and the time
// at which a certificate has not been valid.
var passing = regexp.MustCompile(`(read|write) (tcp|udp) \S+->\S+: |: current time \S+ is (before|after) \S+`)

// steady returns an error in words that are the same when it happens again.
func steady(text string) string {
	return passing.ReplaceAllString(text, "")
}
