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
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

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

func TestRebuild(t *testing.T) {
	fn := newFunction("fn", serves)
	fn.Annotations = map[string]string{"team": "a", serverless.RebuildAnnotationKey: "2025-01-01T00:00:00Z"}
	w := newWorld(t, fn)
	w.want("function.serverless.kiln.dev/fn rebuild requested\n", "rebuild", "fn")
	want := map[string]string{"team": "a", serverless.RebuildAnnotationKey: "2026-01-01T12:00:00Z"}
	if diff := cmp.Diff(want, w.function("fn").Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(fn.Spec, w.function("fn").Spec); diff != "" {
		t.Errorf("the spec changed:\n%s", diff)
	}
	if got, want := w.errOut.String(), "Watch it: kubectl fn build-logs --follow fn\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	// Two rebuilds within a second are two rebuilds.
	w.now = func() time.Time { return noon.Add(time.Millisecond) }
	w.want("function.serverless.kiln.dev/fn rebuild requested\n", "rebuild", "fn")
	if got, want := w.function("fn").Annotations[serverless.RebuildAnnotationKey], "2026-01-01T12:00:00.001Z"; got != want {
		t.Errorf("the annotation is %q, want %q", got, want)
	}
}

// An error of one Function must not keep the others.
func TestDeleteSeveral(t *testing.T) {
	w := newWorld(t, newFunction("a"), newFunction("b"), newFunction("kept"), newFunction("locked"))
	w.kiln.PrependReactor("delete", "functions", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.DeleteAction).GetName()
		return name == "locked", nil, apierrs.NewForbidden(schema.GroupResource{Group: serverless.GroupName, Resource: "functions"}, name, errors.New("no role"))
	})
	const locked = `failed to delete Function locked: functions.serverless.kiln.dev "locked" is forbidden: no role`
	w.wantError("there is no Function gone in namespace default\n"+locked+"\nTry: ", "kubectl fn list --all-namespaces", "delete", "gone", "a", "locked", "b")
	if got, want := w.out.String(), "function.serverless.kiln.dev \"a\" deleted\nfunction.serverless.kiln.dev \"b\" deleted\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	w.wantError(locked, askAdministrator, "delete", "locked")
	w.want("kept locked", "list", "-o", "jsonpath={.items[*].metadata.name}")
}
