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

// Package kindcluster makes, repairs and deletes the kind cluster.
package kindcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
	"github.com/kiln-dev/kiln/hack/cluster/internal/engine"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/registry"
)

const (
	// Name is the name of the kind cluster.
	Name = "kiln"
	// node is the name that kind gives the container of its only node.
	node = Name + "-control-plane"

	// network is the one that kind puts its nodes in.
	network = "kind"
	// certsInNode is containerd's folder for the configuration of registries.
	certsInNode = "/etc/containerd/certs.d"

	apiPort = 6443
	// readyTimeout is how long a node may take to be Ready.
	readyTimeout = 3 * time.Minute
	// repairTimeout bounds the wait for an existing node to be Ready. After it the node
	// is made again.
	repairTimeout = time.Minute
	poll          = 200 * time.Millisecond
)

// Cluster is the kind cluster, whether or not it runs.
type Cluster struct {
	engine *engine.Engine
	dir    string // State about the cluster.
	// netFile exists if the cluster created kind's network.
	netFile string
}

// New returns the cluster on an engine.
func New(host *env.Host, e *engine.Engine) *Cluster {
	return &Cluster{engine: e, dir: host.Store.Path("cluster"), netFile: host.Store.Path("cluster-network")}
}

// Image is a node image that the engine has.
type Image struct {
	// Ref is its reference.
	Ref string
	// Built reports that it was built from source, and contains its own network plug-in.
	Built bool
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Kubectl returns the path of a kubectl of the cluster's version.
func (c *Cluster) Kubectl() string {
	if runtime.GOOS != "linux" {
		return "kubectl" // The node's is for Linux.
	}
	return filepath.Join(c.dir, "bin", "kubectl")
}

func (c *Cluster) kubectl(args ...string) *command.Command {
	return command.New(append([]string{c.Kubectl(), "--kubeconfig", c.Kubeconfig(), "--request-timeout=5s"}, args...)...)
}

// certs returns the directory with the registries' configuration for the node's
// containerd.
func (c *Cluster) certs() string { return filepath.Join(c.dir, "certs.d") }

// markFile names the container of the completely created cluster, and the key of its
// inputs.
func (c *Cluster) markFile() string { return filepath.Join(c.dir, "created") }

// Healthy reports whether the cluster's node is Ready.
func (c *Cluster) Healthy(ctx context.Context) bool {
	n, err := c.find(ctx)
	return err == nil && n.running && c.madeFrom(n) != "" && c.ready(ctx)
}

// State is the state of the cluster.
type State int

const (
	// Absent clusters do not exist, or were never created completely.
	Absent State = iota
	// Outdated clusters were made from other inputs.
	Outdated
	// Present clusters were created from these inputs, and may run.
	Present
)

// State returns the state of the cluster with the key. It fails if another cluster has
// its name.
func (c *Cluster) State(ctx context.Context, key string) (State, error) {
	n, err := c.find(ctx)
	if err != nil {
		return Absent, err
	}
	switch c.madeFrom(n) {
	case "":
		return Absent, nil
	case key:
		return Present, nil
	}
	return Outdated, nil
}

// Repair restarts an existing cluster if needed.
func (c *Cluster) Repair(ctx context.Context, kind string, log io.Writer) error {
	n, err := c.find(ctx)
	if err != nil {
		return err
	}
	if !n.running {
		if err := c.engine.Docker("start", n.id).Run(ctx, log); err != nil {
			return err
		}
	}
	if _, err := os.Stat(c.Kubeconfig()); err != nil {
		export := command.New(kind, "export", "kubeconfig", "--name", Name, "--kubeconfig", c.Kubeconfig()).With(c.engine.Env...)
		if err := export.Run(ctx, log); err != nil {
			return err
		}
	}
	if _, err := exec.LookPath(c.Kubectl()); err != nil {
		if err := c.fetchKubectl(ctx, log); err != nil {
			return err
		}
	}
	return c.wait(ctx, repairTimeout)
}

// Create makes the cluster, in the place of what may be left of another. The key
// identifies its inputs.
func (c *Cluster) Create(ctx context.Context, kind string, image Image, key string, log io.Writer) error {
	err := c.replace(ctx, kind, image, key, log)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if n, findErr := c.find(ctx); findErr != nil || n.id == "" {
		return err // kind has cleared away what it could not make.
	}
	// A request of a killed run was still in progress.
	fmt.Fprintln(log, err)
	return c.replace(ctx, kind, image, key, log)
}

// replace deletes the cluster and makes another one.
func (c *Cluster) replace(ctx context.Context, kind string, image Image, key string, log io.Writer) error {
	if err := c.delete(ctx, log); err != nil {
		return err
	}
	if err := c.noteNetwork(ctx); err != nil {
		return err
	}
	config, err := c.prepare(ctx, image)
	if err != nil {
		return err
	}
	create := command.New(kind, "create", "cluster", "--name", Name, "--image", image.Ref,
		"--kubeconfig", c.Kubeconfig(), "--config", "-").With(c.engine.Env...).Reading(bytes.NewReader(config))
	if err := create.Run(ctx, log); err != nil {
		return err
	}
	if err := c.fetchKubectl(ctx, log); err != nil {
		return err
	}
	if err := c.wait(ctx, readyTimeout); err != nil {
		return err
	}
	n, err := c.find(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.markFile(), []byte(n.id+" "+key), 0o644); err != nil {
		return fmt.Errorf("failed to note creation: %w", err)
	}
	return nil
}

// prepare writes the files that the node will mount and returns kind's configuration.
func (c *Cluster) prepare(ctx context.Context, image Image) ([]byte, error) {
	certs, patches := c.certs(), filepath.Join(c.dir, "patches")
	if err := registry.WriteHosts(certs, c.engine); err != nil {
		return nil, err
	}
	if err := writePatches(patches); err != nil {
		return nil, err
	}
	v1, err := c.cgroupV1(ctx)
	if err != nil {
		return nil, err
	}
	config, err := yaml.Marshal(c.config(image, certs, patches, v1))
	if err != nil {
		return nil, fmt.Errorf("failed to encode configuration: %w", err)
	}
	return config, nil
}

// Delete deletes the cluster, even if it is incomplete. It leaves another cluster of the
// same name alone.
func (c *Cluster) Delete(ctx context.Context, log io.Writer) error {
	if _, err := c.find(ctx); errors.Is(err, errForeign) {
		return nil
	}
	return errors.Join(c.delete(ctx, log), c.removeNetwork(ctx, log))
}

func (c *Cluster) delete(ctx context.Context, log io.Writer) error {
	n, err := c.find(ctx)
	if err != nil {
		return err
	}
	if n.id != "" {
		if err := c.engine.Docker("rm", "--force", "--volumes", n.id).Run(ctx, log); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("failed to remove cluster directory: %w", err)
	}
	return nil
}

// errForeign is the error for another cluster of the same name.
var errForeign = errors.New("there is a kind cluster " + Name + " that was not made with this cache; please delete it, or set XDG_CACHE_HOME as it was set for that")

// container is the node's container.
type container struct {
	id      string // Empty if there is none.
	running bool
}

// find returns the node's container. The mounts identify it from its creation on, because
// another kind cluster may have the same name.
func (c *Cluster) find(ctx context.Context) (container, error) {
	id, err := c.engine.Docker("ps", "--all", "--quiet", "--no-trunc", "--filter", "name=^"+node+"$").Output(ctx)
	if err != nil || id == "" {
		return container{}, err
	}
	out, err := c.engine.Docker("inspect", "--format",
		`{{.State.Running}} {{range .Mounts}}{{if eq .Destination "`+certsInNode+`"}}{{.Source}}{{end}}{{end}}`, id).Output(ctx)
	if err != nil {
		return container{}, err
	}
	running, source, _ := strings.Cut(out, " ")
	// Paths have a prefix if the engine runs in a virtual machine.
	if !strings.HasSuffix(source, c.certs()) {
		return container{}, errForeign
	}
	return container{id: id, running: running == "true"}, nil
}

// madeFrom returns the key of the container's inputs, or "" if its creation did not
// finish.
func (c *Cluster) madeFrom(n container) string {
	mark, err := os.ReadFile(c.markFile())
	if err != nil || n.id == "" {
		return ""
	}
	id, key, _ := strings.Cut(string(mark), " ")
	if id != n.id {
		return ""
	}
	return key
}

// noteNetwork records whether kind will create its network.
func (c *Cluster) noteNetwork(ctx context.Context) error {
	if _, err := c.engine.Docker("network", "inspect", "--format", "{{.Id}}", network).Output(ctx); err == nil {
		return nil
	}
	if err := os.WriteFile(c.netFile, nil, 0o644); err != nil {
		return fmt.Errorf("failed to note network: %w", err)
	}
	return nil
}

// removeNetwork removes kind's network if it was made for this cluster and no
// other container, running or not, is in it.
func (c *Cluster) removeNetwork(ctx context.Context, log io.Writer) error {
	if _, err := os.Stat(c.netFile); err != nil {
		return nil
	}
	users, err := c.engine.Docker("ps", "--all", "--quiet", "--filter", "network="+network).Output(ctx)
	if err != nil || users != "" {
		return err
	}
	if _, err := c.engine.Docker("network", "inspect", "--format", "{{.Id}}", network).Output(ctx); err == nil {
		if err := c.engine.Docker("network", "rm", network).Run(ctx, log); err != nil {
			return err
		}
	}
	if err := os.Remove(c.netFile); err != nil {
		return fmt.Errorf("failed to forget network: %w", err)
	}
	return nil
}

func (c *Cluster) ready(ctx context.Context) bool {
	out, err := c.kubectl("get", "nodes", "--output",
		`jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{" "}{end}`).Output(ctx)
	return err == nil && out == "True"
}

// wait polls until the node is Ready. It cannot watch, because the API server may not run
// yet.
func (c *Cluster) wait(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !c.ready(ctx) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("node is not Ready: %w", ctx.Err())
		case <-time.After(poll):
		}
	}
	return nil
}

