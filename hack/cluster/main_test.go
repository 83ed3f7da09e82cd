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
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/progress"
)

func TestRepository(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(root, "pkg", "apis")
	module := filepath.Join(root, "third_party", "kubernetes")
	for _, dir := range []string{below, module} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(below)
	if got, err := repository(); err == nil {
		t.Errorf("repository() outside of one = %q, want an error", got)
	}
	if err := os.WriteFile(filepath.Join(module, "go.mod"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := repository(); err != nil || got != root {
		t.Errorf("repository() = %q, %v, want %q", got, err, root)
	}
}

func TestSummary(t *testing.T) {
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	part := &progress.PartError{Part: "registry", Err: errors.New("a long story")}
	tests := []struct {
		name string
		ctx  context.Context
		err  error
		want string
	}{
		{"a reason", t.Context(), errors.New("no Docker engine answers"), "no Docker engine answers"},
		{"a part that has told", t.Context(), part, "failed, with the part registry"},
		{"the user", interrupted, part, "interrupted; the next run takes it up from here"},
	}
	for _, test := range tests {
		if got := summary(test.ctx, test.err); got != test.want {
			t.Errorf("%s: summary() = %q, want %q", test.name, got, test.want)
		}
	}
}

func TestWriteKubeconfig(t *testing.T) {
	host := &env.Host{Root: t.TempDir()}
	cluster := &env.Cluster{Host: *host, Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := writeKubeconfig(host, cluster); err == nil {
		t.Error("writeKubeconfig() without one has no error")
	}
	if err := os.WriteFile(cluster.Kubeconfig, []byte("kind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeKubeconfig(host, cluster); err != nil {
		t.Fatalf("writeKubeconfig() = %v", err)
	}
	info, err := os.Stat(filepath.Join(host.Root, "build", "cluster", "kubeconfig"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig = %v, %v, want it to be for its owner only", info, err)
	}
}

func TestWithoutProxy(t *testing.T) {
	once := withoutProxy("example.com,.svc")
	if !strings.HasPrefix(once, "example.com,.svc,localhost,") || strings.Count(once, ".svc") != 1 {
		t.Errorf("withoutProxy() = %q, want the user's list with what it lacks", once)
	}
	if twice := withoutProxy(once); twice != once {
		t.Errorf("withoutProxy() of its result = %q, want %q", twice, once)
	}
	if got := withoutProxy(""); strings.HasPrefix(got, ",") {
		t.Errorf("withoutProxy() of nothing = %q", got)
	}
}
