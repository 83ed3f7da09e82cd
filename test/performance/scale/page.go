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
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/performance/report"
)

// intro describes the measurements. The figures of the last run follow it.
const intro = `# Performance

This page shows what Kiln costs with many Functions. ` + "`make bench-scale`" + ` writes it and its plots. The benchmark needs Linux
and no cluster. ` + "`build/bench/scale.json`" + ` has the same figures. [Builds](builds.md#how-long-it-takes) has the times of a
single Function on a cluster.

## What is measured

etcd and the API server are real, in the versions of the local cluster. So are Kiln's controller and webhook: they run as
processes with the roles, the configuration and the environment of their manifests. All run on one machine without limits
of memory or CPU.

A stand-in replaces Tekton and Serving. It marks each TaskRun as succeeded and each Service as ready with one write, as
soon as its watch delivers the object. It does the same with the pods of Jobs, which Kubernetes' own Job controller creates, and
with Deployments. Their CRDs are real; their webhooks are absent. So builds and pods take no time,
and the number of builds at a time has no limit. The registry is in memory. There is no garbage collector: each
measurement begins with an empty API server.

A resync is measured as a change of the configuration, which also reconciles each Function.

The *bare client* is the baseline. It runs in turn with Kiln, in the same run, with as many workers and the same watches.
For each Function it creates a ConfigMap, a TaskRun and a Service, which are copies of Kiln's; or a ConfigMap, a Job, a
Deployment, a Service and a HorizontalPodAutoscaler. It writes the status three
times: twice before a wait, and once at the end. It reads nothing, compares nothing, emits no Events and handles no errors.

*Writes* are those of the controller, without its lease and without Events, which have their own column. client-go writes
Events one at a time and drops those that its buffer cannot hold. Of very many Functions at once, some get no Event.

`

// page returns docs/performance.md.
func page(r *report.Report) string {
	var b strings.Builder
	b.WriteString(intro)
	fmt.Fprintf(&b, "The figures are from %d cores. They are medians where there are several rounds.\n\n## Aims\n\n", runtime.NumCPU())
	b.WriteString("| | aim | found | |\n|---|---|---|---|\n")
	for _, a := range aims(r) {
		met := "met"
		if !a.met {
			met = "**not met**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", a.what, a.aim, a.found, met)
	}
	b.WriteString("\n## Creation\n\nAll at once, in two namespaces, from the first one applied until all are Ready.\n\n" +
		"| Functions | seconds | the bare client | ratio | writes of each | Events of each | GETs of each | LISTs of each | conflicts | requests, ratio | API server's CPU, ratio | rounds |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range append(creations(r), plainRows(r)...) {
		p := row.Parts
		fmt.Fprintf(&b, "| %s | %.1f | %s | %s | %.2f, of %s | %.2f | %.2f | %.2f | %.0f | %s | %s | %d |\n", creationOf(row), row.MedianS,
			known(p, "bare_s", "%.1f"), ratioToBare(row), p["writes_per_function"], known(p, "bare_writes_per_function", "%.0f"), p["events_per_function"],
			p["gets_per_function"], p["lists_per_function"], p["conflicts"], known(p, "requests_ratio", "%.2f"), known(p, "apiserver_cpu_ratio", "%.2f"), len(row.SamplesS))
	}
	spent(&b, r)
	b.WriteString("\n## Growth\n\n![Time and CPU of each Function](performance-growth.svg)\n\n" +
		"| Functions | ms of each | ms of the controller's CPU of each | ms of the API server's | controller, MiB | KiB for each one more |\n|---|---|---|---|---|---|\n")
	rows := creations(r)
	for i, row := range rows {
		p, more := row.Parts, "–"
		if i > 0 {
			before := rows[i-1]
			more = fmt.Sprintf("%.1f", (p["controller_mib"]-before.Parts["controller_mib"])*(1<<10)/(functions(row)-functions(before)))
		}
		fmt.Fprintf(&b, "| %.0f | %.1f | %.2f | %.2f | %.0f | %s |\n", functions(row), p["ms_per_function"],
			p["controller_cpu_ms_per_function"], p["apiserver_cpu_ms_per_function"], p["controller_mib"], more)
	}
	steady(&b, r)
	largePage(&b, r.Row("large"))
	return b.String()
}

// spent writes the CPU time of each process, where a bare client was measured.
func spent(b *strings.Builder, r *report.Report) {
	row, ok := compared(r)
	if !ok {
		return
	}
	fmt.Fprintf(b, "\nCPU makes the difference in time. The table has its milliseconds for each of %.0f Functions, with those of Events that follow after the last is Ready:\n\n"+
		"| | API server | etcd | webhook | controller | the benchmark: users, stand-in, registry, bare client | all |\n|---|---|---|---|---|---|---|\n", functions(row))
	for _, of := range []struct{ who, prefix string }{{"Kiln", ""}, {"the bare client", "bare_"}} {
		fmt.Fprintf(b, "| %s |", of.who)
		all := 0.0
		for _, process := range processes {
			ms := row.Parts[of.prefix+process.name+"_cpu_ms_per_function"]
			fmt.Fprintf(b, " %.1f |", ms)
			all += ms
		}
		fmt.Fprintf(b, " %.1f |\n", all)
	}
}