// fetchKubectl copies the node's own kubectl, which has the right version.
func (c *Cluster) fetchKubectl(ctx context.Context, log io.Writer) error {
	if runtime.GOOS != "linux" {
		if _, err := exec.LookPath("kubectl"); err != nil {
			return errors.New("please install kubectl")
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.Kubectl()), 0o755); err != nil {
		return fmt.Errorf("failed to create cluster directory: %w", err)
	}
	return c.engine.Docker("cp", "--follow-link", node+":/usr/bin/kubectl", c.Kubectl()).Run(ctx, log)
}

// kubeProxy makes kube-proxy handle Services at once. By default it collects changes for
// a second, and would refuse Traefik's first requests to a new revision.
const kubeProxy = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
iptables:
  minSyncPeriod: 10ms
nftables:
  minSyncPeriod: 10ms
`

// config returns kind's configuration.
func (c *Cluster) config(image Image, certs, patches string, v1 bool) kindConfig {
	kubelet := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nserializeImagePulls: false\n"
	if v1 {
		// Without it, the kubelet does not start with cgroups of version 1.
		kubelet += "failCgroupV1: false\n"
	}
	config := kindConfig{
		APIVersion: "kind.x-k8s.io/v1alpha4",
		Kind:       "Cluster",
		Name:       Name,
		Nodes: []kindNode{{
			Role: "control-plane",
			ExtraMounts: []kindMount{
				{HostPath: certs, ContainerPath: certsInNode, ReadOnly: true},
				{HostPath: patches, ContainerPath: patchesInNode, ReadOnly: true},
			},
		}},
		KubeadmConfigPatches: []string{kubelet, kubeProxy, "kind: InitConfiguration\npatches:\n  directory: " + patchesInNode + "\n"},
	}
	if c.engine.Own {
		config.Networking.APIServerAddress = engine.Address
		config.Networking.APIServerPort = apiPort
	}
	if image.Built {
		config.Networking.DisableDefaultCNI = true
		config.Networking.KubeProxyMode = "nftables"
	}
	return config
}

// cgroupV1 reports whether the control groups of the engine are of version 1.
func (c *Cluster) cgroupV1(ctx context.Context) (bool, error) {
	version, err := c.engine.Docker("info", "--format", "{{.CgroupVersion}}").Output(ctx)
	return version == "1", err
}

// kindConfig is the part of kind's configuration that is needed.
type kindConfig struct {
	APIVersion           string         `json:"apiVersion"`
	Kind                 string         `json:"kind"`
	Name                 string         `json:"name"`
	Networking           kindNetworking `json:"networking"`
	Nodes                []kindNode     `json:"nodes"`
	KubeadmConfigPatches []string       `json:"kubeadmConfigPatches"`
}

type kindNetworking struct {
	APIServerAddress  string `json:"apiServerAddress,omitempty"`
	APIServerPort     int    `json:"apiServerPort,omitempty"`
	DisableDefaultCNI bool   `json:"disableDefaultCNI,omitempty"`
	KubeProxyMode     string `json:"kubeProxyMode,omitempty"`
}

type kindNode struct {
	Role        string      `json:"role"`
	ExtraMounts []kindMount `json:"extraMounts"`
}

type kindMount struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath"`
	ReadOnly      bool   `json:"readOnly"`
}
