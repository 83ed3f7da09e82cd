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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/test"
)

// live has the costs of many existing Functions.
type live struct {
	functions int
	// base is the controller's memory without Functions, and rested its memory at rest
	// with them, in bytes.
	base, rested float64
	// resync is a change of the configuration that changes no Function, restart a restart of
	// the controller, and storm an edit of all Functions.
	resync, restart, storm taken
	// idle and busy are how long single Functions of another namespace take until
	// they are Ready: while nothing else happens, and while all of one namespace,
	// which are edited, are built.
	edited     int
	idle, busy []single
}

// single is the time of one Function to Ready, and the time of as many plain writes just
// before. The second shows how slow the API server is.
type single struct {
	ready, writes time.Duration
}

// writesToReady is the number of consecutive writes of a Function: its creation, those of
// Kiln and those of the stand-in.
const writesToReady = 9

// singles is the number of measured single Functions.
const singles = 9

// live creates n Functions and measures them.
func (b *bench) live(ctx context.Context, g *growth) error {
	l := &b.found.live
	l.functions = g.n
	b.say("%d Functions by Kiln, and what becomes of them", g.n)
	return inWorld(ctx, b.Binaries, b.say, func(ctx context.Context, w *world) error {
		before, err := w.used()
		if err != nil {
			return err
		}
		l.base = before.resident
		keys := keysOf(g.n, one, two)
		created, err := w.create(ctx, keys)
		if err != nil {
			return err
		}
		g.kiln = append(g.kiln, created)
		for _, step := range []struct {
			what string
			do   func(context.Context, *live, []types.NamespacedName) error
		}{
			{"all are looked at, for a change of the configuration", w.resync},
			{"the controller starts again", w.restart},
			{"one namespace is edited, and another has single Functions", w.single},
			{"all are edited at once", w.storm},
		} {
			w.say("  %s", step.what)
			if err := step.do(ctx, l, keys); err != nil {
				return err
			}
		}
		return nil
	})
}

// resync changes the configuration without effect on existing Functions, so the
// controller reconciles all of them.
func (w *world) resync(ctx context.Context, l *live, keys []types.NamespacedName) (err error) {
	l.resync, err = w.measure(ctx, func(ctx context.Context) error {
		before, err := w.progress(ctx)
		if err != nil {
			return err
		}
		_, err = w.Admin.Kube.CoreV1().ConfigMaps(test.SystemNamespace).Patch(ctx, config.FunctionsConfigName, types.MergePatchType,
			[]byte(`{"data":{"default-timeout":"123s"}}`), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("failed to change the configuration: %w", err)
		}
		return w.drained(ctx, before.done+float64(len(keys)))
	})
	w.tell(l.resync)
	return err
}

// restart restarts the controller.
func (w *world) restart(ctx context.Context, l *live, keys []types.NamespacedName) (err error) {
	w.Controller.Stop()
	if err := w.audit.settle(ctx, 30*time.Second); err != nil {
		return err
	}
	if _, err := w.audit.take(); err != nil {
		return err
	}
	begin := time.Now()
	if err := w.StartController(); err != nil {
		return err
	}
	if err := w.drained(ctx, float64(len(keys))); err != nil {
		return err
	}
	l.restart.wall = time.Since(begin)
	if err := w.audit.settle(ctx, 30*time.Second); err != nil {
		return err
	}
	used, err := w.used()
	if err != nil {
		return err
	}
	// The figures of the other processes include more than the restart.
	l.restart.controller, l.restart.resident = used.controller, used.resident
	if l.restart.requests, err = w.audit.take(); err != nil {
		return err
	}
	w.tell(l.restart)
	if err := w.rest(ctx, begin, len(keys)); err != nil {
		return err
	}
	if used, err = w.used(); err != nil {
		return err
	}
	l.rested = used.resident
	w.say("    the controller's memory at rest: %.0f MiB", l.rested/(1<<20))
	return nil
}

// rest waits until only leases are renewed. After a start, the memory of the lists is
// freed at the next garbage collection, which Go runs at least every two minutes. With
// few Functions that memory does not matter.
func (w *world) rest(ctx context.Context, since time.Time, functions int) error {
	const (
		every    = 2 * time.Second
		cores    = 0.3
		collects = 150 * time.Second
		patience = 10 * time.Minute
	)
	used, last := 0.0, math.Inf(-1)
	err := wait.PollUntilContextTimeout(ctx, every, patience, true, func(context.Context) (bool, error) {
		u, err := w.used()
		now := u.api + u.etcd + u.webhook + u.controller
		used, last = (now-last)/every.Seconds(), now
		return used <= cores && (functions < most || time.Since(since) >= collects), err
	})
	if err != nil {
		return fmt.Errorf("failed to wait until nobody is at work, %.2f cores are still: %w", used, err)
	}
	w.say("    at rest, with %.2f cores, after %.0f s", used, time.Since(since).Seconds())
	return nil
}

