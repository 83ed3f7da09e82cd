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
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/builds/job"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/controlplane"
)

const (
	// buildsAtOnce and buildsPerNamespace are so low that builds have to wait.
	buildsAtOnce, buildsPerNamespace = "6", "4"
	// longestWork is the longest duration of a build or of the start of a revision.
	longestWork = time.Second
	// quiet is the time without requests after which all work is done.
	quiet = 4 * time.Second
)

// forecast is the plan of a run.
type forecast struct {
	functions int
	seed      uint64
	// days are the parts of the run. All Functions are created and deleted in each.
	days []day
	// silence is the delay of silent requests.
	silence time.Duration
	// timeout is the timeout for the final state of all Functions in a round.
	timeout time.Duration
}

// day is a part of a run.
type day struct {
	// rate is the share of requests with a fault.
	rate float64
	// killed reports whether the controller and the webhook are killed at the start of the
	// day, so that they start under faults.
	killed bool
	// jobs reports whether Jobs run the builds, and deployments whether Deployments serve.
	// Both change at the start of the day.
	jobs, deployments bool
}

// weather is a run of Kiln behind a proxy that injects the planned faults.
type weather struct {
	*controlplane.Kiln
	forecast
	proxy  *proxy
	judge  *judge
	begin  time.Time
	rounds []round

	mu       sync.Mutex
	restarts map[string]int
}

// round is the result of a round.
type round struct {
	day
	took  time.Duration
	worst time.Duration
	tally tally
	after vitals
	steps int
	// starts and webhookStarts count the restarts of the controller and the webhook.
	starts, webhookStarts int
}

// say prints the progress.
func (w *weather) say(format string, args ...any) {
	fmt.Printf("%6.0f s  %s\n", time.Since(w.begin).Seconds(), fmt.Sprintf(format, args...))
}

// runWeather runs Kiln with the planned faults and returns the result.
func runWeather(ctx context.Context, b controlplane.Binaries, f forecast) (found *weather, err error) {
	w := &weather{forecast: f, begin: time.Now(), restarts: map[string]int{}}
	dice := &dice{rand: rand.New(rand.NewPCG(f.seed, 0))}
	options := controlplane.Options{
		Namespaces: namespaces, Collects: true,
		Config: map[string]map[string]string{
			"config-build": {"max-concurrent-builds": buildsAtOnce, "max-concurrent-builds-per-namespace": buildsPerNamespace},
		},
		Prepare: func(p *controlplane.Plane) (address, caFile string, err error) {
			if w.proxy, caFile, err = startProxy(f, p.Address, p.CAFile, p.Folder); err != nil {
				return "", "", err
			}
			return w.proxy.server.URL, caFile, nil
		},
		StandIn: controlplane.StandIn{
			Build: func(ctx context.Context, object metav1.Object, volumes []corev1.Volume) (controlplane.Built, error) {
				pause(ctx, dice.upTo(longestWork))
				return w.build(ctx, object, volumes)
			},
			Serve: func(ctx context.Context, _ metav1.Object) { pause(ctx, dice.upTo(longestWork)) },
		},
	}
	defer func() {
		if w.proxy != nil {
			w.proxy.stop()
		}
	}()
	err = controlplane.Run(ctx, b, options, func(ctx context.Context, k *controlplane.Kiln) error {
		w.Kiln = k
		return w.live(ctx)
	})
	return w, err
}

// dice is safe for concurrent use.
type dice struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (d *dice) upTo(longest time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rand.Int64N(int64(longest)))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// sourceAnnotation is the annotation of an image with its source.
const sourceAnnotation = "source"

// build returns the result of a build: an image of the source in the ConfigMap that the
// pod would mount. Without the ConfigMap it waits, like the pod.
func (w *weather) build(ctx context.Context, object metav1.Object, volumes []corev1.Volume) (controlplane.Built, error) {
	for _, volume := range volumes {
		if volume.ConfigMap == nil {
			continue
		}
		cm, err := w.Admin.Kube.CoreV1().ConfigMaps(object.GetNamespace()).Get(ctx, volume.ConfigMap.Name, metav1.GetOptions{})
		if apierrs.IsNotFound(err) {
			return controlplane.Built{Runs: true}, nil
		}
		if err != nil {
			return controlplane.Built{}, fmt.Errorf("failed to get ConfigMap: %w", err)
		}
		for _, content := range cm.Data {
			if !strings.HasPrefix(content, "// "+object.GetNamespace()+"/") {
				continue
			}
			if strings.Contains(content, brokenSource) {
				// No container runs, so the failure has no log.
				return controlplane.Built{OutOfMemory: true}, nil
			}
			return controlplane.Built{Annotations: map[string]string{sourceAnnotation: content}}, nil
		}
	}
	return controlplane.Built{}, fmt.Errorf("the build %s has no source", object.GetName())
}

