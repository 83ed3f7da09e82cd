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

// Command cluster makes a kind cluster for Kiln, on any machine: with the user's Docker
// engine or, on Linux, its own; with kind's node image or one built from source. It
// caches everything that is slow to make.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/engine"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/progress"
)

const usage = `usage: go -C hack run ./cluster up|down|status|control-plane|git-image|python

  up             make the cluster, or repair it; does nothing to one that is healthy
  down           remove everything that up has made, but for the cache
  status         tell how the cluster is
  control-plane  build etcd and Kubernetes, to be run without a cluster, and print
                 their paths, and that of the definitions of Tekton and Serving
  git-image      push an image with Debian's Git and SSH server below KO_DOCKER_REPO,
                 unless it is there, and print its reference
  python         unpack the Python of the base image, with Flask and Gunicorn beside
                 it, and print the path of a program that runs it here

NODE_IMAGE, if set, is the node image to use. PLATFORM is what the cluster has besides
Kubernetes and a registry: knative, the default, is Tekton, Knative Serving and Traefik;
plain is metrics-server. up replaces a cluster that has the other platform.
`

func main() {
	commands := map[string]func(context.Context, *env.Host) error{
		"up": up, "down": down, "status": status,
		"control-plane": printing(controlPlane), "git-image": printing(gitImage), "python": printing(python),
	}
	if len(os.Args) != 2 || commands[os.Args[1]] == nil {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second Ctrl-C ends the program at once.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, commands[os.Args[1]]); err != nil {
		fmt.Fprintf(os.Stderr, "cluster %s: %s\n", os.Args[1], summary(ctx, err))
		os.Exit(1)
	}
}

// printing returns a command that makes something for this machine and prints the result.
// Progress goes to stderr.
func printing(build func(context.Context, *env.Host) (string, error)) func(context.Context, *env.Host) error {
	return func(ctx context.Context, host *env.Host) error {
		host.Reporter, host.Arch = progress.New(os.Stderr, host.Store.Path("logs")), runtime.GOARCH
		built, err := build(ctx, host)
		if err == nil && built != "" {
			fmt.Println(built)
		}
		return err
	}
}

// summary returns the last line that the user sees. The error of a failed part is right
// above it.
func summary(ctx context.Context, err error) string {
	var part *progress.PartError
	switch {
	case ctx.Err() != nil:
		return "interrupted; the next run takes it up from here"
	case errors.As(err, &part):
		return "failed, with the part " + part.Part
	}
	return err.Error()
}

func run(ctx context.Context, command func(context.Context, *env.Host) error) error {
	if err := setEnvironment(); err != nil {
		return err
	}
	root, err := repository()
	if err != nil {
		return err
	}
	store, err := cache.Open()
	if err != nil {
		return err
	}
	platform, err := platformOf(os.Getenv("PLATFORM"))
	if err != nil {
		return err
	}
	reporter := progress.New(os.Stdout, store.Path("logs"))
	return command(ctx, &env.Host{Root: root, Store: store, Reporter: reporter, Platform: platform})
}

// platformOf returns the platform that the value of PLATFORM names.
func platformOf(value string) (env.Platform, error) {
	switch platform := env.Platform(value); platform {
	case "":
		return env.Knative, nil
	case env.Knative, env.Plain:
		return platform, nil
	}
	return "", fmt.Errorf("PLATFORM is %q, and must be %s or %s", value, env.Knative, env.Plain)
}

// setEnvironment extends the PATH, and exempts this machine from the proxy.
func setEnvironment() error {
	// A user who became root may lack root's directories.
	path := os.Getenv("PATH") + ":/usr/local/sbin:/usr/sbin:/sbin"
	if err := os.Setenv("PATH", path); err != nil {
		return fmt.Errorf("failed to set PATH: %w", err)
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		if err := os.Setenv(name, withoutProxy(os.Getenv(name))); err != nil {
			return fmt.Errorf("failed to set %s: %w", name, err)
		}
	}
	return nil
}

// withoutProxy adds the cluster's addresses to the value of NO_PROXY.
func withoutProxy(list string) string {
	for _, address := range []string{"localhost", "127.0.0.1", engine.Address, "10.96.0.0/16", "10.244.0.0/16", ".svc", ".cluster.local", ".local"} {
		if !slices.Contains(strings.Split(list, ","), address) {
			list = strings.TrimPrefix(list+","+address, ",")
		}
	}
	return list
}

// repository returns the root of the current repository.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("failed to find repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "third_party", "kubernetes", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("failed to find repository: please run this in a clone of it")
		}
		dir = filepath.Dir(dir)
	}
}
