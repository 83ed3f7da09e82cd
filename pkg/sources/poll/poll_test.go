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

package poll

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/background"
)

const interval = 10 * time.Minute

func keyOf(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: fmt.Sprint("fn-", i)}
}

// server is a fake Git server.
type server struct {
	mu     sync.Mutex
	commit string
	err    error
	asked  []time.Duration
	start  time.Time
	woken  int
}

func (s *server) resolve(context.Context, Branch) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Since(s.start))
	return s.commit, s.err
}

func (s *server) wake(types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.woken++
}

// answer sets the answer of the server.
func (s *server) answer(commit string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit, s.err = commit, err
}

// count returns the numbers of polls and of calls of wake since the last count.
func (s *server) count() (asked, woken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, woken = len(s.asked), s.woken
	s.asked, s.woken = nil, 0
	return asked, woken
}

// poller is a Worker whose Functions await the results.
type poller struct {
	*background.Worker[Branch, Found]
}

func (p *poller) found(key types.NamespacedName, branch Branch) (Found, bool) {
	return p.Answer(key, branch, true)
}

// run runs the test with a poller, on a fake clock.
func run(t *testing.T, test func(*testing.T, *server, *poller)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &server{commit: "a", start: time.Now()}
		p := &poller{New(s.resolve, s.wake)}
		p.Start(ctx)
		test(t, s, p)
		cancel()
		synctest.Wait()
	})
}

// pass advances the clock, and waits for the due polls.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestPace checks that each interval has one poll, and that a known result wakes no
// Function.
func TestPace(t *testing.T) {
	run(t, func(t *testing.T, s *server, p *poller) {
		branch := Branch{URL: "https://example.com/a", Revision: "main", Interval: interval}
		p.Ask(keyOf(0), branch)
		if _, ok := p.found(keyOf(0), branch); ok {
			t.Error("something is found before it was asked for")
		}
		pass(interval)
		if asked, woken := s.count(); asked != 1 || woken != 1 {
			t.Errorf("within the first interval: asked %d times, woken %d times, want 1 and 1", asked, woken)
		}
		// The same branch again changes nothing.
		p.Ask(keyOf(0), branch)
		pass(22 * interval)
		if asked, woken := s.count(); asked < 19 || asked > 22 || woken != 0 {
			t.Errorf("within 22 intervals: asked %d times, woken %d times, want 20 to 22, and 0", asked, woken)
		}
		s.answer("b", nil)
		pass(2 * interval)
		if _, woken := s.count(); woken != 1 {
			t.Errorf("when the branch has moved: woken %d times, want 1", woken)
		}
		if found, ok := p.found(keyOf(0), branch); !ok || found.Commit != "b" {
			t.Errorf("the result is %v, %t", found, ok)
		}
		p.Forget(keyOf(0))
		pass(5 * interval)
		if asked, _ := s.count(); asked != 0 {
			t.Errorf("when it is forgotten: asked %d times", asked)
		}
		if _, ok := p.found(keyOf(0), branch); ok {
			t.Error("something is found of what is forgotten")
		}
	})
}

// TestEdited checks that a result is only valid for its branch, and that edits add no
// polls.
func TestEdited(t *testing.T) {
	run(t, func(t *testing.T, s *server, p *poller) {
		built := Branch{Revision: "main", Built: "a", Interval: interval}
		p.Ask(keyOf(0), built)
		pass(interval)
		s.count()
		for i := range 100 {
			p.Ask(keyOf(0), Branch{Revision: strconv.Itoa(i), Interval: interval})
			if _, ok := p.found(keyOf(0), built); ok {
				t.Fatal("what was found before is found of another branch")
			}
			pass(interval / 10)
		}
		if asked, _ := s.count(); asked < 8 || asked > 10 {
			t.Errorf("asked %d times within 10 intervals of edits", asked)
		}
	})
}

