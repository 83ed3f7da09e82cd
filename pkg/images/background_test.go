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

// fakeBackground is a Background whose requests are worked on by do, and who
// was woken.
type fakeBackground struct {
	*Background[string, string]
	woken atomic.Int32
}

// inBackground runs the test in a bubble, with a clock of its own.
func inBackground(t *testing.T, retry bool, do func(context.Context, string) (string, error), test func(*testing.T, *fakeBackground)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(logging.WithLogger(t.Context(), zap.NewNop().Sugar()))
		fake := &fakeBackground{}
		fake.Background = newBackground(func(types.NamespacedName) { fake.woken.Add(1) }, options[string, string]{
			name: "test", do: do, timeout: lookupTimeout, deadline: lookupDeadline, retry: retry,
			// Of requests that are tried again, one replaces those of its first letter.
			replaces: func(request, earlier string) bool { return !retry || request[0] == earlier[0] },
		})
		fake.Start(ctx)
		test(t, fake)
		cancel()
		synctest.Wait()
	})
}

func (b *fakeBackground) want(t *testing.T, request, want string, wantOK bool) {
	t.Helper()
	if got, ok := b.Answer(greeter, request, true); got != want || ok != wantOK {
		t.Errorf("Answer(%s) = %q, %t; want %q, %t", request, got, ok, want, wantOK)
	}
}

func (b *fakeBackground) wantWoken(t *testing.T, want int32) {
	t.Helper()
	if got := b.woken.Load(); got != want {
		t.Errorf("%d were woken, want %d", got, want)
	}
}

// slowly takes a second for each request, and counts them.
func slowly(count *atomic.Int32) func(context.Context, string) (string, error) {
	return func(_ context.Context, request string) (string, error) {
		count.Add(1)
		time.Sleep(time.Second)
		return "the answer to " + request, nil
	}
}

func TestBackground(t *testing.T) {
	count := atomic.Int32{}
	inBackground(t, false, slowly(&count), func(t *testing.T, b *fakeBackground) {
		b.want(t, "a", "", false)
		b.Ask(greeter, "a")
		b.Ask(greeter, "a")
		b.want(t, "a", "", false)
		time.Sleep(2 * time.Second)
		b.wantWoken(t, 1)
		b.Ask(greeter, "a")
		b.want(t, "a", "the answer to a", true)
		b.want(t, "a", "the answer to a", true)
		b.want(t, "b", "", false)
		if got := count.Load(); got != 1 {
			t.Errorf("%d requests were made, want 1", got)
		}
		b.Forget(greeter)
		b.want(t, "a", "", false)
		b.Forget(greeter)
	})
}

func TestBackgroundNotAwaited(t *testing.T) {
	inBackground(t, false, slowly(&atomic.Int32{}), func(t *testing.T, b *fakeBackground) {
		b.Ask(greeter, "a")
		b.Answer(greeter, "a", false)
		time.Sleep(2 * time.Second)
		b.wantWoken(t, 0)
		b.want(t, "a", "the answer to a", true)
	})
}

// TestBackgroundReplaced checks that the last request of a Function counts,
// though an earlier one is under way.
func TestBackgroundReplaced(t *testing.T) {
	inBackground(t, false, slowly(&atomic.Int32{}), func(t *testing.T, b *fakeBackground) {
		b.Ask(greeter, "a")
		b.want(t, "a", "", false)
		time.Sleep(500 * time.Millisecond)
		b.Ask(greeter, "b")
		b.want(t, "b", "", false)
		time.Sleep(time.Second)
		b.wantWoken(t, 0)
		time.Sleep(time.Second)
		b.wantWoken(t, 1)
		b.want(t, "b", "the answer to b", true)
	})
}

