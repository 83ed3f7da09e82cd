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

// Package report writes the results of benchmarks as a table, a plot and JSON.
package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/kiln-dev/kiln/test"
)

// Report is the result of a benchmark, all of it from one run.
type Report struct {
	// Title names the measurement.
	Title string `json:"-"`

	// Parts are the names of the parts of the rows, in the order of time.
	Parts []string `json:"-"`

	// Unit is the unit of the parts. Blank means seconds.
	Unit string `json:"-"`

	// Rows are the measurements.
	Rows []Row `json:"rows"`
}

// Row is one measured thing.
type Row struct {
	// Name is the same in each run.
	Name string `json:"name"`

	// MedianS is the median of Samples, in seconds.
	MedianS float64 `json:"median_s"`

	// Ratio is MedianS as a multiple of the baseline's in the same run.
	Ratio float64 `json:"ratio"`

	// Baseline names the row, or the part of one, that Ratio is of.
	Baseline string `json:"baseline,omitempty"`

	// Parts has the medians of the parts, in seconds. The medians may not add up to
	// MedianS.
	Parts map[string]float64 `json:"parts,omitempty"`

	// SamplesS are all measurements in the order they were made, in seconds.
	SamplesS []float64 `json:"samples_s,omitempty"`
}

// Median returns the median of values: of an even number of them the mean of the
// two in the middle, of none NaN.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// NewRow returns the row of samples, each of which has parts, in seconds.
func NewRow(name string, samples []float64, parts []map[string]float64) Row {
	byPart := map[string][]float64{}
	for _, sample := range parts {
		for part, value := range sample {
			byPart[part] = append(byPart[part], value)
		}
	}
	row := Row{Name: name, MedianS: Median(samples), SamplesS: samples, Parts: map[string]float64{}}
	for part, values := range byPart {
		row.Parts[part] = Median(values)
	}
	return row
}

// Row returns the row of that name, or an empty one.
func (r *Report) Row(name string) *Row {
	for i := range r.Rows {
		if r.Rows[i].Name == name {
			return &r.Rows[i]
		}
	}
	return &Row{}
}

// Save writes the report as JSON and as a plot: name.json and name.svg in the
// folder, which it makes.
func (r *Report) Save(folder, name string) error {
	if err := test.WriteJSON(folder, name, r); err != nil {
		return err
	}
	return r.plot(filepath.Join(folder, name+".svg"))
}

// Print writes the report as a table.
func (r *Report) Print(to io.Writer) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ROW\tMEDIAN (s)\tRATIO\tTO\tPARTS (s)")
	for _, row := range r.Rows {
		var parts []string
		for _, part := range r.Parts {
			if value, ok := row.Parts[part]; ok {
				parts = append(parts, fmt.Sprintf("%s %.2f", part, value))
			}
		}
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%s\t%s\n", row.Name, row.MedianS, row.Ratio, row.Baseline, strings.Join(parts, ", "))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("failed to print report: %w", err)
	}
	return nil
}

// legendRoom reserves space for the legend next to the longest bar.
const legendRoom = 1.25

// longest returns the length of the longest bar, in seconds.
func (r *Report) longest() float64 {
	longest := 0.0
	for _, row := range r.Rows {
		length := 0.0
		for _, part := range r.Parts {
			length += row.Parts[part]
		}
		longest = max(longest, length)
	}
	return longest
}

// plot draws a bar for each row, of its parts.
func (r *Report) plot(file string) error {
	p := plot.New()
	p.Title.Text = r.Title
	p.X.Label.Text = cmp.Or(r.Unit, "seconds")
	p.X.Min = 0
	p.X.Max = r.longest() * legendRoom
	p.Y.Tick.Label.Font.Size = vg.Points(9)
	p.Legend.Top = true
	p.Legend.TextStyle.Font.Size = vg.Points(9)
	colors := palette.Rainbow(len(r.Parts), 0, 1, 0.6, 0.9, 1).Colors()

	names := make([]string, 0, len(r.Rows))
	for _, row := range slices.Backward(r.Rows) {
		names = append(names, row.Name)
	}
	p.NominalY(names...)
	var below *plotter.BarChart
	for i, part := range r.Parts {
		values := make(plotter.Values, 0, len(r.Rows))
		for _, row := range slices.Backward(r.Rows) {
			values = append(values, row.Parts[part])
		}
		bars, err := plotter.NewBarChart(values, vg.Points(14))
		if err != nil {
			return fmt.Errorf("failed to plot report: %w", err)
		}
		bars.Horizontal = true
		bars.LineStyle.Width = 0
		bars.Color = colors[i]
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		p.Legend.Add(part, bars)
	}
	height := vg.Points(float64(120 + 28*len(r.Rows)))
	if err := p.Save(vg.Points(720), height, file); err != nil {
		return fmt.Errorf("failed to write plot: %w", err)
	}
	return nil
}
