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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// shortestID is the least length of a container ID. Shorter ones could match several
// containers.
const shortestID = 32

// kill sends SIGKILL to all processes of a container or program, and returns their IDs.
func kill(proc string, what api.Kill) ([]int, error) {
	find := func() ([]int, error) { return processesOf(proc, what.ContainerID) }
	if what.Program != "" {
		find = func() ([]int, error) { return processesRunning(proc, what.Program) }
	}
	pids, err := find()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return nil, fmt.Errorf("failed to kill process %d: %w", pid, err)
		}
	}
	return pids, nil
}

// processesOf returns the processes with the container's ID in their control groups.
func processesOf(proc, containerID string) ([]int, error) {
	if len(containerID) < shortestID {
		return nil, fmt.Errorf("%q is not a container ID", containerID)
	}
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cgroup"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		groups, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(groups), containerID) {
			continue // The process has ended, or belongs to another container.
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("found no process of container %s", containerID)
	}
	return pids, nil
}

// processesRunning returns the processes whose first argument is the path of the program.
func processesRunning(proc, program string) ([]int, error) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // The process has ended.
		}
		if first, _, _ := strings.Cut(string(line), "\x00"); first != program {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("found no process of %s", program)
	}
	return pids, nil
}