func TestBackgroundForgotten(t *testing.T) {
	inBackground(t, false, slowly(&atomic.Int32{}), func(t *testing.T, b *fakeBackground) {
		b.Ask(greeter, "a")
		b.want(t, "a", "", false)
		time.Sleep(500 * time.Millisecond)
		b.Forget(greeter)
		time.Sleep(time.Minute)
		b.wantWoken(t, 0)
		b.want(t, "a", "", false)
	})
}

// TestBackgroundInTime checks that a registry which never answers costs each of
// many Functions no more than lookupDeadline, however many requests wait.
func TestBackgroundInTime(t *testing.T) {
	hang := func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	inBackground(t, false, hang, func(t *testing.T, b *fakeBackground) {
		const functions = 100 * workers
		for i := range functions {
			key := types.NamespacedName{Namespace: "default", Name: strconv.Itoa(i)}
			b.Ask(key, "a")
			b.Answer(key, "a", true)
		}
		time.Sleep(lookupTimeout + time.Millisecond)
		synctest.Wait()
		b.wantWoken(t, workers)
		time.Sleep(lookupDeadline - lookupTimeout)
		synctest.Wait()
		b.wantWoken(t, functions)
	})
}

// TestBackgroundFailed checks that an error is an answer, too, which is not asked
// for again.
func TestBackgroundFailed(t *testing.T) {
	count := atomic.Int32{}
	fail := func(context.Context, string) (string, error) { count.Add(1); return "", errors.New("refused") }
	inBackground(t, false, fail, func(t *testing.T, b *fakeBackground) {
		b.Ask(greeter, "a")
		b.Ask(other, "a")
		time.Sleep(time.Hour)
		b.want(t, "a", "", true)
		if got := count.Load(); got != 2 {
			t.Errorf("%d requests were made, want 2", got)
		}
	})
}

func TestBackgroundRetries(t *testing.T) {
	var tries []time.Duration
	var start time.Time
	fail := func(ctx context.Context, _ string) (string, error) {
		tries = append(tries, time.Since(start))
		if len(tries) < 4 {
			return "", errors.New("refused")
		}
		return "done", ctx.Err()
	}
	inBackground(t, true, fail, func(t *testing.T, b *fakeBackground) {
		start = time.Now()
		b.Ask(greeter, "a")
		b.Ask(greeter, "a")
		b.want(t, "a", "", false)
		time.Sleep(time.Hour)
		b.want(t, "a", "done", true)
		b.wantWoken(t, 1)
	})
	if len(tries) != 4 || tries[3] != 7*firstRetry {
		t.Errorf("tries were made after %s, want 0, 1, 3 and 7 s", tries)
	}
}

// TestBackgroundRetriesNoMore checks that what is forgotten is not tried again.
func TestBackgroundRetriesNoMore(t *testing.T) {
	count := atomic.Int32{}
	fail := func(context.Context, string) (string, error) { count.Add(1); return "", errors.New("refused") }
	inBackground(t, true, fail, func(t *testing.T, b *fakeBackground) {
		b.Ask(greeter, "a")
		time.Sleep(firstRetry / 2)
		b.Forget(greeter)
		time.Sleep(time.Hour)
		if got := count.Load(); got != 1 {
			t.Errorf("%d tries were made, want 1", got)
		}
	})
}

