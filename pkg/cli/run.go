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

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/cli/dev"
	"github.com/kiln-dev/kiln/pkg/cli/saves"
	"github.com/kiln-dev/kiln/pkg/cli/tunnel"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	// quiet is the time without changes before the function restarts.
	quiet       = 200 * time.Millisecond
	stopTimeout = 5 * time.Second
)

func (c *cli) runCommand() *cobra.Command {
	var dir string
	var port int
	command := &cobra.Command{
		Use:   "run",
		Short: "Run the function of a folder on this machine, without a cluster",
		Long: "Run the function of a folder on this machine, without a cluster, in the wrapper that serves it in clusters.\n" +
			"The function restarts when a file changes. Install the dependencies first, as builds do: for Node with\n" +
			"npm ci if there is a lock file, else with npm install; for Python with pip install -r requirements.txt, and then\n" +
			"with pip install uvicorn uvloop httptools.",
		Args: cobra.NoArgs,
	}
	command.Flags().StringVar(&dir, "dir", ".", "The folder.")
	command.Flags().IntVar(&port, "port", runtimes.Port, "The port to listen on.")
	must(command.MarkFlagDirname("dir"))
	command.RunE = func(command *cobra.Command, _ []string) error {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("failed to resolve folder: %w", err)
		}
		language, err := languageIn(dir)
		switch {
		case err != nil && hasDockerfile(dir):
			return try(fmt.Errorf("failed to run %s: kubectl fn does not build Dockerfiles", filepath.Join(dir, runtimes.DockerfileName)),
				"docker build -t fn %[1]s && docker run --rm -e PORT=%[2]d -p %[2]d:%[2]d fn, or kubectl fn deploy NAME --runtime=dockerfile --dir=%[1]s", dir, port)
		case err != nil:
			return try(err, "kubectl fn init DIR --runtime=nodejs24")
		}
		wrapper, err := os.MkdirTemp("", "kubectl-fn-")
		if err != nil {
			return fmt.Errorf("failed to create folder: %w", err)
		}
		defer os.RemoveAll(wrapper)
		layout, err := writeWrapper(language, dir, wrapper)
		if err != nil {
			return err
		}
		if _, err := exec.LookPath(layout.Entrypoint[0]); err != nil {
			return try(fmt.Errorf("failed to find %s: %w", layout.Entrypoint[0], err), "install it, or deploy: kubectl fn deploy NAME")
		}
		fmt.Fprintf(c.ErrOut, "Function %s listens at http://127.0.0.1:%d. It restarts when a file changes. Press ctrl-C to stop it.\n", filepath.Base(dir), port)
		return c.runUntilInterrupted(command.Context(), dir, func(ctx context.Context) *exec.Cmd {
			return c.server(ctx, layout, dir, port)
		})
	}
	return command
}

func (c *cli) devCommand() *cobra.Command {
	var dir string
	var port int
	command := &cobra.Command{
		Use:   "dev NAME",
		Short: "Run the code of a folder in the cluster, in a private pod of a Function",
		Long: "Run the code of a folder in the cluster, in a private pod with the image, the environment and the Secrets of\n" +
			"a Function, and replace it when a file changes. Only this machine can call it, at the printed URL.\n\n" +
			"The log of the code is printed while it is written. If the dependencies change, an image with them is built.\n" +
			"Ctrl-C deletes the pod. The Function does not change.",
		Example:           "  kubectl fn dev greeter\n  kubectl fn dev greeter --dir=src --port=0",
		Args:              named,
		ValidArgsFunction: c.completeNames(1),
	}
	command.Flags().StringVar(&dir, "dir", ".", "The folder.")
	command.Flags().IntVar(&port, "port", runtimes.Port, "The port on this machine. 0 means a free one.")
	must(command.MarkFlagDirname("dir"))
	command.RunE = func(command *cobra.Command, args []string) error {
		ctx := command.Context()
		clients, fn, err := c.function(ctx, args[0])
		if err != nil {
			return err
		}
		session, err := c.newSession(ctx, clients, fn, dir)
		if err != nil {
			return err
		}
		session.Port = port
		return session.Run(ctx)
	}
	return command
}

