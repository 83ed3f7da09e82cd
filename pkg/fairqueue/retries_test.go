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
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestRetries checks that many failing keys of a namespace delay each other's retries,
// but not the retries of another namespace.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetries()
		const failing = 5000
		for round := range 2 {
			for i := range failing {
				r.When(types.NamespacedName{Namespace: "a", Name: strconv.Itoa(i)})
			}
			last := r.When(types.NamespacedName{Namespace: "a", Name: "last"})
			if want := time.Duration((round+1)*failing-atOnce) / perSecond * time.Second; last < want {
				t.Errorf("round %d: the last of many keys is retried after %s, want at least %s", round, last, want)
			}
			key := types.NamespacedName{Namespace: "b", Name: "1"}
			if got, want := r.When(key), firstRetry<<round; got != want {
				t.Errorf("round %d: a key of another namespace is retried after %s, want %s", round, got, want)
			}
		}
	})
}

// TestRetriesEnd checks that a key that fails all the time delays the other keys of its
// namespace by at most lastRetry.
func TestRetriesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetries()
		for range 20_000 {
			r.When(types.NamespacedName{Namespace: "a", Name: "1"})
		}
		key := types.NamespacedName{Namespace: "a", Name: "2"}
		if got := r.When(key); got != lastRetry {
			t.Errorf("another key is retried after %s, want %s", got, lastRetry)
		}
		time.Sleep(2 * lastRetry)
		if got, want := r.When(key), 2*firstRetry; got != want {
			t.Errorf("later the key is retried after %s, want %s", got, want)
		}
	})
}

// TestRetriesForget checks that namespaces without failures are forgotten.
func TestRetriesForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetries().(*retries)
		for i := range 1000 {
			key := types.NamespacedName{Namespace: strconv.Itoa(i), Name: "1"}
			r.When(key)
			r.Forget(key)
			if got := r.NumRequeues(key); got != 0 {
				t.Errorf("NumRequeues(%s) = %d, want 0", key, got)
			}
			time.Sleep(time.Second / perSecond)
		}
		if got := len(r.namespaces); got > 2 {
			t.Errorf("%d namespaces are remembered", got)
		}
	})
}
