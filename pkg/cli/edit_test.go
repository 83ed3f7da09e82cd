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

package cli

import (
	"testing"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

func TestRebuildAndDelete(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves))
	w.want("function.serverless.kiln.dev/fn rebuild requested\n", "rebuild", "fn")
	if got, want := w.function("fn").Annotations[serverless.RebuildAnnotationKey], "2026-01-01T12:00:00Z"; got != want {
		t.Errorf("the annotation is %q, want %q", got, want)
	}
	w.want("function.serverless.kiln.dev \"fn\" deleted\n", "delete", "fn")
	w.wantError("there is no Function fn", "kubectl fn list --all-namespaces", "delete", "fn")
	w.wantError("expected the name of at least one Function", "kubectl fn list", "delete")
}
