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
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const (
	// bare is the baseline of all others.
	bare = "bare"
	// kiln is Kiln's wrapper.
	kiln = "kiln"

	// Servers with these suffixes await an asynchronous function, or call a blocking one
	// in a thread.
	inAsync   = "-async"
	inThreads = "-threads"
)

// server is a program that serves the function.
type server struct {
	name string
	// title is the name for readers.
	title   string
	command []string
	dir     string
	env     []string
	// like is the equivalent bare server, if that is not bare: it also awaits the
	// function, or calls it in a thread.
	like string
	// adds are the files and folders that an image needs only for this server.
	adds []string
}

// group is the servers of a runtime. They take turns.
type group struct {
	runtime string
	// title is the runtime's name for readers.
	title   string
	servers []server
}

// titles are the runtimes' names for readers.
var titles = map[string]string{"nodejs22": "Node 22", "nodejs24": "Node 24", "python313": "Python"}

// nodeVersions are the releases that the cluster's base images have.
var nodeVersions = map[string]string{"nodejs22": "22.23.3", "nodejs24": "24.21.0"}

// Common alternatives to Kiln's wrapper.
const (
	functionsFramework = "functions-framework"
	faasJS             = "faas-js-runtime"
	flask              = "flask"
)

// nodePeers are their packages.
var nodePeers = map[string]string{functionsFramework: "@google-cloud/functions-framework@5.0.5", faasJS: "faas-js-runtime@4.0.1"}

// titleOf returns the name of a peer's package and its version.
func titleOf(peer string) string {
	at := strings.LastIndex(nodePeers[peer], "@")
	return fmt.Sprintf("`%s` %s", nodePeers[peer][:at], nodePeers[peer][at+1:])
}

// findGroups returns the selected runtimes that can be measured.
func findGroups(ctx context.Context, only, wantedServers string) ([]group, error) {
	comma := func(r rune) bool { return r == ',' }
	wanted, names := strings.FieldsFunc(only, comma), strings.FieldsFunc(wantedServers, comma)
	var groups []group
	for _, name := range []string{"nodejs22", "nodejs24", "python313"} {
		if len(wanted) > 0 && !slices.Contains(wanted, name) {
			continue
		}
		find := findNode
		if name == "python313" {
			find = findPython
		}
		servers, err := find(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("failed to prepare %s: %w", name, err)
		}
		servers = slices.DeleteFunc(servers, func(s server) bool {
			return len(names) > 0 && !strings.HasPrefix(s.name, bare) && !slices.Contains(names, s.name)
		})
		groups = append(groups, group{runtime: name, title: titles[name], servers: servers})
	}
	return groups, nil
}

// findNode returns the servers of a release of Node.js, which npm provides.
func findNode(ctx context.Context, name string) ([]server, error) {
	folder, err := cacheFolder("node")
	if err != nil {
		return nil, err
	}
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	binary := "node-linux-" + arch
	install := filepath.Join(folder, name)
	if err := npmInstall(ctx, install, binary+"@"+nodeVersions[name]); err != nil {
		return nil, err
	}
	node := filepath.Join(install, "node_modules", binary, "bin", "node")
	for peer, pkg := range nodePeers {
		if err := npmInstall(ctx, filepath.Join(folder, peer), pkg); err != nil {
			return nil, err
		}
	}
	files, err := filepath.Abs(filepath.Join("test", "performance", "runtimes", "servers"))
	if err != nil {
		return nil, fmt.Errorf("failed to find the servers: %w", err)
	}
	of := filepath.Join(files, "..", "..", "..", "..", "pkg", "runtimes", "nodejs")
	wrapper := filepath.Join(of, "server.cjs")
	adds := []string{wrapper, filepath.Join(of, "compat.cjs"), filepath.Join(of, "sdk.cjs")}
	in := func(file string) string { return filepath.Join(files, file) }
	modules := func(peer string) string { return filepath.Join(folder, peer, "node_modules") }
	kilnEnv := []string{"FUNC_TIMEOUT=300", "OTEL_EXPORTER_PROMETHEUS_PORT=0"}
	return []server{
		{name: bare, title: "bare `node:http`", command: []string{node, in("bare.cjs")}, dir: files},
		{name: bare + inAsync, title: "bare, awaits an `async` function", command: []string{node, in("bare-async.cjs")}, dir: files},
		{name: kiln, title: "Kiln: `main`", command: []string{node, wrapper, in("function.cjs")}, dir: files, env: kilnEnv, adds: adds},
		{name: kiln + inAsync, title: "Kiln: `async main`", like: bare + inAsync, command: []string{node, wrapper, in("function-async.cjs")}, dir: files, env: kilnEnv, adds: adds},
		{name: functionsFramework, title: titleOf(functionsFramework), command: []string{node,
			filepath.Join(modules(functionsFramework), "@google-cloud", "functions-framework", "build", "src", "main.js"),
			"--target=main", "--source=" + in("functions-framework.cjs")}, dir: filepath.Join(folder, functionsFramework), adds: []string{modules(functionsFramework)}},
		{name: faasJS, title: titleOf(faasJS), command: []string{node,
			filepath.Join(modules(faasJS), "faas-js-runtime", "bin", "cli.js"), in("faas.cjs")}, dir: filepath.Join(folder, faasJS), adds: []string{modules(faasJS)}},
	}, nil
}

