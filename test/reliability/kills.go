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
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

const (
	// recoveryTimeout is the timeout of the recovery after a kill.
	recoveryTimeout = 10 * time.Minute
	// again is the delay before a failed request is retried.
	again = time.Second
)

// victim is a component to kill.
type victim struct {
	name string
	kill func(context.Context, *kills) error
	// ofKnative reports that only clusters with Tekton and Knative Serving have it.
	ofKnative bool
}

// nothing is the baseline without a kill.
const nothing = "nothing"

// victims are the baseline and then the components that build and serve Functions.
var victims = []victim{
	{nothing, func(context.Context, *kills) error { return nil }, false},
	{"Kiln's controller", pods("kiln-system", "app.kubernetes.io/component=controller"), false},
	{"Kiln's webhook", pods("kiln-system", "app.kubernetes.io/component=webhook"), false},
	{"Tekton's controller", pods("tekton-pipelines", "app.kubernetes.io/component=controller,app.kubernetes.io/part-of=tekton-pipelines"), true},
	{"Serving's controller", pods("knative-serving", "app=controller"), true},
	{"the registry", killRegistry, false},
	{"CoreDNS", pods("kube-system", "k8s-app=kube-dns"), false},
	{"the API server", pods("kube-system", "component=kube-apiserver"), false},
	{"containerd", killContainerd, false},
}

// kills is a run that kills the components that build and serve Functions.
type kills struct {
	clients   *test.Clients
	namespace string
	tools     string
	relay     *test.Relay
	killer    *test.Relay
	backend   backend
	builds    func() ([]build, error)
	functions int
	built     int
	versions  int
	begin     time.Time
}

// killsReport is the result of a run.
type killsReport struct {
	Kills []killReport `json:"kills"`
	// plain reports that Jobs built and Deployments served. The page has no such chapter.
	plain bool
}

// killReport is the result of one kill.
type killReport struct {
	Victim string `json:"victim"`
	// Functions is the number of edited Functions. Built is how many of them needed a
	// build.
	Functions int `json:"functions"`
	Built     int `json:"built"`
	// Skipped is the reason if the victim was not killed.
	Skipped string `json:"skipped,omitempty"`
	// ReadyS is the time from the kill until all Functions were Ready, in seconds.
	ReadyS float64 `json:"ready_s"`
	// RefusedS is the time during which edits failed, in seconds.
	RefusedS float64 `json:"refused_s"`
	// Builds is the number of builds that succeeded. FailedBuilds is the number that
	// failed and that Kiln retried.
	Builds       int `json:"builds"`
	FailedBuilds int `json:"failed_builds,omitempty"`
	traffic
}

// errSkipped reports that a victim cannot be killed on this cluster.
var errSkipped = errors.New("it does not run where this program can kill it")

func (k *kills) say(format string, args ...any) {
	fmt.Printf("%6.0f s  %s\n", time.Since(k.begin).Seconds(), fmt.Sprintf(format, args...))
}

// runKills kills one victim after the other on the cluster that KUBECONFIG names.
func runKills(ctx context.Context, relayImage string, all []victim, functions, built int) (r *killsReport, err error) {
	k := &kills{functions: functions, built: min(built, functions), begin: time.Now()}
	if k.clients, err = test.NewClients(); err != nil {
		return nil, err
	}
	if k.backend, err = backendOf(k.clients); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.remove(context.WithoutCancel(ctx))) }()
	// The history must include everything that follows.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := k.prepare(ctx, relayImage); err != nil {
		return nil, err
	}
	_, isPlain := k.backend.(plain)
	r = &killsReport{plain: isPlain}
	for _, v := range all {
		if v.ofKnative && isPlain {
			continue
		}
		found, err := k.one(ctx, v)
		if err != nil {
			return r, fmt.Errorf("%s was killed: %w", v.name, err)
		}
		r.Kills = append(r.Kills, found)
	}
	return r, nil
}

