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
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/test"
)

// interval is the time between two samples.
const interval = 5 * time.Second

// sample is the state at one moment.
type sample struct {
	// AtS is the time since the first Function was applied, in seconds.
	AtS float64 `json:"at_s"`

	// Waiting, Building and Ready are numbers of Functions.
	Waiting  int `json:"waiting"`
	Building int `json:"building"`
	Ready    int `json:"ready"`

	// MemoryMiB is the working set of the controller, and CPUSeconds its CPU time since
	// its start.
	MemoryMiB  float64 `json:"memory_mib"`
	CPUSeconds float64 `json:"cpu_s"`

	// Requests counts those to the API server, by all clients; StatusWrites are
	// those of Functions' status.
	Requests     float64 `json:"requests"`
	StatusWrites float64 `json:"status_writes"`
}

// result is the cost of a burst.
type result struct {
	Functions  int      `json:"functions"`
	Limit      int      `json:"limit"`
	MostBuilds int      `json:"most_builds"`
	Stalled    int      `json:"stalled_builds"`
	TookS      float64  `json:"took_s"`
	Samples    []sample `json:"samples"`
}

// watcher follows a burst.
type watcher struct {
	clients                      *test.Clients
	limit, namespaces, functions int

	mu     sync.Mutex
	start  time.Time
	now    sample
	most   int
	result result

	// stalled are the builds that were pending for longer than the queue's grace. They may
	// run beyond the limit.
	stalled map[types.UID]bool
}

func newWatcher(clients *test.Clients, limit, namespaces, functions int) *watcher {
	return &watcher{clients: clients, limit: limit, namespaces: namespaces, functions: functions, stalled: map[types.UID]bool{}}
}

// follow starts the burst and waits until all Functions are Ready.
func (w *watcher) follow(ctx context.Context, begin func() error) (*result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.start = time.Now()
	if err := w.take(ctx); err != nil {
		return nil, err
	}
	failed := make(chan error, 3)
	go func() { failed <- w.countBuilds(ctx) }()
	go func() { failed <- w.sample(ctx) }()
	ready := make(chan error, 1)
	go func() { ready <- w.untilReady(ctx) }()
	if err := begin(); err != nil {
		return nil, err
	}
	var err error
	select {
	case err = <-ready:
	case err = <-failed:
	}
	took := time.Since(w.start)
	err = errors.Join(err, w.take(ctx))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result.Functions, w.result.Limit, w.result.MostBuilds, w.result.Stalled, w.result.TookS = w.functions, w.limit, w.most, len(w.stalled), took.Seconds()
	if w.limit > 0 && w.most > w.limit+w.namespaces {
		err = errors.Join(err, fmt.Errorf("%d builds ran at once, the limit is %d, and one for each of %d namespaces", w.most, w.limit, w.namespaces))
	}
	return &w.result, err
}

// isBurst reports whether an object is of the burst.
func isBurst(o metav1.Object) bool { return strings.HasPrefix(o.GetNamespace(), "kiln-burst-") }

// untilReady waits until all Functions are Ready.
func (w *watcher) untilReady(ctx context.Context) error {
	return test.Until(ctx, w.clients.Kiln.ServerlessV1alpha1().Functions(metav1.NamespaceAll), metav1.ListOptions{}, func(all []*v1alpha1.Function) error {
		ready, waiting := 0, 0
		for _, fn := range all {
			switch {
			case !isBurst(fn) || fn.DeletionTimestamp != nil:
			case fn.IsReady():
				ready++
			case fn.IsFailed() && fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).IsFalse():
				return test.GiveUp(fmt.Errorf("there is a Function %s that has failed: %s", fn.Name, fn.Status.GetCondition(v1alpha1.FunctionConditionReady).Message))
			case fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).GetReason() == v1alpha1.ReasonBuildQueued:
				waiting++
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now.Ready, w.now.Waiting = ready, waiting
		if ready < w.functions {
			return fmt.Errorf("%d of %d Functions are ready", ready, w.functions)
		}
		return nil
	})
}

