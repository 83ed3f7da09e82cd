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

package baseimages

import (
	"context"
	"io"
	"os"

	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
)

// gitUserland has Git with its server for HTTP, and OpenSSH's server. It uses the release
// of another image, so it downloads few more packages.
var gitUserland = userland{
	suite:   nodeUserland.suite,
	include: "ca-certificates,git,openssh-server",
	// Each server makes its own keys.
	hooks: []string{`rm -f "$1"/etc/ssh/ssh_host_*`},
}

// Git returns the reference by digest of an image with Git and an SSH server below the
// repository, and pushes it if needed. It needs Linux.
func Git(ctx context.Context, host *env.Host, repo string) (ref string, err error) {
	trusted, err := hostBundle(os.Getenv)
	if err != nil {
		return "", err
	}
	b := &builder{host: host, repo: repo, trusted: trusted}
	err = b.part(ctx, "Git base image", func(ctx context.Context, log io.Writer) error {
		img, err := b.debian(ctx, log, gitUserland, "git", gitUserland.suite, "bash")
		ref = img.ref
		return err
	})
	return ref, err
}
