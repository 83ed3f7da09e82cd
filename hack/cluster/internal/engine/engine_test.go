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
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestPossible(t *testing.T) {
	tests := []struct {
		goos string
		uid  int
		want string
	}{
		{"linux", 0, ""},
		{"linux", 1000, "run this as root"},
		{"darwin", 0, "on this system the cluster cannot run without it"},
		{"darwin", 501, "on this system the cluster cannot run without it"},
	}
	for _, test := range tests {
		err := possible(test.goos, test.uid)
		if test.want == "" {
			if err != nil {
				t.Errorf("possible(%s, %d) = %v", test.goos, test.uid, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("possible(%s, %d) = %v, want one line with %q", test.goos, test.uid, err, test.want)
		}
	}
}

func TestHasCapability(t *testing.T) {
	tests := map[string]bool{
		"Name:\tx\nCapBnd:\t000001ffffffffff\n":   true,
		"Name:\tx\nCapBnd:\t000001fffeffffff\n":   false,
		"Name:\tx\nCapBnd:\tnot hexadecimal\n":    true,
		"Name:\tx\n":                              true,
		"CapEff:\t0\nCapBnd:\t0000000001000000\n": true,
	}
	for status, want := range tests {
		if got := hasCapability(status, sysResource); got != want {
			t.Errorf("hasCapability(%q) = %t, want %t", status, got, want)
		}
	}
}

func TestMountsBelow(t *testing.T) {
	mountinfo := `22 1 0:21 / /proc rw - proc proc rw
30 1 0:30 / /run/kiln/docker rw - tmpfs tmpfs rw
31 30 0:4 net:[1] /run/kiln/docker/netns/a\040b rw - nsfs nsfs rw
32 1 0:4 net:[2] /run/kilnother rw - nsfs nsfs rw
33 1 0:4 net:[3] /run/kiln/netns rw - nsfs nsfs rw
`
	want := []string{"/run/kiln/netns", "/run/kiln/docker/netns/a b", "/run/kiln/docker"}
	if got := mountsBelow(mountinfo, "/run/kiln"); !slices.Equal(got, want) {
		t.Errorf("mountsBelow() = %q, want %q", got, want)
	}
}

func TestDefaultLink(t *testing.T) {
	got, err := defaultLink([]byte(`[{"dst":"default","gateway":"192.0.2.1","dev":"eth0"},{"dst":"default","dev":"wlan0"}]`))
	if err != nil || got != "eth0" {
		t.Errorf("defaultLink() = %q, %v, want eth0", got, err)
	}
	for _, routes := range []string{`[]`, `nonsense`} {
		if got, err := defaultLink([]byte(routes)); err == nil {
			t.Errorf("defaultLink(%s) = %q, want an error", routes, got)
		}
	}
}

func TestProcessMentions(t *testing.T) {
	tests := []struct {
		args []string
		want bool
	}{
		{[]string{"dockerd", "--config-file", "/run/kiln/daemon.json"}, true},
		{[]string{"containerd-shim-runc-v2", "-address=/run/kiln/docker/containerd/containerd.sock"}, true},
		{[]string{"dockerd", "--config-file", "/etc/docker/daemon.json"}, false},
		{[]string{"dockerd", "--config-file", "/run/kilnother/daemon.json"}, false},
	}
	for _, test := range tests {
		if got := (process{args: test.args}).mentions("/run/kiln"); got != test.want {
			t.Errorf("mentions(%q) = %t, want %t", test.args, got, test.want)
		}
	}
}

// Another program with the arguments of our processes is not ours.
func TestDaemonsLeaveOthersAlone(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep on this machine")
	}
	cmd := exec.Command(sleep, "60")
	cmd.Args = []string{"dockerd", "60"}
	cmd.Env = []string{"CONFIG=/run/kiln/daemon.json"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	pids, err := (&daemon{dir: t.TempDir()}).daemons()
	if err != nil {
		t.Fatalf("daemons() = %v", err)
	}
	if slices.Contains(pids, cmd.Process.Pid) {
		t.Error("a process that only calls itself dockerd is taken for ours")
	}
}

func TestEndAllKillsTheStubborn(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell on this machine")
	}
	cmd := exec.Command(shell, "-c", "sleep 60 & wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	find := func() ([]int, error) {
		select {
		case <-ended:
			return nil, nil
		default:
			return []int{cmd.Process.Pid}, nil
		}
	}
	if err := endAll(t.Context(), find); err != nil {
		t.Errorf("endAll() = %v", err)
	}
}

func TestThaw(t *testing.T) {
	root, file, frozen, thawed := "/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		root, file, frozen, thawed = "/sys/fs/cgroup", "cgroup.freeze", "1", "0"
	}
	group := fmt.Sprintf("%s/kiln-test-%d", root, os.Getpid())
	write := func(file, value string) error { return os.WriteFile(filepath.Join(group, file), []byte(value), 0) }
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip("no control group may be made here: ", err)
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = write(file, thawed)
		_ = cmd.Process.Kill()
		if err := removeAll(context.WithoutCancel(t.Context()), []string{group}); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(write("cgroup.procs", strconv.Itoa(cmd.Process.Pid)), write(file, frozen)); err != nil {
		t.Fatal(err)
	}
	if err := thaw(group); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Log("the process has ended:", err)
	case <-time.After(endTimeout):
		t.Error("the process was killed, and has not ended: it is frozen")
	}
}

