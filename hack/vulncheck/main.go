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

// Command vulncheck reports the known vulnerabilities of the programs that Kiln ships. It
// builds them and runs govulncheck on them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

const (
	// database is the Go vulnerability database as a module. So a machine that reaches
	// only a module proxy can read it. sum is its checksum.
	database = "golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018"
	sum      = "h1:mfngRv0Yoh0VApsXKEN82CjD99kl7mtparN3bs3JnqI="

	// databaseVariable is an environment variable with the URL of another database.
	databaseVariable = "VULNDB"

	exceptionsFile = "hack/vulncheck/exceptions.yaml"
)

// programs has the folder and the package of each program that Kiln ships.
var programs = map[string]struct{ folder, main string }{
	"controller": {".", "./cmd/controller"},
	"webhook":    {".", "./cmd/webhook"},
	"compose":    {".", "./cmd/compose"},
	"kubectl-fn": {".", "./cmd/kubectl-fn"},
	"kaniko":     {"third_party/kaniko", "."},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// go run -C hack runs it in hack.
	err := os.Chdir("..")
	if err == nil {
		err = run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run checks all programs. It runs in the root of the repository.
func run(ctx context.Context, out io.Writer) error {
	text, err := os.ReadFile(exceptionsFile)
	if err != nil {
		return fmt.Errorf("failed to read exceptions: %w", err)
	}
	exceptions, err := parseExceptions(text)
	if err != nil {
		return err
	}
	url, err := databaseURL(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "kiln-vulncheck-")
	if err != nil {
		return fmt.Errorf("failed to create folder: %w", err)
	}
	defer os.RemoveAll(folder)
	var found []finding
	for program := range programs {
		of, err := scan(ctx, program, url, filepath.Join(folder, program))
		if err != nil {
			return fmt.Errorf("failed to check %s: %w", program, err)
		}
		found = append(found, of...)
	}
	if newer := newerGo(found); newer != "" {
		fmt.Fprintf(out, "%s has vulnerabilities in its standard library: build releases with %s or newer\n", runtime.Version(), newer)
	}
	problems := judge(found, exceptions)
	for _, problem := range problems {
		fmt.Fprintln(out, problem)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%d problems: upgrade the module, or add an exception with a reason to %s", len(problems), exceptionsFile)
	}
	return nil
}

// databaseURL returns the URL of the database. govulncheck reads a folder of reports.
func databaseURL(ctx context.Context) (string, error) {
	if url := os.Getenv(databaseVariable); url != "" {
		return url, nil
	}
	text, err := output(ctx, ".", "go", "mod", "download", "-json", database)
	if err != nil {
		return "", err
	}
	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(text, &module); err != nil {
		return "", fmt.Errorf("failed to parse %s: %w", database, err)
	}
	if module.Sum != sum {
		return "", fmt.Errorf("module %s has the checksum %s, want %s", database, module.Sum, sum)
	}
	return "file://" + filepath.Join(module.Dir, "data", "osv"), nil
}

// scan builds a program and returns its vulnerabilities. The flags are those
// of ko, so that both compile each package once.
func scan(ctx context.Context, program, url, binary string) ([]finding, error) {
	of := programs[program]
	if _, err := output(ctx, of.folder, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-buildvcs=false", "-o", binary, of.main); err != nil {
		return nil, err
	}
	text, err := output(ctx, ".", "go", "tool", "-modfile=hack/tools/go.mod", "govulncheck", "-db", url, "-mode=binary", "-format=json", binary)
	if err != nil {
		return nil, err
	}
	return parseFindings(program, text)
}

// output runs a command in the folder and returns what it prints.
func output(ctx context.Context, folder, name string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = folder
	text, err := command.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to run %s: %w", command, err)
	}
	return text, nil
}
