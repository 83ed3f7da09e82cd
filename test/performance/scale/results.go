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
	"fmt"
	"time"

	"github.com/kiln-dev/kiln/test/performance/report"
)

// perFunction returns the number of selected requests for each of n Functions.
func (t taken) perFunction(n int, selects func(request) bool) float64 {
	return float64(t.requests.ofController(selects)) / float64(n)
}

func medianOf(all []taken, tell func(taken) float64) float64 {
	values := make([]float64, 0, len(all))
	for _, t := range all {
		values = append(values, tell(t))
	}
	return report.Median(values)
}

// ratio returns Kiln's cost as a multiple of the bare client's: the median of the rounds.
func (g growth) ratio(tell func(taken) float64) float64 {
	var ratios []float64
	for i, bare := range g.bare {
		ratios = append(ratios, tell(g.kiln[i])/tell(bare))
	}
	return report.Median(ratios)
}

func wall(t taken) float64   { return t.wall.Seconds() }
func apiCPU(t taken) float64 { return t.api }

// processes are the processes whose CPU time is reported, by the names of the figures.
var processes = []struct {
	name string
	cpu  func(taken) float64
}{
	{"apiserver", apiCPU},
	{"etcd", func(t taken) float64 { return t.etcd }},
	{"webhook", func(t taken) float64 { return t.webhook }},
	{"controller", func(t taken) float64 { return t.controller }},
	{"benchmark", func(t taken) float64 { return t.own }},
}

// all counts the requests of the controller, except those for its lease and Events.
func all(t taken) float64 {
	return float64(t.requests.ofController(func(r request) bool { return r.Resource != "leases" && !isEvent(r) }))
}

// row returns the row of the creation of Functions.
func (g growth) row() report.Row {
	n := g.n
	count := func(of []taken, selects func(request) bool) float64 {
		return medianOf(of, func(t taken) float64 { return t.perFunction(n, selects) })
	}
	var samples []float64
	for _, t := range g.kiln {
		samples = append(samples, t.wall.Seconds())
	}
	row := report.Row{
		Name: fmt.Sprintf("create-%d", n), MedianS: report.Median(samples), SamplesS: samples,
		Parts: map[string]float64{
			"writes_per_function": count(g.kiln, isWrite),
			"events_per_function": count(g.kiln, isEvent),
			"gets_per_function":   count(g.kiln, isGet),
			"lists_per_function":  count(g.kiln, isList),
			"conflicts":           medianOf(g.kiln, func(t taken) float64 { return float64(t.requests.ofController(isConflict)) }),
			"ms_per_function":     1000 * report.Median(samples) / float64(n),
			"controller_mib":      medianOf(g.kiln, func(t taken) float64 { return t.resident / (1 << 20) }),
		},
	}
	for _, p := range processes {
		row.Parts[p.name+"_cpu_ms_per_function"] = 1000 * medianOf(g.kiln, p.cpu) / float64(n)
		if len(g.bare) > 0 {
			row.Parts["bare_"+p.name+"_cpu_ms_per_function"] = 1000 * medianOf(g.bare, p.cpu) / float64(n)
		}
	}
	if len(g.bare) > 0 {
		row.Ratio, row.Baseline = g.ratio(wall), "the bare client"
		row.Parts["bare_s"] = medianOf(g.bare, wall)
		row.Parts["bare_writes_per_function"] = count(g.bare, isWrite)
		row.Parts["apiserver_cpu_ratio"] = g.ratio(apiCPU)
		row.Parts["requests_ratio"] = g.ratio(all)
	}
	return row
}

// report returns all rows.
func (r *results) report() *report.Report {
	out := &report.Report{Title: "Many Functions"}
	for _, g := range r.growth {
		row := g.row()
		if len(g.bare) == 0 && len(out.Rows) > 0 {
			before := out.Rows[len(out.Rows)-1]
			row.Ratio, row.Baseline = row.Parts["ms_per_function"]/before.Parts["ms_per_function"], before.Name+", of each Function"
		}
		out.Rows = append(out.Rows, row)
	}
	if r.plain.n > 0 {
		row := r.plain.row()
		row.Name = fmt.Sprintf("plain-create-%d", r.plain.n)
		out.Rows = append(out.Rows, row)
	}
	l := &r.live
	writes := func(t taken) float64 { return float64(t.requests.ofController(isWrite)) }
	n := float64(l.functions)
	out.Rows = append(out.Rows,
		report.Row{Name: "steady-writes", MedianS: l.resync.wall.Seconds(), Parts: map[string]float64{
			"functions": n, "writes": writes(l.resync), "events": float64(l.resync.requests.ofController(isEvent)),
			"gets": float64(l.resync.requests.ofController(isGet)), "lists": float64(l.resync.requests.ofController(isList)),
			"controller_cpu_ms_per_function": 1000 * l.resync.controller / n,
		}},
		report.Row{Name: "restart", MedianS: l.restart.wall.Seconds(), Parts: map[string]float64{
			"functions": n, "writes": writes(l.restart), "events": float64(l.restart.requests.ofController(isEvent)),
			"gets": float64(l.restart.requests.ofController(isGet)), "lists": float64(l.restart.requests.ofController(isList)),
			"controller_cpu_ms_per_function": 1000 * l.restart.controller / n, "controller_mib": l.restart.resident / (1 << 20),
			"controller_rested_mib": l.rested / (1 << 20), "controller_kib_per_function": (l.rested - l.base) / n / (1 << 10),
		}},
		l.stormRow(out.Row(fmt.Sprintf("create-%d", l.functions)).Parts["ms_per_function"]),
		r.large.row())
	return out
}

// stormRow returns the row of the edit of all Functions.
func (l *live) stormRow(create float64) report.Row {
	n := float64(l.functions)
	row := report.Row{Name: "storm", MedianS: l.storm.wall.Seconds(), Baseline: "their creation", Parts: map[string]float64{
		"functions": n, "ms_per_function": 1000 * l.storm.wall.Seconds() / n,
		"writes_per_function": l.storm.perFunction(l.functions, isWrite), "conflicts": float64(l.storm.requests.ofController(isConflict)),
		"idle_s": secondsOf(l.idle, readyIn), "busy_s": secondsOf(l.busy, readyIn), "busy_ratio": secondsOf(l.busy, readyIn) / secondsOf(l.idle, readyIn),
		"busy_writes_ratio": secondsOf(l.busy, writtenIn) / secondsOf(l.idle, writtenIn),
		"edited_beside":     float64(l.edited), "busy_samples": float64(len(l.busy)),
	}}
	row.Ratio = row.Parts["ms_per_function"] / create
	return row
}

// readyIn and writtenIn are the measures of a single Function.
func readyIn(s single) time.Duration   { return s.ready }
func writtenIn(s single) time.Duration { return s.writes }

// secondsOf returns the median of a measure.
func secondsOf(samples []single, measure func(single) time.Duration) float64 {
	seconds := make([]float64, 0, len(samples))
	for _, sample := range samples {
		seconds = append(seconds, measure(sample).Seconds())
	}
	return report.Median(seconds)
}
