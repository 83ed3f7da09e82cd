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

const (
	// lockTimeout makes apt-get wait for another run: many machines update themselves at
	// start.
	lockTimeout = "--option=DPkg::Lock::Timeout=600"
	// policyFile is the program that decides whether packages may start services.
	policyFile = "/usr/sbin/policy-rc.d"
	policy     = "#!/bin/sh\n# Of Kiln's cluster program, while it installs packages.\nexit 101\n"
)

// debian maps tools to the Debian packages that contain them.
var debian = map[string]string{
	"dockerd":    "docker.io",
	"docker":     "docker.io",
	"ip":         "iproute2",
	"iptables":   "iptables",
	"jq":         "jq",
	"mmdebstrap": "mmdebstrap",
	"nft":        "nftables",
}

// installing is held while packages are installed, because apt-get does not wait for
// another run.
var installing sync.Mutex

// Ensure installs the packages of the tools that are missing. If it cannot, its error
// says what to do.
func Ensure(ctx context.Context, log io.Writer, tools ...string) error {
	installing.Lock()
	defer installing.Unlock()
	missing := Missing(tools...)
	if len(missing) == 0 {
		return nil
	}
	names := packagesOf(missing)
	install := append([]string{"apt-get", lockTimeout, "install", "--yes", "--no-install-recommends"}, names...)
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("missing tools: %s; please install them (on Debian they are in the packages %s)",
			strings.Join(missing, ", "), strings.Join(names, ", "))
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("missing tools: %s; please run: sudo %s", strings.Join(missing, ", "), strings.Join(install, " "))
	}
	if err := installAll(ctx, log, install); err != nil {
		return fmt.Errorf("failed to install %s: %w", strings.Join(names, ", "), err)
	}
	if missing := Missing(tools...); len(missing) > 0 {
		return fmt.Errorf("still missing after installing %s: %s", strings.Join(names, ", "), strings.Join(missing, ", "))
	}
	return nil
}

// installAll installs packages. It never interrupts the package manager, which would
// leave a package half installed.
func installAll(ctx context.Context, log io.Writer, install []string) error {
	stay, err := forbidStarting()
	if err != nil {
		return err
	}
	defer stay()
	run := func(args ...string) error {
		cmd := command.New(args...).With("DEBIAN_FRONTEND=noninteractive")
		cmd.Unbroken = true
		return cmd.Run(ctx, log)
	}
	// The lists may be current. To try is faster than to fetch them.
	if run(install...) == nil {
		return nil
	}
	// An earlier run may have been interrupted.
	if err := run("dpkg", "--configure", "-a"); err != nil {
		return err
	}
	if err := run("apt-get", lockTimeout, "update"); err != nil {
		return err
	}
	return run(install...)
}

// forbidStarting keeps packages from starting services, until the returned function is
// called: Docker's service would run outside our namespace.
func forbidStarting() (func(), error) {
	data, err := os.ReadFile(policyFile)
	if err == nil && string(data) != policy {
		return func() {}, nil // The machine has a policy of its own.
	}
	if err := os.WriteFile(policyFile, []byte(policy), 0o755); err != nil {
		return nil, fmt.Errorf("failed to forbid the start of services: %w", err)
	}
	return func() { os.Remove(policyFile) }, nil
}

// Missing returns the tools that are not installed.
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
