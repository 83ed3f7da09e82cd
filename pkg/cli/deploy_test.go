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
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
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
	newWorld(t).wantError("folder . must have exactly one of handler.js, handler.ts, handler.py, but has 0",
		"--file=FILE, or start with: kubectl fn init DIR --runtime=nodejs24", "create", "fn")
	files(t, map[string]string{"handler.js": "", "handler.py": ""})
	newWorld(t).wantError("folder . must have exactly one of handler.js, handler.ts, handler.py, but has 2", "--file=FILE, or start with: kubectl fn init DIR --runtime=nodejs24", "create", "fn")
}

func TestDeploy(t *testing.T) {
	files(t, map[string]string{"handler.js": "new source"})
	w := newWorld(t, newFunction("fn", builds), taskRun(), buildPod())
	w.onWatch(func() { w.update("fn", serves) })
	w.want(`
function.serverless.kiln.dev/fn unchanged
fake logsfunction.serverless.kiln.dev/fn runs at http://fn.default.svc.cluster.local
`, "deploy", "fn")
	if got, want := w.errOut.String(), "Building: TaskRun fn-1 runs.\n"+running; got != want {
		t.Errorf("it prints %q, want %q", got, want)
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

// TestDeployInsteadOfGit replaces a repository with a file.
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
		t.Errorf("it prints %q, want the end %q", got, want)
	}
	w.function("fn")
}

func TestCreateDryRun(t *testing.T) {
	tests := map[string]struct {
		args        []string
		wantOut     string
		wantCreates []string
	}{
		"none":   {nil, "function.serverless.kiln.dev/fn created\n", []string{""}},
		"client": {[]string{"--dry-run=client"}, "function.serverless.kiln.dev/fn created (client dry run)\n", nil},
		"server": {[]string{"--dry-run=server"}, "function.serverless.kiln.dev/fn created (server dry run)\n", []string{metav1.DryRunAll}},
		"name":   {[]string{"--dry-run=client", "-o", "name"}, "function.serverless.kiln.dev/fn\n", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			files(t, map[string]string{"handler.js": "source"})
			w := newWorld(t)
			w.want(tc.wantOut, append([]string{"create", "fn"}, tc.args...)...)
			var creates []string
			for _, action := range w.kiln.Actions() {
				if create, ok := action.(clienttesting.CreateActionImpl); ok {
					creates = append(creates, strings.Join(create.CreateOptions.DryRun, ","))
				}
			}
			if diff := cmp.Diff(tc.wantCreates, creates); diff != "" {
				t.Errorf("dryRun of the requests (-want +got):\n%s", diff)
			}
		})
	}
}

// rejecting is a cluster whose webhook rejects each Function that a verb writes.
func rejecting(t *testing.T, verb string, objects ...runtime.Object) *world {
	w := newWorld(t, objects...)
	w.kiln.PrependReactor(verb, "functions", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrs.NewBadRequest("validation failed: spec.runtime is unknown")
	})
	return w
}

func TestWriteErrors(t *testing.T) {
	files(t, map[string]string{"handler.js": "source"})
	const words = "validation failed: spec.runtime is unknown"
	rejecting(t, "create").wantError("failed to create Function fn: "+words, "kubectl explain fn.spec", "create", "fn")
	rejecting(t, "create").wantError("failed to write Function fn: "+words, "kubectl explain fn.spec", "deploy", "fn")
	rejecting(t, "update", newFunction("fn")).wantError("failed to write Function fn: "+words, "kubectl explain fn.spec", "deploy", "fn")
	rejecting(t, "get").wantError("failed to write Function fn: "+words, "kubectl explain fn.spec", "deploy", "fn")
	newWorld(t).wantError("unable to match a printer", "kubectl fn create --help", "create", "fn", "-o", "xml")
}

