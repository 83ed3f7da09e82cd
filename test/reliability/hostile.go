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
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

const (
	// effectTimeout bounds the time until the builds or requests of a neighbour run.
	effectTimeout = 90 * time.Second
	// quietTimeout bounds the deletion of a neighbour's pods.
	quietTimeout = time.Minute

	// Each neighbour acts at most that long, and repeats each edit at most that often.
	attackTime = 5 * time.Minute
	mostRounds = 60

	// stuckFunctions is the number of Functions in each of the stuckNamespaces: the builds of
	// the default limits.
	stuckFunctions, stuckNamespaces = 5, 2
	// largeBytes is the largest max-source-size.
	largeBytes = 936 << 10
	// largeFunctions and largeEvery limit what etcd keeps: each edit writes some 8 MiB.
	largeFunctions, largeEvery = 4, 4 * time.Second
	largeEdits                 = 30
	// diskFunctions fill the disk at once, and hold that for diskHold.
	diskFunctions, diskHold = 2, 15 * time.Second
	// stormFunctions are created all at once, and half of them are edited at once. An edit
	// cancels a build, so the scripts must have the time to be busy for stormBusy.
	stormFunctions, stormEvery, stormBusy = 10, 20 * time.Second, 30 * time.Second
	// stalledRequests are held open at the webhook. Each sends stalledBytes of its body.
	stalledRequests, stalledBytes = 64, 3_000_000
	// floodEffect is long enough to see that a flood has an effect, and floodEvery is how
	// long each further flood lasts.
	floodEffect, floodEvery = 5 * time.Second, 20 * time.Second
)

// neighbour is a kind of hostile tenant.
type neighbour struct {
	name string
	// begin starts its actions and returns once they have an effect.
	begin func(context.Context, *hostile) error
}

// nobody is the baseline without a neighbour. everybody acts in all ways at once.
const nobody, everybody = "nobody", "all of these at once"

// hostiles are the kinds of neighbours.
var hostiles = []neighbour{
	{"stuck builds", stuckBuilds},
	{"large sources", largeSources},
	{"full disks", fullDisks},
	{"a webhook flood", webhookFlood},
	{"a build storm", buildStorm},
}

// allAtOnce acts in all ways at once. Those that occupy build slots for long come last, or
// the others could not act.
func allAtOnce(ctx context.Context, h *hostile) error {
	for _, begin := range []func(context.Context, *hostile) error{largeSources, fullDisks, buildStorm, webhookFlood, stuckBuilds} {
		if err := begin(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// hostile is a neighbour that acts.
type hostile struct {
	clients    *test.Clients
	relayImage string
	fillMiB    int
	namespaces []string

	// ctx ends the loops.
	ctx    context.Context
	cancel context.CancelFunc
	loops  sync.WaitGroup
	// made and refused count the requests for Functions, and those of floods.
	made, refused atomic.Int64
}

// newHostile returns a neighbour that does not act yet.
func newHostile(ctx context.Context, clients *test.Clients, relayImage string, fillMiB int) *hostile {
	h := &hostile{clients: clients, relayImage: relayImage, fillMiB: fillMiB}
	h.ctx, h.cancel = context.WithTimeout(ctx, attackTime)
	return h
}

// namespace creates a namespace of the neighbour.
func (h *hostile) namespace(ctx context.Context) (string, error) {
	name, err := createNamespace(ctx, h.clients, "kiln-neighbours-hostile-")
	if err == nil {
		h.namespaces = append(h.namespaces, name)
	}
	return name, err
}

// count counts a request for a Function.
func (h *hostile) count(err error) error {
	if err != nil {
		h.refused.Add(1)
		return err
	}
	h.made.Add(1)
	return nil
}

// create creates Functions. It retries each, because Kiln may still suffer from another
// neighbour.
func (h *hostile) create(ctx context.Context, fns ...*v1alpha1.Function) error {
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	for _, fn := range fns {
		err := patiently(ctx, func() error {
			_, err := h.clients.Kiln.ServerlessV1alpha1().Functions(fn.Namespace).Create(ctx, fn, metav1.CreateOptions{})
			return h.count(err)
		})
		if err != nil {
			return fmt.Errorf("failed to create Function: %w", err)
		}
	}
	return nil
}

// edit replaces the source and the dependencies of Functions. The next round retries what
// is refused.
func (h *hostile) edit(ctx context.Context, fns ...*v1alpha1.Function) {
	for _, fn := range fns {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"source": fn.Spec.Source, "deps": fn.Spec.Deps}})
		if err == nil {
			_, err = h.clients.Kiln.ServerlessV1alpha1().Functions(fn.Namespace).Patch(ctx, fn.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		_ = h.count(err)
	}
}

// loop repeats an action until the neighbour ends.
func (h *hostile) loop(times int, every time.Duration, do func(ctx context.Context, round int)) {
	h.loops.Go(func() {
		for round := 1; round <= times && h.ctx.Err() == nil; round++ {
			pause(h.ctx, every)
			do(h.ctx, round)
		}
	})
}

// untilBuilds waits until that many builds of a namespace have started and not ended.
func (h *hostile) untilBuilds(ctx context.Context, namespace string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	return test.Until(ctx, h.clients.Pipeline.TektonV1().TaskRuns(namespace), metav1.ListOptions{}, func(found []*pipelinev1.TaskRun) error {
		running := 0
		for _, tr := range found {
			if tr.HasStarted() && !tr.IsDone() {
				running++
			}
		}
		if running < want {
			return fmt.Errorf("%d builds of the neighbour run, want %d", running, want)
		}
		return nil
	})
}

// end stops the actions and deletes the namespaces. It waits until no pod is left.
func (h *hostile) end(ctx context.Context) error {
	h.cancel()
	h.loops.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quietTimeout)
	defer cancel()
	err := deleteNamespaces(ctx, h.clients, h.namespaces)
	for _, namespace := range h.namespaces {
		pods := h.clients.Kube.CoreV1().Pods(namespace)
		// The pods of builds would use the node for half a minute more.
		err = errors.Join(err,
			pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}),
			test.Until(ctx, pods, metav1.ListOptions{}, func(left []*corev1.Pod) error {
				if len(left) > 0 {
					return fmt.Errorf("namespace %s still has %d pods", namespace, len(left))
				}
				return nil
			}))
	}
	return err
}

