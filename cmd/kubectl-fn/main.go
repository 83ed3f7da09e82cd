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

// Command kubectl-fn is the kubectl plugin kubectl fn.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kiln-dev/kiln/pkg/cli"
)

const interrupted = 130

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	// With nohup, a command outlives its terminal.
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, func() {
		// A terminal that closes can send it twice.
		signal.Ignore(syscall.SIGHUP)
		// Another second signal ends a command that does not end by itself.
		stop()
	})
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	err := cli.Explain(cli.New(streams).ExecuteContext(ctx))
	ended := ctx.Err() != nil
	stop()
	switch {
	case ended:
		os.Exit(interrupted)
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
