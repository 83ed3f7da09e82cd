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

package main

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asCommand is the variable of the environment that makes the test binary kubectl fn.
const asCommand = "TEST_AS_KUBECTL_FN"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command returns kubectl fn with these arguments, without a cluster.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], args...)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), asCommand+"=1", "KUBECONFIG="+filepath.Join(command.Dir, "absent"))
	return command
}

// exitCode returns the exit code of a command that has ended.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	return exit.ExitCode()
}

func TestExitCode(t *testing.T) {
	tests := map[string]struct {
		args     []string
		wantCode int
		wantOut  string
		wantErr  string
	}{
		"success": {
			args: []string{"init", "fn", "--runtime=python313"}, wantOut: "wrote fn/handler.py and fn/requirements.txt\n",
			wantErr: "Next: cd fn, kubectl fn run, and kubectl fn deploy NAME --runtime=python313\n",
		},
		"failure": {
			args: []string{"init"}, wantCode: 1,
			wantErr: "error: expected one folder, got 0\nTry: kubectl fn init greeter --runtime=nodejs24\n",
		},
		"unknown flag": {
			args: []string{"status", "--nope"}, wantCode: 1, wantErr: "error: unknown flag: --nope\nTry: kubectl fn status --help\n",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errOut strings.Builder
			run := command(t, tc.args...)
			run.Stdout, run.Stderr = &out, &errOut
			if code := exitCode(t, run.Run()); code != tc.wantCode {
				t.Errorf("exit code is %d, want %d", code, tc.wantCode)
			}
			if out.String() != tc.wantOut || errOut.String() != tc.wantErr {
				t.Errorf("it prints %q and %q, want %q and %q", out.String(), errOut.String(), tc.wantOut, tc.wantErr)
			}
		})
	}
}

// A shell reports 130 for a command that ctrl-C has ended.
func TestInterrupt(t *testing.T) {
	// A server that never responds keeps the command waiting.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	run := command(t, "status", "fn", "--server=http://"+listener.Addr().String())
	stderr, err := run.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	connection, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := run.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(stderr); lines.Scan() {
		t.Errorf("it prints %q after an interrupt", lines.Text())
	}
	if code := exitCode(t, run.Wait()); code != interrupted {
		t.Errorf("exit code is %d, want %d", code, interrupted)
	}
}