// TestSpread checks that the polls of many Functions that start together, as after a
// restart, are spread over the interval.
func TestSpread(t *testing.T) {
	run(t, func(t *testing.T, s *server, p *poller) {
		for i := range 1000 {
			p.Ask(keyOf(i), Branch{Interval: interval})
		}
		for minute := range 10 {
			pass(time.Minute)
			if asked, _ := s.count(); asked < 50 || asked > 160 {
				t.Errorf("minute %d: asked %d times, of 100 expected", minute, asked)
			}
		}
	})
}

// TestFailures checks that failures slow the polls down and wake the Function once, and
// that a success restores the pace.
func TestFailures(t *testing.T) {
	run(t, func(t *testing.T, s *server, p *poller) {
		branch := Branch{Interval: interval}
		s.answer("", errors.New("its server was not reached: read tcp 10.0.0.1:4242->10.0.0.2:443: connection reset"))
		p.Ask(keyOf(0), branch)
		p.found(keyOf(0), branch)
		pass(interval)
		want := Found{Failure: "its server was not reached: connection reset"}
		if found, ok := p.found(keyOf(0), branch); !ok || found != want {
			t.Errorf("the result is %v, %t, want %v", found, ok, want)
		}
		s.answer("", errors.New("its server was not reached: read tcp 10.0.0.1:4343->10.0.0.2:443: connection reset"))
		pass(24 * time.Hour)
		if asked, woken := s.count(); asked < 23 || asked > 28 || woken != 1 {
			t.Errorf("within a day: asked %d times, woken %d times, want about 26, and 1", asked, woken)
		}
		s.answer("a", nil)
		pass(2 * time.Hour)
		s.count()
		pass(11 * interval)
		if asked, woken := s.count(); asked < 9 || asked > 11 || woken != 0 {
			t.Errorf("afterwards: asked %d times in 11 intervals, woken %d times", asked, woken)
		}
	})
}

func TestForgetAll(t *testing.T) {
	run(t, func(t *testing.T, s *server, p *poller) {
		p.Ask(keyOf(0), Branch{Interval: interval})
		p.Ask(keyOf(1), Branch{Interval: interval})
		p.ForgetAll(func(key types.NamespacedName) bool { return key == keyOf(0) })
		pass(interval)
		if asked, _ := s.count(); asked != 1 {
			t.Errorf("asked %d times, want 1", asked)
		}
	})
}

// TestForgottenMeanwhile checks that results for outdated branches are dropped.
func TestForgottenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		woken := 0
		proceed := make(chan struct{})
		p := &poller{New(func(context.Context, Branch) (string, error) { <-proceed; return "a", nil }, func(types.NamespacedName) { woken++ })}
		p.Start(ctx)
		p.Ask(keyOf(0), Branch{Interval: interval})
		p.Ask(keyOf(1), Branch{Interval: interval})
		pass(interval)
		p.Forget(keyOf(0))
		another := Branch{Revision: "another", Interval: interval}
		p.Ask(keyOf(1), another)
		proceed <- struct{}{}
		proceed <- struct{}{}
		synctest.Wait()
		if _, ok := p.found(keyOf(1), another); ok || woken != 0 {
			t.Errorf("the result is %t, woken %d times", ok, woken)
		}
		close(proceed)
		cancel()
		synctest.Wait()
	})
}

// TestSteady checks that an error that differs only in times and ports stays the same.
func TestSteady(t *testing.T) {
	expired := "x509: certificate has expired or is not yet valid"
	if diff := cmp.Diff(expired, steady(expired+": current time 2026-11-22T07:44:27Z is after 2026-11-01T00:00:00Z")); diff != "" {
		t.Errorf("a certificate that has expired (-want, +got):\n%s", diff)
	}
	if diff := cmp.Diff("its server said: a -> b", steady("its server said: a -> b")); diff != "" {
		t.Errorf("other words (-want, +got):\n%s", diff)
	}
}