func TestConfig(t *testing.T) {
	d := &daemon{dir: "/cache/engine"}
	plain := d.config(1400, "")
	if plain.DefaultRuntime != "" || plain.Runtimes != nil {
		t.Errorf("config without a wrapper has runtimes: %+v", plain)
	}
	if plain.MTU != 1400 || plain.DataRoot != "/cache/engine/data" || !plain.LiveRestore {
		t.Errorf("config = %+v", plain)
	}
	wrapped := d.config(1500, "/cache/engine/runc")
	if got := wrapped.Runtimes[wrapped.DefaultRuntime].Path; got != "/cache/engine/runc" {
		t.Errorf("default runtime = %q, want the wrapper", got)
	}
}

func TestEnginesOfTheUser(t *testing.T) {
	t.Setenv("DOCKER_HOST", socketURL)
	if got := users().Env; !slices.Equal(got, []string{"DOCKER_HOST="}) {
		t.Errorf("environment = %q: our own engine is taken for the user's", got)
	}
	t.Setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
	if got := users().Env; len(got) != 0 {
		t.Errorf("environment = %q, want the user's as it is", got)
	}
}

// The wrapper runs with a runc that prints its arguments.
func TestWrapper(t *testing.T) {
	for _, tool := range []string{"sh", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s on this machine", tool)
		}
	}
	dir := t.TempDir()
	put := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("runc", "#!/bin/sh\necho \"$@\"\n", 0o755)
	wrapper := put("wrapper", string(runcWrapper), 0o755)
	process := `{"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"],"effective":["CAP_SYS_RESOURCE"]},"oomScoreAdj":-500,"rlimits":[{"type":"RLIMIT_NOFILE"}],"cwd":"/"}`
	put("config.json", `{"process":`+process+`,"root":{"path":"r"}}`, 0o644)
	exe := put("process.json", process, 0o644)

	tests := []struct {
		args []string
		file string
	}{
		{[]string{"--root", "/x", "create", "--bundle", dir, "id"}, filepath.Join(dir, "config.json")},
		{[]string{"exec", "--process", exe, "id"}, exe},
	}
	for _, test := range tests {
		cmd := exec.CommandContext(context.Background(), wrapper, test.args...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != strings.Join(test.args, " ") {
			t.Fatalf("wrapper %v printed %q, %v, want that runc gets all arguments", test.args, out, err)
		}
		data, err := os.ReadFile(test.file)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if strings.Contains(text, "SYS_RESOURCE") || strings.Contains(text, "rlimits") || !strings.Contains(text, "CAP_CHOWN") {
			t.Errorf("wrapper %v left %s", test.args, text)
		}
		if strings.Contains(text, "-500") {
			t.Errorf("wrapper %v left the score: %s", test.args, text)
		}
	}
}
