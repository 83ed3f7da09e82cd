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

// The program reliability runs Kiln under faults: a real etcd and API server, the real
// controller and webhook as processes, and between them a proxy that injects the faults
// of networks and busy API servers. On a cluster, it instead kills the components that
// build and serve Functions, or runs hostile tenants beside a good one.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/kiln-dev/kiln/test/controlplane"
)

func main() {
	long := flag.Bool("long", false, "with many Functions, at 1, 5 and 20 %, for minutes, and write what was found")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano())%1e6, "makes the same stories and faults again, as far as what runs at once allows")
	functions := flag.Int("functions", 0, "how many Functions there are (default 10, or 50 with -long; on a cluster 3, or 20 with -long)")
	out := flag.String("out", "build/reliability", "where what was found is kept, with -long")
	docs := flag.String("docs", "docs", "where reliability.md is written, with -long")
	relay := flag.String("relay-image", "", "kill what Functions are built and served by, on the cluster that KUBECONFIG names, instead; the image of test/images/relay")
	beside := flag.Bool("neighbours", false, "let hostile tenants act beside a good one, on that cluster, instead, with -relay-image")
	fill := flag.Int("fill", 0, "how many MiB each build writes that fills the disk, up to 2048, with -neighbours (default 256, or 1024 with -long)")
	only := flag.String("only", "", "kill only what this regular expression matches, with -relay-image, or let only these tenants act; what was found of the others is kept")
	local := flag.Bool("local", false, "the cluster is the local one, where all of that can be killed")
	built := flag.Int("built", 0, "how many of the Functions get another source about each kill, with -relay-image; the others get another variable (default 1, or 8 with -long)")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *beside:
		err = runBeside(ctx, plan{relayImage: *relay, fillMiB: min(*fill, mostFillMiB)}, *only, *long, *out, *docs)
	case *relay != "":
		err = runOnCluster(ctx, *relay, *only, *long, *local, *functions, *built, *out, *docs)
	default:
		if err = run(ctx, *long, *seed, *functions, *out, *docs); err != nil {
			err = fmt.Errorf("with -seed=%d: %w", *seed, err)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "It was too much for Kiln:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, long bool, seed uint64, functions int, out, docs string) error {
	f := forecast{functions: 10, seed: seed, days: []day{{}, {rate: 0.05}, {rate: 0.05, jobs: true, deployments: true}}, silence: 5 * time.Second, timeout: 3 * time.Minute}
	if long {
		f = forecast{
			functions: 50, seed: seed, days: []day{{}, {rate: 0.01}, {rate: 0.05}, {rate: 0.2}, {rate: 0.05, jobs: true}, {rate: 0.05, deployments: true}, {rate: 0.05, jobs: true, deployments: true}, {rate: 0.2, jobs: true, deployments: true},
				{}, {}, {rate: 0.05, killed: true}, {rate: 0.05, killed: true, jobs: true, deployments: true}},
			// This is longer than the timeout of Kiln's requests.
			silence: 40 * time.Second, timeout: 10 * time.Minute,
		}
	}
	if functions > 0 {
		f.functions = functions
	}
	folder, err := os.MkdirTemp("", "kiln-binaries-")
	if err != nil {
		return fmt.Errorf("failed to create folder: %w", err)
	}
	defer os.RemoveAll(folder)
	binaries, err := controlplane.Build(ctx, folder)
	if err != nil {
		return err
	}
	fmt.Printf("Bad weather for %d Functions, with -seed=%d\n", f.functions, seed)
	found, err := runWeather(ctx, binaries, f)
	if err != nil {
		return err
	}
	fmt.Println("Kiln has come through.")
	if !long {
		return nil
	}
	return write(out, docs, "weather", found.report())
}

// runOnCluster kills the victims that match the expression. Only a long run has a baseline
// and updates the page.
func runOnCluster(ctx context.Context, relayImage, only string, long, local bool, functions, built int, out, docs string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("%q is not a regular expression: %w", only, err)
	}
	all := slices.DeleteFunc(slices.Clone(victims), func(v victim) bool {
		return !wanted.MatchString(v.name) || v.name == nothing && !long
	})
	usual := map[bool][2]int{false: {3, 1}, true: {20, 8}}[long]
	found, err := runKills(ctx, relayImage, all, cmp.Or(functions, usual[0]), cmp.Or(built, usual[1]))
	if found == nil || len(found.Kills) == 0 {
		return err
	}
	err = errors.Join(err, found.verdict(local))
	if long && !found.plain {
		err = errors.Join(err, write(out, docs, "kills", found))
	}
	return err
}

// mostFillMiB limits the bytes of a build that fills the disk.
const mostFillMiB = 2048

// runBeside runs the neighbours that match the expression. Only a long run runs all at
// once and updates the page.
func runBeside(ctx context.Context, p plan, only string, long bool, out, docs string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("%q is not a regular expression: %w", only, err)
	}
	p.alone, p.edits, p.limits, p.timeout = 1, 2, shortLimits, 10*time.Minute
	all := hostiles
	if long {
		p.alone, p.edits, p.limits, p.timeout = 5, 10, longLimits, time.Hour
		all = append(slices.Clone(hostiles), neighbour{everybody, allAtOnce})
	}
	p.fillMiB = cmp.Or(p.fillMiB, map[bool]int{false: 256, true: 1024}[long])
	all = slices.DeleteFunc(slices.Clone(all), func(n neighbour) bool { return !wanted.MatchString(n.name) })
	found, err := runNeighbours(ctx, p, all)
	if found == nil {
		return err
	}
	complete := err == nil
	err = errors.Join(err, found.verdict(p.limits))
	if long && complete {
		err = errors.Join(err, write(out, docs, "neighbours", found))
	}
	return err
}
