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

package builds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const nameHashLength = 10

// NameOf returns the name of the object that runs the attempt at the build. Each attempt
// has its own name, because the pod of an earlier attempt may still exist.
func NameOf(fn *v1alpha1.Function, request Request, attempt int32) string {
	text := fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s", fn.UID, request.Tag, request.Generation, request.Rebuild)
	if request.Commit != "" {
		text = fmt.Appendf(text, "\x00%s", request.Commit)
	}
	sum := sha256.Sum256(text)
	return kmeta.ChildName(fn.Name, fmt.Sprintf("-%s-%d", hex.EncodeToString(sum[:])[:nameHashLength], attempt))
}