// single measures single Functions on an idle system, and while all Functions of another
// namespace are built.
func (w *world) single(ctx context.Context, l *live, keys []types.NamespacedName) (err error) {
	for i := range singles {
		found, err := w.measureSingle(ctx, fmt.Sprintf("idle-%d", i))
		if err != nil {
			return err
		}
		l.idle = append(l.idle, found)
	}
	var edited []types.NamespacedName
	for _, key := range keys {
		if key.Namespace == one {
			edited = append(edited, key)
		}
	}
	l.edited = len(edited)
	editing := make(chan error, 1)
	go func() {
		editing <- each(ctx, edited, func(ctx context.Context, key types.NamespacedName) error { return w.edit(ctx, key, 2) })
	}()
	for len(l.busy) < singles {
		found, err := w.measureSingle(ctx, fmt.Sprintf("busy-%d", len(l.busy)))
		if err != nil {
			return err
		}
		if w.tracker.count(edited, 2) == len(edited) {
			break // All is quiet again: this one tells nothing.
		}
		l.busy = append(l.busy, found)
	}
	w.say("    a single Function takes %.3f s, and %.3f s meanwhile; plain writes %.3f s, and %.3f s",
		secondsOf(l.idle, readyIn), secondsOf(l.busy, readyIn), secondsOf(l.idle, writtenIn), secondsOf(l.busy, writtenIn))
	return errors.Join(<-editing, w.await(ctx, edited, 2))
}

// measureSingle creates a Function.
func (w *world) measureSingle(ctx context.Context, name string) (found single, err error) {
	begin := time.Now()
	for i := range writesToReady {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)}}
		if _, err := w.Admin.Kube.CoreV1().ConfigMaps(other).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			return found, fmt.Errorf("failed to create ConfigMap: %w", err)
		}
	}
	found.writes = time.Since(begin).Round(time.Millisecond)
	key := types.NamespacedName{Namespace: other, Name: name}
	begin = time.Now()
	if err := w.createOne(ctx, key); err != nil {
		return found, err
	}
	if err := w.await(ctx, []types.NamespacedName{key}, 1); err != nil {
		return found, err
	}
	at, _ := w.tracker.readyAt(key, 1)
	found.ready = at.Sub(begin).Round(time.Millisecond)
	return found, nil
}

// storm edits all Functions at once. Those of one namespace have been edited before.
func (w *world) storm(ctx context.Context, l *live, keys []types.NamespacedName) (err error) {
	l.storm, err = w.measure(ctx, func(ctx context.Context) error {
		err := each(ctx, keys, func(ctx context.Context, key types.NamespacedName) error { return w.edit(ctx, key, 3) })
		if err != nil {
			return err
		}
		var edited, editedTwice []types.NamespacedName
		for _, key := range keys {
			if key.Namespace == one {
				editedTwice = append(editedTwice, key)
			} else {
				edited = append(edited, key)
			}
		}
		if err := w.await(ctx, edited, 2); err != nil {
			return err
		}
		return w.await(ctx, editedTwice, 3)
	})
	w.tell(l.storm)
	return err
}

// queue is the state of the controller's work queues.
type queue struct {
	done, waiting float64
}

// progress asks the controller's metrics.
func (w *world) progress(ctx context.Context) (q queue, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Metrics, nil)
	if err != nil {
		return q, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return q, fmt.Errorf("failed to read metrics: %w", err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return q, fmt.Errorf("failed to read metrics: %w", err)
	}
	return parseQueue(data)
}

// parseQueue reads the metrics of the controller's queues: the one of its workers, and
// the fair queue before it.
func parseQueue(data []byte) (q queue, err error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return q, fmt.Errorf("failed to parse metrics: %w", err)
	}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			workers, turns := false, false
			for _, label := range metric.GetLabel() {
				workers = workers || strings.Contains(label.GetValue(), "function.Reconciler")
				turns = turns || label.GetName() == "name" && label.GetValue() == "functions"
			}
			switch {
			case workers && name == "kn_workqueue_process_duration_seconds":
				q.done += float64(metric.GetHistogram().GetSampleCount())
			case (workers || turns) && name == "kn_workqueue_depth":
				q.waiting += metric.GetGauge().GetValue()
			}
		}
	}
	return q, nil
}

// drained waits until the controller has reconciled that many Functions and its queues
// are empty.
func (w *world) drained(ctx context.Context, least float64) error {
	return w.Controller.Until(ctx, "the controller has looked at all Functions", 10*time.Minute, func(ctx context.Context) error {
		q, err := w.progress(ctx)
		if err == nil && (q.done < least || q.waiting > 0) {
			err = fmt.Errorf("it has looked at %.0f of %.0f, and %.0f wait", q.done, least, q.waiting)
		}
		return err
	})
}
