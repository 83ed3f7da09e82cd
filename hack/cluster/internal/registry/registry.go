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

// Package registry runs the cluster's container registry: a container of the
// engine, whose images are kept in the cache.
package registry

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kiln-dev/kiln/hack/cluster/internal/engine"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/gobuild"
)

const (
	// container is the name of the container, and of the registry in the user's engine.
	container = "kiln-registry"
	// domain makes clients speak plain HTTP.
	domain = ".local"
	port   = "5000"
	// hostPort is the host's port in the user's engine.
	hostPort = "5001"
	// network is the one that kind puts its nodes in.
	network = "kind"
	// keyLabel identifies the image of a container.
	keyLabel = "dev.kiln.registry"
	// storageLabel identifies the owner of a container.
	storageLabel = "dev.kiln.registry.storage"

	startTimeout = 30 * time.Second
	poll         = 50 * time.Millisecond
)

// Addresses returns the addresses of the registry. Our own engine has one address for all
// clients. The user's engine has those that kind documents.
func Addresses(e *engine.Engine) env.Registry {
	if e.Own {
		address := engine.Address + ":" + port
		return env.Registry{Push: address, Pods: address, Nodes: address}
	}
	inside := container + domain + ":" + port
	return env.Registry{Push: "localhost:" + hostPort, Pods: inside, Nodes: inside}
}

// WriteHosts writes a directory for /etc/containerd/certs.d with the address of the
// registry.
func WriteHosts(dir string, e *engine.Engine) error {
	a := Addresses(e)
	for _, name := range []string{a.Push, a.Pods} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("failed to create directory of registry hosts: %w", err)
		}
		text := fmt.Sprintf("server = %[1]q\n\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+a.Pods)
		if err := os.WriteFile(filepath.Join(path, "hosts.toml"), []byte(text), 0o644); err != nil {
			return fmt.Errorf("failed to write registry hosts: %w", err)
		}
	}
	return nil
}

// Build returns the path of the registry's binary.
func Build(ctx context.Context, host *env.Host, log io.Writer) (string, error) {
	return gobuild.Build(ctx, host.Store, log, gobuild.Command{
		Name: "registry-server", Module: host.ThirdParty("registry"), GOOS: "linux", GOARCH: host.Arch, First: true,
	})
}

// Start starts the registry from the given binary, unless it runs.
func Start(ctx context.Context, host *env.Host, e *engine.Engine, binary string, log io.Writer) error {
	key := filepath.Base(filepath.Dir(binary)) // Of its cache entry.
	if Healthy(ctx, e) && runs(ctx, e, key, storageDir(host)) {
		return nil
	}
	image := "kiln/registry:" + key
	if _, err := e.Docker("image", "inspect", "--format", "{{.Id}}", image).Output(ctx); err != nil {
		if err := load(ctx, e, image, binary, log); err != nil {
			return err
		}
	}
	storage := storageDir(host)
	if err := os.MkdirAll(storage, 0o755); err != nil {
		return fmt.Errorf("failed to create registry storage: %w", err)
	}
	if err := replace(ctx, host, e, runArgs(e, image, key, storage), log); err != nil {
		// A request of a killed run may still have been in progress.
		fmt.Fprintln(log, err)
		if err := replace(ctx, host, e, runArgs(e, image, key, storage), log); err != nil {
			return err
		}
	}
	return wait(ctx, e)
}

func storageDir(host *env.Host) string { return host.Store.Path("registry") }

// replace removes the registry's container and runs another one.
func replace(ctx context.Context, host *env.Host, e *engine.Engine, run []string, log io.Writer) error {
	if err := Stop(ctx, host, e, log); err != nil {
		return err
	}
	return e.Docker(run...).Run(ctx, log)
}

// runArgs returns the arguments that run the registry.
func runArgs(e *engine.Engine, image, key, storage string) []string {
	args := []string{
		"run", "--detach", "--name", container, "--restart", "always",
		"--label", keyLabel + "=" + key, "--label", storageLabel + "=" + storage,
		"--volume", storage + ":/var/lib/registry",
		// The files must belong to the user.
		"--user", fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()),
	}
	if e.Own {
		// The engine's host is its own network namespace.
		return append(args, "--network", "host", image, "-addr", Addresses(e).Push)
	}
	return append(args, "--publish", "127.0.0.1:"+hostPort+":"+port, image)
}

// Connect puts the registry into kind's network, where nodes and pods find it by name.
// Our own engine does not need this.
func Connect(ctx context.Context, e *engine.Engine, log io.Writer) error {
	if e.Own {
		return nil
	}
	networks, err := e.Docker("inspect", "--format", "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}", container).Output(ctx)
	if err != nil || slices.Contains(strings.Fields(networks), network) {
		return err
	}
	return e.Docker("network", "connect", "--alias", container+domain, network, container).Run(ctx, log)
}

// load makes an image that contains only the binary.
func load(ctx context.Context, e *engine.Engine, image, binary string, log io.Writer) error {
	data, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("failed to read registry: %w", err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "registry", Mode: 0o755, Size: int64(len(data))}); err != nil {
		return fmt.Errorf("failed to pack registry: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("failed to pack registry: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("failed to pack registry: %w", err)
	}
	return e.Docker("import", "--change", `ENTRYPOINT ["/registry"]`, "-", image).Reading(&archive).Run(ctx, log)
}

// runs reports whether the container of that key and storage runs.
func runs(ctx context.Context, e *engine.Engine, key, storage string) bool {
	out, err := e.Docker("inspect", "--format",
		`{{.State.Running}} {{index .Config.Labels "`+keyLabel+`"}} {{index .Config.Labels "`+storageLabel+`"}}`, container).Output(ctx)
	return err == nil && out == "true "+key+" "+storage
}

// Healthy reports whether the registry answers.
func Healthy(ctx context.Context, e *engine.Engine) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+Addresses(e).Push+"/v2/", nil)
	if err != nil {
		return false
	}
	// The request must not use the user's proxy.
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return false
	}
	return errors.Join(resp.Body.Close()) == nil && resp.StatusCode == http.StatusOK
}

func wait(ctx context.Context, e *engine.Engine) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !Healthy(ctx, e) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("registry does not answer: %w", ctx.Err())
		case <-time.After(poll):
		}
	}
	return nil
}

// Stop removes the registry's container. It keeps the images, and a registry with another
// storage.
func Stop(ctx context.Context, host *env.Host, e *engine.Engine, log io.Writer) error {
	ids, err := e.Docker("ps", "--all", "--quiet", "--filter", "label="+storageLabel+"="+storageDir(host)).Output(ctx)
	if err != nil || ids == "" {
		return err
	}
	return e.Docker(append([]string{"rm", "--force", "--volumes"}, strings.Fields(ids)...)...).Run(ctx, log)
}
