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

// Package packages installs the Debian packages that the cluster program needs.
package packages

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
)

// debian maps the tools that are called to the Debian packages that have them.
var debian = map[string]string{
	"dockerd":    "docker.io",
	"docker":     "docker.io",
	"ip":         "iproute2",
	"iptables":   "iptables",
	"jq":         "jq",
	"mmdebstrap": "mmdebstrap",
	"nft":        "nftables",
}

// installing is held while packages are installed: apt-get does not wait for
// another run of itself.
var installing sync.Mutex

// Ensure installs the packages of the tools that are missing. Where it cannot,
// its error tells the user what to do.
func Ensure(ctx context.Context, log io.Writer, tools ...string) error {
	installing.Lock()
	defer installing.Unlock()
	missing := Missing(tools...)
	if len(missing) == 0 {
		return nil
	}
	names := packagesOf(missing)
	install := append([]string{"apt-get", "install", "--yes", "--no-install-recommends"}, names...)
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("missing tools: %s; please install them (on Debian they are in the packages %s)",
			strings.Join(missing, ", "), strings.Join(names, ", "))
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("missing tools: %s; please run: sudo %s", strings.Join(missing, ", "), strings.Join(install, " "))
	}
	run := func(args ...string) error {
		return command.New(args...).With("DEBIAN_FRONTEND=noninteractive").Run(ctx, log)
	}
	// The lists may be there and current; fetching them takes longer than trying.
	if run(install...) == nil {
		return nil
	}
	if err := run("apt-get", "update"); err != nil {
		return fmt.Errorf("failed to update package lists: %w", err)
	}
	if err := run(install...); err != nil {
		return fmt.Errorf("failed to install %s: %w", strings.Join(names, ", "), err)
	}
	return nil
}

// Missing returns those of the tools that are not installed.
func Missing(tools ...string) []string {
	return slices.DeleteFunc(slices.Clone(tools), func(tool string) bool {
		_, err := exec.LookPath(tool)
		return err == nil
	})
}

// packagesOf returns the packages of the tools, each once and in order.
func packagesOf(tools []string) []string {
	names := make([]string, 0, len(tools))
	for _, tool := range tools {
		name, ok := debian[tool]
		if !ok {
			name = tool
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
