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
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
)

const (
	// runDir has the files that need not survive a reboot.
	runDir     = "/run/kiln"
	socket     = runDir + "/docker.sock"
	socketURL  = "unix://" + socket
	configFile = runDir + "/daemon.json"
	pidFile    = runDir + "/docker.pid"
	execRoot   = runDir + "/docker"
	// cgroup is the parent of all containers' control groups.
	cgroup = "kiln"
	// runtimeName is the name of the stand-in for runc.
	runtimeName = "kiln"

	startTimeout = 60 * time.Second
	poll         = 100 * time.Millisecond

	// sysResource is the number of CAP_SYS_RESOURCE.
	sysResource = 24
)

// runcWrapper replaces runc if root lacks CAP_SYS_RESOURCE.
//
//go:embed runc.sh
var runcWrapper []byte

// daemon is our own engine.
type daemon struct {
	dir string // State that survives a reboot.
	log io.Writer
	net network
}

func newDaemon(store *cache.Store, log io.Writer) *daemon {
	return &daemon{dir: store.Path("engine"), log: log, net: network{log: log}}
}

// ownEngine returns our own engine, whether or not it runs.
func ownEngine() *Engine {
	return &Engine{Env: []string{"DOCKER_HOST=" + socketURL}, Own: true}
}

// present reports whether our own engine exists, even if it was killed.
func present() bool {
	for _, file := range []string{configFile, netnsFile} {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return false
}

// config is dockerd's configuration file.
type config struct {
	DataRoot       string                `json:"data-root"`
	ExecRoot       string                `json:"exec-root"`
	PidFile        string                `json:"pidfile"`
	Hosts          []string              `json:"hosts"`
	BIP            string                `json:"bip"`
	AddressPools   []addressPool         `json:"default-address-pools"`
	MTU            int                   `json:"mtu"`
	CgroupParent   string                `json:"cgroup-parent"`
	ExecOpts       []string              `json:"exec-opts"`
	LiveRestore    bool                  `json:"live-restore"`
	OOMScore       int                   `json:"oom-score-adjust"`
	LogOpts        map[string]string     `json:"log-opts"`
	Runtimes       map[string]ociRuntime `json:"runtimes,omitempty"`
	DefaultRuntime string                `json:"default-runtime,omitempty"`
}

type addressPool struct {
	Base string `json:"base"`
	Size int    `json:"size"`
}

type ociRuntime struct {
	Path string `json:"path"`
}

func (d *daemon) dataRoot() string { return filepath.Join(d.dir, "data") }

func (d *daemon) config(mtu int, wrapper string) config {
	c := config{
		DataRoot:     d.dataRoot(),
		ExecRoot:     execRoot,
		PidFile:      pidFile,
		Hosts:        []string{socketURL},
		BIP:          "10.202.0.1/24",
		AddressPools: []addressPool{{Base: "10.203.0.0/16", Size: 24}},
		MTU:          mtu,
		CgroupParent: "/" + cgroup,
		// This works with and without systemd, and keeps all groups in one place.
		ExecOpts: []string{"native.cgroupdriver=cgroupfs"},
		// The cluster continues without dockerd, and the next dockerd adopts it.
		LiveRestore: true,
		LogOpts:     map[string]string{"max-size": "10m"},
	}
	if wrapper != "" {
		c.Runtimes = map[string]ociRuntime{runtimeName: {Path: wrapper}}
		c.DefaultRuntime = runtimeName
	}
	return c
}

// start starts the engine, or repairs it.
func (d *daemon) start(ctx context.Context) error {
	if err := d.ours(); err != nil {
		return err
	}
	if d.net.ready(ctx) {
		answers := ownEngine().answers(ctx)
		if !answers {
			answers = ownEngine().answers(ctx) // It may have been busy.
		}
		if answers {
			_, err := d.net.ensure(ctx)
			return err
		}
	}
	// The engine never ran, was killed, or the machine was restarted. A healthy network
	// is kept, with the containers in it.
	if !d.net.ready(ctx) {
		if err := d.clear(ctx); err != nil {
			return err
		}
	}
	if err := endAll(ctx, d.daemons); err != nil {
		return err
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return fmt.Errorf("failed to create run directory: %w", err)
	}
	if err := d.remember(); err != nil {
		return err
	}
	mtu, err := d.net.ensure(ctx)
	if err != nil {
		return err
	}
	wrapper, err := d.writeWrapper()
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(d.config(mtu, wrapper), "", "  ")
	if err != nil {
		return fmt.Errorf("failed to encode configuration: %w", err)
	}
	if err := os.WriteFile(configFile, data, 0o644); err != nil {
		return fmt.Errorf("failed to write configuration: %w", err)
	}
	return d.launch(ctx)
}

// ours returns an error if the running engine uses another cache. Its cluster may belong
// to another user.
func (d *daemon) ours() error {
	data, err := os.ReadFile(configFile)
	if err != nil {
		return nil // There is none.
	}
	var c config
	if err := json.Unmarshal(data, &c); err != nil || c.DataRoot == d.dataRoot() {
		return nil // A file that was not written to its end belongs to nothing that runs.
	}
	for _, find := range []func() ([]int, error){d.daemons, d.shims} {
		if pids, err := find(); err != nil || len(pids) > 0 {
			return errors.Join(err, fmt.Errorf("there is a cluster already that keeps its data in %s: please set XDG_CACHE_HOME as it was set for that", filepath.Dir(filepath.Dir(c.DataRoot))))
		}
	}
	return nil
}

// launch starts dockerd and waits until it answers.
func (d *daemon) launch(ctx context.Context) error {
	// A stale file may name an unrelated process, which dockerd would take for another
	// dockerd.
	if err := remove(pidFile, filepath.Join(execRoot, "containerd", "containerd.pid")); err != nil {
		return err
	}
	logFile := filepath.Join(d.dir, "dockerd.log")
	out, err := os.Create(logFile)
	if err != nil {
		return fmt.Errorf("failed to create log: %w", err)
	}
	defer out.Close()
	// ip netns exec would hide the control groups' mounts.
	cmd := exec.Command("nsenter", "--net="+netnsFile, "dockerd", "--config-file", configFile) //nolint:noctx // It outlives this program.
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = "/" // Not the clone, which the user may want to move.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("failed to start dockerd: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !ownEngine().answers(ctx) {
		select {
		case err := <-ended:
			d.copyLog(logFile)
			return fmt.Errorf("dockerd ended: %w", err)
		case <-ctx.Done():
			d.copyLog(logFile)
			return fmt.Errorf("dockerd does not answer: %w", ctx.Err())
		case <-time.After(poll):
		}
	}
	return nil
}