// steady writes the costs of existing Functions.
func steady(b *strings.Builder, r *report.Report) {
	resync, restart, storm := r.Row("steady-writes"), r.Row("restart"), r.Row("storm")
	fmt.Fprintf(b, "\n## %.0f Functions that are Ready\n\n| | seconds | writes | Events | GETs | LISTs | controller's CPU, ms of each |\n|---|---|---|---|---|---|---|\n", resync.Parts["functions"])
	for _, row := range []struct {
		what string
		*report.Row
	}{{"a change of the configuration that changes no Function, until all were reconciled", resync}, {"a restart of the controller, until it has reconciled all", restart}} {
		p := row.Parts
		fmt.Fprintf(b, "| %s | %.1f | %.0f | %.0f | %.0f | %.0f | %.2f |\n", row.what, row.MedianS, p["writes"], p["events"], p["gets"], p["lists"], p["controller_cpu_ms_per_function"])
	}
	p := restart.Parts
	fmt.Fprintf(b, "\nThe controller has %.0f MiB after the start, and %.0f MiB at rest, when it has released what it read: %.1f KiB for each Function, "+
		"plus its base. Watches deliver the objects. The LISTs are of the TaskRuns, page by page, for the queue of builds.\n",
		p["controller_mib"], p["controller_rested_mib"], p["controller_kib_per_function"])
	p = storm.Parts
	fmt.Fprintf(b, "\n## Storm\n\nThe source of all %.0f Functions is edited at once. All are Ready with it after %.1f s, which is %.2f times the time of their creation, "+
		"with %.2f writes each and %.0f conflicts.\n\nWhile %.0f Functions of one namespace are edited and built, a new Function in another namespace is Ready after %.3f s "+
		"(median of %.0f, one after the other). On an idle system that takes %.3f s. As many plain writes, by a client that does "+
		"nothing else, take %.1f times as long during the storm. The Function's wait is %.2f of that. It waits for the API server, which "+
		"shares %d cores with everything else here.\n",
		p["functions"], storm.MedianS, storm.Ratio, p["writes_per_function"], p["conflicts"], p["edited_beside"], p["busy_s"], p["busy_samples"], p["idle_s"],
		p["busy_writes_ratio"], p["busy_ratio"]/p["busy_writes_ratio"], runtime.NumCPU())
}

// creations returns the rows of creations.
func creations(r *report.Report) (rows []report.Row) {
	for _, row := range r.Rows {
		if strings.HasPrefix(row.Name, "create-") {
			rows = append(rows, row)
		}
	}
	return rows
}

// plainRows returns the rows of creations with Jobs and Deployments.
func plainRows(r *report.Report) (rows []report.Row) {
	for _, row := range r.Rows {
		if strings.HasPrefix(row.Name, "plain-create-") {
			rows = append(rows, row)
		}
	}
	return rows
}

// creationOf returns what a row of a creation creates.
func creationOf(row report.Row) string {
	if n, ok := strings.CutPrefix(row.Name, "plain-create-"); ok {
		return n + ", with Jobs and Deployments"
	}
	return strings.TrimPrefix(row.Name, "create-")
}

// compared returns the row of the most Functions that the bare client has also created.
func compared(r *report.Report) (found report.Row, ok bool) {
	for _, row := range creations(r) {
		if _, bare := row.Parts["bare_s"]; bare {
			found, ok = row, true
		}
	}
	return found, ok
}

// functions returns the number of Functions of a creation's row.
func functions(row report.Row) float64 {
	return math.Round(1000 * row.MedianS / row.Parts["ms_per_function"])
}

// known returns a figure that some rows lack.
func known(parts map[string]float64, name, format string) string {
	if value, ok := parts[name]; ok {
		return fmt.Sprintf(format, value)
	}
	return "–"
}

func ratioToBare(row report.Row) string {
	if _, ok := row.Parts["bare_s"]; !ok {
		return "–"
	}
	return fmt.Sprintf("%.2f", row.Ratio)
}

// aim compares a figure with its bound.
type aim struct {
	what, aim, found string
	met              bool
	// counted reports that the figure is a count of requests or memory. Its bound holds
	// on each machine, and for any number of Functions.
	counted bool
}

// atMost returns the aim that a figure does not exceed most.
func atMost(what string, found, most float64, unit string) aim {
	return aim{what: what, aim: strings.TrimSpace(fmt.Sprintf("≤ %.4g %s", most, unit)), found: strings.TrimSpace(fmt.Sprintf("%.3g %s", found, unit)), met: found <= most}
}

