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
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kiln-dev/kiln/test/images/relay/api"
)

const (
	// probeInterval is shorter than any gap that users would notice.
	probeInterval = 50 * time.Millisecond
	// keptFailures is the most failures that a report describes.
	keptFailures = 20
)

// probes holds the running probes by ID.
type probes struct {
	ctx context.Context

	mu      sync.Mutex
	last    int
	running map[string]*probe
}

// probe is a request that is sent repeatedly.
type probe struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	report api.Report
	// changed is closed and replaced when an answer differs from the last.
	changed chan struct{}
}

func (p *probes) start(request api.Request) api.Probe {
	ctx, cancel := context.WithCancel(p.ctx)
	started := &probe{cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	go started.run(ctx, request)

	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	id := strconv.Itoa(p.last)
	p.running[id] = started
	return api.Probe{ID: id}
}

// report returns the report of a probe. If there are bodies, it waits until the last
// answer has one of them.
func (p *probes) report(ctx context.Context, id string, bodies []string) (api.Report, error) {
	found, err := p.find(id)
	if err != nil {
		return api.Report{}, err
	}
	for {
		report, changed := found.state()
		if len(bodies) == 0 || len(report.Runs) > 0 && slices.Contains(bodies, report.Runs[len(report.Runs)-1].Body) {
			return report, nil
		}
		select {
		case <-ctx.Done():
			return report, ctx.Err()
		case <-found.done:
			return report, fmt.Errorf("probe %s ended without that answer", id)
		case <-changed:
		}
	}
}

func (p *probes) stop(id string) (api.Report, error) {
	found, err := p.find(id)
	if err != nil {
		return api.Report{}, err
	}
	found.cancel()
	<-found.done
	report, _ := found.state()

	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, id)
	return report, nil
}

func (p *probes) find(id string) (*probe, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.running[id]
	if !ok {
		return nil, fmt.Errorf("there is no probe %q", id)
	}
	return found, nil
}

func (p *probe) run(ctx context.Context, request api.Request) {
	defer close(p.done)
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		// The end of the probe does not cancel the request, which still counts.
		p.add(time.Now(), send(context.WithoutCancel(ctx), request))
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (p *probe) add(at time.Time, answer api.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &p.report
	r.Requests++
	if answer.Error != "" || answer.Status != http.StatusOK {
		r.Failed++
		if len(r.Failures) < keptFailures {
			r.Failures = append(r.Failures, api.Failure{At: at, Answer: answer})
		}
		return
	}
	if n := len(r.Runs); n > 0 && r.Runs[n-1].Body == answer.Body {
		r.Runs[n-1].Count++
		r.Runs[n-1].Last = at
		return
	}
	r.Runs = append(r.Runs, api.Run{Body: answer.Body, Count: 1, First: at, Last: at})
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *probe) state() (api.Report, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	report := p.report
	report.Runs = slices.Clone(report.Runs)
	report.Failures = slices.Clone(report.Failures)
	return report, p.changed
}
