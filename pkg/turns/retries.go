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

package turns

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

const (
	// firstRetry is how long it takes until what has failed once is tried again. Each
	// time it takes twice as long, up to lastRetry.
	firstRetry, lastRetry = 5 * time.Millisecond, 1000 * time.Second
	// perSecond is how many keys of a namespace are tried again in a second, once there
	// were as many as atOnce.
	perSecond, atOnce = 10, 100
)

// NewRetries returns when what has failed is tried again: as late as client-go's own
// limiter of controllers says, but for that one has all keys together tried again 10
// times a second. There the one key that fails in a namespace would wait for minutes,
// behind the thousands that fail in another. Here each namespace has as many.
func NewRetries() workqueue.TypedRateLimiter[types.NamespacedName] {
	return &retries{
		TypedRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
		namespaces:       map[string]*rate.Limiter{},
	}
}

type retries struct {
	workqueue.TypedRateLimiter[types.NamespacedName]

	mu         sync.Mutex
	namespaces map[string]*rate.Limiter
}

// When implements workqueue.TypedRateLimiter.
func (r *retries) When(key types.NamespacedName) time.Duration {
	return max(r.TypedRateLimiter.When(key), r.reserve(key.Namespace))
}

// reserve returns how long it takes until the namespace may have one more tried again.
func (r *retries) reserve(namespace string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	limiter, ok := r.namespaces[namespace]
	if !ok {
		// Of those in which nothing fails any more there is nothing to be known.
		maps.DeleteFunc(r.namespaces, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= atOnce })
		limiter = rate.NewLimiter(perSecond, atOnce)
		r.namespaces[namespace] = limiter
	}
	reservation := limiter.Reserve()
	if delay := reservation.Delay(); delay <= lastRetry {
		return delay
	}
	// What waits already is counted each time that it fails anew: the debt has an end.
	reservation.Cancel()
	return lastRetry
}