// TestApply creates a Function, changes one, and leaves one unchanged.
func TestApply(t *testing.T) {
	functions := schema.GroupResource{Group: serverless.GroupName, Resource: "functions"}
	tests := map[string]struct {
		before    []runtime.Object
		changes   bool
		conflicts int
		want      string
	}{
		"new":                  {want: "created"},
		"changed":              {before: []runtime.Object{newFunction("fn")}, changes: true, want: "updated"},
		"unchanged":            {before: []runtime.Object{newFunction("fn")}, want: "unchanged"},
		"changed concurrently": {before: []runtime.Object{newFunction("fn")}, changes: true, conflicts: 2, want: "updated"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, tries := newWorld(t, tc.before...), 0
			w.kiln.PrependReactor("update", "functions", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if tries++; tries <= tc.conflicts {
					return true, nil, apierrs.NewConflict(functions, "fn", errors.New("the object has been modified"))
				}
				if tc.changes {
					action.(clienttesting.UpdateAction).GetObject().(*v1alpha1.Function).Generation++
				}
				return false, nil, nil
			})
			applied, done, err := w.clients.apply(t.Context(), "fn", func(fn *v1alpha1.Function) error {
				fn.Spec.Source = "applied"
				return nil
			})
			if err != nil || done != tc.want {
				t.Fatalf("apply() = %q, %v, want %q", done, err, tc.want)
			}
			if diff := cmp.Diff(w.function("fn"), applied); diff != "" || applied.Spec.Source != "applied" {
				t.Errorf("apply() returns another Function than the API server (-server +returned):\n%s", diff)
			}
		})
	}
	_, _, err := newWorld(t, newFunction("fn")).clients.apply(t.Context(), "fn", func(*v1alpha1.Function) error {
		return try(errors.New("no source"), "--file=FILE")
	})
	if want := "no source\nTry: --file=FILE"; err == nil || err.Error() != want {
		t.Errorf("apply() = %v, want the error of the change", err)
	}
}

func TestDeployEnds(t *testing.T) {
	files(t, map[string]string{"handler.js": "source"})
	invalid := func(fs *v1alpha1.FunctionStatus) {
		fs.MarkConfigurationFailed(v1alpha1.ReasonRuntimeUnknown, "There is no runtime nodejs24.")
	}
	crashes := func(fs *v1alpha1.FunctionStatus) {
		built(fs)
		fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "Container failed with: no such module")
	}
	overQuota := func(fs *v1alpha1.FunctionStatus) {
		builds(fs)
		fs.MarkBuildFailed(v1alpha1.ReasonQuotaExceeded, "The quota allows no more pods.")
	}
	tests := map[string]struct {
		before, after func(*v1alpha1.FunctionStatus)
		wantWords     string
		wantErr       string
	}{
		"runs": {
			before: builds, after: serves,
			wantWords: "Building: TaskRun fn-1 runs.\n" + running,
		},
		"runs after the quota allows it": {
			before: overQuota, after: serves,
			wantWords: "Failed: The quota allows no more pods.\n" + running,
		},
		"is invalid": {
			before: builds, after: invalid, wantErr: "function fn failed: RuntimeUnknown: There is no runtime nodejs24.",
			wantWords: "Building: TaskRun fn-1 runs.\nFailed: There is no runtime nodejs24.\n",
		},
		"crashes": {
			before: built, after: crashes, wantErr: "function fn failed: ServiceFailed: Container failed with: no such module",
			wantWords: deploying + "Failed: Container failed with: no such module\n",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newFunction("fn", tc.before))
			w.onWatch(func() { w.update("fn", tc.after) })
			if tc.wantErr == "" {
				w.want(`
function.serverless.kiln.dev/fn unchanged
function.serverless.kiln.dev/fn runs at http://fn.default.svc.cluster.local
`, "deploy", "fn")
			} else {
				w.wantError(tc.wantErr, "kubectl fn status fn", "deploy", "fn")
			}
			if diff := cmp.Diff(tc.wantWords, w.errOut.String()); diff != "" {
				t.Errorf("standard error (-want +got):\n%s", diff)
			}
		})
	}
}