// copyLog copies dockerd's log to the log of the part.
func (d *daemon) copyLog(file string) {
	if data, err := os.ReadFile(file); err == nil {
		d.log.Write(data)
	}
}

// writeWrapper writes the replacement of runc and returns its path, or "" if runc itself
// works.
func (d *daemon) writeWrapper() (string, error) {
	if !lacksSysResource() {
		return "", nil
	}
	// Some systems allow no programs in /run.
	path := filepath.Join(d.dir, "runc")
	if err := os.WriteFile(path, runcWrapper, 0o755); err != nil {
		return "", fmt.Errorf("failed to write runtime: %w", err)
	}
	return path, nil
}

// lacksSysResource reports whether root cannot have CAP_SYS_RESOURCE here.
func lacksSysResource() bool {
	status, err := os.ReadFile("/proc/self/status")
	return err == nil && !hasCapability(string(status), sysResource)
}

// hasCapability reports whether a capability is in the bounding set of a process, given
// its /proc/…/status. An unreadable set counts as full.
func hasCapability(status string, number uint) bool {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return err != nil || set&(1<<number) != 0
		}
	}
	return true
}

// stop removes the engine and everything that it made, except its images.
func (d *daemon) stop(ctx context.Context) error {
	if err := d.ours(); err != nil {
		return err
	}
	if !present() && !d.started() {
		return nil // Nothing was made here.
	}
	clean := d.stopContainers(ctx)
	if err := d.clear(ctx); err != nil {
		return err
	}
	if !clean && d.hasContainers() {
		// Only a running engine could remove these containers. Everything else is made
		// again from the cache.
		if err := os.RemoveAll(d.dataRoot()); err != nil {
			return fmt.Errorf("failed to remove containers: %w", err)
		}
	}
	return d.forget()
}