func npmInstall(ctx context.Context, folder string, packages ...string) error {
	stamp := filepath.Join(folder, "installed")
	if done, err := os.ReadFile(stamp); err == nil && string(done) == strings.Join(packages, " ") {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("failed to make folder: %w", err)
	}
	args := append([]string{"install", "--silent", "--no-save", "--no-audit", "--no-fund", "--prefix", folder}, packages...)
	if out, err := exec.CommandContext(ctx, "npm", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("failed to install %v: %w: %s", packages, err, out)
	}
	return os.WriteFile(stamp, []byte(strings.Join(packages, " ")), 0o644)
}

// cacheFolder returns a folder below Kiln's cache.
func cacheFolder(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("failed to find the cache: %w", err)
	}
	return filepath.Join(cache, "kiln", "bench-runtimes", name), nil
}

// printVersion prints the versions of the wrapper's packages in a Python.
const printVersion = `import sys, uvicorn, uvloop, httptools
print(f"uvicorn {uvicorn.__version__}, Python {sys.version_info[0]}.{sys.version_info[1]}")`

// printFlask prints the versions of Flask and Gunicorn in a Python, and the paths of
// their packages.
const printFlask = `import importlib, importlib.metadata
print(f"Flask {importlib.metadata.version('flask')} on Gunicorn {importlib.metadata.version('gunicorn')}, as \x60functions-framework\x60 has them")
for name in "flask", "werkzeug", "jinja2", "markupsafe", "click", "itsdangerous", "blinker", "gunicorn", "packaging":
    print(importlib.import_module(name).__path__[0])`

// findPython returns the servers of the Python of the local cluster's base image, or of
// the one that KILN_PYTHON names.
func findPython(ctx context.Context, _ string) ([]server, error) {
	python := os.Getenv("KILN_PYTHON")
	if python == "" {
		command := exec.CommandContext(ctx, "go", "-C", "hack", "run", "./cluster", "python")
		command.Stderr = os.Stderr
		out, err := command.Output()
		if err != nil {
			return nil, fmt.Errorf("failed to get the base image's Python, and KILN_PYTHON names no other: %w", err)
		}
		python = strings.TrimSpace(string(out))
	}
	version, err := exec.CommandContext(ctx, python, "-c", printVersion).Output()
	if err != nil {
		return nil, fmt.Errorf("failed to find uvicorn, uvloop and httptools in %s: %w", python, err)
	}
	files, err := filepath.Abs(filepath.Join("test", "performance", "runtimes", "servers"))
	if err != nil {
		return nil, fmt.Errorf("failed to find the servers: %w", err)
	}
	of := filepath.Join(files, "..", "..", "..", "..", "pkg", "runtimes", "python")
	wrapper := filepath.Join(of, "server.py")
	adds := []string{wrapper, filepath.Join(of, "compat.py")}
	kilnEnv := []string{"FUNC_TIMEOUT=300", "OTEL_EXPORTER_PROMETHEUS_PORT=0"}
	servers := []server{
		{name: bare, title: "bare ASGI application on " + strings.TrimSpace(string(version)), command: []string{python, "-P", filepath.Join(files, "bare.py")}, dir: files},
		{name: bare + inThreads, title: "bare, calls a function in a thread", command: []string{python, "-P", filepath.Join(files, "bare_threads.py")}, dir: files},
		{name: kiln, title: "Kiln: `async def main`", command: []string{python, "-P", wrapper, filepath.Join(files, "function_async.py")}, dir: files, env: kilnEnv, adds: adds},
		{name: kiln + inThreads, title: "Kiln: `def main`, in a thread", like: bare + inThreads, command: []string{python, "-P", wrapper, filepath.Join(files, "function.py")}, dir: files, env: kilnEnv, adds: adds},
	}
	found, err := exec.CommandContext(ctx, python, "-c", printFlask).Output()
	if err != nil {
		fmt.Println("Flask and Gunicorn are not compared with: this Python does not have them.")
		return servers, nil
	}
	lines := strings.Split(strings.TrimSpace(string(found)), "\n")
	threads := fmt.Sprintf("--threads=%d", 4*runtime.NumCPU())
	return append(servers, server{name: flask, title: lines[0], dir: files, adds: lines[1:],
		command: []string{python, "-P", "-m", "gunicorn", "--workers=1", threads, "--timeout=300", "--log-level=error", "flask_function:app"}}), nil
}

// added returns the bytes that the server adds to an image.
func (s *server) added() (bytes int64, err error) {
	for _, path := range s.adds {
		err := filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				bytes += info.Size()
			}
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("failed to measure the size of %s: %w", s.name, err)
		}
	}
	return bytes, nil
}
