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
	"io/fs"
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

	apiPort = 6443
	// readyTimeout is how long a node may take to be Ready.
	readyTimeout = 3 * time.Minute
	// repairTimeout is how long a node that was there may take to be Ready
	// again, before it is made anew.
	repairTimeout = time.Minute
	poll          = 200 * time.Millisecond
)

// Cluster is the kind cluster, whether or not it runs.
type Cluster struct {
	engine *engine.Engine
	dir    string // State about the cluster.
	kind   string // The kind binary; not needed but to create and delete.
}

// New returns the cluster on an engine.
func New(host *env.Host, e *engine.Engine, kind string) *Cluster {
	return &Cluster{engine: e, dir: host.Store.Path("cluster"), kind: kind}
}

// Image is a node image that the engine has.
type Image struct {
	// Ref is its reference.
	Ref string
	// Built tells that it is ours: it brings a network plug-in of its own.
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

// markFile holds the container of the cluster that was created completely.
func (c *Cluster) markFile() string { return filepath.Join(c.dir, "created") }

// Healthy tells whether the cluster's node is Ready.
func (c *Cluster) Healthy(ctx context.Context) bool {
	id, running := c.container(ctx)
	return running && c.complete(id) && c.ready(ctx)
}

// Exists tells whether there is a cluster that was created completely.
func (c *Cluster) Exists(ctx context.Context) bool {
	id, _ := c.container(ctx)
	return id != "" && c.complete(id)
}

// Repair makes the cluster that exists run again, if it does not.
func (c *Cluster) Repair(ctx context.Context, log io.Writer) error {
	id, running := c.container(ctx)
	if !running {
		if err := c.engine.Docker("start", id).Run(ctx, log); err != nil {
			return err
		}
	}
	if _, err := os.Stat(c.Kubeconfig()); err != nil {
		export := command.New(c.kind, "export", "kubeconfig", "--name", Name, "--kubeconfig", c.Kubeconfig()).With(c.engine.Env...)
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

// Create makes the cluster, in the place of what may be left of another.
func (c *Cluster) Create(ctx context.Context, image Image, log io.Writer) error {
	err := c.replace(ctx, image, log)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if id, _ := c.container(ctx); id == "" {
		return err // kind has cleared away what it could not make.
	}
	// What a run that was killed had asked docker for came in between.
	fmt.Fprintln(log, err)
	return c.replace(ctx, image, log)
}

// replace deletes the cluster and makes another one.
func (c *Cluster) replace(ctx context.Context, image Image, log io.Writer) error {
	if err := c.Delete(ctx, log); err != nil {
		return err
	}
	config, err := c.prepare(image)
	if err != nil {
		return err
	}
	create := command.New(c.kind, "create", "cluster", "--name", Name, "--image", image.Ref,
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
	id, _ := c.container(ctx)
	if err := os.WriteFile(c.markFile(), []byte(id), 0o644); err != nil {
		return fmt.Errorf("failed to note creation: %w", err)
	}
	return nil
}

// prepare writes the files that the node will mount and returns kind's configuration.
func (c *Cluster) prepare(image Image) ([]byte, error) {
	certs, patches := filepath.Join(c.dir, "certs.d"), filepath.Join(c.dir, "patches")
	if err := registry.WriteHosts(certs, c.engine); err != nil {
		return nil, err
	}
	if err := writePatches(patches); err != nil {
		return nil, err
	}
	config, err := yaml.Marshal(c.config(image, certs, patches, cgroupV1()))
	if err != nil {
		return nil, fmt.Errorf("failed to encode configuration: %w", err)
	}
	return config, nil
}

// Delete deletes the cluster, or what there is of it.
func (c *Cluster) Delete(ctx context.Context, log io.Writer) error {
	if id, _ := c.container(ctx); id != "" {
		if err := c.engine.Docker("rm", "--force", "--volumes", id).Run(ctx, log); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("failed to remove cluster directory: %w", err)
	}
	return nil
}

// container returns the node's container and whether it runs. A container that
// has the name but not kind's label is not the node's.
func (c *Cluster) container(ctx context.Context) (id string, running bool) {
	out, err := c.engine.Docker("ps", "--all", "--no-trunc", "--filter", "name=^"+node+"$",
		"--filter", "label=io.x-k8s.kind.cluster="+Name, "--format", "{{.ID}} {{.State}}").Output(ctx)
	if err != nil {
		return "", false
	}
	id, state, _ := strings.Cut(out, " ")
	return id, state == "running"
}

// complete tells whether the container's cluster was created to the end.
func (c *Cluster) complete(id string) bool {
	mark, err := os.ReadFile(c.markFile())
	return err == nil && string(mark) == id
}

// ready tells whether the node is.
func (c *Cluster) ready(ctx context.Context) bool {
	out, err := c.kubectl("get", "nodes", "--output",
		`jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{" "}{end}`).Output(ctx)
	return err == nil && out == "True"
}

// wait waits until the node is Ready. What it waits for first is the API
// server, so that there is nothing to watch yet.
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

// fetchKubectl copies the node's own kubectl, which certainly fits.
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

// config returns kind's configuration.
func (c *Cluster) config(image Image, certs, patches string, v1 bool) kindConfig {
	kubelet := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nserializeImagePulls: false\n"
	if v1 {
		// Without it, kubelet refuses to start there.
		kubelet += "failCgroupV1: false\n"
	}
	config := kindConfig{
		APIVersion: "kind.x-k8s.io/v1alpha4",
		Kind:       "Cluster",
		Name:       Name,
		Nodes: []kindNode{{
			Role: "control-plane",
			ExtraMounts: []kindMount{
				{HostPath: certs, ContainerPath: "/etc/containerd/certs.d", ReadOnly: true},
				{HostPath: patches, ContainerPath: patchesInNode, ReadOnly: true},
			},
		}},
		KubeadmConfigPatches: []string{kubelet, "kind: InitConfiguration\npatches:\n  directory: " + patchesInNode + "\n"},
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

// cgroupV1 tells whether the control groups are of version 1. Where this is not
// the machine that runs the engine, they are of version 2.
func cgroupV1() bool {
	if runtime.GOOS != "linux" {
		return false
	}
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return errors.Is(err, fs.ErrNotExist)
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
