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
	"errors"
	"fmt"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/test/controlplane"
)

const (
	// sayEvery is the interval of progress messages.
	sayEvery = 10 * time.Second
	// patience bounds the wait for the next Ready Function.
	patience = 2 * time.Minute
)

// The namespaces of Functions. Large numbers are spread over two.
const (
	one   = "one"
	two   = "two"
	other = "other"
)

// world is the environment of one measurement.
type world struct {
	*controlplane.Kiln
	audit   *audit
	tracker *tracker
	say     func(format string, args ...any)

	// stopBare ends the bare client.
	stopBare context.CancelFunc
}

// inWorld calls do with a new world that has one Ready Function. It keeps the logs if do
// fails.
func inWorld(ctx context.Context, b controlplane.Binaries, say func(string, ...any), do func(context.Context, *world) error) error {
	return inWorldOf(ctx, b, nil, say, do)
}

// withPlain are the values of Kiln's ConfigMaps that choose Jobs and Deployments.
var withPlain = map[string]map[string]string{
	config.BuildConfigName:     {"builder": string(config.JobBuilder)},
	config.FunctionsConfigName: {"serving": string(config.KubernetesServer)},
}

// inWorldOf is inWorld with values of Kiln's ConfigMaps.
func inWorldOf(ctx context.Context, b controlplane.Binaries, values map[string]map[string]string, say func(string, ...any), do func(context.Context, *world) error) error {
	options := controlplane.Options{Namespaces: []string{one, two, other}, Config: values}
	return controlplane.Run(ctx, b, options, func(ctx context.Context, k *controlplane.Kiln) error {
		w := &world{Kiln: k, audit: &audit{file: k.AuditLog}, say: say}
		if err := w.begin(ctx); err != nil {
			return err
		}
		return do(ctx, w)
	})
}

// begin starts the controller, and waits for a first Function.
func (w *world) begin(ctx context.Context) (err error) {
	if w.tracker, err = track(ctx, w.Admin); err != nil {
		return err
	}
	if err := w.StartController(); err != nil {
		return err
	}
	if err := w.createOne(ctx, first); err != nil {
		return err
	}
	return w.await(ctx, []types.NamespacedName{first}, 1)
}

// first is the Function that the bare client copies.
var first = types.NamespacedName{Namespace: other, Name: "first"}

// await waits until the Functions are Ready or a process fails.
func (w *world) await(ctx context.Context, keys []types.NamespacedName, generation int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-w.Failed:
			cancel(err)
		case <-w.Controller.Ended:
			if w.stopBare == nil {
				cancel(fmt.Errorf("the controller has ended: %s", controlplane.Tail(w.Controller.Log)))
			}
		case <-ctx.Done():
		}
	}()
	err := w.tracker.await(ctx, keys, generation, patience, func(ready int) {
		w.say("    %d of %d Functions are Ready", ready, len(keys))
	})
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		return cause
	}
	return err
}

// goBare replaces the controller by the bare client.
func (w *world) goBare(ctx context.Context, workers int) error {
	// The first Function is the pattern, so it must be Ready before.
	pattern, err := patternOf(ctx, w.Admin, first)
	if err != nil {
		return err
	}
	w.Controller.Stop()
	// The API server must apply the controller's limits to it.
	clients, err := w.Clients(controlplane.ControllerUser)
	if err != nil {
		return err
	}
	ctx, w.stopBare = context.WithCancel(ctx)
	b := &bare{clients: clients, pattern: pattern, failed: w.Fail}
	return b.run(ctx, workers)
}

// taken is a cost: time, CPU, requests.
type taken struct {
	wall time.Duration
	// The CPU time in seconds. own is the one of this program: users, the stand-in, the
	// registry, and the bare client.
	api, etcd, webhook, controller, own float64
	// resident is the controller's memory after it, in bytes.
	resident float64
	requests requests
}

// measure returns the cost of do.
func (w *world) measure(ctx context.Context, do func(context.Context) error) (t taken, err error) {
	if err := w.audit.settle(ctx, 30*time.Second); err != nil {
		return t, err
	}
	if _, err := w.audit.take(); err != nil {
		return t, err
	}
	before, err := w.used()
	if err != nil {
		return t, err
	}
	begin := time.Now()
	if err := do(ctx); err != nil {
		return t, err
	}
	t.wall = time.Since(begin)
	// Events and tags in the registry also count, although nothing waits for them.
	if err := w.audit.settle(ctx, time.Minute); err != nil {
		return t, err
	}
	after, err := w.used()
	if err != nil {
		return t, err
	}
	t.api, t.etcd = after.api-before.api, after.etcd-before.etcd
	t.webhook, t.controller, t.resident = after.webhook-before.webhook, after.controller-before.controller, after.resident
	t.own = after.own - before.own
	t.requests, err = w.audit.take()
	return t, err
}

// used returns the resource usage of the processes.
func (w *world) used() (t taken, err error) {
	for _, one := range []struct {
		process *controlplane.Process
		cpu     *float64
	}{{w.API, &t.api}, {w.Etcd, &t.etcd}, {w.Webhook, &t.webhook}, {w.Controller, &t.controller}} {
		if one.process == w.Controller && w.stopBare != nil {
			continue
		}
		u, err := one.process.Usage()
		if err != nil {
			return t, err
		}
		*one.cpu = u.CPU
		if one.process == w.Controller {
			t.resident = u.Resident
		}
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return t, fmt.Errorf("failed to read what this program uses: %w", err)
	}
	t.own = time.Duration(own.Utime.Nano() + own.Stime.Nano()).Seconds()
	return t, nil
}

// tell prints the figures.
func (w *world) tell(t taken) {
	w.say("    %.1f s; CPU: API server %.1f s, etcd %.1f s, webhook %.1f s, controller %.1f s, this program %.1f s; controller's memory %.0f MiB",
		t.wall.Seconds(), t.api, t.etcd, t.webhook, t.controller, t.own, t.resident/(1<<20))
	for _, line := range requestsOf(t.requests) {
		w.say("      %s", line)
	}
}
