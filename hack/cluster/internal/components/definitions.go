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

package components

import (
	"context"
	"slices"

	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
)

// Definitions returns the unchanged CustomResourceDefinitions of Tekton and Serving.
func Definitions(ctx context.Context, host *env.Host) ([]byte, error) {
	var out []object
	for _, c := range []component{tekton, serving} {
		raw, err := c.read(ctx, host.ThirdParty(c.module))
		if err != nil {
			return nil, err
		}
		objects, err := decode(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, slices.DeleteFunc(objects, func(o object) bool { return o.kind() != "CustomResourceDefinition" })...)
	}
	return encode(out)
}
