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
	"os"
	"slices"
	"strings"

	"github.com/kiln-dev/kiln/test/performance/report"
)

// fillIn replaces the rows of the group's runtime in the page's table.
func fillIn(page string, g group, all map[string]samples) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("failed to read page: %w", err)
	}
	filled, err := replaceRows(string(text), g.title, tableRows(g, all))
	if err != nil {
		return fmt.Errorf("failed to write %s: %w", page, err)
	}
	if err := os.WriteFile(page, []byte(filled), 0o644); err != nil {
		return fmt.Errorf("failed to write page: %w", err)
	}
	return nil
}

// replaceRows replaces the rows of that title.
func replaceRows(text, title string, rows []string) (string, error) {
	lines := strings.Split(text, "\n")
	old := func(line string) bool { return strings.HasPrefix(line, rowStart(title)) }
	at := slices.IndexFunc(lines, old)
	if at < 0 {
		return "", fmt.Errorf("failed to find the place: no line begins with %q", rowStart(title))
	}
	return strings.Join(slices.Insert(slices.DeleteFunc(lines, old), at, rows...), "\n"), nil
}

func rowStart(title string) string { return "| " + title + ", " }

// tableRows returns a row for each server. The bare server's row has the absolute values.
func tableRows(g group, all map[string]samples) []string {
	rows := make([]string, 0, len(g.servers))
	for _, s := range g.servers {
		value := func(what string) float64 { return report.Median(all[s.name][what]) }
		title := s.title
		if s.name == bare {
			title += fmt.Sprintf(" (%.0f µs; %.0f µs; %.0f/s; %.0f/s; %.0f ms)", value(cpu)*1e6, value(event)*1e6, 1/value(throughput), 1/value(single), value(start)*1e3)
		}
		cells := []string{rowStart(g.title) + title}
		for _, what := range []string{cpu, event, throughput, single, start} {
			cells = append(cells, multiples(s, what, all))
		}
		cells = append(cells, fmt.Sprintf("%.1f; %.2f", value(p99)*1e3, value(singleP99)*1e3))
		cells = append(cells, fmt.Sprintf("%.0f", value(memory)), fmt.Sprintf("%.2f |", value(size)))
		rows = append(rows, strings.Join(cells, " | "))
	}
	return rows
}
