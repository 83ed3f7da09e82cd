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

package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{5, 1, 3}, 3},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := Median(tc.values); got != tc.want {
			t.Errorf("Median(%v) = %v, want %v", tc.values, got, tc.want)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("Median() = %v, want NaN", got)
	}
}

func newReport() *Report {
	slow := NewRow("slow", []float64{4, 6, 5}, []map[string]float64{{"wait": 1, "work": 3}, {"wait": 2, "work": 4}, {"wait": 1}})
	slow.Ratio, slow.Baseline = 2.5, "fast"
	return &Report{Title: "A race", Parts: []string{"wait", "work"}, Rows: []Row{slow}}
}

func TestSave(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	if err := newReport().Save(folder, "race"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(folder, "race.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"rows": []any{map[string]any{
		"name": "slow", "median_s": 5.0, "ratio": 2.5, "baseline": "fast",
		"parts":     map[string]any{"wait": 1.0, "work": 3.5},
		"samples_s": []any{4.0, 6.0, 5.0},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("unexpected JSON (-want, +got):", diff)
	}
	svg, err := os.ReadFile(filepath.Join(folder, "race.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(svg, new(struct{})); err != nil {
		t.Errorf("the plot is not XML: %v", err)
	}
	for _, text := range []string{"A race", "slow", "wait", "work"} {
		if !bytes.Contains(svg, []byte(text)) {
			t.Errorf("the plot lacks %q", text)
		}
	}
}

func TestPrint(t *testing.T) {
	out := &strings.Builder{}
	if err := newReport().Print(out); err != nil {
		t.Fatal(err)
	}
	want := "ROW   MEDIAN (s)  RATIO  TO    PARTS (s)\nslow  5.00        2.50   fast  wait 1.00, work 3.50\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error("unexpected table (-want, +got):", diff)
	}
}
