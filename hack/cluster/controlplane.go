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
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kiln-dev/kiln/hack/cluster/internal/components"
	"github.com/kiln-dev/kiln/hack/cluster/internal/controlplane"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
)

// controlPlane returns the paths of etcd, Kubernetes and a file with the resource
// definitions of Tekton and Serving, one in each line. They suffice to run an API server.
func controlPlane(ctx context.Context, host *env.Host) (string, error) {
	binaries, err := controlplane.Build(ctx, host)
	if err != nil {
		return "", err
	}
	definitions, err := components.Definitions(ctx, host)
	if err != nil {
		return "", err
	}
	file := filepath.Join(host.Root, "build", "control-plane", "definitions.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", fmt.Errorf("failed to make folder: %w", err)
	}
	if err := os.WriteFile(file, definitions, 0o644); err != nil {
		return "", fmt.Errorf("failed to write definitions: %w", err)
	}
	return strings.Join([]string{binaries.Etcd, binaries.Kubernetes, file}, "\n"), nil
}
