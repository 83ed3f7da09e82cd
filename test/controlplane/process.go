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

package controlplane

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

// endTimeout bounds the graceful end of a process.
const endTimeout = 15 * time.Second

// Process is a child process that never outlives this one.
type Process struct {
	// Log is the file with its output.
	Log string

	// Ended is closed when it has ended.
	Ended chan struct{}

	name string
	cmd  *exec.Cmd
}

// Start starts a program, and appends its output to a file in the folder.
func Start(name, folder string, env []string, command ...string) (*Process, error) {
	p := &Process{name: name, Log: filepath.Join(folder, name+".log"), Ended: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("failed to open log: %w", err)
	}
	p.cmd = exec.Command(command[0], command[1:]...) //nolint:noctx // Stop ends it, gently.
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder}, env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// This program handles Ctrl-C, and ends the others in order.
	p.cmd.SysProcAttr = attributes()
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
			close(p.Ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("failed to start %s: %w", name, err)
	}
	return p, nil
}

// Stop ends the process, and kills it after a timeout.
func (p *Process) Stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.Ended:
	case <-time.After(endTimeout):
		p.Kill()
	}
}

// Kill ends the process at once.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.Ended
}

// Signal sends the process a signal.
func (p *Process) Signal(signal os.Signal) error { return p.cmd.Process.Signal(signal) }

// Until calls try until it succeeds, because no event reports that a process listens. It
// fails when the process ends.
func (p *Process) Until(ctx context.Context, what string, patience time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Ended:
			return fmt.Errorf("failed to wait until %s: %s has ended: %s", what, p.name, Tail(p.Log))
		case <-ctx.Done():
			return fmt.Errorf("failed to wait until %s: %w; see %s", what, err, p.Log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Tail returns the end of a log.
func Tail(file string) string {
	const most = 2000
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-most):])
}

// Usage is the resource usage of a process.
type Usage struct {
	// CPU is its CPU time in seconds.
	CPU float64

	// Resident is its memory in bytes, and Peak its maximum.
	Resident, Peak float64
}

// ticks is the number of units of /proc/PID/stat in a second, on all current
// architectures of Linux.
const ticks = 100

// Usage returns the CPU and memory of the process. It works only on Linux.
func (p *Process) Usage() (Usage, error) {
	folder := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return Usage{}, fmt.Errorf("failed to read what %s uses: %w", p.name, err)
	}
	statm, err := os.ReadFile(filepath.Join(folder, "statm"))
	if err != nil {
		return Usage{}, fmt.Errorf("failed to read what %s uses: %w", p.name, err)
	}
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return Usage{}, fmt.Errorf("failed to read what %s uses: %w", p.name, err)
	}
	u, err := parseUsage(string(stat), string(statm), string(status))
	if err != nil {
		return Usage{}, fmt.Errorf("failed to read what %s uses: %w", p.name, err)
	}
	return u, nil
}

// parseUsage reads /proc/PID/stat, /proc/PID/statm and /proc/PID/status. The name of the program, in
// parentheses, may have spaces and parentheses, too.
func parseUsage(stat, statm, status string) (Usage, error) {
	end := strings.LastIndex(stat, ")")
	fields, pages := strings.Fields(stat[end+1:]), strings.Fields(statm)
	if end < 0 || len(fields) < 13 || len(pages) < 2 {
		return Usage{}, fmt.Errorf("%q and %q are not understood", stat, statm)
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	if err != nil {
		return Usage{}, err
	}
	system, err := strconv.ParseFloat(fields[12], 64)
	if err != nil {
		return Usage{}, err
	}
	resident, err := strconv.ParseFloat(pages[1], 64)
	if err != nil {
		return Usage{}, err
	}
	_, peak, _ := strings.Cut(status, "\nVmHWM:")
	var kib float64
	if _, err := fmt.Sscanf(peak, "%g kB", &kib); err != nil {
		return Usage{}, fmt.Errorf("%q has no VmHWM: %w", status, err)
	}
	return Usage{CPU: (user + system) / ticks, Resident: resident * float64(os.Getpagesize()), Peak: kib * 1024}, nil
}

// freePorts returns ports that nobody listens on.
func freePorts(n int) ([]string, error) {
	ports := make([]string, 0, n)
	for range n {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("failed to find a port: %w", err)
		}
		// All listeners stay open until the end, so the ports differ.
		defer listener.Close()
		ports = append(ports, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}
