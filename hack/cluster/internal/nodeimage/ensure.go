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

package nodeimage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/kiln-dev/kiln/hack/cluster/internal/engine"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
	"github.com/kiln-dev/kiln/hack/cluster/internal/gobuild"
	"github.com/kiln-dev/kiln/hack/cluster/internal/kindcluster"
	"github.com/kiln-dev/kiln/hack/cluster/internal/packages"
)

const (
	// imageVariable names the environment variable with the user's choice.
	imageVariable = "NODE_IMAGE"
	// hub answers, perhaps with 401, if kind's image can be pulled.
	hub = "https://registry-1.docker.io/v2/"
	// hubTimeout bounds its answer. Without a network the build should start soon.
	hubTimeout = 3 * time.Second
)

// Ensure loads a node image into the engine: the user's, else kind's if it can be pulled,
// else the one built from source.
func Ensure(ctx context.Context, host *env.Host, e *engine.Engine) (kindcluster.Image, error) {
	if ref := os.Getenv(imageVariable); ref != "" {
		return given(ctx, host, e, ref)
	}
	if reachable(ctx, hub) {
		ref, err := pullKind(ctx, host, e)
		if err == nil {
			return kindcluster.Image{Ref: ref}, nil
		}
		if ctx.Err() != nil {
			return kindcluster.Image{}, err
		}
		host.Reporter.Printf("        kind's own node image cannot be pulled (%v): it is built from source", err)
	}
	if err := possible(ctx, host); err != nil {
		return kindcluster.Image{}, err
	}
	file, key, err := Build(ctx, host)
	if err != nil {
		return kindcluster.Image{}, err
	}
	ref := "kiln/node:" + key
	if has(ctx, e, ref) {
		return kindcluster.Image{Ref: ref, Built: true}, nil
	}
	err = host.Reporter.Part(ctx, "node image into engine", func(ctx context.Context, log io.Writer) error {
		return e.Docker("import", "--change", "ENV container=docker",
			"--change", `ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]`, file, ref).Run(ctx, log)
	})
	return kindcluster.Image{Ref: ref, Built: true}, err
}

// given returns the image that the user wants.
func given(ctx context.Context, host *env.Host, e *engine.Engine, ref string) (kindcluster.Image, error) {
	image := kindcluster.Image{Ref: ref, Built: strings.HasPrefix(ref, "kiln/node:")}
	if has(ctx, e, ref) {
		return image, nil
	}
	return image, host.Reporter.Part(ctx, "pull of node image", func(ctx context.Context, log io.Writer) error {
		return e.Docker("pull", ref).Run(ctx, log)
	})
}

// pullKind pulls the image that the pinned kind would use.
func pullKind(ctx context.Context, host *env.Host, e *engine.Engine) (ref string, err error) {
	err = host.Reporter.Part(ctx, "kind's node image", func(ctx context.Context, log io.Writer) error {
		bin, err := gobuild.Build(ctx, host.Store, log, gobuild.Command{
			Name: "defaultimage", Module: host.ThirdParty("kind"), Package: "./defaultimage", First: true,
		})
		if err != nil {
			return err
		}
		if ref, err = output(ctx, bin); err != nil || has(ctx, e, ref) {
			return err
		}
		return e.Docker("pull", ref).Run(ctx, log)
	})
	return ref, err
}

func has(ctx context.Context, e *engine.Engine, ref string) bool {
	_, err := e.Docker("image", "inspect", "--format", "{{.Id}}", ref).Output(ctx)
	return err == nil
}

// reachable reports whether a registry answers.
func reachable(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusUnauthorized
}

// possible returns, in one line, why the image cannot be built from source here.
func possible(ctx context.Context, host *env.Host) error {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return fmt.Errorf("kind's own node image cannot be pulled, and only root on Linux can build one: please set %s", imageVariable)
	}
	return host.Reporter.Part(ctx, "tools for the node image", func(ctx context.Context, log io.Writer) error {
		return packages.Ensure(ctx, log, "mmdebstrap")
	})
}
