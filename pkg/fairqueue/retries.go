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

package fairqueue

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

const (
	// firstRetry is the delay after the first failure of a key. Each further failure
	// doubles the delay, up to lastRetry.
	firstRetry, lastRetry = 5 * time.Millisecond, 1000 * time.Second
	perSecond, atOnce     = 10, 100
)

// newRetries returns a rate limiter for retries. Its limits are those of client-go's
// default limiter, but for each namespace. With a shared limit, a failing key would wait for
// minutes behind thousands of failing keys of another namespace.
func newRetries() workqueue.TypedRateLimiter[types.NamespacedName] {
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

func (r *retries) When(key types.NamespacedName) time.Duration {
	return max(r.TypedRateLimiter.When(key), r.reserve(key.Namespace))
}

func (r *retries) reserve(namespace string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	limiter, ok := r.namespaces[namespace]
	if !ok {
		// A full limiter holds no state: forget namespaces without failures.
		maps.DeleteFunc(r.namespaces, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= atOnce })
		limiter = rate.NewLimiter(perSecond, atOnce)
		r.namespaces[namespace] = limiter
	}
	reservation := limiter.Reserve()
	if delay := reservation.Delay(); delay <= lastRetry {
		return delay
	}
	// A key that fails repeatedly reserves each time. The cap bounds the namespace's delay.
	reservation.Cancel()
	return lastRetry
}