// builds describes the TaskRuns of the neighbour by their last reason.
func (h *hostile) builds(ctx context.Context) string {
	counts := map[string]int{}
	for _, namespace := range h.namespaces {
		list, err := h.clients.Pipeline.TektonV1().TaskRuns(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, tr := range list.Items {
			counts[cmp.Or(tr.GetStatusCondition().GetCondition(apis.ConditionSucceeded).GetReason(), "new")]++
		}
	}
	if len(counts) == 0 {
		return "none"
	}
	return listed(counts)
}

// stuckBuilds creates Functions whose pods wait for a missing Secret, in two namespaces.
func stuckBuilds(ctx context.Context, h *hostile) error {
	for range stuckNamespaces {
		namespace, err := h.namespace(ctx)
		if err != nil {
			return err
		}
		for i := range stuckFunctions {
			if err := h.create(ctx, newStuck(namespace, i)); err != nil {
				return err
			}
		}
		if err := h.untilBuilds(ctx, namespace, namespaceBuilds); err != nil {
			return err
		}
	}
	return nil
}

// newStuck returns a Function whose build never starts.
func newStuck(namespace string, i int) *v1alpha1.Function {
	return &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nameOf(i)},
		Spec: v1alpha1.FunctionSpec{
			Runtime: "nodejs24",
			Archive: &v1alpha1.ArchiveSource{URL: "https://archive.invalid/a.tar.gz", SecretName: "nope"},
			Build:   &v1alpha1.BuildSpec{Timeout: &metav1.Duration{Duration: time.Hour}},
		},
	}
}

// largeSources creates and edits Functions with as much source as the API accepts.
func largeSources(ctx context.Context, h *hostile) error {
	namespace, err := h.namespace(ctx)
	if err != nil {
		return err
	}
	for i := range largeFunctions {
		if err := h.create(ctx, newLarge(namespace, i, 0)); err != nil {
			return err
		}
	}
	h.loop(largeEdits, largeEvery, func(ctx context.Context, round int) {
		h.edit(ctx, newLarge(namespace, round%largeFunctions, round))
	})
	return nil
}

// newLarge returns a Function whose source consists of comments, up to the limit.
func newLarge(namespace string, i, version int) *v1alpha1.Function {
	fn := newFunction(namespace, nameOf(i), version)
	const line = "// A comment is the cheapest way to a large source, and it is different in no other version of it.\n"
	missing := largeBytes - len(fn.Spec.Source)
	fn.Spec.Source += strings.Repeat(line, missing/len(line)) + strings.Repeat("\n", missing%len(line))
	return fn
}

