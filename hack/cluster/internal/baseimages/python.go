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
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/command"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
)

// pythonVersion is the Python of pythonUserland.
const pythonVersion = "3.13"

// pythonUserland is Debian with its own Python. It has the packages of Kiln's wrapper, so
// builds do not download them, and Flask for functions in its style. Every machine can
// reach Debian's archive, but not a package index.
var pythonUserland = userland{
	suite:   "trixie",
	include: "ca-certificates,python3,python3-pip,python3-uvicorn,python3-uvloop,python3-httptools,python3-flask",
	public:  "python:" + pythonVersion + "-slim-trixie",
}

// python makes the image with Python.
func (b *builder) python(ctx context.Context, log io.Writer) (string, error) {
	img, err := b.debian(ctx, log, pythonUserland, "python", pythonVersion, "python3")
	return img.ref, err
}

// measuredUserland is pythonUserland with the servers that benchmarks compare to Kiln's
// wrapper.
var measuredUserland = userland{suite: pythonUserland.suite, include: pythonUserland.include + ",python3-gunicorn"}

// pythonProgram runs the Python in its folder with the C library of that Python, which
// may differ from this machine's.
const pythonProgram = `#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/root
PYTHONHOME=$root/usr exec "$root"/lib*/ld-linux-*.so.* --argv0 "$root/usr/bin/python3" \
  --library-path "$(echo "$root"/usr/lib/*-linux-gnu)" "$root/usr/bin/python3" "$@"
`

// Python unpacks the Python of the base image, with Flask and Gunicorn, and returns the
// path of a program that runs it on this machine. It needs Linux.
func Python(ctx context.Context, host *env.Host) (program string, err error) {
	b := &builder{host: host}
	err = b.part(ctx, "Python with Flask and Gunicorn", func(ctx context.Context, log io.Writer) error {
		archive, err := b.rootfs(ctx, log, measuredUserland)
		if err != nil {
			return err
		}
		key, err := cache.Key(cache.Text(pythonProgram, filepath.Dir(archive)))
		if err != nil {
			return err
		}
		dir, err := host.Store.Get(ctx, "python", key, func(dir string) error {
			root := filepath.Join(dir, "root")
			if err := os.Mkdir(root, 0o755); err != nil {
				return fmt.Errorf("failed to make folder: %w", err)
			}
			if err := command.New("tar", "--extract", "--no-same-owner", "--file="+archive, "--directory="+root).Run(ctx, log); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(pythonProgram), 0o755); err != nil {
				return fmt.Errorf("failed to write program: %w", err)
			}
			return nil
		})
		program = filepath.Join(dir, "python3")
		return err
	})
	return program, err
}
