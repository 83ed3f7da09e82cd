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
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// files writes files into a folder, which is the current one then.
func files(t *testing.T, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

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

// answering has calls answered by a server that tells what it was asked.
func (w *world) answering(status int) (asked *http.Request, to *target) {
	asked, to = &http.Request{}, &target{}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		*asked = *in
		out.WriteHeader(status)
		_, _ = in.Body.Read(make([]byte, 1))
		_, _ = out.Write([]byte("answer"))
	}))
	w.Cleanup(server.Close)
	w.forward = func(_ context.Context, _ *Clients, namespace, pod string) (string, func(), error) {
		*to = target{namespace: namespace, pod: pod}
		return server.Listener.Addr().String(), func() {}, nil
	}
	return asked, to
}

func TestInvoke(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), pod("fn-00001", "a"), crashing("fn-00002", "b"), pod("fn-00002", "c"))
	asked, to := w.answering(http.StatusOK)
	w.want("answer", "invoke", "fn")
	if asked.Method != http.MethodGet || asked.Host != "fn.default.svc.cluster.local" || *to != (target{namespace: namespace, pod: "c"}) {
		t.Errorf("asked %s %s of %+v", asked.Method, asked.Host, *to)
	}
	if got := w.errOut.String(); !strings.HasPrefix(got, "\n200 OK in ") {
		t.Errorf("it says %q", got)
	}
	w.want("answer", "invoke", "fn", "-d", `{"a": 1}`, "--event=com.example.order")
	for name, want := range map[string]string{"Content-Type": "application/json", "Ce-Type": "com.example.order", "Ce-Specversion": "1.0"} {
		if got := asked.Header.Get(name); asked.Method != http.MethodPost || got != want {
			t.Errorf("%s with %s %q, want POST with %q", asked.Method, name, got, want)
		}
	}
	files(t, map[string]string{"data.txt": "text"})
	w.want("answer", "invoke", "fn", "-d", "@data.txt")
	if got, want := asked.Header.Get("Content-Type"), "text/plain; charset=utf-8"; got != want || asked.ContentLength != 4 {
		t.Errorf("type is %q, want %q; length is %d, want 4", got, want, asked.ContentLength)
	}
	w.wantError("failed to read data", "-d @FILE, or -d TEXT", "invoke", "fn", "-d", "@none")
	w.answering(http.StatusInternalServerError)
	w.wantError("function fn responded with 500 Internal Server Error", "kubectl fn logs fn", "invoke", "fn")
	newWorld(t, newFunction("fn", builds)).wantError("has no ready revision", "kubectl fn status fn", "invoke", "fn")
}

// What has no pods is called through the activator, which must be told whom.
func TestInvokeWakes(t *testing.T) {
	activator := pod("", "activator-1")
	activator.Namespace, activator.Labels = servingNamespace, map[string]string{"app": "activator"}
	w := newWorld(t, newFunction("fn", serves), activator)
	asked, to := w.answering(http.StatusOK)
	w.want("answer", "invoke", "fn")
	if *to != (target{namespace: servingNamespace, pod: "activator-1"}) ||
		asked.Header.Get(revisionHeader) != "fn-00002" || asked.Header.Get(namespaceHeader) != namespace {
		t.Errorf("asked %+v with %v", *to, asked.Header)
	}
	newWorld(t, newFunction("fn", serves)).wantError("neither revision fn-00002 nor Serving's activator has a ready pod", "kubectl get pods --namespace=knative-serving", "invoke", "fn")
}

func TestPick(t *testing.T) {
	traffic := []v1alpha1.TrafficStatus{
		{RevisionName: "a", Tag: "old"}, {RevisionName: "a", Percent: new(int64(10))}, {RevisionName: "b", Percent: new(int64(90))},
	}
	for number, want := range map[int64]string{0: "a", 9: "a", 10: "b", 99: "b"} {
		if got := pick(traffic, number); got != want {
			t.Errorf("pick(%d) = %q, want %q", number, got, want)
		}
	}
	if got := pick(nil, 0); got != "" {
		t.Errorf("pick of nothing = %q", got)
	}
}

func TestInit(t *testing.T) {
	dir := files(t, nil)
	w := newWorld(t)
	w.want("wrote fn/handler.py and fn/requirements.txt\n", "init", "fn", "--runtime=python313")
	if got, err := os.ReadFile(filepath.Join(dir, "fn", "handler.py")); err != nil || !strings.Contains(string(got), "def main(event, context):") {
		t.Errorf("handler.py is %q, %v", got, err)
	}
	w.wantError("handler.py already exists", "another folder", "init", "fn", "--runtime=python313")
	w.want("wrote own/Dockerfile and own/server.pl\n", "init", "own", "--runtime=dockerfile")
	own := filepath.Join(dir, "own")
	w.wantError("kubectl fn does not build Dockerfiles",
		"docker build -t fn "+own+" && docker run --rm -e PORT=8081 -p 8081:8081 fn, or kubectl fn deploy NAME --runtime=dockerfile --dir="+own,
		"run", "--dir=own", "--port=8081")
	w.wantError("runtime dockerfile needs a folder with a Dockerfile", "--dir=.", "create", "fn", "--runtime=dockerfile")
	w.wantError(`there is no starter for runtime "cobol"`, "--runtime=nodejs24 or --runtime=python313", "init", "x", "--runtime=cobol")
}

// TestRun runs what init wrote, and edits it.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Fatal("the tests of kubectl fn run need node on PATH: ", err)
	}
	dir := files(t, nil)
	w := newWorld(t)
	if _, err := w.run("init", ".", "--runtime=nodejs24"); err != nil {
		t.Fatal(err)
	}
	free := httptest.NewServer(nil)
	address := free.Listener.Addr().String()
	free.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := w.runIn(ctx, "run", "--port", address[strings.LastIndex(address, ":")+1:])
		ended <- err
	}()
	untilAnswer(t, "http://"+address, "hello world")
	source := "module.exports = { main: () => 'edited' };\n"
	if err := os.WriteFile(filepath.Join(dir, "handler.js"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	untilAnswer(t, "http://"+address, "edited")
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("kubectl fn run returns %v", err)
	}
	if _, err := http.Get("http://" + address); err == nil {
		t.Error("the function runs on after kubectl fn run has ended")
	}
}

// untilAnswer asks until the answer is as wanted; the test's own time limits it.
func untilAnswer(t *testing.T, url, want string) {
	t.Helper()
	for t.Context().Err() == nil {
		answer, err := http.Get(url)
		if err != nil {
			continue
		}
		got := make([]byte, len(want)+1)
		n, _ := answer.Body.Read(got)
		answer.Body.Close()
		if string(got[:n]) == want {
			return
		}
	}
	t.Fatal("the test has ended before the function answered ", want)
}
