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

// Package command runs programs so that they end with this one.
package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// Command is a program to run.
type Command struct {
	// Args are the program and its arguments.
	Args []string
	// Dir is the directory to run it in, by default the current one.
	Dir string
	// Env is added to the environment.
	Env []string
	// Stdin is its input, by default none.
	Stdin io.Reader
	// Unbroken commands run to their end even if the user presses Ctrl-C or this process
	// is killed.
	Unbroken bool
}

// New returns a Command.
func New(args ...string) *Command { return &Command{Args: args} }

// In sets the directory.
func (c *Command) In(dir string) *Command { c.Dir = dir; return c }

// With adds to the environment.
func (c *Command) With(env ...string) *Command { c.Env = append(c.Env, env...); return c }

// Reading sets the input.
func (c *Command) Reading(r io.Reader) *Command { c.Stdin = r; return c }

// Run runs the program; its output goes to log.
func (c *Command) Run(ctx context.Context, log io.Writer) error {
	return c.run(ctx, log, log)
}

// Output runs the program and returns what it prints, without surrounding
// space. Its error contains what it prints to stderr.
func (c *Command) Output(ctx context.Context) (string, error) {
	var out, errOut bytes.Buffer
	if err := c.run(ctx, &out, &errOut); err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(errOut.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

func (c *Command) run(ctx context.Context, stdout, stderr io.Writer) error {
	// The kernel sends the signal below when the thread that started the child
	// ends, not the process: keep the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if err := ctx.Err(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	endWithParent(cmd)
	if c.Unbroken {
		cmd = exec.Command(c.Args[0], c.Args[1:]...) //nolint:noctx // It must outlive the context.
		// The terminal's signals go to the group of this process.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdin = c.Stdin
	cmd.Stdout = stdout
	cmd.Stderr = stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("failed to run %s: %w", strings.Join(c.Args[:min(len(c.Args), 3)], " "), err)
	}
	return nil
}
