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
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// TestRun runs the starter of init and edits it.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Fatal("the tests of kubectl fn run need node on PATH: ", err)
	}
	dir := files(t, nil)
	w := newWorld(t)
	if _, err := w.run("init", ".", "--runtime=nodejs24"); err != nil {
		t.Fatal(err)
	}
	free := httptest.NewServer(nil)
	address := free.Listener.Addr().String()
	free.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := w.runIn(ctx, "run", "--port", address[strings.LastIndex(address, ":")+1:])
		ended <- err
	}()
	untilAnswer(t, "http://"+address, "hello world")
	source := "module.exports = { main: () => 'edited' };\n"
	if err := os.WriteFile(filepath.Join(dir, "handler.js"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	untilAnswer(t, "http://"+address, "edited")
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("kubectl fn run returns %v", err)
	}
	if _, err := http.Get("http://" + address); err == nil {
		t.Error("the function still runs after kubectl fn run has ended")
	}
}

// untilAnswer calls the URL until it returns the answer, or the test ends.
func untilAnswer(t *testing.T, url, want string) {
	t.Helper()
	for t.Context().Err() == nil {
		answer, err := http.Get(url)
		if err != nil {
			continue
		}
		got := make([]byte, len(want)+1)
		n, _ := answer.Body.Read(got)
		answer.Body.Close()
		if string(got[:n]) == want {
			return
		}
	}
	t.Fatal("the test ended before the function answered ", want)
}

func TestWriteWrapper(t *testing.T) {
	for _, language := range languages() {
		t.Run(language.Language, func(t *testing.T) {
			dir, wrapper := t.TempDir(), t.TempDir()
			layout, err := writeWrapper(language, dir, wrapper)
			if err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(wrapper)
			if err != nil || len(entries) == 0 {
				t.Fatalf("the wrapper has %d files, %v", len(entries), err)
			}
			started := false
			for _, word := range layout.Entrypoint {
				if strings.HasPrefix(word, runtimes.FunctionFolder+"/") || strings.HasPrefix(word, runtimes.WrapperFolder+"/") {
					t.Errorf("the entrypoint names %s, a file of the image", word)
				}
				started = started || filepath.Dir(word) == wrapper
			}
			if _, ok := layout.Env["HOME"]; ok {
				t.Error("the function would get another HOME than its author")
			}
			for name, value := range layout.Env {
				if strings.HasPrefix(value, runtimes.FunctionFolder+"/") || strings.HasPrefix(value, runtimes.WrapperFolder+"/") {
					t.Errorf("%s is %s, a file of the image", name, value)
				}
				started = started || strings.HasPrefix(value, wrapper)
			}
			if !started {
				t.Errorf("%q with %v starts no file of %s", layout.Entrypoint, layout.Env, wrapper)
			}
		})
	}
	_, err := writeWrapper(languages()[0], t.TempDir(), filepath.Join(t.TempDir(), "absent"))
	if err == nil || !strings.HasPrefix(err.Error(), "failed to write wrapper: ") {
		t.Errorf("writeWrapper() into no folder = %v", err)
	}
}

func TestServer(t *testing.T) {
	w := newWorld(t)
	layout := runtimes.Layout{Entrypoint: []string{"node", "server.cjs"}, Env: map[string]string{"NODE_ENV": "production"}}
	server := w.server(t.Context(), layout, "/home/me/greeter", 8081)
	if diff := cmp.Diff([]string{"node", "server.cjs"}, server.Args); diff != "" || server.Dir != "/home/me/greeter" {
		t.Errorf("it starts in %s (-want +got):\n%s", server.Dir, diff)
	}
	for _, want := range []string{"NODE_ENV=production", "PORT=8081", runtimes.EnvFunctionName + "=greeter", runtimes.EnvFunctionNamespace + "=local", "PATH=" + os.Getenv("PATH")} {
		if !slices.Contains(server.Env, want) {
			t.Errorf("the environment has no %s", want)
		}
	}
	if !server.SysProcAttr.Setpgid {
		t.Error("ctrl-C would reach the function before kubectl fn")
	}
}

func TestRunErrors(t *testing.T) {
	files(t, nil)
	w := newWorld(t)
	w.wantError("must have exactly one of handler.js, handler.ts, handler.py, but has 0", "kubectl fn init DIR --runtime=nodejs24", "run")
	w.wantError(`unknown command "fn" for "kubectl fn run"`, "the command with --help", "run", "fn")
	files(t, map[string]string{"handler.js": ""})
	t.Setenv("PATH", t.TempDir())
	w.wantError("failed to find node: ", "install it, or deploy: kubectl fn deploy NAME", "run")
}

// A function that exits is restarted when its file changes.
func TestRunRestartsAfterAnExit(t *testing.T) {
	dir := files(t, map[string]string{"handler.js": ""})
	w := newWorld(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	words := &safeBuffer{texts: []string{"The function has exited. It restarts when a file changes.\n"}, full: sync.OnceFunc(func() {
		if err := os.WriteFile(filepath.Join(dir, "handler.js"), []byte("edited"), 0o600); err != nil {
			t.Error(err)
		}
	})}
	w.ErrOut = words
	starts := 0
	err := w.runUntilInterrupted(ctx, dir, func(ctx context.Context) *exec.Cmd {
		if starts++; starts == 2 {
			interrupt()
		}
		return exec.CommandContext(ctx, "true")
	})
	if err != nil && !errors.Is(err, context.Canceled) || starts < 2 {
		t.Errorf("it started the function %d times and returns %v", starts, err)
	}
}

func TestRunCannotStart(t *testing.T) {
	w := newWorld(t)
	err := w.runUntilInterrupted(t.Context(), t.TempDir(), func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, filepath.Join(t.TempDir(), "absent"))
	})
	if err == nil || !strings.HasPrefix(err.Error(), "failed to start function: ") || !strings.HasSuffix(err.Error(), "\nTry: kubectl fn run --help") {
		t.Errorf("runUntilInterrupted() = %v", err)
	}
}