// newInstalling returns a Function whose installation runs a script.
func newInstalling(namespace string, i, version int, script string) *v1alpha1.Function {
	fn := newFunction(namespace, nameOf(i), 0)
	// Quotes would have to survive JSON, npm and a shell.
	run := fmt.Sprintf("node -e \"eval(Buffer.from('%s', 'base64').toString())\"", base64.StdEncoding.EncodeToString([]byte(script)))
	deps, _ := json.Marshal(map[string]any{"description": fmt.Sprintf("version %d", version), "scripts": map[string]string{"postinstall": run}})
	fn.Spec.Deps = string(deps)
	fn.Spec.Build = &v1alpha1.BuildSpec{Timeout: &metav1.Duration{Duration: attackTime}}
	return fn
}

// fullDisks creates and edits Functions whose install scripts fill the disk.
func fullDisks(ctx context.Context, h *hostile) error {
	namespace, err := h.namespace(ctx)
	if err != nil {
		return err
	}
	if err := h.create(ctx, fillers(namespace, 0, h.fillMiB)...); err != nil {
		return err
	}
	h.loop(mostRounds, 2*diskHold, func(ctx context.Context, round int) { h.edit(ctx, fillers(namespace, round, h.fillMiB)...) })
	return h.untilBuilds(ctx, namespace, 1)
}

// fillers returns the Functions that fill the disk. Their builds fail in the end, so that
// nothing is pushed.
func fillers(namespace string, version, mib int) (fns []*v1alpha1.Function) {
	script := fmt.Sprintf("const fs = require('fs'), f = fs.openSync('/var/tmp/fill', 'w'), b = Buffer.alloc(1 << 20, 1);"+
		"for (let i = 0; i < %d; i++) fs.writeSync(f, b); fs.fsyncSync(f); setTimeout(() => process.exit(1), %d);", mib, diskHold.Milliseconds())
	for i := range diskFunctions {
		fns = append(fns, newInstalling(namespace, i, version, script))
	}
	return fns
}

// buildStorm creates and edits many Functions at once, with install scripts that are busy.
func buildStorm(ctx context.Context, h *hostile) error {
	namespace, err := h.namespace(ctx)
	if err != nil {
		return err
	}
	if err := h.create(ctx, stormers(namespace, 0)...); err != nil {
		return err
	}
	h.loop(mostRounds, stormEvery, func(ctx context.Context, round int) {
		all := stormers(namespace, round)
		half := len(all) / 2
		h.edit(ctx, all[round%2*half:][:half]...)
	})
	return h.untilBuilds(ctx, namespace, 1)
}

// stormers returns the Functions of a storm. Their builds fail in the end.
func stormers(namespace string, version int) (fns []*v1alpha1.Function) {
	script := fmt.Sprintf("const end = Date.now() + %d; while (Date.now() < end); process.exit(1);", stormBusy.Milliseconds())
	for i := range stormFunctions {
		fns = append(fns, newInstalling(namespace, i, version, script))
	}
	return fns
}

// webhookFlood holds requests to the webhook open. The counts of a flood arrive when it
// ends, so it is renewed.
func webhookFlood(ctx context.Context, h *hostile) error {
	namespace, err := h.namespace(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	relay, err := test.StartRelay(ctx, h.clients, namespace, h.relayImage)
	if err != nil {
		return err
	}
	flooded, err := h.flood(ctx, relay, floodEffect)
	if err != nil {
		return err
	}
	if flooded.Sent == 0 {
		return errors.New("the webhook took no request")
	}
	h.loops.Go(func() {
		for h.ctx.Err() == nil {
			if _, err := h.flood(h.ctx, relay, floodEvery); err != nil {
				pause(h.ctx, time.Second)
			}
		}
	})
	return nil
}

// flood holds requests to the webhook open for some time, and counts them.
func (h *hostile) flood(ctx context.Context, relay *test.Relay, duration time.Duration) (api.Flooded, error) {
	flooded, err := relay.Flood(ctx, api.Flood{
		Address: net.JoinHostPort("webhook."+test.SystemNamespace+".svc", "443"), Path: "/defaulting",
		Connections: stalledRequests, Bytes: stalledBytes, Time: duration,
	})
	if err != nil {
		return flooded, fmt.Errorf("failed to flood the webhook: %w", err)
	}
	h.made.Add(int64(flooded.Sent))
	h.refused.Add(int64(flooded.Refused))
	return flooded, nil
}
