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
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/kiln-dev/kiln/hack/cluster/internal/baseimages"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
)

// gitImage returns the reference of an image with Debian's Git and SSH server, which it
// pushes to ko's repository. It returns "" if Debian's tools do not run here.
func gitImage(ctx context.Context, host *env.Host) (string, error) {
	if runtime.GOOS != "linux" {
		fmt.Fprintln(os.Stderr, "Debian's packages of Git and OpenSSH are put into an image on Linux only.")
		return "", nil
	}
	repo := os.Getenv("KO_DOCKER_REPO")
	if repo == "" {
		return "", errors.New("KO_DOCKER_REPO must say where to push the image: . build/cluster/env sets it")
	}
	return baseimages.Git(ctx, host, repo+"/base")
}
