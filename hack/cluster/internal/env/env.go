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

// Package env describes a running cluster for installers.
package env

import (
	"path/filepath"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/progress"
)

// Registry holds the addresses (host:port) of the cluster's registry. It speaks plain
// HTTP. On Linux all three are the same private IP address; elsewhere the host uses
// another port.
type Registry struct {
	// Push is where the host pushes to.
	Push string
	// Pods is where pods push to and pull from.
	Pods string
	// Nodes is the name that nodes pull images by.
	Nodes string
}

// Platform names what the cluster has besides Kubernetes and a registry.
type Platform string

const (
	// Knative has Tekton, Knative Serving and Traefik.
	Knative Platform = "knative"
	// Plain has metrics-server.
	Plain Platform = "plain"
)

// Host is known before the cluster runs. Builds need nothing else.
type Host struct {
	// Root is the directory of the repository.
	Root string
	// Store is the cache.
	Store *cache.Store
	// Reporter prints the progress.
	Reporter *progress.Reporter
	// Platform is what the cluster has.
	Platform Platform
	// Arch is the architecture of the nodes, as Go names it.
	Arch string
}

// ThirdParty returns the directory of a module in third_party.
func (h *Host) ThirdParty(name string) string { return filepath.Join(h.Root, "third_party", name) }

// Output returns the path of a file for the user, in build/cluster.
func (h *Host) Output(name string) string { return filepath.Join(h.Root, "build", "cluster", name) }

// Cluster is a running cluster, with its registry.
type Cluster struct {
	Host
	// Kubeconfig is the path of a kubeconfig file of an administrator.
	Kubeconfig string
	// Kubectl is the path of a kubectl that fits the cluster.
	Kubectl string
	// Kind is the path of the kind binary.
	Kind string
	// Name is the name of the kind cluster.
	Name string
	// Registry is the cluster's registry.
	Registry Registry
}
