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
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endTimeout is how long a process may take to end when it is asked to.
const endTimeout = 15 * time.Second

// process is a program that runs beside this one, and never outlives it.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// start starts a program. What it says is appended to a file in the folder.
func start(name, folder string, env []string, command ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(folder, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("failed to open log: %w", err)
	}
	p.cmd = exec.Command(command[0], command[1:]...) //nolint:noctx // stop ends it, gently.
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder}, env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// The terminal's Ctrl-C is for this program, which ends the others in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		defer log.Close()
		// The kernel kills the child when the thread that has started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("failed to start %s: %w", name, err)
	}
	return p, nil
}

// stop ends the process, by force where it takes its time.
func (p *process) stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(endTimeout):
		p.kill()
	}
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// until calls try, again and again, until it succeeds; that something begins to
// listen nothing tells of. It fails when the process ends.
func (p *process) until(ctx context.Context, what string, patience time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("failed to wait until %s: %s has ended: %s", what, p.name, tail(p.log))
		case <-ctx.Done():
			return fmt.Errorf("failed to wait until %s: %w; see %s", what, err, p.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tail returns the end of a log.
func tail(file string) string {
	const most = 2000
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-most):])
}

// usage is what a process has used, or uses.
type usage struct {
	// cpu is its CPU time in seconds, and resident its memory in bytes.
	cpu, resident float64
}

// ticks is how many of the units of /proc/PID/stat make a second: of all
// architectures that Linux runs on today.
const ticks = 100

// usage returns what the process uses.
func (p *process) usage() (usage, error) {
	folder := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return usage{}, fmt.Errorf("failed to read what %s uses: %w", p.name, err)
	}
	statm, err := os.ReadFile(filepath.Join(folder, "statm"))
	if err != nil {
		return usage{}, fmt.Errorf("failed to read what %s uses: %w", p.name, err)
	}
	u, err := parseUsage(string(stat), string(statm))
	if err != nil {
		return usage{}, fmt.Errorf("failed to read what %s uses: %w", p.name, err)
	}
	return u, nil
}

// parseUsage reads /proc/PID/stat and /proc/PID/statm. The name of the program, in
// parentheses, may have spaces and parentheses, too.
func parseUsage(stat, statm string) (usage, error) {
	end := strings.LastIndex(stat, ")")
	fields, pages := strings.Fields(stat[end+1:]), strings.Fields(statm)
	if end < 0 || len(fields) < 13 || len(pages) < 2 {
		return usage{}, fmt.Errorf("%q and %q are not understood", stat, statm)
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	if err != nil {
		return usage{}, err
	}
	system, err := strconv.ParseFloat(fields[12], 64)
	if err != nil {
		return usage{}, err
	}
	resident, err := strconv.ParseFloat(pages[1], 64)
	if err != nil {
		return usage{}, err
	}
	return usage{cpu: (user + system) / ticks, resident: resident * float64(os.Getpagesize())}, nil
}

// freePorts returns ports that nobody listens on.
func freePorts(n int) ([]string, error) {
	ports := make([]string, 0, n)
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("failed to find a port: %w", err)
		}
		// Held until all are found, so that they differ.
		defer listener.Close()
		ports = append(ports, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}
