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

package background

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/logging"
)

var (
	greeter = types.NamespacedName{Namespace: "default", Name: "greeter"}
	other   = types.NamespacedName{Namespace: "default", Name: "other"}
)

const (
	workers  = 8
	timeout  = 3 * time.Second
	deadline = 30 * time.Second
	interval = 10 * time.Minute
)

// worker is a Worker that counts the calls of Wake.
type worker struct {
	*Worker[string, string]
	woken atomic.Int32
}

// run runs the test with a Worker, on a fake clock.
func run(t *testing.T, o Options[string, string], test func(*testing.T, *worker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(logging.WithLogger(t.Context(), zap.NewNop().Sugar()))
		w := &worker{}
		o.Name, o.Workers, o.Timeout = "test", workers, timeout
		o.Wake = func(types.NamespacedName) { w.woken.Add(1) }
		w.Worker = New(o)
		w.Start(ctx)
		test(t, w)
		cancel()
		synctest.Wait()
	})
}

// once returns the options of requests that are made once.
func once(do func(context.Context, string) (string, error)) Options[string, string] {
	return Options[string, string]{Do: do, Deadline: deadline}
}

// retried returns the options of requests that are retried. A request replaces those with
// its first letter.
func retried(do func(context.Context, string) (string, error)) Options[string, string] {
	return Options[string, string]{Do: do, Retry: true, Replaces: func(request, earlier string) bool { return request[0] == earlier[0] }}
}

// periodic returns the options of requests with an interval.
func periodic(do func(context.Context, string) (string, error)) Options[string, string] {
	return Options[string, string]{
		Do:       do,
		Interval: func(string) time.Duration { return interval },
		Failed:   func(err error) string { return "failed: " + err.Error() },
	}
}

func (w *worker) want(t *testing.T, request, want string, wantOK bool) {
	t.Helper()
	if got, ok := w.Answer(greeter, request, true); got != want || ok != wantOK {
		t.Errorf("Answer(%s) = %q, %t; want %q, %t", request, got, ok, want, wantOK)
	}
}

func (w *worker) wantWoken(t *testing.T, want int32) {
	t.Helper()
	if got := w.woken.Load(); got != want {
		t.Errorf("%d were woken, want %d", got, want)
	}
}

// slowly takes a second for each request. It counts the requests.
func slowly(count *atomic.Int32) func(context.Context, string) (string, error) {
	return func(_ context.Context, request string) (string, error) {
		count.Add(1)
		time.Sleep(time.Second)
		return "the answer to " + request, nil
	}
}

func TestAsk(t *testing.T) {
	count := atomic.Int32{}
	run(t, once(slowly(&count)), func(t *testing.T, w *worker) {
		w.want(t, "a", "", false)
		w.Ask(greeter, "a")
		w.Ask(greeter, "a")
		w.want(t, "a", "", false)
		time.Sleep(2 * time.Second)
		w.wantWoken(t, 1)
		w.Ask(greeter, "a")
		w.want(t, "a", "the answer to a", true)
		w.want(t, "a", "the answer to a", true)
		w.want(t, "b", "", false)
		if got := count.Load(); got != 1 {
			t.Errorf("%d requests were made, want 1", got)
		}
		w.Forget(greeter)
		w.want(t, "a", "", false)
		w.Forget(greeter)
	})
}

func TestNotAwaited(t *testing.T) {
	run(t, once(slowly(&atomic.Int32{})), func(t *testing.T, w *worker) {
		w.Ask(greeter, "a")
		w.Answer(greeter, "a", false)
		time.Sleep(2 * time.Second)
		w.wantWoken(t, 0)
		w.want(t, "a", "the answer to a", true)
	})
}

// TestReplaced checks that the last request of a Function counts while an earlier one
// runs.
func TestReplaced(t *testing.T) {
	run(t, once(slowly(&atomic.Int32{})), func(t *testing.T, w *worker) {
		w.Ask(greeter, "a")
		w.want(t, "a", "", false)
		time.Sleep(500 * time.Millisecond)
		w.Ask(greeter, "b")
		w.want(t, "b", "", false)
		time.Sleep(time.Second)
		w.wantWoken(t, 0)
		time.Sleep(time.Second)
		w.wantWoken(t, 1)
		w.want(t, "b", "the answer to b", true)
	})
}

func TestForgotten(t *testing.T) {
	run(t, once(slowly(&atomic.Int32{})), func(t *testing.T, w *worker) {
		w.Ask(greeter, "a")
		w.want(t, "a", "", false)
		time.Sleep(500 * time.Millisecond)
		w.Forget(greeter)
		time.Sleep(time.Minute)
		w.wantWoken(t, 0)
		w.want(t, "a", "", false)
	})
}