// A status of an earlier version must not end the command.
func TestDeployWaitsForTheNewVersion(t *testing.T) {
	files(t, map[string]string{"handler.js": "source"})
	stale := newFunction("fn", buildFailed)
	stale.Generation = 3
	w := newWorld(t, stale)
	w.onWatch(func() {
		fn := newFunction("fn", serves)
		fn.Generation, fn.Status.ObservedGeneration = 3, 3
		if _, err := w.kiln.ServerlessV1alpha1().Functions(namespace).Update(context.Background(), fn, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	})
	if _, err := w.run("deploy", "fn"); err != nil {
		t.Fatal(err)
	}
	if got, want := w.errOut.String(), "Kiln has not processed the Function yet.\n"+running; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
}

// A log that cannot be read is printed as an error, and does not end the command.
func TestDeployWithoutTheLog(t *testing.T) {
	files(t, map[string]string{"handler.js": "source"})
	w := newWorld(t, newFunction("fn", builds), taskRun(), buildPod())
	watching := make(chan struct{})
	w.onWatch(func() { close(watching) })
	w.logs(func(url.Values) (int, string) {
		// The fake API server does not replay changes to a later watch.
		<-watching
		w.update("fn", serves)
		return http.StatusInternalServerError, "disk is full"
	})
	out := &safeBuffer{full: func() {}}
	w.ErrOut = out
	if _, err := w.run("deploy", "fn"); err != nil {
		t.Fatal(err)
	}
	if want := "failed to read the log of pod fn-1-pod: "; !strings.Contains(out.String(), want) {
		t.Errorf("it prints %q, want %q", out, want)
	}
}

func TestProgress(t *testing.T) {
	stale := newFunction("fn", serves)
	stale.Generation++
	fresh := &v1alpha1.Function{}
	followed := newFunction("fn", serves, func(fs *v1alpha1.FunctionStatus) { fs.MarkSourceNotFollowed("The repository does not respond.") })
	tests := map[string]struct {
		fn   *v1alpha1.Function
		want string
	}{
		"stale":                {stale, "Kiln has not processed the Function yet."},
		"without conditions":   {fresh, "Initializing: Configuration"},
		"only a reason":        {newFunction("fn", func(fs *v1alpha1.FunctionStatus) { fs.MarkConfigurationUnknown("Reading", "") }), "Initializing: Reading"},
		"builds":               {newFunction("fn", builds), "Building: TaskRun fn-1 runs."},
		"build failed":         {newFunction("fn", buildFailed), "Failed: Correct it."},
		"waits for Serving":    {newFunction("fn", built), strings.TrimSpace(deploying)},
		"runs":                 {newFunction("fn", serves), strings.TrimSpace(running)},
		"branch does not stop": {followed, strings.TrimSpace(running)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := progress(tc.fn); got != tc.want {
				t.Errorf("progress() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRunningBuild(t *testing.T) {
	reason := func(reason string) *v1alpha1.Function {
		return newFunction("fn", builds, func(fs *v1alpha1.FunctionStatus) { fs.MarkBuildUnknown(reason, "") })
	}
	stale := newFunction("fn", builds)
	stale.Generation++
	taskRun := &v1alpha1.BuildReference{APIVersion: "tekton.dev/v1", Kind: "TaskRun", Name: "fn-1"}
	tests := map[string]struct {
		fn   *v1alpha1.Function
		want *v1alpha1.BuildReference
	}{
		"created":   {reason(v1alpha1.ReasonTaskRunCreated), taskRun},
		"running":   {reason(v1alpha1.ReasonTaskRunRunning), taskRun},
		"queued":    {reason(v1alpha1.ReasonBuildQueued), nil},
		"retrying":  {reason(v1alpha1.ReasonBuildRetrying), nil},
		"ended":     {newFunction("fn", built), nil},
		"failed":    {newFunction("fn", buildFailed), nil},
		"never ran": {newFunction("fn"), nil},
		"stale":     {stale, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, runningBuild(tc.fn)); diff != "" {
				t.Errorf("runningBuild() (-want +got):\n%s", diff)
			}
		})
	}
}
