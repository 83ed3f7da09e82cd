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
	"fmt"
	"os"
	"path/filepath"
)

// patchesInNode is where the node finds kubeadm's patches.
const patchesInNode = "/kind/patches"

// requests has the CPU requests of the control plane. With kubeadm's they take 850m of a
// node that may have two cores, and leave too little for twenty functions and their
// builds. Their share of busy cores stays above that of a build.
var requests = map[string]string{
	"etcd":                    "100m",
	"kube-apiserver":          "150m",
	"kube-controller-manager": "50m",
	"kube-scheduler":          "50m",
}

// scaleDown makes HorizontalPodAutoscalers remove pods after 15 seconds of rest, instead of
// five minutes, and look every 5 seconds. Trying them takes a minute or two then.
const scaleDown = `[
  {"op": "add", "path": "/spec/containers/0/command/-", "value": "--horizontal-pod-autoscaler-downscale-stabilization=15s"},
  {"op": "add", "path": "/spec/containers/0/command/-", "value": "--horizontal-pod-autoscaler-sync-period=5s"}
]
`

// patches returns kubeadm's patches by the names that their files must have.
func patches() map[string]string {
	const container = `{"name": %q, "resources": {"requests": {"cpu": %q}}}`
	files := make(map[string]string, len(requests)+2)
	for name, cpu := range requests {
		files[name+"+strategic.json"] = fmt.Sprintf(`{"spec": {"containers": [`+container+"]}}\n", name, cpu)
	}
	// One is enough for one node.
	files["corednsdeployment+strategic.json"] = fmt.Sprintf(
		`{"spec": {"replicas": 1, "template": {"spec": {"containers": [`+container+"]}}}}\n", "coredns", "50m")
	files["kube-controller-manager+json.json"] = scaleDown
	return files
}

// writePatches writes kubeadm's patches to a directory.
func writePatches(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("failed to create directory of patches: %w", err)
	}
	for name, text := range patches() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("failed to write patch: %w", err)
		}
	}
	return nil
}
