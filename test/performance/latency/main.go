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

// The program latency measures the time from a write of a Function to Ready on the
// cluster that KUBECONFIG names. It reports the parts of that time, and compares it to
// the platform without Kiln in the same run. It has no limits.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/performance/report"
)

func main() {
	rounds := flag.Int("rounds", 5, "how many rounds are counted; each starts Functions from cold several times")
	warmUp := flag.Int("warm-up", 1, "how many rounds are not counted: they pull images")
	folder := flag.String("out", "build/bench", "where latency.json and latency.svg are written")
	relayImage := flag.String("relay-image", "", "the image of test/images/relay")
	flag.Parse()
	*rounds = max(*rounds, 1)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measureAll(ctx, *rounds, *warmUp, *relayImage, *folder); err != nil {
		fmt.Fprintln(os.Stderr, "The latency cannot be measured:", err)
		os.Exit(1)
	}
}

// measureAll takes all times, in every round, and writes the report.
func measureAll(ctx context.Context, rounds, warmUp int, relayImage, folder string) error {
	clients, err := test.NewClients()
	if err != nil {
		return err
	}
	samples := map[string][]float64{}
	split := map[string][]map[string]float64{}
	for round := range warmUp + rounds {
		counted := round >= warmUp
		if counted {
			fmt.Printf("round %d of %d\n", round-warmUp+1, rounds)
		} else {
			fmt.Println("warming up")
		}
		if err := playRound(ctx, clients, relayImage, func(name string, took time.Duration, parts map[string]float64) {
			fmt.Printf("  %-26s %6.2f s\n", name, took.Seconds())
			if counted {
				samples[name] = append(samples[name], took.Seconds())
				split[name] = append(split[name], parts)
			}
		}); err != nil {
			return err
		}
	}
	result := conclude(samples, split)
	if err := result.Print(os.Stdout); err != nil {
		return err
	}
	return result.Save(folder, "latency")
}

// conclude compares each row to its baseline. Rows without a build are compared to the
// platform's time for a service, cold starts to a bare program, and all others to the
// whole floor.
func conclude(samples map[string][]float64, split map[string][]map[string]float64) *report.Report {
	result := &report.Report{Title: "From the write of a Function to Ready", Parts: parts}
	for _, name := range rows() {
		result.Rows = append(result.Rows, report.NewRow(name, samples[name], split[name]))
	}
	floor := *result.Row(rowFloor)
	for i := range result.Rows {
		row := &result.Rows[i]
		switch row.Name {
		case rowEnvEdit, rowReuse:
			row.Baseline = rowFloor + "." + service
			row.Ratio = row.MedianS / floor.Parts[service]
		case rowFloor, rowFirstBuild, rowFirstBuildNPM, rowSourceEdit, rowDepsEdit,
			rowJob + rowFloor, rowJob + rowFirstBuild, rowJob + rowFirstBuildNPM, rowJob + rowSourceEdit,
			rowPlain + rowFloor, rowPlain + rowFirstBuild, rowPlain + rowFirstBuildNPM, rowPlain + rowSourceEdit, rowPlain + rowEnvEdit:
			row.Baseline = rowFloor
			row.Ratio = row.MedianS / floor.MedianS
		default:
			row.Baseline = strings.TrimSuffix(row.Name, bare) + bare
			row.Ratio = row.MedianS / result.Row(row.Baseline).MedianS
		}
	}
	return result
}