// noMore returns the aim that requests or memory do not exceed most.
func noMore(what string, found, most float64, unit string) aim {
	a := atMost(what, found, most, unit)
	a.counted = true
	return a
}

// check returns an error for each count of requests, and each memory, that exceeds its bound.
func check(r *report.Report) error {
	var wrong []error
	for _, a := range aims(r) {
		if a.counted && !a.met {
			wrong = append(wrong, fmt.Errorf("%s: %s, and not %s", a.what, a.found, a.aim))
		}
	}
	return errors.Join(wrong...)
}

// aims compares the measured figures with their bounds.
func aims(r *report.Report) (all []aim) {
	rows := creations(r)
	last := rows[len(rows)-1]
	if row, ok := compared(r); ok {
		p, of := row.Parts, strings.Replace(row.Name, "create-", "creation of ", 1)
		all = append(all,
			atMost(of+": time, relative to the bare client", row.Ratio, 1.25, ""),
			noMore(of+": writes of each", p["writes_per_function"], p["bare_writes_per_function"]+1, ""),
			noMore(of+": LISTs", math.Round(p["lists_per_function"]*1000)/1000, 0, "of each"),
			noMore(of+": conflicts", p["conflicts"], 0, ""))
		if last.Name != row.Name {
			all = append(all, atMost(strings.Replace(last.Name, "create-", "time of each of ", 1)+", relative to "+strings.TrimPrefix(row.Name, "create-"),
				last.Parts["ms_per_function"]/p["ms_per_function"], 1.3, ""))
		}
	}
	for _, row := range plainRows(r) {
		// Kiln also records what serves, and keeps the results of a Job.
		p, of := row.Parts, "creation of "+creationOf(row)
		all = append(all,
			atMost(of+": time, relative to the bare client", row.Ratio, 1.25, ""),
			noMore(of+": writes of each", p["writes_per_function"], p["bare_writes_per_function"]+2.5, ""),
			noMore(of+": LISTs", math.Round(p["lists_per_function"]*1000)/1000, 0, "of each"),
			noMore(of+": conflicts", p["conflicts"], 0, ""))
	}
	resync, restart, storm := r.Row("steady-writes"), r.Row("restart"), r.Row("storm")
	all = append(all, largeAims(r.Row("large"))...)
	return append(all,
		atMost("memory of the controller at rest, without its base", restart.Parts["controller_kib_per_function"], 20, "KiB of each"),
		noMore("writes after a change of the configuration that changes no Function", resync.Parts["writes"], 0, ""),
		noMore("writes after a restart", restart.Parts["writes"], 0, ""),
		atMost("restart until all were reconciled", restart.MedianS, 30, "s"),
		atMost(fmt.Sprintf("time of a new Function while %.0f of another namespace are built, of that on an idle system", storm.Parts["edited_beside"]), storm.Parts["busy_ratio"], 2, ""))
}

// save writes the report: as JSON in one folder, as a page with its plot in another.
func (r *results) save(folder, docs string) error {
	found := r.report()
	if err := test.WriteJSON(folder, "scale", found); err != nil {
		return err
	}
	if err := os.MkdirAll(docs, 0o755); err != nil {
		return fmt.Errorf("failed to make folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(docs, "performance.md"), []byte(page(found)), 0o644); err != nil {
		return fmt.Errorf("failed to write page: %w", err)
	}
	return plotGrowth(found, filepath.Join(docs, "performance-growth.svg"))
}

// plotGrowth draws the cost of a Function by the number of Functions.
func plotGrowth(r *report.Report, file string) error {
	p := plot.New()
	p.Title.Text = "What each of many Functions takes to be created"
	p.X.Label.Text, p.Y.Label.Text = "Functions", "milliseconds of each"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min = 0
	p.Legend.Top = true
	lines := []struct{ name, part string }{
		{"time", "ms_per_function"}, {"API server's CPU", "apiserver_cpu_ms_per_function"}, {"controller's CPU", "controller_cpu_ms_per_function"},
	}
	colors := palette.Rainbow(len(lines), 0, 1, 0.6, 0.9, 1).Colors()
	highest := 0.0
	for i, l := range lines {
		var points plotter.XYs
		for _, row := range creations(r) {
			points = append(points, plotter.XY{X: functions(row), Y: row.Parts[l.part]})
			highest = cmp.Or(max(highest, row.Parts[l.part]), 1)
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("failed to plot report: %w", err)
		}
		line.Color, dots.Color, line.Width = colors[i], colors[i], vg.Points(2)
		p.Add(line, dots)
		p.Legend.Add(l.name, line, dots)
	}
	p.Y.Max = highest * 1.4
	if err := p.Save(vg.Points(720), vg.Points(360), file); err != nil {
		return fmt.Errorf("failed to write plot: %w", err)
	}
	return nil
}
