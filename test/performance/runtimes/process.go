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
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// serverCore is the core of the servers.
	serverCore = "0"
	// loadCore is the core of the client.
	loadCore = "1"
	// startTimeout bounds the time to a server's first answer.
	startTimeout = 20 * time.Second
)

// process is a server that runs.
type process struct {
	cmd     *exec.Cmd
	address string
	log     *bytes.Buffer
	// start is the time from the process' start to its first 200.
	start time.Duration
}

// run starts a server and waits for its first 200.
func run(ctx context.Context, s server) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &process{address: net.JoinHostPort("127.0.0.1", port), log: &bytes.Buffer{}}
	p.cmd = exec.CommandContext(ctx, "taskset", append([]string{"-c", serverCore}, s.command...)...)
	p.cmd.Dir = s.dir
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "PORT=" + port, "FUNC_PORT=" + port, "NODE_ENV=production", "HOME=/tmp"}, s.env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	// Some servers are several processes.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	begin := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("failed to start %s: %w", s.name, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	for time.Since(begin) < startTimeout {
		answer, err := client.Get("http://" + p.address + "/") //nolint:noctx // The client has a timeout.
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				p.start = time.Since(begin)
				return p, nil
			}
		}
		// No event reports that another process listens.
		time.Sleep(500 * time.Microsecond)
	}
	p.stop()
	return nil, fmt.Errorf("failed to start %s: it did not answer within %v:\n%s", s.name, startTimeout, p.log)
}

// stop ends the server.
func (p *process) stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// all returns the process and its children.
func (p *process) all() ([]string, error) {
	pids := []string{strconv.Itoa(p.cmd.Process.Pid)}
	for i := 0; i < len(pids); i++ {
		files, err := filepath.Glob("/proc/" + pids[i] + "/task/*/children")
		if err != nil {
			return nil, fmt.Errorf("failed to list processes: %w", err)
		}
		for _, file := range files {
			children, err := os.ReadFile(file)
			if err != nil {
				continue // The thread has ended.
			}
			pids = append(pids, strings.Fields(string(children))...)
		}
	}
	return pids, nil
}

// cpu returns the CPU time the server has used.
func (p *process) cpu() (time.Duration, error) {
	pids, err := p.all()
	if err != nil {
		return 0, err
	}
	var files []string
	for _, pid := range pids {
		threads, err := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
		if err != nil {
			return 0, fmt.Errorf("failed to list threads: %w", err)
		}
		files = append(files, threads...)
	}
	var total time.Duration
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // The thread has ended.
		}
		first, _, _ := strings.Cut(string(data), " ")
		nanoseconds, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("failed to read CPU time: %w", err)
		}
		total += time.Duration(nanoseconds)
	}
	return total, nil
}

// resident returns the server's resident memory in MiB.
func (p *process) resident() (float64, error) {
	pids, err := p.all()
	if err != nil {
		return 0, err
	}
	pages := 0
	for _, pid := range pids {
		data, err := os.ReadFile("/proc/" + pid + "/statm")
		if err != nil {
			return 0, fmt.Errorf("failed to read memory: %w", err)
		}
		var size, resident int
		if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
			return 0, fmt.Errorf("failed to read memory: %w", err)
		}
		pages += resident
	}
	return float64(pages*os.Getpagesize()) / (1 << 20), nil
}

// freePort returns a port that nobody listens on.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // It does not wait.
	if err != nil {
		return "", fmt.Errorf("failed to find a port: %w", err)
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), nil
}