// countBuilds looks at each change of a TaskRun. It does not count builds that were stalled.
func (w *watcher) countBuilds(ctx context.Context) error {
	endless := errors.New("builds go on")
	err := test.Until(ctx, w.clients.Pipeline.TektonV1().TaskRuns(metav1.NamespaceAll), metav1.ListOptions{LabelSelector: serverless.FunctionUIDLabelKey}, func(all []*pipelinev1.TaskRun) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		running := 0
		for _, tr := range all {
			if tr.IsDone() {
				continue
			}
			if pending := tekton.QueuedBuild(tr).Pending; !pending.IsZero() && time.Since(pending) >= queue.Grace {
				w.stalled[tr.UID] = true
			}
			if !w.stalled[tr.UID] {
				running++
			}
		}
		w.now.Building, w.most = running, max(w.most, running)
		return endless
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// sample takes samples until ctx ends.
func (w *watcher) sample(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := w.take(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// take takes one sample.
func (w *watcher) take(ctx context.Context) error {
	nodes, err := w.clients.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("failed to list nodes: %w", err)
	}
	memory, cpu := 0.0, 0.0
	for _, node := range nodes.Items {
		usage, err := w.scrape(ctx, "/api/v1/nodes/"+node.Name+"/proxy/metrics/resource")
		if err != nil {
			return err
		}
		controller := map[string]string{"namespace": test.SystemNamespace, "container": "controller"}
		memory += usage.sum("container_memory_working_set_bytes", controller)
		cpu += usage.sum("container_cpu_usage_seconds_total", controller)
	}
	server, err := w.scrape(ctx, "/metrics")
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.now
	s.AtS, s.MemoryMiB, s.CPUSeconds = time.Since(w.start).Seconds(), memory/(1<<20), cpu
	s.Requests = server.sum("apiserver_request_total", nil)
	s.StatusWrites = server.sum("apiserver_request_total", map[string]string{"resource": "functions", "subresource": "status", "verb": "PUT"})
	w.result.Samples = append(w.result.Samples, s)
	fmt.Printf("%5.0f s  %3d waiting  %2d building  %3d ready  %5.1f MiB\n", s.AtS, s.Waiting, s.Building, s.Ready, s.MemoryMiB)
	return nil
}

// scraped is the response of a metrics endpoint.
type scraped map[string]*dto.MetricFamily

func (w *watcher) scrape(ctx context.Context, path string) (scraped, error) {
	data, err := w.clients.Kube.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to read metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("failed to parse metrics: %w", err)
	}
	return families, nil
}

// sum adds up the metrics of a name that have the labels.
func (s scraped) sum(name string, labels map[string]string) (sum float64) {
	for _, metric := range s[name].GetMetric() {
		matches := 0
		for _, label := range metric.GetLabel() {
			if labels[label.GetName()] == label.GetValue() && label.GetValue() != "" {
				matches++
			}
		}
		if matches == len(labels) {
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return sum
}

// print writes the result as a table: before, at the most, and after.
func (r *result) print(to io.Writer) error {
	first, last := r.Samples[0], r.Samples[len(r.Samples)-1]
	most := 0.0
	rate := 0.0
	for i, s := range r.Samples {
		most = math.Max(most, s.MemoryMiB)
		if i > 0 {
			before := r.Samples[i-1]
			rate = math.Max(rate, (s.Requests-before.Requests)/(s.AtS-before.AtS))
		}
	}
	took := last.AtS - first.AtS
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%d Functions, at most %d builds at once (limit %d; besides, %d were stalled), all ready in %.0f s\n", r.Functions, r.MostBuilds, r.Limit, r.Stalled, r.TookS)
	fmt.Fprintf(table, "memory of the controller (MiB)\tbefore %.1f\tmost %.1f\tafter %.1f\n", first.MemoryMiB, most, last.MemoryMiB)
	fmt.Fprintf(table, "CPU of the controller (s)\t%.1f\t%.2f of a core\t\n", last.CPUSeconds-first.CPUSeconds, (last.CPUSeconds-first.CPUSeconds)/took)
	fmt.Fprintf(table, "requests to the API server, of all clients (1/s)\tmean %.0f\tmost %.0f\t\n", (last.Requests-first.Requests)/took, rate)
	fmt.Fprintf(table, "writes of Functions' status\t%.0f\t%.1f of each\t\n", last.StatusWrites-first.StatusWrites, (last.StatusWrites-first.StatusWrites)/float64(r.Functions))
	if err := table.Flush(); err != nil {
		return fmt.Errorf("failed to print report: %w", err)
	}
	return nil
}
