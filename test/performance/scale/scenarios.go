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

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/controller"

	"github.com/kiln-dev/kiln/test/controlplane"
)

// bench configures the measurements.
type bench struct {
	controlplane.Binaries
	sizes  []int
	rounds int
	// large is the number of Functions with large sources.
	large int

	begin time.Time
	found results
}

type results struct {
	// growth has the creation of each number of Functions.
	growth []growth
	// plain has the creation with Jobs and Deployments.
	plain growth
	// live has the costs of the largest number of Functions.
	live live
	// large is the memory with large sources.
	large large
}

// growth is the creation of n Functions, by Kiln and by the bare client.
type growth struct {
	n          int
	kiln, bare []taken
}

// say prints the progress.
func (b *bench) say(format string, args ...any) {
	fmt.Printf("%6.0f s  %s\n", time.Since(b.begin).Seconds(), fmt.Sprintf(format, args...))
}

// most is the largest number of Functions at which Kiln is compared with the bare client.
// Beyond it the ratio no longer changes.
const most = 1000

// run measures everything.
func (b *bench) run(ctx context.Context) error {
	for _, n := range b.sizes {
		g := growth{n: n}
		if n <= most {
			if err := b.compare(ctx, &g, nil); err != nil {
				return err
			}
			b.found.plain = growth{n: n}
		}
		if n == slices.Max(b.sizes) {
			if err := b.live(ctx, &g); err != nil {
				return err
			}
		} else if n > most {
			if err := b.grow(ctx, &g, nil); err != nil {
				return err
			}
		}
		b.found.growth = append(b.found.growth, g)
	}
	if b.found.plain.n > 0 {
		b.say("With Jobs and Deployments")
		if err := b.compare(ctx, &b.found.plain, withPlain); err != nil {
			return err
		}
	}
	return b.measureLarge(ctx, b.large)
}

// workers returns the number of the controller's workers.
func (w *world) workers() int {
	for _, variable := range w.Environment["controller"] {
		if value, ok := strings.CutPrefix(variable, "K_THREADS_PER_CONTROLLER="); ok {
			if n, err := strconv.Atoi(value); err == nil {
				return n
			}
		}
	}
	return controller.DefaultThreadsPerController
}

// compare creates n Functions, several times, by Kiln and by the bare client in turn. The
// values of Kiln's ConfigMaps choose what builds and serves.
func (b *bench) compare(ctx context.Context, g *growth, values map[string]map[string]string) error {
	for round := range b.rounds {
		b.say("%d Functions by the bare client, round %d of %d", g.n, round+1, b.rounds)
		err := inWorldOf(ctx, b.Binaries, values, b.say, func(ctx context.Context, w *world) error {
			if err := w.goBare(ctx, w.workers()); err != nil {
				return err
			}
			t, err := w.create(ctx, keysOf(g.n, one, two))
			g.bare = append(g.bare, t)
			return err
		})
		if err != nil {
			return err
		}
		b.say("%d Functions by Kiln, round %d of %d", g.n, round+1, b.rounds)
		if err := b.grow(ctx, g, values); err != nil {
			return err
		}
	}
	return nil
}

// grow creates n Functions with Kiln.
func (b *bench) grow(ctx context.Context, g *growth, values map[string]map[string]string) error {
	return inWorldOf(ctx, b.Binaries, values, b.say, func(ctx context.Context, w *world) error {
		t, err := w.create(ctx, keysOf(g.n, one, two))
		g.kiln = append(g.kiln, t)
		return err
	})
}

// create creates Functions and waits until all are Ready.
func (w *world) create(ctx context.Context, keys []types.NamespacedName) (taken, error) {
	t, err := w.measure(ctx, func(ctx context.Context) error {
		if err := each(ctx, keys, w.createOne); err != nil {
			return err
		}
		return w.await(ctx, keys, 1)
	})
	if err == nil {
		w.tell(t)
	}
	return t, err
}

// requestsOf returns the requests in words, the most frequent first.
func requestsOf(all requests) (lines []string) {
	keys := slices.SortedFunc(maps.Keys(all), func(x, y request) int {
		return cmp.Or(all[y]-all[x], strings.Compare(x.String(), y.String()))
	})
	for _, r := range keys {
		lines = append(lines, fmt.Sprintf("%7d  %s", all[r], r))
	}
	return lines
}

// String returns the request in words.
func (r request) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.User, r.Verb, r.Resource, r.Failure))
}
