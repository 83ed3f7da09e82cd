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

package components

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
)

// kanikoPath is how Kiln's manifests refer to its Kaniko image.
const kanikoPath = "ko://github.com/kiln-dev/kiln/third_party/kaniko"

// systemNamespace is where Kiln is installed.
const systemNamespace = "kiln-system"

// WriteFiles writes the files that install Kiln on the cluster: the environment of ko and
// kubectl, and an overlay that adapts the ConfigMaps that Kiln ships.
func WriteFiles(cluster *env.Cluster, built *Built) error {
	overlay, err := overlayOf(cluster.Registry, built)
	if err != nil {
		return err
	}
	files := map[string][]byte{"env": environment(cluster, built)}
	for name, content := range overlay {
		files[filepath.Join("overlay", name)] = content
	}
	for name, content := range files {
		path := cluster.Output(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("failed to create output directory: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("failed to write %s: %w", name, err)
		}
	}
	return nil
}

// environment returns shell commands that set what ko and kubectl need.
func environment(cluster *env.Cluster, built *Built) []byte {
	path := []string{filepath.Dir(built.Ko)}
	for _, tool := range []string{cluster.Kubectl, cluster.Kind} {
		if filepath.IsAbs(tool) {
			path = append(path, filepath.Dir(tool))
		}
	}
	var out bytes.Buffer
	for _, variable := range append(kilnEnv(&cluster.Host, cluster.Registry),
		"KUBECONFIG="+cluster.Output("kubeconfig"),
		"KO_DEFAULTBASEIMAGE="+built.Base.Static,
		"KO_DEFAULTPLATFORMS=linux/"+cluster.Arch,
	) {
		name, value, _ := strings.Cut(variable, "=")
		fmt.Fprintf(&out, "export %s=%s\n", name, quote(value))
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		// Set by the program's start: the cluster is reached without a proxy.
		if value := os.Getenv(name); value != "" {
			fmt.Fprintf(&out, "export %s=%s\n", name, quote(value))
		}
	}
	fmt.Fprintf(&out, "export PATH=%s:\"$PATH\"\n", quote(strings.Join(path, ":")))
	return out.Bytes()
}

// kilnEnv returns the environment in which ko builds Kiln's images.
func kilnEnv(host *env.Host, registry env.Registry) []string {
	return []string{
		"KO_DOCKER_REPO=" + registry.Push + "/kiln",
		// ko keeps binaries there, and links only those that have changed.
		"KOCACHE=" + host.Store.Path("ko-binaries"),
	}
}

// quote quotes a string for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// overlayOf returns the files of a kustomization that adapts Kiln's resolved manifests.
// The caller writes those to kiln.yaml in the same folder.
func overlayOf(registry env.Registry, built *Built) (map[string][]byte, error) {
	runtimes := map[string]string{}
	for major, image := range built.Base.Node {
		runtimes["nodejs"+major] = "baseImage: " + atPods(image, registry) + "\nlanguage: nodejs\n"
	}
	runtimes["python313"] = "baseImage: " + atPods(built.Base.Python, registry) + "\nlanguage: python\n"
	patches := []object{
		configPatch("config-registry", map[string]string{
			"push": registry.Pods, "pull": registry.Nodes, "insecure": registry.Pods,
		}),
		configPatch("config-runtimes", runtimes),
		// With Kiln's defaults, a dozen functions and four builds fill a node of two cores.
		configPatch("config-functions", map[string]string{"default-cpu-request": "20m"}),
		configPatch("config-build", map[string]string{"cpu-request": "50m"}),
	}
	files := map[string][]byte{}
	var paths []any
	for _, p := range patches {
		content, err := encode([]object{p})
		if err != nil {
			return nil, err
		}
		name := p.name() + ".yaml"
		files[name] = content
		paths = append(paths, map[string]any{"path": name})
	}
	kustomization, err := encode([]object{{
		"apiVersion": "kustomize.config.k8s.io/v1beta1",
		"kind":       "Kustomization",
		"resources":  []any{"kiln.yaml"},
		"patches":    paths,
	}})
	files["kustomization.yaml"] = kustomization
	return files, err
}

// configPatch returns a patch that sets keys of one of Kiln's ConfigMaps.
func configPatch(name string, data map[string]string) object {
	o := object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": systemNamespace},
	}
	setData(o, data)
	return o
}