// TestInTime checks that a server that never answers costs each of many Functions at most
// the deadline, however many requests wait.
func TestInTime(t *testing.T) {
	hang := func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	run(t, once(hang), func(t *testing.T, w *worker) {
		const functions = 100 * workers
		for i := range functions {
			key := types.NamespacedName{Namespace: "default", Name: strconv.Itoa(i)}
			w.Ask(key, "a")
			w.Answer(key, "a", true)
		}
		time.Sleep(timeout + time.Millisecond)
		synctest.Wait()
		w.wantWoken(t, workers)
		time.Sleep(deadline - timeout)
		synctest.Wait()
		w.wantWoken(t, functions)
	})
}

// TestFailed checks that an error is an answer, and that the request is not repeated.
func TestFailed(t *testing.T) {
	count := atomic.Int32{}
	fail := func(context.Context, string) (string, error) { count.Add(1); return "", errors.New("refused") }
	run(t, once(fail), func(t *testing.T, w *worker) {
		w.Ask(greeter, "a")
		w.Ask(other, "a")
		time.Sleep(time.Hour)
		w.want(t, "a", "", true)
		if got := count.Load(); got != 2 {
			t.Errorf("%d requests were made, want 2", got)
		}
	})
}

func TestRetries(t *testing.T) {
	var tries []time.Duration
	var start time.Time
	fail := func(ctx context.Context, _ string) (string, error) {
		tries = append(tries, time.Since(start))
		if len(tries) < 4 {
			return "", errors.New("refused")
		}
		return "done", ctx.Err()
	}
	run(t, retried(fail), func(t *testing.T, w *worker) {
		start = time.Now()
		w.Ask(greeter, "a")
		w.Ask(greeter, "a")
		w.want(t, "a", "", false)
		time.Sleep(time.Hour)
		w.want(t, "a", "done", true)
		w.wantWoken(t, 1)
	})
	if len(tries) != 4 || tries[3] != 7*FirstRetry {
		t.Errorf("tries were made after %s, want 0, 1, 3 and 7 s", tries)
	}
}

// TestRetriesNoMore checks that a forgotten request is not retried.
func TestRetriesNoMore(t *testing.T) {
	count := atomic.Int32{}
	fail := func(context.Context, string) (string, error) { count.Add(1); return "", errors.New("refused") }
	run(t, retried(fail), func(t *testing.T, w *worker) {
		w.Ask(greeter, "a")
		time.Sleep(FirstRetry / 2)
		w.Forget(greeter)
		time.Sleep(time.Hour)
		if got := count.Load(); got != 1 {
			t.Errorf("%d tries were made, want 1", got)
		}
	})
}

