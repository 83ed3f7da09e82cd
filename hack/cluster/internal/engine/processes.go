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

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endTimeout is how long processes may take to end.
const endTimeout = 10 * time.Second

// process is a running process.
type process struct {
	pid  int
	exe  string // The name of the program file.
	args []string
}

// mentions reports whether an argument of the process contains a path below dir. With the
// program's name, that identifies a process. A number from a file does not, because
// numbers are reused.
func (p process) mentions(dir string) bool {
	return slices.ContainsFunc(p.args, func(arg string) bool { return strings.Contains(arg, dir+"/") })
}

// processes returns the numbers of the processes that match.
func processes(match func(process) bool) ([]int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("failed to list processes: %w", err)
	}
	var pids []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok && match(p) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// readProcess describes a process. It returns false for kernel threads and for a process
// that has ended.
func readProcess(pid int) (process, bool) {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return process{}, false
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return process{}, false
	}
	return process{
		pid: pid,
		// The program may have been replaced by an update.
		exe:  strings.TrimSuffix(filepath.Base(exe), " (deleted)"),
		args: strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00"),
	}, true
}

// endAll terminates the processes that find returns, and kills those that remain.
func endAll(ctx context.Context, find func() ([]int, error)) error {
	if left, err := signalAll(ctx, find, syscall.SIGTERM); err != nil || len(left) == 0 {
		return err
	}
	return killAll(ctx, find)
}

// killAll kills the processes that find returns, until there are none.
func killAll(ctx context.Context, find func() ([]int, error)) error {
	left, err := signalAll(ctx, find, syscall.SIGKILL)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("failed to kill processes %v", left)
	}
	return err
}

// signalAll sends a signal once to each process that find returns, waits, and returns the
// processes that have not ended.
func signalAll(ctx context.Context, find func() ([]int, error), signal syscall.Signal) (left []int, err error) {
	sent := map[int]bool{}
	for deadline := time.Now().Add(endTimeout); time.Now().Before(deadline); {
		if left, err = find(); err != nil || len(left) == 0 {
			return nil, err
		}
		for _, pid := range left {
			if sent[pid] {
				continue
			}
			sent[pid] = true
			if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return left, fmt.Errorf("failed to end process %d: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return left, ctx.Err()
		case <-time.After(poll):
		}
	}
	return left, nil
}

// cgroupDirs returns the roots of our control groups: one for each hierarchy of version
// 1, or a single one of version 2.
func cgroupDirs() ([]string, error) {
	pattern := "/sys/fs/cgroup/*/" + cgroup
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		pattern = "/sys/fs/cgroup/" + cgroup
	}
	dirs, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("failed to find control groups: %w", err)
	}
	return dirs, nil
}

// cgroupTree returns our control groups, inner ones first.
func cgroupTree() ([]string, error) {
	roots, err := cgroupDirs()
	if err != nil {
		return nil, err
	}
	var tree []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				tree = append(tree, path)
			}
			return nil // What has gone meanwhile need not be removed.
		})
		if err != nil {
			return nil, fmt.Errorf("failed to list control groups: %w", err)
		}
	}
	slices.Reverse(tree)
	return tree, nil
}

// thawAll thaws our control groups. Frozen processes ignore signals, and a killed
// containerd can leave them frozen.
func thawAll() error {
	tree, err := cgroupTree()
	if err != nil {
		return err
	}
	for _, dir := range tree {
		if err := thaw(dir); err != nil {
			return err
		}
	}
	return nil
}

// thaw thaws a control group of either version, if it exists.
func thaw(dir string) error {
	for name, state := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			_, err = file.WriteString(state)
			err = errors.Join(err, file.Close())
		}
		if err != nil && !errors.Is(err, syscall.ENODEV) {
			return fmt.Errorf("failed to thaw control group: %w", err)
		}
	}
	return nil
}

// inCgroup returns the processes in our control groups, which are those of all
// containers.
func inCgroup() ([]int, error) {
	tree, err := cgroupTree()
	if err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	for _, dir := range tree {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				seen[pid] = true
			}
		}
	}
	pids := make([]int, 0, len(seen))
	for pid := range seen {
		if !defunct(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// defunct reports whether a process is a zombie.
func defunct(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}

// removeCgroups removes our control groups.
func removeCgroups(ctx context.Context) error {
	tree, err := cgroupTree()
	if err != nil {
		return err
	}
	return removeAll(ctx, tree)
}

// removeAll removes control groups, inner ones first. The kernel may take a moment to
// see that the last process has left one.
func removeAll(ctx context.Context, groups []string) error {
	deadline := time.Now().Add(endTimeout)
	for {
		var failed error
		for _, dir := range groups {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
				failed = fmt.Errorf("failed to remove control group %s: %w", dir, err)
			}
		}
		if failed == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return failed
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		}
	}
}

// mountsBelow returns the mount points at or below a directory, inner ones
// first, given /proc/self/mountinfo.
func mountsBelow(mountinfo, dir string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescape(fields[4])
		if point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	slices.Reverse(points)
	return points
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
