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
)

func TestObsolete(t *testing.T) {
	existing := []Build{
		build("a", Succeeded, want()),
		build("b", Running, want(b)),
		build("newer", Running, want(b, g2)),
	}
	names := func(builds []Build) (names []string) {
		for _, b := range builds {
			names = append(names, b.Name)
		}
		return names
	}
	got := names(Obsolete(want(), existing, Decision{Action: Follow, Build: "a"}, 1))
	if diff := cmp.Diff([]string{"b"}, got); diff != "" {
		t.Errorf("Obsolete() while one is followed (-want, +got):\n%s", diff)
	}
	got = names(Obsolete(want(g2), existing, Decision{Action: Start}, 1))
	if diff := cmp.Diff([]string{"a", "b", "newer"}, got); diff != "" {
		t.Errorf("Obsolete() before one starts (-want, +got):\n%s", diff)
	}
}

// An ended build that could be taken for another attempt at the desired one is not kept.
func TestHistory(t *testing.T) {
	ended := func(name string, hour int, in Request) Build {
		b := build(name, Succeeded, in)
		b.Ended = time.Date(2026, 6, 1, hour, 0, 0, 0, time.UTC)
		return b
	}
	existing := []Build{
		ended("oldest", 1, want(b)), ended("newest", 3, want(b)), ended("middle", 2, want(b)),
		ended("answers", 4, want()), build("runs", Running, want(b)),
	}
	for history, wanted := range [][]string{
		0: {"answers", "runs", "newest", "middle", "oldest"},
		1: {"answers", "runs", "newest", "middle", "oldest"},
		2: {"answers", "runs", "middle", "oldest"},
		3: {"answers", "runs", "oldest"},
		4: {"answers", "runs"},
		9: {"answers", "runs"},
	} {
		if wanted == nil {
			continue
		}
		var got []string
		for _, b := range Obsolete(want(), existing, Decision{Action: Start}, history) {
			got = append(got, b.Name)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("history %d (-want, +got):\n%s", history, diff)
		}
	}
}