// TestBackgroundKeepsEarlier checks that no request which is to be tried until it
// succeeds is lost when the next is made, that none waits for one that always
// fails, and that one which was replaced is never done again.
func TestBackgroundKeepsEarlier(t *testing.T) {
	var done []string
	back := atomic.Bool{}
	tag := func(_ context.Context, request string) (string, error) {
		if !back.Load() || request == "poison" {
			return "", errors.New("refused")
		}
		done = append(done, request)
		return "done", nil
	}
	inBackground(t, true, tag, func(t *testing.T, b *fakeBackground) {
		for _, request := range []string{"poison", "a1", "b1", "c1", "b2"} {
			b.Ask(greeter, request)
			time.Sleep(time.Minute)
		}
		b.want(t, "b2", "", false)
		back.Store(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		b.want(t, "b2", "done", true)
		b.wantWoken(t, 1)
		if got := strings.Join(slices.Sorted(slices.Values(done)), " "); got != "a1 b2 c1" {
			t.Errorf("done are %s, want each but the one that was replaced, once", got)
		}

		b.Acknowledge(greeter)
		b.want(t, "b2", "", false)
		if waiting := b.lines[greeter].waiting; len(waiting) != 1 || waiting[0].request != "poison" {
			t.Errorf("what has no answer is not tried any more: %v", waiting)
		}
		b.Forget(greeter)
		if len(b.lines) != 0 {
			t.Errorf("after all is forgotten, there is %v", b.lines)
		}
	})
}

// TestBackgroundAcknowledged wants an answer to be kept until it is known that it
// has arrived, and nothing afterwards.
func TestBackgroundAcknowledged(t *testing.T) {
	inBackground(t, true, slowly(&atomic.Int32{}), func(t *testing.T, b *fakeBackground) {
		b.Acknowledge(greeter)
		b.Ask(greeter, "a")
		b.Acknowledge(greeter)
		time.Sleep(2 * time.Second)
		b.want(t, "a", "the answer to a", true)
		b.Acknowledge(greeter)
		if len(b.lines) != 0 {
			t.Errorf("there is still %v", b.lines)
		}
	})
}

// TestBackgroundIsBounded checks that a registry which is away for long costs no
// more than so much memory, and what is given up to be the oldest.
func TestBackgroundIsBounded(t *testing.T) {
	fail := func(context.Context, string) (string, error) { return "", errors.New("refused") }
	inBackground(t, true, fail, func(t *testing.T, b *fakeBackground) {
		for i := range 2 * mostTaggings {
			b.Ask(greeter, string(rune('A'+i)))
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		var waiting []string
		for _, j := range b.lines[greeter].waiting {
			waiting = append(waiting, j.request)
		}
		slices.Sort(waiting)
		if len(waiting) != mostTaggings || waiting[0] != string(rune('A'+mostTaggings)) {
			t.Errorf("%d wait, from %s on: %v", len(waiting), waiting[0], waiting)
		}
	})
}

// TestBackgroundForgetsAll checks that who does not look after some Functions any
// more does nothing for them, and all for the others.
func TestBackgroundForgetsAll(t *testing.T) {
	var dropped, kept atomic.Int32
	fail := func(_ context.Context, request string) (string, error) {
		map[string]*atomic.Int32{"a": &dropped, "b": &kept}[request].Add(1)
		return "", errors.New("refused")
	}
	inBackground(t, true, fail, func(t *testing.T, b *fakeBackground) {
		b.Ask(greeter, "a")
		b.Ask(other, "b")
		time.Sleep(firstRetry / 2)
		b.ForgetAll(func(key types.NamespacedName) bool { return key == greeter })
		time.Sleep(time.Hour)
		if dropped.Load() != 1 || kept.Load() < 5 {
			t.Errorf("%d tries for the one, %d for the other", dropped.Load(), kept.Load())
		}
	})
}

// TestTaggingReplaces wants each version to have its tag: one takes the place of
// an earlier request only if that would set the same tag, or elsewhere.
func TestTaggingReplaces(t *testing.T) {
	replaces := NewTaggings(nil, nil).replaces
	g5 := Tagging{Repository: Repository{Name: "registry.example.com/default/greeter"}, Digest: "sha256:1", Tag: "g5"}
	g6, rebuilt, moved := g5, g5, g5
	g6.Tag, rebuilt.Digest, moved.Name = "g6", "sha256:2", "elsewhere.example.com/default/greeter"
	if replaces(g6, g5) {
		t.Error("the next version's tag replaces that of the one before")
	}
	if !replaces(rebuilt, g5) {
		t.Error("the image that was built anew does not replace the one before")
	}
	if !replaces(moved, g5) {
		t.Error("the registry that is used does not replace the one before")
	}
}