// verdict returns an error if requests to the Function failed more often than those to the
// unmanaged Service, or if the builds do not match the new sources. If all is set, a
// skipped victim is an error, too.
func (r *killsReport) verdict(all bool) error {
	var wrong []error
	for _, kill := range r.Kills {
		if err := kill.verdict(); err != nil {
			wrong = append(wrong, fmt.Errorf("while %s was killed, %w", kill.Victim, err))
		}
		if kill.Builds != kill.Built {
			wrong = append(wrong, fmt.Errorf("while %s was killed, %d builds have succeeded, and %d Functions got another source", kill.Victim, kill.Builds, kill.Built))
		}
		if all && kill.Skipped != "" {
			wrong = append(wrong, fmt.Errorf("%s was not killed: %s", kill.Victim, kill.Skipped))
		}
	}
	return errors.Join(wrong...)
}

// prepare creates all Functions and waits until they are Ready.
func (k *kills) prepare(ctx context.Context, relayImage string) (err error) {
	for prefix, name := range map[string]*string{"kiln-kills-": &k.namespace, "kiln-kills-tools-": &k.tools} {
		if *name, err = createNamespace(ctx, k.clients, prefix); err != nil {
			return err
		}
	}
	k.builds = k.backend.watch(ctx, k.clients, k.namespace)
	nodes, err := k.clients.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "node-role.kubernetes.io/control-plane"})
	if err != nil || len(nodes.Items) != 1 {
		return fmt.Errorf("failed to get the only node of the cluster: %w", err)
	}
	if k.relay, err = test.StartRelay(ctx, k.clients, k.tools, relayImage); err != nil {
		return err
	}
	if k.killer, err = test.StartKiller(ctx, k.clients, k.tools, relayImage, nodes.Items[0].Name); err != nil {
		return err
	}
	k.say("%d Functions, and one that is called all the time", k.functions)
	all := []*v1alpha1.Function{newCalled(k.namespace)}
	for i := range k.functions {
		all = append(all, newFunction(k.namespace, nameOf(i), 0))
	}
	for _, fn := range all {
		if _, err := k.clients.Kiln.ServerlessV1alpha1().Functions(fn.Namespace).Create(ctx, fn, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("failed to create Function: %w", err)
		}
	}
	if err := k.untilReady(ctx); err != nil {
		return err
	}
	return k.backend.serveBare(ctx, k.clients, k.namespace)
}

// one kills one victim during builds and edits, and waits until all Functions are Ready.
func (k *kills) one(ctx context.Context, v victim) (r killReport, err error) {
	r.Victim, r.Functions, r.Built = v.name, k.functions, k.built
	ctx, cancel := context.WithTimeout(ctx, recoveryTimeout)
	defer cancel()
	probes, err := probe(ctx, k.relay, k.namespace)
	if err != nil {
		return r, err
	}
	k.versions++
	before, err := k.builds()
	if err != nil {
		return r, err
	}
	// Half of the edits come before the kill, the others during the outage.
	half := (k.functions + 1) / 2
	if _, err := k.edit(ctx, 0, half); err != nil {
		return r, err
	}
	if err := k.backend.untilBuilding(ctx, k.clients, k.namespace); err != nil {
		return r, err
	}
	killed := time.Now()
	if err := v.kill(ctx, k); errors.Is(err, errSkipped) {
		r.Skipped = err.Error()
	} else if err != nil {
		return r, err
	}
	refused, err := k.edit(ctx, half, k.functions)
	if err != nil {
		return r, err
	}
	if err := k.untilReady(ctx); err != nil {
		return r, err
	}
	r.ReadyS, r.RefusedS = time.Since(killed).Seconds(), refused.Seconds()
	if r.traffic, err = probes.read(ctx); err != nil {
		return r, err
	}
	after, err := k.builds()
	if err != nil {
		return r, err
	}
	r.Builds, r.FailedBuilds = newIn(after, before)
	k.say("%s: all Ready after %.1f s, edits refused for %.1f s, %d builds of %d, and %d that failed; %s",
		v.name, r.ReadyS, r.RefusedS, r.Builds, k.built, r.FailedBuilds, r.traffic)
	return r, nil
}

// newIn returns how many new builds have succeeded and how many have failed.
func newIn(all, before []build) (succeeded, failed int) {
	known := sets.New[types.UID]()
	for _, b := range before {
		known.Insert(b.uid)
	}
	for _, b := range all {
		switch {
		case known.Has(b.uid):
		case b.succeeded:
			succeeded++
		default:
			failed++
		}
	}
	return succeeded, failed
}

