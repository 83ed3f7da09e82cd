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

// Package engine provides the cluster's Docker engine: the user's if it runs, or else an
// own one in a separate network namespace.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
	"github.com/kiln-dev/kiln/hack/cluster/internal/packages"
)

// patience is the timeout of a running engine's answer.
const patience = 5 * time.Second

// Engine is a Docker engine that answers.
type Engine struct {
	// Env is the environment of docker and kind.
	Env []string
	// Own reports whether it is our own engine.
	Own bool
}

// Docker returns a docker command for the engine.
func (e *Engine) Docker(args ...string) *command.Command {
	return command.New(append([]string{"docker"}, args...)...).With(e.Env...)
}

func (e *Engine) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := e.Docker("version", "--format", "{{.Server.Version}}").Output(ctx)
	return err == nil
}

// Whole reports whether the engine answers and is complete on the host.
func (e *Engine) Whole(ctx context.Context) bool {
	n := network{log: io.Discard}
	return e.answers(ctx) && (!e.Own || n.ready(ctx) && n.open(ctx))
}

// users returns the engine that the user's docker talks to.
func users() *Engine {
	e := &Engine{}
	if os.Getenv("DOCKER_HOST") == socketURL {
		// The user's DOCKER_HOST may name our own engine.
		e.Env = []string{"DOCKER_HOST="}
	}
	return e
}

// Running returns the engine that the cluster uses or would use, or nil if none answers.
// It never starts one.
func Running(ctx context.Context) *Engine {
	if own := ownEngine(); own.answers(ctx) {
		return own
	}
	if u := users(); !present() && u.answers(ctx) {
		return u
	}
	return nil
}

// Check returns, in one line, why no engine can run on this machine.
func Check(ctx context.Context) error {
	if Running(ctx) != nil {
		return nil
	}
	return possible(runtime.GOOS, os.Geteuid())
}

// Start returns an engine that answers. It starts or repairs our own engine if needed.
func Start(ctx context.Context, store *cache.Store, log io.Writer) (*Engine, error) {
	if e := Running(ctx); e != nil && !e.Own {
		return e, nil
	}
	if err := packages.Ensure(ctx, log, tools()...); err != nil {
		return nil, err
	}
	// Some packages start the engine that they install. It is then the user's.
	if e := Running(ctx); e != nil && !e.Own {
		return e, nil
	}
	if err := newDaemon(store, log).start(ctx); err != nil {
		return nil, fmt.Errorf("failed to start Docker engine: %w", err)
	}
	return ownEngine(), nil
}

// Stop removes our own engine except its images. It leaves the user's engine alone.
func Stop(ctx context.Context, store *cache.Store, log io.Writer) error {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return nil // There cannot be one.
	}
	if err := newDaemon(store, log).stop(ctx); err != nil {
		return fmt.Errorf("failed to remove Docker engine: %w", err)
	}
	return nil
}

// possible returns, in one line, why our own engine cannot run here.
func possible(goos string, uid int) error {
	switch {
	case goos != "linux":
		return errors.New("no Docker engine answers: please start one (on this system the cluster cannot run without it)")
	case uid != 0:
		return errors.New("no Docker engine answers: please start one, or run this as root, who needs none")
	}
	return nil
}

// tools returns the programs that our own engine needs.
func tools() []string {
	needed := []string{"docker", "dockerd", "ip", "iptables", "nft"}
	if lacksSysResource() {
		needed = append(needed, "jq")
	}
	return needed
}

// Arch returns the architecture that the engine's containers have, as Go names it.
func (e *Engine) Arch(ctx context.Context) string {
	out, err := e.Docker("version", "--format", "{{.Server.Arch}}").Output(ctx)
	if err != nil || out == "" {
		return runtime.GOARCH
	}
	return out
}
