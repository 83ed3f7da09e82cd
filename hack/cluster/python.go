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
	"runtime"

	"github.com/kiln-dev/kiln/hack/cluster/internal/baseimages"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
)

// python returns the path of a program that runs the Python of the local cluster's base
// image on this machine.
func python(ctx context.Context, host *env.Host) (string, error) {
	if runtime.GOOS != "linux" {
		return "", errors.New("the Python of Debian runs on Linux only")
	}
	return baseimages.Python(ctx, host)
}
