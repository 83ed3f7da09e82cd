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

package registry

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-dev/kiln/hack/cluster/internal/engine"
)

func TestAddresses(t *testing.T) {
	own := Addresses(&engine.Engine{Own: true})
	if own.Push != own.Pods || own.Push != own.Nodes {
		t.Errorf("own engine: %+v, want one address for all", own)
	}
	users := Addresses(&engine.Engine{})
	if !strings.HasPrefix(users.Push, "localhost:") || users.Pods != users.Nodes || users.Pods == users.Push {
		t.Errorf("user's engine: %+v", users)
	}
}

func TestWriteHosts(t *testing.T) {
	for name, e := range map[string]*engine.Engine{"own": {Own: true}, "user's": {}} {
		dir := t.TempDir()
		if err := WriteHosts(dir, e); err != nil {
			t.Fatalf("%s: WriteHosts() = %v", name, err)
		}
		a := Addresses(e)
		for _, registry := range []string{a.Push, a.Pods} {
			data, err := os.ReadFile(filepath.Join(dir, registry, "hosts.toml"))
			if err != nil || !strings.Contains(string(data), `[host."http://`+a.Pods+`"]`) {
				t.Errorf("%s: hosts of %s = %q, %v", name, registry, data, err)
			}
		}
	}
}

func TestRunArgs(t *testing.T) {
	own := runArgs(&engine.Engine{Own: true}, "image", "key", "/storage")
	if !slices.Contains(own, "host") || slices.Contains(own, "--publish") {
		t.Errorf("own engine: %q, want the engine's own network", own)
	}
	users := runArgs(&engine.Engine{}, "image", "key", "/storage")
	i := slices.Index(users, "--publish")
	if i < 0 || !strings.HasPrefix(users[i+1], "127.0.0.1:") {
		t.Errorf("user's engine: %q, want a port for this machine only", users)
	}
}
