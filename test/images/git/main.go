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

// Command git is a Git server for the end-to-end tests. It serves HTTP with Git's own
// server and SSH with OpenSSH. Its image has Debian's packages of both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	address := flag.String("address", ":8080", "the address for HTTP")
	folder := flag.String("folder", "/srv/git", "the folder to create the repository in")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, *address, *folder); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// serve serves HTTP and SSH until the context is done or either fails.
func serve(ctx context.Context, address, folder string) error {
	repository, err := newRepository(ctx, folder)
	if err != nil {
		return err
	}
	if err := prepareSSH(ctx); err != nil {
		return err
	}
	handler, err := newHandler(ctx, repository)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: time.Minute}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return serveSSH(ctx) })
	g.Go(server.ListenAndServe)
	g.Go(func() error {
		<-ctx.Done()
		return errors.Join(ctx.Err(), server.Close())
	})
	return g.Wait()
}

// run runs a program and returns its output, trimmed.
func run(command *exec.Cmd) (string, error) {
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("failed to run %s: %w", strings.Join(command.Args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
