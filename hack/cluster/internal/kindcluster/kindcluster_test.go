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

package kindcluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kiln-dev/kiln/hack/cluster/internal/engine"
)

func TestConfig(t *testing.T) {
	tests := []struct {
		name    string
		own     bool
		built   bool
		v1      bool
		address string
		cni     bool
		fail    bool
	}{
		{name: "user's engine, kind's image"},
		{name: "user's engine, image built", built: true, cni: true},
		{name: "own engine, image built", own: true, built: true, address: engine.Address, cni: true},
		{name: "own engine, control groups 1", own: true, built: true, v1: true, address: engine.Address, cni: true, fail: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := &Cluster{engine: &engine.Engine{Own: test.own}}
			got := c.config(Image{Ref: "image", Built: test.built}, "/certs", "/patches", test.v1)
			if got.Networking.APIServerAddress != test.address {
				t.Errorf("address = %q, want %q", got.Networking.APIServerAddress, test.address)
			}
			if got.Networking.DisableDefaultCNI != test.cni {
				t.Errorf("disableDefaultCNI = %t, want %t", got.Networking.DisableDefaultCNI, test.cni)
			}
			if fail := strings.Contains(got.KubeadmConfigPatches[0], "failCgroupV1: false"); fail != test.fail {
				t.Errorf("kubelet accepts control groups 1 = %t, want %t", fail, test.fail)
			}
			if mount := got.Nodes[0].ExtraMounts[0]; mount.HostPath != "/certs" || !mount.ReadOnly {
				t.Errorf("mount = %+v", mount)
			}
		})
	}
}

func TestPatches(t *testing.T) {
	dir := t.TempDir()
	if err := writePatches(dir); err != nil {
		t.Fatal("writePatches() =", err)
	}
	// kubeadm takes the part to patch from the name of the file.
	for _, part := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "corednsdeployment"} {
		data, err := os.ReadFile(filepath.Join(dir, part+"+strategic.json"))
		if err != nil {
			t.Error("ReadFile() =", err)
		}
		if !json.Valid(data) || !strings.Contains(string(data), `{"requests": {"cpu": "`) {
			t.Errorf("patch of %s = %s", part, data)
		}
	}
}

func TestMadeFrom(t *testing.T) {
	tests := []struct {
		name, mark, id, want string
	}{
		{"created to the end", "abc key", "abc", "key"},
		{"another container", "abc key", "def", ""},
		{"no container", "abc key", "", ""},
		{"not created to the end", "", "abc", ""},
	}
	for _, test := range tests {
		c := &Cluster{dir: t.TempDir()}
		if test.mark != "" {
			if err := os.WriteFile(c.markFile(), []byte(test.mark), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.madeFrom(container{id: test.id}); got != test.want {
			t.Errorf("%s: madeFrom() = %q, want %q", test.name, got, test.want)
		}
	}
}
