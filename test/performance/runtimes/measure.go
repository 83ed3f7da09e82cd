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
	"io"
	"text/tabwriter"
	"time"

	"github.com/kiln-dev/kiln/test/performance/report"
)

// The measures of a server. They are in seconds, except memory, which is in MiB.
const (
	cpu        = "cpu"        // CPU per GET at 64 connections
	throughput = "throughput" // time per GET at 64 connections
	single     = "single"     // time per GET at 1 connection
	p99        = "p99"        // of GETs at 64 connections
	singleP99  = "single-p99" // of GETs at 1 connection
	event      = "event-cpu"  // CPU per CloudEvent of 1 KiB at 64 connections
	start      = "start"      // from the process' start to the first 200
	memory     = "memory"     // resident after the load

	// size is the additional size of an image in MiB. It is absolute, because a bare
	// server adds nothing.
	size = "image-mib"
)

// measures are in the order of the table.
var measures = []string{cpu, event, throughput, single, p99, singleP99, start, memory}

// samples are the measurements of a server by measure.
type samples map[string][]float64

const (
	manyConnections = 64
	// warmUp is long enough for just-in-time compilers.
	warmUp = time.Second
	// startsPerRound is the number of starts of a server in a round.
	startsPerRound = 3
	// roundsPerLife is the number of rounds between restarts of all servers. Processes of
	// the same program differ by up to a fifth during their life, because of memory
	// layout and compiled code.
	roundsPerLife = 4
)

// measure gives the servers of a group turns, so other load on the machine affects all of
// them.
func measure(ctx context.Context, g group, rounds int, during time.Duration) (map[string]samples, error) {
	all := map[string]samples{}
	for _, s := range g.servers {
		added, err := s.added()
		if err != nil {
			return nil, err
		}
		all[s.name] = samples{size: {float64(added) / (1 << 20)}}
	}
	for range rounds * startsPerRound {
		for _, s := range g.servers {
			p, err := run(ctx, s)
			if err != nil {
				return nil, err
			}
			p.stop()
			all[s.name].add(start, p.start.Seconds())
		}
	}
	for round := 0; round < rounds; round += roundsPerLife {
		if err := live(ctx, g, min(roundsPerLife, rounds-round), during, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// live starts the servers of a group, gives them turns, and ends them.
func live(ctx context.Context, g group, rounds int, during time.Duration, all map[string]samples) error {
	processes := make([]*process, 0, len(g.servers))
	for _, s := range g.servers {
		p, err := run(ctx, s)
		if err != nil {
			return err
		}
		defer p.stop()
		processes = append(processes, p)
		for _, request := range [][]byte{get, cloudEvent} {
			if _, _, err := p.underLoad(request, manyConnections, warmUp); err != nil {
				return fmt.Errorf("failed to measure %s: %w", s.name, err)
			}
		}
	}
	for round := range rounds {
		for i := range processes {
			// The order changes in each round.
			at := (i + round) % len(processes)
			if err := processes[at].measure(during, all[g.servers[at].name]); err != nil {
				return fmt.Errorf("failed to measure %s: %w", g.servers[at].name, err)
			}
		}
	}
	return nil
}

// measure takes one sample of each kind.
func (p *process) measure(during time.Duration, into samples) error {
	many, spent, err := p.underLoad(get, manyConnections, during)
	if err != nil {
		return err
	}
	into.add(cpu, spent)
	into.add(throughput, many.perRequest().Seconds())
	into.add(p99, many.p99.Seconds())
	one, _, err := p.underLoad(get, 1, during)
	if err != nil {
		return err
	}
	into.add(single, one.perRequest().Seconds())
	into.add(singleP99, one.p99.Seconds())
	_, spent, err = p.underLoad(cloudEvent, manyConnections, during)
	if err != nil {
		return err
	}
	into.add(event, spent)
	resident, err := p.resident()
	if err != nil {
		return err
	}
	into.add(memory, resident)
	return nil
}

func (s samples) add(what string, value float64) { s[what] = append(s[what], value) }

// underLoad returns the server's result and the CPU time of each request, in seconds.
func (p *process) underLoad(request []byte, connections int, during time.Duration) (load, float64, error) {
	before, err := p.cpu()
	if err != nil {
		return load{}, 0, err
	}
	done, err := send(p.address, request, connections, during)
	if err != nil {
		return load{}, 0, fmt.Errorf("%w\n%s", err, p.log)
	}
	after, err := p.cpu()
	if err != nil {
		return load{}, 0, err
	}
	return done, (after - before).Seconds() / float64(done.requests), nil
}

// conclude returns a row for each server and measure, as a multiple of the bare server in
// the same run. A second multiple is of the equivalent bare server, if that is another
// one. Kiln's rows have only the runtime's name.
func conclude(g group, all map[string]samples) []report.Row {
	var rows []report.Row
	for _, what := range measures {
		for _, s := range g.servers {
			row := report.NewRow(rowName(g.runtime, s.name, what), all[s.name][what], nil)
			row.Baseline = rowName(g.runtime, bare, what)
			row.Ratio = row.MedianS / report.Median(all[bare][what])
			row.Parts = map[string]float64{relative: row.Ratio}
			if s.like != "" {
				row.Parts[relativeToLike] = row.MedianS / report.Median(all[s.like][what])
			}
			if what == memory {
				row.Parts[size] = report.Median(all[s.name][size])
			}
			rows = append(rows, row)
		}
	}
	return rows
}

const (
	// relative names the length of the bars in the plot.
	relative = "as a multiple of the bare server"

	// relativeToLike names the second multiple.
	relativeToLike = "as a multiple of the bare server that does the same"
)

func rowName(runtime, server, what string) string {
	if server == kiln {
		return runtime + "-" + what
	}
	return runtime + "-" + server + "-" + what
}

// describe prints the figures of a group. Brackets contain multiples of the equivalent
// bare server.
func describe(to io.Writer, g group, all map[string]samples) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s\tCPU µs\t\tEVENT CPU µs\t\tREQUESTS/s\t\tAT 1 CONN.\t\tP99 ms\tAT 1 CONN.\tSTART ms\t\tMiB\tIMAGE MiB\n", g.runtime)
	for _, s := range g.servers {
		value := func(what string) float64 { return report.Median(all[s.name][what]) }
		fmt.Fprintf(table, "%s\t%.1f\t×%s\t%.1f\t×%s\t%.0f\t×%s\t%.0f\t×%s\t%.2f\t%.3f\t%.0f\t×%s\t%.0f\t+%.2f\n", s.name,
			value(cpu)*1e6, multiples(s, cpu, all), value(event)*1e6, multiples(s, event, all), 1/value(throughput), multiples(s, throughput, all),
			1/value(single), multiples(s, single, all), value(p99)*1e3, value(singleP99)*1e3, value(start)*1e3, multiples(s, start, all), value(memory), value(size))
	}
	_ = table.Flush()
}

// multiples returns a server's measure as a multiple of the bare server's, and in
// brackets of the equivalent bare server's. Times between answers become answers per
// second.
func multiples(s server, what string, all map[string]samples) string {
	of := func(baseline string) string {
		ratio := report.Median(all[s.name][what]) / report.Median(all[baseline][what])
		if what == throughput || what == single {
			ratio = 1 / ratio
		}
		return fmt.Sprintf("%.2f", ratio)
	}
	switch {
	case s.name == bare:
		return "1"
	case s.like != "":
		return of(bare) + " (" + of(s.like) + ")"
	}
	return of(bare)
}