// live runs the rounds.
func (w *weather) live(ctx context.Context) (err error) {
	if w.judge, err = newJudge(ctx, w.Kiln); err != nil {
		return err
	}
	if err := w.StartController(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var supervisors sync.WaitGroup
	supervisors.Go(func() { w.supervise(ctx, cancel, "controller") })
	supervisors.Go(func() { w.supervise(ctx, cancel, "webhook") })
	defer supervisors.Wait()
	defer cancel(nil)
	go func() {
		select {
		case err := <-w.Failed:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	for _, d := range w.days {
		r, err := w.round(ctx, d)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if err != nil {
			return fmt.Errorf("at %g %%: %w", 100*d.rate, err)
		}
		w.rounds = append(w.rounds, r)
	}
	return w.judge.verdict(w)
}

// supervise restarts a component that has ended, like the kubelet.
func (w *weather) supervise(ctx context.Context, fail context.CancelCauseFunc, component string) {
	process, start := func() *controlplane.Process { return w.Webhook }, w.StartWebhook
	if component == "controller" {
		process, start = func() *controlplane.Process { return w.Controller }, w.StartController
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-process().Ended:
		}
		w.mu.Lock()
		w.restarts[component]++
		err := start()
		w.mu.Unlock()
		if err != nil {
			fail(err)
			return
		}
	}
}

// round runs all stories at a fault rate, and deletes all Functions at the end.
func (w *weather) round(ctx context.Context, d day) (r round, err error) {
	r.day = d
	stories := storiesOf(w.functions, w.seed)
	w.proxy.ledger.take()
	w.judge.expect(stories)
	if err := w.choose(ctx, d); err != nil {
		return r, err
	}
	w.proxy.setRate(d.rate)
	w.say("%d Functions, built by %ss and served by %ss, something happens to %g %% of the requests", len(stories), d.builder(), d.server(), 100*d.rate)
	begin := time.Now()
	g, told := errgroup.WithContext(ctx)
	for _, s := range stories {
		r.steps += len(s.steps)
		g.Go(func() error { return s.tell(told, w.Admin) })
	}
	if d.killed {
		w.mu.Lock()
		w.Controller.Kill()
		w.Webhook.Kill()
		w.mu.Unlock()
	}
	if err := g.Wait(); err != nil {
		return r, err
	}
	toldAll := time.Now()
	if err := w.judge.await(ctx, w.timeout, "all Functions have their final state", w.judge.settled); err != nil {
		return r, w.diagnose(err)
	}
	r.worst = time.Since(toldAll)
	w.say("  all are as they are to be, %.1f s after the last edit", r.worst.Seconds())
	if err := w.judge.servedBy(d.deployments); err != nil {
		return r, w.diagnose(err)
	}
	if err := w.awaitQuiet(ctx); err != nil {
		return r, w.diagnose(err)
	}
	for _, s := range stories {
		if s.source == "" {
			continue
		}
		if err := remove(ctx, w.Admin, s.key); err != nil {
			return r, err
		}
	}
	if err := w.judge.await(ctx, w.timeout, "no objects of the Functions exist", w.judge.gone); err != nil {
		return r, w.diagnose(err)
	}
	r.took = time.Since(begin)
	r.tally = w.proxy.ledger.take()
	w.proxy.setRate(0)
	w.mu.Lock()
	r.starts, r.webhookStarts = w.restarts["controller"], w.restarts["webhook"]
	clear(w.restarts)
	w.mu.Unlock()
	if r.after, err = w.vitals(ctx); err != nil {
		return r, err
	}
	w.tell(r)
	return r, nil
}

// builder returns the kind of the objects that run builds.
func (d day) builder() string {
	if d.jobs {
		return job.Kind
	}
	return tekton.Kind
}

// server returns the kind of the objects that serve.
func (d day) server() string {
	if d.deployments {
		return "Deployment"
	}
	return "Service"
}

// choose sets what runs the next builds, and what serves new Functions.
func (w *weather) choose(ctx context.Context, d day) error {
	builder, server := config.TektonBuilder, config.KnativeServer
	if d.jobs {
		builder = config.JobBuilder
	}
	if d.deployments {
		server = config.KubernetesServer
	}
	for name, patch := range map[string]string{
		config.BuildConfigName:     fmt.Sprintf(`{"data": {"builder": %q}}`, builder),
		config.FunctionsConfigName: fmt.Sprintf(`{"data": {"serving": %q}}`, server),
	} {
		_, err := w.Admin.Kube.CoreV1().ConfigMaps(test.SystemNamespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("failed to patch %s: %w", name, err)
		}
	}
	return nil
}

// awaitQuiet waits until there are no more requests for Functions.
func (w *weather) awaitQuiet(ctx context.Context) error {
	err := w.judge.await(ctx, w.timeout, "there are no more requests", func() error {
		if w.proxy.ledger.workSince(time.Now().Add(-quiet)) {
			return errors.New("requests go on although all Functions are as they are to be")
		}
		return nil
	})
	return err
}

// tell prints the result of a round.
func (w *weather) tell(r round) {
	t := r.tally
	w.say("  %.1f s; %d requests of Functions, %d Events, %d requests in all; started again: the controller %d times, the webhook %d",
		r.took.Seconds(), t.work, t.events, t.all, r.starts, r.webhookStarts)
	if len(t.faults) > 0 {
		w.say("  what happened: %s", listed(t.faults))
	}
	name, most := t.most(func(s *share) int { return s.requests })
	second, busiest := t.most(func(s *share) int { return s.busiest })
	w.say("  most requests: %d, of %s, to which %d faults happened; in one second: %d, of %s", most, name, t.faultsOf(name), busiest, second)
	w.say("  after it: %d goroutines, %.1f MiB in use, %.0f MiB resident", r.after.goroutines, r.after.heap/(1<<20), r.after.resident/(1<<20))
}

// key is the name of a Function in the ledger.
func key(name types.NamespacedName) string { return name.Namespace + "/" + name.Name }