// newSession returns a session of kubectl fn dev, if the Function can have one.
func (c *cli) newSession(ctx context.Context, clients *Clients, fn *v1alpha1.Function, dir string) (*dev.Session, error) {
	known, err := clients.runtimes(ctx)
	if err != nil {
		return nil, err
	}
	language, ok := known[fn.Spec.Runtime].Find()
	switch {
	case ok && language.IsOwnDockerfile():
		return nil, try(fmt.Errorf("function %s has its own Dockerfile, so kubectl fn dev cannot replace the code in its image", fn.Name), "kubectl fn deploy %s --dir=%s", fn.Name, dir)
	case !ok || !dev.Supports(language):
		return nil, try(fmt.Errorf("kubectl fn dev does not support runtime %s of Function %s", fn.Spec.Runtime, fn.Name), "kubectl fn deploy %s --dir=%s", fn.Name, dir)
	case fn.Status.Image == "":
		return nil, try(fmt.Errorf("function %s has no image yet, and must be built once", fn.Name), "kubectl fn status %s", fn.Name)
	}
	if err := checkFolder(dir, fn.Spec.Runtime); err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("failed to resolve folder: %w", err)
	}
	session := &dev.Session{
		Kube: clients.Kube, Kiln: clients.Kiln, Function: fn, Language: language, Dir: dir, Out: c.Out, ErrOut: c.ErrOut,
		Forward: func(ctx context.Context, namespace, pod string, ports ...int) (*tunnel.Tunnel, error) {
			return tunnel.Open(ctx, clients.Kube, clients.Config, namespace, pod, ports...)
		},
		Dependencies: func() (string, error) { return readFolderDeps(language, dir) },
		Built: func(ctx context.Context, fn *v1alpha1.Function) (*v1alpha1.Function, error) {
			if err := c.followBuild(ctx, clients, fn); err != nil {
				return nil, err
			}
			return clients.function(ctx, fn.Name)
		},
	}
	// Without the ConfigMap, the service account may still have credentials.
	if registry, err := clients.registry(ctx); err == nil && registry.Credentials != "" {
		session.PullSecrets = []string{registry.Credentials}
	}
	return session, nil
}

// writeWrapper writes the wrapper of a function into a folder. It returns a layout
// that has the folders of this machine instead of those of the image.
func writeWrapper(language runtimes.Runtime, dir, wrapper string) (layout runtimes.Layout, err error) {
	files, err := language.BuildContext(runtimes.Function{})
	if err != nil {
		return layout, fmt.Errorf("failed to create wrapper: %w", err)
	}
	if err := json.Unmarshal([]byte(files[runtimes.LayoutName]), &layout); err != nil {
		return layout, fmt.Errorf("failed to read layout: %w", err)
	}
	local := func(text string) string {
		for image, here := range map[string]string{
			runtimes.FunctionFolder: dir, runtimes.WrapperFolder: wrapper, runtimes.ModulesFolder: filepath.Join(wrapper, "node_modules"),
		} {
			if rest, ok := strings.CutPrefix(text, image+"/"); ok {
				return filepath.Join(here, rest)
			}
		}
		return text
	}
	for name, path := range layout.Files {
		if filepath.Dir(path) == runtimes.FunctionFolder {
			continue
		}
		if err := writeBelow(wrapper, local(path), files[name]); err != nil {
			return layout, fmt.Errorf("failed to write wrapper: %w", err)
		}
	}
	for i, word := range layout.Entrypoint {
		layout.Entrypoint[i] = local(word)
	}
	// Only the read-only file system of the image needs another HOME.
	delete(layout.Env, "HOME")
	for name, value := range layout.Env {
		layout.Env[name] = local(value)
	}
	return layout, nil
}

// writeBelow writes a file below a folder that exists.
func writeBelow(folder, path, text string) error {
	if _, err := os.Stat(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

func (c *cli) server(ctx context.Context, layout runtimes.Layout, dir string, port int) *exec.Cmd {
	server := exec.CommandContext(ctx, layout.Entrypoint[0], layout.Entrypoint[1:]...)
	server.Dir, server.Stdout, server.Stderr = dir, c.Out, c.ErrOut
	server.Env = os.Environ()
	for name, value := range layout.Env {
		server.Env = append(server.Env, name+"="+value)
	}
	server.Env = append(server.Env, "PORT="+strconv.Itoa(port), runtimes.EnvFunctionName+"="+filepath.Base(dir), runtimes.EnvFunctionNamespace+"=local")
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	server.WaitDelay = stopTimeout
	// Ctrl-C must reach only kubectl fn, which stops the server gracefully.
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return server
}

// runUntilInterrupted runs a command and restarts it when a file of the folder
// changes.
func (c *cli) runUntilInterrupted(ctx context.Context, dir string, command func(context.Context) *exec.Cmd) error {
	watcher, err := saves.Watch(dir, quiet)
	if err != nil {
		return err
	}
	defer watcher.Close()
	for ctx.Err() == nil {
		running, stop := context.WithCancel(ctx)
		server := command(running)
		if err := server.Start(); err != nil {
			stop()
			return try(fmt.Errorf("failed to start function: %w", err), "kubectl fn run --help")
		}
		ended := make(chan struct{})
		go func() {
			_ = server.Wait()
			close(ended)
		}()
		if watcher.Await(ctx, ended) {
			fmt.Fprintln(c.ErrOut, "The function has exited. It restarts when a file changes.")
			watcher.Await(ctx, nil)
			stop()
			continue
		}
		stop()
		<-ended
		if ctx.Err() == nil {
			fmt.Fprintln(c.ErrOut, "A file has changed. The function restarts.")
		}
	}
	return nil
}
