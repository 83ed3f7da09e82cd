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
)

// pythonVersion is the Python of pythonUserland.
const pythonVersion = "3.13"

// pythonUserland is Debian with its own Python. It has the packages of Kiln's
// wrapper, so that builds find them satisfied: Debian's archive is what every
// machine can reach, a package index is not.
var pythonUserland = userland{
	suite:   "trixie",
	include: "ca-certificates,python3,python3-pip,python3-uvicorn,python3-uvloop,python3-httptools",
	public:  "python:" + pythonVersion + "-slim-trixie",
}

// python makes the image with Python.
func (b *builder) python(ctx context.Context, log io.Writer) (string, error) {
	img, err := b.debian(ctx, log, pythonUserland, "python", pythonVersion, "python3")
	return img.ref, err
}
