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

package bounded

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSlots fills slots and claims one more. Each holder is named by its source and its
// age in seconds. Those of 8 seconds are whole.
func TestSlots(t *testing.T) {
	type holder struct {
		source string
		age    int
		busy   bool
	}
	for name, tc := range map[string]struct {
		holders  []holder
		claimant string
		patience time.Duration
		// victim is the index of the evicted holder; -1 is a refusal.
		victim int
	}{
		"the oldest of the source with the most": {
			[]holder{{"server", 9, false}, {"pod", 1, false}, {"pod", 2, false}}, "server", 0, 0,
		},
		"the oldest of another source with more": {
			[]holder{{"server", 9, false}, {"pod", 1, false}, {"pod", 2, false}, {"pod", 0, false}}, "server", time.Minute, 2,
		},
		"never of a source with fewer": {
			[]holder{{"server", 9, false}, {"pod", 1, false}, {"pod", 2, false}}, "pod", 0, 2,
		},
		"not a busy one": {
			[]holder{{"pod", 1, false}, {"pod", 2, true}, {"pod", 0, false}}, "server", time.Minute, 0,
		},
		"all are busy": {
			[]holder{{"pod", 1, true}, {"pod", 2, true}}, "server", 0, -1,
		},
		"with patience, not the source's own last ones": {
			[]holder{{"server", 1, false}, {"server", 2, false}}, "server", 3 * time.Second, -1,
		},
		"with patience, the source's own old ones": {
			[]holder{{"server", 1, false}, {"server", 4, false}}, "server", 3 * time.Second, 1,
		},
		"not a whole one for its own source": {
			[]holder{{"server", 5, false}, {"server", 8, false}}, "server", 3 * time.Second, 0,
		},
		"a whole one for another source": {
			[]holder{{"pod", 5, false}, {"pod", 8, false}}, "server", 3 * time.Second, 1,
		},
		"with patience, not the last ones of a source with as many": {
			[]holder{{"a", 1, false}, {"b", 2, false}}, "server", 3 * time.Second, -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlots(len(tc.holders), tc.patience)
			evicted := -1
			var claims []*slot
			for i, h := range tc.holders {
				claim := newSlot(h.source, func() { evicted = i })
				if victim, ok := s.enter(claim); victim != nil || !ok {
					t.Fatalf("enter() = %v, %v with free slots", victim, ok)
				}
				if h.age == 8 {
					s.setWhole(claim, true)
				}
				claim.since, claim.busy = time.Now().Add(-time.Duration(h.age)*time.Second), h.busy
				claims = append(claims, claim)
			}
			victim, ok := s.enter(newSlot(tc.claimant, func() {}))
			if ok != (tc.victim >= 0) || evicted != tc.victim || slices.Index(claims, victim) != tc.victim {
				t.Errorf("enter() = %v, %v, evicted %d, want %d", victim, ok, evicted, tc.victim)
			}
			if len(s.holders) != len(tc.holders) {
				t.Errorf("%d holders of %d slots", len(s.holders), len(tc.holders))
			}
			if ok && s.setBusy(victim, true) {
				t.Error("an evicted holder becomes busy")
			}
		})
	}
}

// TestTurns checks the order if one source waits with three requests before another
// comes.
func TestTurns(t *testing.T) {
	turns := newTurns(1)
	if !turns.take(t.Context(), "pod") {
		t.Fatal("no turn although one is free")
	}
	waiting := map[string]chan struct{}{}
	for _, name := range []string{"pod 1", "pod 2", "pod 3", "server 1", "server 2"} {
		source, _, _ := strings.Cut(name, " ")
		waiting[name] = turns.join(source)
	}
	if !turns.withdraw("pod", waiting["pod 2"]) || turns.withdraw("pod", waiting["pod 2"]) {
		t.Error("a request withdraws other than once")
	}
	var order []string
	for range 4 {
		turns.give()
		for name, turn := range waiting {
			select {
			case <-turn:
				order = append(order, name)
				delete(waiting, name)
			default:
			}
		}
	}
	if diff := cmp.Diff([]string{"pod 1", "server 1", "pod 3", "server 2"}, order); diff != "" {
		t.Errorf("order (-want, +got):\n%s", diff)
	}
	turns.give()
	if turns.free != 1 || len(turns.next) > 0 || len(turns.waiting) > 0 {
		t.Errorf("in the end %+v", turns)
	}
	gone, cancel := context.WithCancel(t.Context())
	turns.take(t.Context(), "pod")
	cancel()
	if turns.take(gone, "server") || len(turns.waiting) > 0 {
		t.Errorf("a caller that has gone gets a turn: %+v", turns)
	}
}

func TestCountValues(t *testing.T) {
	for text, want := range map[string]int{
		``:                             0,
		`{"a":1}`:                      1,
		`[{},{}]`:                      4,
		`{"a":"[,{\"[,{","b":"\\"}`:    2,
		`{"source":"a,b,c","deps":{}}`: 3,
	} {
		if got := countValues([]byte(text)); got != want {
			t.Errorf("countValues(%s) = %d, want %d", text, got, want)
		}
	}
}
