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
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test/performance/report"
)

// largeSource is the size of a large source, in bytes.
const largeSource = 900 << 10

// large is the controller's memory with many Functions of large sources, in bytes.
type large struct {
	functions int

	// limit is the limit of the manifest.
	limit float64

	// base is the memory at rest without these Functions, and rested with them, after a
	// restart.
	base, rested float64

	// createdPeak is the most memory until all are Ready, and restartPeak the most after a
	// restart.
	createdPeak, restartPeak float64

	created taken
	restart time.Duration
}

// measureLarge creates Functions of large sources and restarts the controller.
func (b *bench) measureLarge(ctx context.Context, n int) error {
	l := &b.found.large
	l.functions = n
	b.say("%d Functions of %d KiB", n, largeSource>>10)
	return inWorld(ctx, b.Binaries, b.say, func(ctx context.Context, w *world) error {
		l.limit = w.MemoryLimits["controller"]
		before, err := w.Controller.Usage()
		if err != nil {
			return err
		}
		l.base = before.Resident
		keys := keysOf(n, one, two)
		if l.created, err = w.measure(ctx, func(ctx context.Context) error {
			if err := each(ctx, keys, w.createLarge); err != nil {
				return err
			}
			return w.await(ctx, keys, 1)
		}); err != nil {
			return err
		}
		w.tell(l.created)
		created, err := w.Controller.Usage()
		if err != nil {
			return err
		}
		l.createdPeak = created.Peak
		w.say("    the controller's memory was at most %.0f MiB", l.createdPeak/(1<<20))
		if err := w.restartLarge(ctx, l); err != nil {
			return err
		}
		return w.hasLarge(ctx, keys[0])
	})
}

// restartLarge restarts the controller and waits until it is at rest.
func (w *world) restartLarge(ctx context.Context, l *large) error {
	w.Controller.Stop()
	begin := time.Now()
	if err := w.StartController(); err != nil {
		return err
	}
	if err := w.drained(ctx, float64(l.functions)); err != nil {
		return err
	}
	l.restart = time.Since(begin)
	if err := w.rest(ctx, begin, l.functions); err != nil {
		return err
	}
	used, err := w.Controller.Usage()
	if err != nil {
		return err
	}
	l.rested, l.restartPeak = used.Resident, used.Peak
	w.say("    all are reconciled %.1f s after a restart; the controller's memory was at most %.0f MiB and is %.0f MiB at rest, from %.0f MiB without them",
		l.restart.Seconds(), l.restartPeak/(1<<20), l.rested/(1<<20), l.base/(1<<20))
	return nil
}

// newLarge returns a Function with a large source.
func newLarge(key types.NamespacedName) *v1alpha1.Function {
	fn := newFunction(key.Namespace, key.Name, 1)
	line := "// " + strings.Repeat(key.Name+" ", 12) + "\n"
	fn.Spec.Source += strings.Repeat(line, (largeSource-len(fn.Spec.Source))/len(line))
	return fn
}

// createLarge creates a Function with a large source.
func (w *world) createLarge(ctx context.Context, key types.NamespacedName) error {
	if _, err := w.Admin.Kiln.ServerlessV1alpha1().Functions(key.Namespace).Create(ctx, newLarge(key), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create Function: %w", err)
	}
	return nil
}

// hasLarge checks that the writes of the status, which have no source, left the source.
func (w *world) hasLarge(ctx context.Context, key types.NamespacedName) error {
	fn, err := w.Admin.Kiln.ServerlessV1alpha1().Functions(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("failed to get Function: %w", err)
	}
	if want := newLarge(key).Spec.Source; fn.Spec.Source != want || fn.Generation != 1 {
		return fmt.Errorf("wrong Function %s: it has generation %d and a source of %d bytes, and was written with %d", key, fn.Generation, len(fn.Spec.Source), len(want))
	}
	return nil
}

// row returns the row of large sources.
func (l *large) row() report.Row {
	const mib = 1 << 20
	return report.Row{Name: "large", MedianS: l.restart.Seconds(), Parts: map[string]float64{
		"functions": float64(l.functions), "create_s": l.created.wall.Seconds(), "controller_limit_mib": l.limit / mib,
		"controller_base_mib": l.base / mib, "controller_rested_mib": l.rested / mib,
		"controller_create_peak_mib": l.createdPeak / mib, "controller_restart_peak_mib": l.restartPeak / mib,
		"controller_kib_per_function": (l.rested - l.base) / float64(max(l.functions, 1)) / (1 << 10),
	}}
}

// largeAims bound the memory. They hold on each machine. 20 MiB are for buffers and for
// garbage that is not collected yet.
func largeAims(row *report.Row) []aim {
	p := row.Parts
	what := fmt.Sprintf("%.0f Functions of %d KiB", p["functions"], largeSource>>10)
	return []aim{
		noMore("most memory of the controller with "+what, max(p["controller_create_peak_mib"], p["controller_restart_peak_mib"]), p["controller_limit_mib"], "MiB"),
		noMore("memory that they add to the controller at rest", p["controller_rested_mib"]-p["controller_base_mib"], 20+40*p["functions"]/1024, "MiB"),
	}
}

// largePage writes what large sources cost.
func largePage(b *strings.Builder, row *report.Row) {
	p := row.Parts
	fmt.Fprintf(b, "\n## %.0f Functions of %d KiB\n\nThe controller keeps a digest of a source in memory, and reads its text when it builds it.\n\n"+
		"| | seconds | controller, most MiB |\n|---|---|---|\n| creation, until all are Ready | %.1f | %.0f |\n| a restart of the controller, until it has reconciled all | %.1f | %.0f |\n\n"+
		"At rest, the controller has %.0f MiB, %.1f KiB for each Function. Its limit is %.0f MiB as shipped.\n",
		p["functions"], largeSource>>10, p["create_s"], p["controller_create_peak_mib"], row.MedianS, p["controller_restart_peak_mib"],
		p["controller_rested_mib"], p["controller_kib_per_function"], p["controller_limit_mib"])
}
