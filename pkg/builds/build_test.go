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

package builds

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"knative.dev/pkg/depcheck"
)

func TestRounds(t *testing.T) {
	for attempt, want := range map[int32][2]int32{0: {1, 8}, 1: {1, 8}, 7: {7, 8}, 8: {1, 15}, 9: {2, 15}, 14: {7, 15}, 15: {1, 22}} {
		if got := [2]int32{AttemptInRound(attempt), NextRound(attempt)}; got != want {
			t.Errorf("attempt %d is in the round %d, and the next begins with %d; want %d", attempt, got[0], got[1], want)
		}
	}
}

func TestRetryAt(t *testing.T) {
	var delays []time.Duration
	failed := Build{State: Failed, Transient: true, Ended: noon}
	for failed.Attempt = 1; failed.Attempt <= MaxAttempts; failed.Attempt++ {
		if at, ok := failed.RetryAt(); ok {
			delays = append(delays, at.Sub(noon)/time.Second)
		}
	}
	if diff := cmp.Diff([]time.Duration{10, 20, 40, 80, 160, 300}, delays); diff != "" {
		t.Errorf("the delays in seconds (-want, +got):\n%s", diff)
	}
	for name, b := range map[string]Build{
		"not transient": {State: Failed, Attempt: 1, Ended: noon},
		"not failed":    {State: Running, Transient: true, Attempt: 1},
	} {
		if at, ok := b.RetryAt(); ok {
			t.Errorf("%s: it is retried at %v", name, at)
		}
	}
}

func TestStateEnded(t *testing.T) {
	got := map[State]bool{}
	for _, s := range []State{Planned, Running, Succeeded, Failed} {
		got[s] = s.Ended()
	}
	if diff := cmp.Diff(map[State]bool{Planned: false, Running: false, Succeeded: true, Failed: true}, got); diff != "" {
		t.Errorf("Ended() (-want, +got):\n%s", diff)
	}
}

// The decisions stay independent of builders and clusters.
func TestDependencies(t *testing.T) {
	depcheck.AssertNoDependency(t, map[string][]string{
		"github.com/kiln-dev/kiln/pkg/builds": {
			"github.com/tektoncd/pipeline/pkg/apis/pipeline/v1",
			"knative.dev/serving/pkg/apis/serving/v1",
			"k8s.io/client-go/kubernetes",
		},
	})
}
