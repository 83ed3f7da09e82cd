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

// Package names names what Kiln creates for a Function. All names are
// deterministic, so that a cache which lags behind, or a second controller, can
// create nothing twice.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
)

// hashLength is how much of a hash is enough in names that begin with the
// Function's own.
const hashLength = 10

// ConfigMap returns the name of the ConfigMap with the inputs of the build that
// makes the image of the given tag.
func ConfigMap(fn *v1alpha1.Function, tag string) string {
	return kmeta.ChildName(fn.Name, "-"+tag[:hashLength])
}

// TaskRun returns the name of the TaskRun that answers the request. Each
// attempt has a name of its own, as the pod of an earlier one may still be there.
func TaskRun(fn *v1alpha1.Function, want builds.Request, attempt int32) string {
	text := fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s", fn.UID, want.Tag, want.Generation, want.Rebuild)
	if want.Commit != "" {
		text = fmt.Appendf(text, "\x00%s", want.Commit)
	}
	sum := sha256.Sum256(text)
	return kmeta.ChildName(fn.Name, fmt.Sprintf("-%s-%d", hex.EncodeToString(sum[:])[:hashLength], attempt))
}

// Service returns the name of the Knative Service, which is part of the
// Function's address.
func Service(fn *v1alpha1.Function) string {
	return fn.Name
}
