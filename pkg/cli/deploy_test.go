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
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func TestCreate(t *testing.T) {
	files(t, map[string]string{"handler.js": "source", "package.json": "{}", "other.json": "{ }", "fn.py": "python"})
	w := newWorld(t)
	w.want("function.serverless.kiln.dev/fn created\n", "create", "fn", "--runtime=nodejs22", "--file=handler.js", "--deps=other.json")
	want := v1alpha1.FunctionSpec{Runtime: "nodejs22", Source: "source", Deps: "{ }"}
	if diff := cmp.Diff(want, w.function("fn").Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	w.wantError("function fn already exists in namespace default", "kubectl fn deploy fn", "create", "fn")
	w.wantError("no runtime was given for fn.py", "kubectl fn describe-runtime, and then --runtime=NAME", "create", "py", "--file=fn.py")
	w.wantError("failed to read source", "--file=FILE, or start with: kubectl fn init DIR --runtime=nodejs24", "create", "a", "--file=none.js")
	w.wantError("failed to read dependencies", "--deps=FILE", "create", "a", "--deps=none.json")
	w.wantError(`--dry-run must be client, server or none, not "yes"`, "--dry-run=client, server or none", "create", "a", "--dry-run=yes")

	got, err := w.run("create", "dry", "--dry-run=client", "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	var fn v1alpha1.Function
	if err := yaml.UnmarshalStrict([]byte(got), &fn); err != nil || fn.Kind != "Function" || fn.Spec.Source != "source" || fn.Spec.Deps != "{}" {
		t.Errorf("kubectl fn create --dry-run=client -o yaml prints no such Function: %v\n%s", err, got)
	}
	w.want("function.serverless.kiln.dev/dry created (client dry run)\n", "create", "dry", "--dry-run=client")
	if _, err := w.clients.function(t.Context(), "dry"); err == nil {
		t.Error("a dry run has created a Function")
	}
}

func TestCreateWithoutSource(t *testing.T) {
	files(t, nil)
	newWorld(t).wantError("folder . must have exactly one of handler.js, handler.py, but has 0",
		"--file=FILE, or start with: kubectl fn init DIR --runtime=nodejs24", "create", "fn")
	files(t, map[string]string{"handler.js": "", "handler.py": ""})
	newWorld(t).wantError("folder . must have exactly one of handler.js, handler.py, but has 2", "--file=FILE, or start with: kubectl fn init DIR --runtime=nodejs24", "create", "fn")
}

func TestDeploy(t *testing.T) {
	files(t, map[string]string{"handler.js": "new source"})
	w := newWorld(t, newFunction("fn", builds), taskRun(), buildPod())
	w.onWatch(func() { w.update("fn", serves) })
	w.want(`
function.serverless.kiln.dev/fn unchanged
fake logsfunction.serverless.kiln.dev/fn runs at http://fn.default.svc.cluster.local
`, "deploy", "fn")
	if got, want := w.errOut.String(), "Building: TaskRun fn-1 runs.\nRunning: Revision fn-00002 serves.\n"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	updated := false
	for _, action := range w.kiln.Actions() {
		updated = updated || action.GetVerb() == "update"
	}
	if !updated {
		t.Error("the Function was not updated")
	}

	w = newWorld(t)
	w.onWatch(func() { w.update("fn", buildFailed) })
	w.wantError("function fn failed: TaskRunFailed: Correct it.", "kubectl fn status fn", "deploy", "fn")
	if got, want := w.out.String(), "function.serverless.kiln.dev/fn created\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	w = newWorld(t, newFunction("fn", builds))
	w.wantError("function fn is not running after 10ms", "kubectl fn status fn", "deploy", "fn", "--timeout=10ms")
}

// Who has enough of looking must find the Function as it would be without.
// TestDeployInsteadOfGit wants that a file takes the place of a repository.
func TestDeployInsteadOfGit(t *testing.T) {
	files(t, map[string]string{"handler.js": "source"})
	fn := newFunction("fn", serves)
	fn.Spec.Source, fn.Spec.Git = "", &v1alpha1.GitSource{URL: "https://example.com/a.git"}
	fn.Status.Source = &v1alpha1.SourceStatus{Commit: "abc123"}
	w := newWorld(t, fn)
	if got, err := w.run("status", "fn"); err != nil || !strings.Contains(got, "\nSource    commit abc123\n") {
		t.Errorf("kubectl fn status prints no commit: %v\n%s", err, got)
	}
	w.onWatch(func() { w.update("fn", serves) })
	if _, err := w.run("deploy", "fn"); err != nil {
		t.Fatal(err)
	}
	if spec := w.function("fn").Spec; spec.Source != "source" || spec.Git != nil {
		t.Errorf("the spec is %+v", spec)
	}
}

func TestDeployInterrupted(t *testing.T) {
	files(t, map[string]string{"handler.js": "source"})
	w := newWorld(t)
	ctx, interrupt := context.WithCancel(t.Context())
	w.onWatch(interrupt)
	if _, err := w.runIn(ctx, "deploy", "fn"); !isInterrupted(err) {
		t.Errorf("kubectl fn deploy returns %v", err)
	}
	if got, want := w.errOut.String(), "The deployment continues. See: kubectl fn status fn\n"; !strings.HasSuffix(got, want) {
		t.Errorf("it says %q, want the end %q", got, want)
	}
	w.function("fn")
}