// stopContainers removes all containers, networks and volumes. It reports success.
func (d *daemon) stopContainers(ctx context.Context) bool {
	e := ownEngine()
	if !e.answers(ctx) {
		return false
	}
	ids, err := e.Docker("ps", "--all", "--quiet").Output(ctx)
	if err != nil {
		return false
	}
	if ids != "" {
		args := append([]string{"rm", "--force", "--volumes"}, strings.Fields(ids)...)
		if err := e.Docker(args...).Run(ctx, d.log); err != nil {
			return false
		}
	}
	return e.Docker("network", "prune", "--force").Run(ctx, d.log) == nil &&
		e.Docker("volume", "prune", "--force").Run(ctx, d.log) == nil
}

func (d *daemon) hasContainers() bool {
	entries, err := os.ReadDir(filepath.Join(d.dataRoot(), "containers"))
	return err == nil && len(entries) > 0
}

// clear ends every process of the engine and removes its mounts, its network, its control
// groups and its run directory, whatever their state.
func (d *daemon) clear(ctx context.Context) error {
	if err := endAll(ctx, d.daemons); err != nil {
		return err
	}
	if err := thawAll(); err != nil {
		return err
	}
	for _, find := range []func() ([]int, error){d.shims, inCgroup} {
		if err := killAll(ctx, find); err != nil {
			return err
		}
	}
	err := errors.Join(
		unmountBelow(execRoot),
		unmountBelow(d.dataRoot()),
		d.net.remove(ctx),
		removeCgroups(ctx),
	)
	if err != nil {
		return err // What is in the run directory is needed to try again.
	}
	if err := os.RemoveAll(execRoot); err != nil {
		return fmt.Errorf("failed to remove run directory: %w", err)
	}
	if err := remove(socket, pidFile, configFile); err != nil {
		return err
	}
	os.Remove(runDir) // Not empty: there is something in it that is not ours.
	return nil
}

// daemons returns the processes of dockerd, its containerd and its proxies.
func (d *daemon) daemons() ([]int, error) {
	return processes(func(p process) bool {
		switch p.exe {
		case "dockerd", "containerd":
			return p.mentions(runDir)
		case "docker-proxy":
			return d.net.contains(p.pid)
		}
		return false
	})
}

// shims returns the processes that supervise containers.
func (d *daemon) shims() ([]int, error) {
	return processes(func(p process) bool {
		return strings.HasPrefix(p.exe, "containerd-shim") && p.mentions(runDir)
	})
}

// sideEffects are the paths outside runDir and the cache that dockerd, its containerd and
// kind create, inner ones first.
var sideEffects = []string{
	"/etc/docker/key.json", "/etc/docker",
	"/lib/modules",
	"/opt/containerd/bin", "/opt/containerd/lib", "/opt/containerd",
	"/run/containerd", "/run/docker",
	"/var/lib/docker",
}

func (d *daemon) absentFile() string { return filepath.Join(d.dir, "absent") }

// started reports whether an engine was started and not removed.
func (d *daemon) started() bool {
	_, err := os.Stat(d.absentFile())
	return err == nil
}

// remember records which side effects do not exist before the engine runs.
func (d *daemon) remember() error {
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return fmt.Errorf("failed to create engine directory: %w", err)
	}
	if d.started() {
		return nil // Noted by an earlier start; what is there now may be of its making.
	}
	absent := slices.DeleteFunc(slices.Clone(sideEffects), func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	})
	if err := os.WriteFile(d.absentFile(), []byte(strings.Join(absent, "\n")), 0o644); err != nil {
		return fmt.Errorf("failed to note what is absent: %w", err)
	}
	return nil
}

// forget removes the side effects that did not exist before, unless a newer engine uses
// them.
func (d *daemon) forget() error {
	absent, err := os.ReadFile(d.absentFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to read what was absent: %w", err)
	}
	others, err := processes(func(p process) bool {
		return p.exe == "dockerd" || p.exe == "containerd" || strings.HasPrefix(p.exe, "containerd-shim")
	})
	if err != nil {
		return err
	}
	for path := range strings.SplitSeq(string(absent), "\n") {
		switch {
		case path == "":
		case len(others) == 0 && strings.HasPrefix(path, "/run/"):
			// It contains the sockets of killed processes.
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("failed to remove run directory: %w", err)
			}
		default:
			os.Remove(path) // A directory with something in it stays.
		}
	}
	return remove(d.absentFile())
}

// remove removes files that may not be there.
func remove(paths ...string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("failed to remove file: %w", err)
		}
	}
	return nil
}
