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

// The program scale measures the cost of many Functions. It runs a real etcd, API server,
// controller and webhook, and replaces Tekton and Serving by a stand-in that completes
// everything at once. It needs Linux, no cluster, and about a quarter of an hour.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kiln-dev/kiln/test/controlplane"
)

func main() {
	short := flag.Bool("short", false, "a few Functions, once; write nothing, and fail where there are more requests, or there is more memory, than there may be")
	sizes := flag.String("functions", "100,1000,10000", "how many Functions are created, one measurement after the other")
	large := flag.Int("large", 1000, "how many Functions of large sources are created")
	rounds := flag.Int("rounds", 3, "how often Kiln and the bare client are compared")
	folder := flag.String("out", "build/bench", "where scale.json is written")
	docs := flag.String("docs", "docs", "where performance.md and its plot are written")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conclude := func(found *results) error { return found.save(*folder, *docs) }
	if *short {
		*sizes, *rounds, *large = "20", 1, 60
		conclude = func(found *results) error {
			err := check(found.report())
			if err == nil {
				fmt.Println("Kiln asks for no more than it must, and keeps no more.")
			}
			return err
		}
	}
	if err := run(ctx, &bench{rounds: max(*rounds, 1), large: max(*large, 1), begin: time.Now()}, *sizes, conclude); err != nil {
		fmt.Fprintln(os.Stderr, "The benchmark has failed:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, b *bench, sizes string, conclude func(*results) error) error {
	for size := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(size))
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number of Functions", size)
		}
		b.sizes = append(b.sizes, n)
	}
	slices.Sort(b.sizes)
	folder, err := os.MkdirTemp("", "kiln-scale-binaries-")
	if err != nil {
		return fmt.Errorf("failed to make folder: %w", err)
	}
	defer os.RemoveAll(folder)
	if b.Binaries, err = controlplane.Build(ctx, folder); err != nil {
		return err
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	return conclude(&b.found)
}