// patiently retries a failing operation until it succeeds or ctx ends.
func patiently(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		pause(ctx, again)
		if ctx.Err() != nil {
			return err
		}
	}
}

// edit edits the Functions with numbers in a range, and returns how long edits failed. The
// Functions that need a build are spread evenly and change with each call.
func (k *kills) edit(ctx context.Context, from, to int) (refused time.Duration, err error) {
	begin := time.Now()
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for i := from; i < to; i++ {
		name := nameOf((i + k.versions) % k.functions)
		patch := fmt.Appendf(nil, `{"spec":{"env":[{"name":"VERSION","value":"%d"}]}}`, k.versions)
		if i*k.built%k.functions < k.built {
			patch = fmt.Appendf(nil, `{"spec":{"source":%q}}`, newFunction(k.namespace, name, k.versions).Spec.Source)
		}
		g.Go(func() error {
			first := true
			return patiently(ctx, func() error {
				_, err := k.clients.Kiln.ServerlessV1alpha1().Functions(k.namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
				if err == nil && !first {
					mu.Lock()
					refused = max(refused, time.Since(begin))
					mu.Unlock()
				}
				first = false
				return err
			})
		})
	}
	return refused, g.Wait()
}

// untilReady waits until all Functions are Ready in their current generation.
func (k *kills) untilReady(ctx context.Context) error {
	return patiently(ctx, func() error {
		return test.Until(ctx, k.clients.Kiln.ServerlessV1alpha1().Functions(k.namespace), metav1.ListOptions{}, func(found []*v1alpha1.Function) error {
			for _, fn := range found {
				if err := test.Healed(fn); err != nil {
					return fmt.Errorf("failed to find Function %s ready: %w", fn.Name, err)
				}
			}
			return nil
		})
	})
}

// remove deletes all objects of the run.
func (k *kills) remove(ctx context.Context) (err error) {
	for _, name := range []string{k.namespace, k.tools} {
		if name != "" {
			err = errors.Join(err, patiently(ctx, func() error {
				return k.clients.Kube.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
			}))
		}
	}
	return err
}

func nameOf(i int) string { return fmt.Sprintf("fn-%03d", i) }

// newFunction returns a Function without dependencies. Each version has another source.
func newFunction(namespace, name string, version int) *v1alpha1.Function {
	return &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.FunctionSpec{
			Runtime: "nodejs24", Source: fmt.Sprintf("// %s\nmodule.exports = { main: () => 'version %d' };\n", name, version),
		},
	}
}

// pods kills the processes of all selected pods. The kubelet restarts them.
func pods(namespace, selector string) func(context.Context, *kills) error {
	return func(ctx context.Context, k *kills) error {
		found, err := k.clients.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return fmt.Errorf("failed to list pods: %w", err)
		}
		if len(found.Items) == 0 {
			return errSkipped
		}
		for _, pod := range found.Items {
			for _, status := range pod.Status.ContainerStatuses {
				_, id, _ := strings.Cut(status.ContainerID, "://")
				// The response is lost when the API server itself is killed.
				if _, err := k.killer.Kill(ctx, id); err != nil && !strings.Contains(pod.Name, "apiserver") {
					return err
				}
			}
		}
		return nil
	}
}

// killContainerd kills containerd on the node. Its containers keep running.
func killContainerd(ctx context.Context, k *kills) error {
	_, err := k.killer.KillProgram(ctx, "/usr/local/bin/containerd")
	return err
}

// ownEngine is the socket of the Docker daemon inside the local cluster.
const ownEngine = "/run/kiln/docker.sock"

// killRegistry kills the process of the local cluster's registry. Docker restarts it, as it
// would not after docker kill.
func killRegistry(ctx context.Context, _ *kills) error {
	inspect := exec.CommandContext(ctx, "docker", "inspect", "--format", "{{.State.Pid}}", "kiln-registry")
	if _, err := os.Stat(ownEngine); err == nil && os.Getenv("DOCKER_HOST") == "" {
		inspect.Env = append(os.Environ(), "DOCKER_HOST=unix://"+ownEngine)
	}
	output, err := inspect.Output()
	if err != nil {
		return errSkipped
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil || pid <= 1 || syscall.Kill(pid, syscall.SIGKILL) != nil {
		return errSkipped
	}
	return nil
}
