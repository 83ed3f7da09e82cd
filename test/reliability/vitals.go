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
	"fmt"
	"io"
	"net/http"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// vitals are measurements of the controller.
type vitals struct {
	goroutines int
	// heap is the memory in use after a garbage collection, and resident the memory of the
	// process, in bytes.
	heap, resident float64
}

const (
	// settling is the time for connections and goroutines to end.
	settling = 4 * time.Second
	// collections is the number of metrics requests that cause another garbage collection.
	collections = 150
)

// vitals measures the idle controller.
func (w *weather) vitals(ctx context.Context) (v vitals, err error) {
	var goal, percent float64
	for deadline := time.Now().Add(settling); time.Now().Before(deadline); pause(ctx, settling/10) {
		m, err := w.metrics(ctx)
		if err != nil {
			return v, err
		}
		if n := int(m["go_goroutine_count"]); v.goroutines == 0 || n < v.goroutines {
			v.goroutines = n
		}
	}
	// No metric has the live heap. The threshold of the next garbage collection depends on
	// it.
	for range collections {
		m, err := w.metrics(ctx)
		if err != nil {
			return v, err
		}
		if next := m["go_memory_gc_goal_bytes"]; goal == 0 || next < goal {
			goal = next
		}
		percent = m["go_config_gogc_percent"]
	}
	v.heap = goal / (1 + percent/100)
	if runtime.GOOS == "linux" {
		used, err := w.Controller.Usage()
		if err != nil {
			return v, err
		}
		v.resident = used.Resident
	}
	if v.goroutines == 0 || v.heap == 0 || percent == 0 {
		return v, fmt.Errorf("failed to find goroutines and memory in the metrics: %+v", v)
	}
	return v, nil
}

// metrics returns the controller's gauges.
func (w *weather) metrics(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Metrics, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("failed to read metrics: %w", err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("failed to read metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("failed to parse metrics: %w", err)
	}
	values := map[string]float64{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			values[name] += metric.GetGauge().GetValue()
		}
	}
	return values, nil
}

// diagnose ends the controller with a dump of its goroutines in its log.
func (w *weather) diagnose(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.Controller.Signal(syscall.SIGQUIT)
	return err
}
