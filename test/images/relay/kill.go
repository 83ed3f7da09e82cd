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
)

// shortestID guards against killing by an ID so short that it fits many.
const shortestID = 32

// kill sends SIGKILL to all processes of a container, which it knows by their
// control groups, and returns their IDs.
func kill(proc, containerID string) ([]int, error) {
	pids, err := processesOf(proc, containerID)
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

// processesOf returns the processes whose control group bears the container's ID.
func processesOf(proc, containerID string) ([]int, error) {
	if len(containerID) < shortestID {
		return nil, fmt.Errorf("%q is no container ID", containerID)
	}
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cgroup"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		groups, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(groups), containerID) {
			continue // it has ended, or is somebody else's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("no process of container %s is to be seen", containerID)
	}
	return pids, nil
}
