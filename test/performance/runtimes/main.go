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

// The program runtimes measures the cost of Kiln's wrappers. It serves the same function
// with Kiln's wrapper, a bare server of the language and common alternatives, in turns,
// each on its own core. It has no limits.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/kiln-dev/kiln/test/performance/report"
)

func main() {
	rounds := flag.Int("rounds", 20, "how often each server is measured")
	during := flag.Duration("during", 300*time.Millisecond, "how long a server is under load each time")
	folder := flag.String("out", "build/bench", "where runtimes.json and runtimes.svg are written")
	page := flag.String("page", "docs/runtimes.md", "the page whose table gets the figures, unless only some servers are measured; blank for none")
	only := flag.String("only", "", "the runtimes to measure, separated by commas; blank for all")
	servers := flag.String("servers", "", "the servers to measure beside the bare ones, separated by commas; blank for all")
	flag.Parse()
	if err := pinSelf(); err != nil {
		fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	groups, err := findGroups(ctx, *only, *servers)
	if err != nil {
		fatal(err)
	}
	result := &report.Report{Title: "What wrappers cost", Parts: []string{relative}, Unit: "multiple"}
	for _, g := range groups {
		samples, err := measure(ctx, g, max(*rounds, 1), *during)
		if err != nil {
			fatal(err)
		}
		describe(os.Stdout, g, samples)
		if *page != "" && *servers == "" {
			if err := fillIn(*page, g, samples); err != nil {
				fatal(err)
			}
		}
		result.Rows = append(result.Rows, conclude(g, samples)...)
	}
	if err := result.Save(*folder, "runtimes"); err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "The runtimes cannot be measured:", err)
	os.Exit(1)
}

// pinSelf restarts this program on the core of the client, because the Go runtime has
// already started threads that cannot be pinned.
func pinSelf() error {
	const pinned = "KILN_BENCH_PINNED"
	if os.Getenv(pinned) != "" {
		return nil
	}
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		return fmt.Errorf("failed to find taskset, which pins processes to cores: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("failed to find this program: %w", err)
	}
	args := append([]string{"taskset", "-c", loadCore, self}, os.Args[1:]...)
	return syscall.Exec(taskset, args, append(os.Environ(), pinned+"=1"))
}