// TestKeepsEarlier checks that a new request loses no earlier one, that a request that
// always fails delays no other, and that a replaced request is not made again.
func TestKeepsEarlier(t *testing.T) {
	var done []string
	back := atomic.Bool{}
	tag := func(_ context.Context, request string) (string, error) {
		if !back.Load() || request == "poison" {
			return "", errors.New("refused")
		}
		done = append(done, request)
		return "done", nil
	}
	run(t, retried(tag), func(t *testing.T, w *worker) {
		for _, request := range []string{"poison", "a1", "b1", "c1", "b2"} {
			w.Ask(greeter, request)
			time.Sleep(time.Minute)
		}
		w.want(t, "b2", "", false)
		back.Store(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		w.want(t, "b2", "done", true)
		w.wantWoken(t, 1)
		if got := strings.Join(slices.Sorted(slices.Values(done)), " "); got != "a1 b2 c1" {
			t.Errorf("done are %s, want each but the one that was replaced, once", got)
		}

		w.Acknowledge(greeter)
		w.want(t, "b2", "", false)
		if waiting := w.lines[greeter].waiting; len(waiting) != 1 || waiting[0].request != "poison" {
			t.Errorf("what has no answer is not tried any more: %v", waiting)
		}
		w.Forget(greeter)
		if len(w.lines) != 0 {
			t.Errorf("after all is forgotten, there is %v", w.lines)
		}
	})
}

// TestAcknowledged checks that an answer stays until it is acknowledged, and nothing stays
// afterwards.
func TestAcknowledged(t *testing.T) {
	run(t, retried(slowly(&atomic.Int32{})), func(t *testing.T, w *worker) {
		w.Acknowledge(greeter)
		w.Ask(greeter, "a")
		w.Acknowledge(greeter)
		time.Sleep(2 * time.Second)
		w.want(t, "a", "the answer to a", true)
		w.Acknowledge(greeter)
		if len(w.lines) != 0 {
			t.Errorf("there is still %v", w.lines)
		}
	})
}

// TestIsBounded checks that waiting requests take bounded memory, and that the oldest are
// dropped.
func TestIsBounded(t *testing.T) {
	fail := func(context.Context, string) (string, error) { return "", errors.New("refused") }
	run(t, retried(fail), func(t *testing.T, w *worker) {
		for i := range 2 * mostWaiting {
			w.Ask(greeter, string(rune('A'+i)))
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		var waiting []string
		for _, j := range w.lines[greeter].waiting {
			waiting = append(waiting, j.request)
		}
		slices.Sort(waiting)
		if len(waiting) != mostWaiting || waiting[0] != string(rune('A'+mostWaiting)) {
			t.Errorf("%d wait, from %s on: %v", len(waiting), waiting[0], waiting)
		}
	})
}

// TestForgetsAll checks that ForgetAll drops the requests of the meant Functions alone.
func TestForgetsAll(t *testing.T) {
	var dropped, kept atomic.Int32
	fail := func(_ context.Context, request string) (string, error) {
		map[string]*atomic.Int32{"a": &dropped, "b": &kept}[request].Add(1)
		return "", errors.New("refused")
	}
	run(t, retried(fail), func(t *testing.T, w *worker) {
		w.Ask(greeter, "a")
		w.Ask(other, "b")
		time.Sleep(FirstRetry / 2)
		w.ForgetAll(func(key types.NamespacedName) bool { return key == greeter })
		time.Sleep(time.Hour)
		if dropped.Load() != 1 || kept.Load() < 5 {
			t.Errorf("%d tries for the one, %d for the other", dropped.Load(), kept.Load())
		}
	})
}

// TestPanic checks that a panic of one request is its error, and that the workers go on.
func TestPanic(t *testing.T) {
	explode := func(_ context.Context, request string) (string, error) {
		if request == "bomb" {
			panic("out of range")
		}
		return "done", nil
	}
	run(t, once(explode), func(t *testing.T, w *worker) {
		for i := range 2 * workers {
			w.Ask(types.NamespacedName{Namespace: "default", Name: strconv.Itoa(i)}, "bomb")
		}
		w.Ask(greeter, "a")
		synctest.Wait()
		w.want(t, "a", "done", true)
		w.Ask(greeter, "bomb")
		synctest.Wait()
		w.want(t, "bomb", "", true)
	})
	run(t, periodic(explode), func(t *testing.T, w *worker) {
		w.Ask(greeter, "bomb")
		time.Sleep(interval)
		synctest.Wait()
		w.want(t, "bomb", "failed: an internal error, which the controller has logged", true)
	})
}

// TestEditedMeanwhile checks that an edit during a periodic request makes no request
// before the interval is over.
func TestEditedMeanwhile(t *testing.T) {
	count := atomic.Int32{}
	run(t, periodic(slowly(&count)), func(t *testing.T, w *worker) {
		w.Ask(greeter, "a0")
		for i := range 1000 {
			w.Ask(greeter, "a"+strconv.Itoa(i))
			time.Sleep(interval / 100)
		}
		if got := count.Load(); got < 8 || got > 11 {
			t.Errorf("%d requests were made within 10 intervals", got)
		}
	})
}

// TestBackoff checks the bounds of the pauses.
func TestBackoff(t *testing.T) {
	for _, tc := range []struct {
		delay, most time.Duration
		failures    int
		want        time.Duration
	}{
		{time.Minute, time.Hour, 0, time.Minute},
		{time.Minute, time.Hour, 1, time.Minute},
		{time.Minute, time.Hour, 2, 2 * time.Minute},
		{time.Minute, time.Hour, 1000, time.Hour},
		{27 * time.Hour, 24 * time.Hour, 1000, 27 * time.Hour},
	} {
		if got := backoff(tc.delay, tc.most, tc.failures); got != tc.want {
			t.Errorf("backoff(%s, %s, %d) = %s, want %s", tc.delay, tc.most, tc.failures, got, tc.want)
		}
	}
}

// TestHurry checks that a periodic request is tried at once, but not again before a tenth
// of its interval has passed.
func TestHurry(t *testing.T) {
	answered := make(chan struct{}, 10)
	key := types.NamespacedName{Namespace: "ns", Name: "fn"}
	w := New(Options[string, string]{
		Name: "hurried", Workers: 1, Timeout: time.Second,
		Do:       func(context.Context, string) (string, error) { return "", nil },
		Wake:     func(types.NamespacedName) { answered <- struct{}{} },
		Interval: func(string) time.Duration { return time.Hour },
	})
	w.Start(t.Context())
	w.Hurry(key)
	w.Ask(key, "x")
	w.Answer(key, "x", true)
	w.Hurry(key)
	select {
	case <-answered:
	case <-time.After(10 * time.Second):
		t.Fatal("the request is not tried")
	}
	w.Hurry(key)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.lines[key].waiting {
		if wait := time.Until(j.due); wait < 5*time.Minute || wait > 6*time.Minute {
			t.Errorf("the next try is in %s, want a tenth of the interval", wait)
		}
	}
}
