//go:build e2e

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

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"knative.dev/pkg/apis"
	"knative.dev/serving/pkg/apis/autoscaling"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// terminal is a user's shell in a folder, with the plugin on its PATH.
type terminal struct {
	*env
	dir, plugins string
}

func newTerminal(e *env) *terminal {
	e.Helper()
	plugins, err := filepath.Abs("../../build")
	if err != nil {
		e.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(plugins, "kubectl-fn")); err != nil {
		e.Fatalf("there is no plugin; run make kubectl-fn: %v", err)
	}
	return &terminal{env: e, dir: e.TempDir(), plugins: plugins}
}

// command returns kubectl with these arguments, in the test's namespace.
func (t *terminal) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "kubectl", args...)
	command.Dir = t.dir
	command.Env = t.environment()
	return command
}

// environment returns the environment of the test with the plugin on PATH.
func (t *terminal) environment() []string {
	return append(os.Environ(), "PATH="+t.plugins+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// try runs kubectl fn and returns its output.
func (t *terminal) try(args ...string) (out, words string, err error) {
	args = append([]string{"fn"}, args...)
	if args[1] != "run" && args[1] != "init" && args[1] != "__complete" {
		args = append(args, "--namespace="+t.namespace)
	}
	command := t.command(t.ctx, args...)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	return stdout.String(), stderr.String(), err
}

// run runs kubectl fn, and checks that it succeeds and prints these words.
func (t *terminal) run(want []string, args ...string) (printed string) {
	t.Helper()
	out, words, err := t.try(args...)
	if err != nil {
		t.Fatalf("kubectl fn %s: %v: %s%s", strings.Join(args, " "), err, out, words)
	}
	wantWords(t.T, out+words, want...)
	return out
}

// fail runs kubectl fn, and checks that it fails with exit code 1 and prints these words.
func (t *terminal) fail(want []string, args ...string) (printed string) {
	t.Helper()
	out, words, err := t.try(args...)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Fatalf("kubectl fn %s: %v, want exit code 1: %s%s", strings.Join(args, " "), err, out, words)
	}
	wantWords(t.T, out+words, want...)
	return out
}

func (t *terminal) write(file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(t.dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantStatusWords checks the words for scripts that describe a Function and its pods.
func (t *terminal) wantStatusWords(name string, image, function string, pods ...string) {
	t.Helper()
	var got struct {
		Image, Function string
		PodStatuses     map[string]struct{ Status string } `json:"pod_statuses"`
	}
	printed, _, _ := t.try("status", name, "-o", "json")
	if err := json.Unmarshal([]byte(printed), &got); err != nil {
		t.Fatalf("kubectl fn status %s: %v: %s", name, err, printed)
	}
	var gotPods []string
	for _, pod := range got.PodStatuses {
		gotPods = append(gotPods, pod.Status)
	}
	slices.Sort(gotPods)
	if got.Image != image || got.Function != function || !slices.Equal(gotPods, pods) {
		t.Errorf("status of %s has image %s, function %s and pods %v, want %s, %s and %v:\n%s", name, got.Image, got.Function, gotPods, image, function, pods, printed)
	}
	if printed, _, _ := t.try("build-status", name, "-o", "jsonpath={.image}"); printed != image {
		t.Errorf("build-status of %s has image %s, want %s", name, printed, image)
	}
}

// TestKubectlFn runs every command of kubectl fn on a cluster, as a user does.
func TestKubectlFn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	term := newTerminal(e)
	fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "fn"}}

	term.run([]string{"nodejs24", "python313", "handler.js"}, "describe-runtime")
	term.run([]string{"nodejs24", "package.json"}, "describe-runtime", "nodejs24")
	term.run([]string{"wrote"}, "init", ".", "--runtime=nodejs24")
	term.run([]string{"There are no Functions in " + e.namespace}, "list")
	term.fail([]string{"no Function fn", "kubectl fn list"}, "status", "fn")
	term.wantStatusWords("fn", "not_found", "not_found")

	// kubectl alone can apply the output.
	term.write("handler.js", "module.exports = { main: (event) => { console.log('called'); return `one ${event.data.name}`; } };\n")
	written := term.run(nil, "create", "fn", "--runtime=nodejs24", "--dry-run=client", "-o", "yaml")
	if err := yaml.UnmarshalStrict([]byte(written), &v1alpha1.Function{}); err != nil {
		e.Errorf("the output of create is not a Function: %v:\n%s", err, written)
	}
	e.kubectlIn(written, "apply", "--dry-run=server", "--filename=-")

	term.run([]string{"fn created", "runs at http://fn." + e.namespace, "Pushed ", "Building: ", "Running: "}, "deploy", "fn", "--runtime=nodejs24", "--timeout=5m")
	term.fail([]string{"kubectl fn deploy fn"}, "create", "fn", "--runtime=nodejs24")
	term.run([]string{"fn unchanged", "runs at"}, "deploy", "fn")
	term.wantStatusWords("fn", "completed", "running", "running")
	term.run([]string{"Image     completed", "Function  running", "Next: Call it", server.ready}, "status", "fn")
	term.run([]string{"FirstBuild", "Image    completed"}, "build-status", "fn")
	term.run([]string{"Pushed "}, "build-logs", "fn")
	term.run([]string{"Pushed "}, "build-logs", "-f", "fn")
	term.run([]string{"fn ", "1/1", "http://fn." + e.namespace}, "list")
	term.run([]string{"kind: Function", "name: fn"}, "get", "fn", "-o", "yaml")
	term.run([]string{"one you", "200 OK in "}, "invoke", "fn", "-d", `{"name": "you"}`)
	term.run([]string{"called"}, "logs", "fn")
	term.run([]string{"[fn-", "called"}, "logs", "--all-pods", "fn")

	term.deployAnother()
	term.rebuild(fn)
	term.refuse()

	term.run([]string{"fn\n", ":4\n"}, "__complete", "--namespace="+e.namespace, "status", "")
	term.run([]string{"fn-00002=\n", "latest=\n"}, "__complete", "--namespace="+e.namespace, "traffic", "fn", "")
	term.run([]string{e.namespace + "\n"}, "__complete", "--namespace", e.namespace[:len(e.namespace)-1])
	term.run([]string{"nodejs22\n", "nodejs24\n"}, "__complete", "create", "x", "--runtime", "nodejs")

	term.run([]string{`"fn" deleted`}, "delete", "fn")
	term.wantStatusWords("fn", "not_found", "not_found")
	term.fail([]string{"fn"}, "status", "fn")
}

// deployAnother deploys a second version, splits the requests between both, and rolls back.
func (t *terminal) deployAnother() {
	t.Helper()
	t.write("handler.js", "module.exports = { main: () => 'two' };\n")
	t.run([]string{"fn updated", "runs at"}, "deploy", "fn", "--timeout=5m")
	t.run([]string{"two"}, "invoke", "fn")
	t.run([]string{"fn-00001", "fn-00002", "100%"}, "revisions", "fn")

	settled := func() { t.run([]string{"Running: "}, "deploy", "fn", "--timeout=5m") }
	t.run([]string{"traffic set"}, "traffic", "fn", "1=40,latest=60")
	if server == knative {
		settled()
		t.run([]string{"fn-00001", "40%", "fn-00002 (latest)", "60%"}, "traffic", "fn")
	} else {
		t.fail([]string{v1alpha1.ReasonTrafficUnsupported}, "deploy", "fn", "--timeout=5m")
		t.run([]string{"two"}, "invoke", "fn")
	}
	t.run([]string{"traffic set"}, "traffic", "fn", "latest=100")
	settled()
	t.run([]string{"rolled back to fn-00001", "kubectl fn traffic fn latest=100"}, "rollback", "fn")
	settled()
	t.run([]string{"one you"}, "invoke", "fn", "-d", `{"name": "you"}`)
	t.run([]string{"rolled back to fn-00002"}, "rollback", "fn", "--to=2")
	settled()
	t.run([]string{"two"}, "invoke", "fn")
	// A Deployment does not start an image that gets no requests.
	t.run([]string{"traffic set"}, "traffic", "fn", "latest=100")
	settled()
}

// rebuild requests a rebuild and follows its log.
func (t *terminal) rebuild(fn *v1alpha1.Function) {
	t.Helper()
	before := t.seenBuilds()
	t.run([]string{"fn"}, "rebuild", "fn")
	// The Function stays Ready until the controller notices the annotation.
	live, err := clients.Kiln.ServerlessV1alpha1().Functions(t.namespace).Get(t.ctx, fn.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.until(fn, answered(live.Annotations[serverless.RebuildAnnotationKey]))
	t.run(nil, "build-logs", "-f", "fn")
	t.until(fn, test.Ready)
	t.wantBuilds(len(before) + 1)
}

// refuse deploys invalid versions, and checks the exit codes and messages.
func (t *terminal) refuse() {
	t.Helper()
	t.write("handler.js", "module.exports = { main: () => { };\n")
	t.fail([]string{"SyntaxError", "kubectl fn status fn"}, "deploy", "fn", "--timeout=5m")
	t.write("package.json", `{"dependencies": {"ms": "99.99.99"}}`)
	t.fail([]string{"No matching version found for ms@99.99.99"}, "deploy", "fn", "--timeout=5m")
	t.run([]string{"npm error"}, "build-logs", "fn")
	t.fail([]string{"No matching version found for ms@99.99.99"}, "build-logs", "-f", "fn")
	t.fail([]string{"no revision 9"}, "rollback", "fn", "--to=9")
	t.fail([]string{"99"}, "traffic", "fn", "latest=99")
	t.fail([]string{"absent"}, "invoke", "absent")
}

// TestKubectlFnFolder deploys a folder through the registry that Kiln names, and then edits
// it.
func TestKubectlFnFolder(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	term := newTerminal(e)
	fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "fn"}}
	if err := os.CopyFS(term.dir, os.DirFS("../../examples/archive/code")); err != nil {
		e.Fatal(err)
	}
	term.write(".gitignore", "secret.txt\n")
	term.write("secret.txt", "s3cret")
	repository := e.registry().PushRepository(e.namespace, "fn")

	term.run([]string{"url: oci://" + repository + "@sha256:", "sha256: "}, "create", "fn", "--runtime=nodejs24", "--dir=.", "--dry-run=client", "-o", "yaml")
	term.run([]string{"Packed 5 files", "Pushing it to " + repository, "fn created", "Fetched sha256:", "runs at"}, "deploy", "fn", "--runtime=nodejs24", "--dir=.", "--timeout=5m")
	fn = e.until(fn, test.Ready)
	e.wantAnswer(fn, "{}", `{"quote":"Well begun is half done.","next":86400000}`)
	if fn.Status.Source == nil || fn.Status.Source.SHA256 != fn.Spec.Archive.SHA256 {
		e.Errorf("status.source is %+v, want %s", fn.Status.Source, fn.Spec.Archive.SHA256)
	}
	term.run([]string{"fn unchanged"}, "deploy", "fn", "--dir=.", "--timeout=5m")
	term.write("handler.js", "module.exports = { main: () => require('fs').existsSync('/function/secret.txt') ? 'leaked' : 'two' };\n")
	term.run([]string{"fn updated", "runs at"}, "deploy", "fn", "--dir=.", "--timeout=5m")
	term.run([]string{"two"}, "invoke", "fn")
	e.wantBuilds(2)

	term.fail([]string{"failed to push to 127.0.0.1:1/a/b", "--push-to="}, "create", "other", "--runtime=nodejs24", "--dir=.", "--push-to=127.0.0.1:1/a/b")
	// This changes from one kind of source to the other.
	term.run([]string{"fn updated", "runs at"}, "deploy", "fn", "--timeout=5m")
	e.wantBuilds(3)
}

// TestKubectlFnTypeScript deploys a folder with two files in TypeScript.
func TestKubectlFnTypeScript(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	term := newTerminal(e)
	term.write("handler.ts", "import { greet } from './greet.ts';\nexport const main = ({ data }: { data: { name: string } }): string => greet(data.name);\n")
	term.write("greet.ts", "export const greet = (name: string): string => `hello ${name}`;\n")
	term.run([]string{"Packed 2 files", "fn created", "runs at"}, "deploy", "fn", "--dir=.", "--timeout=5m")
	term.run([]string{"hello typed"}, "invoke", "fn", "-d", `{"name": "typed"}`)
}

// TestKubectlFnWakes calls a function that has scaled to zero from outside the cluster. It
// also checks that logs -f waits for the new pod.
func TestKubectlFnWakes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function("module.exports = { main: () => { console.log('awake'); return 'yes'; } };\n")
	fn.Spec.MinReplicas = new(int32(0))
	fn.Spec.Annotations = map[string]string{autoscaling.WindowAnnotationKey: autoscaling.WindowMin.String()}
	fn = e.until(e.create(fn), test.Ready)
	untilObjects(e, clients.Kube.CoreV1().Pods(e.namespace), func(pods []*corev1.Pod) error {
		for _, pod := range pods {
			if pod.Labels["serving.knative.dev/service"] == fn.Name {
				return fmt.Errorf("pod %s exists", pod.Name)
			}
		}
		return nil
	})
	term := newTerminal(e)
	term.wantStatusWords("fn", "completed", "running")

	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	logs := term.command(ctx, "fn", "logs", "-f", "fn", "--namespace="+e.namespace)
	lines, err := logs.StdoutPipe()
	if err != nil {
		e.Fatal(err)
	}
	if err := logs.Start(); err != nil {
		e.Fatal(err)
	}
	term.run([]string{"yes", "200 OK"}, "invoke", "fn")
	awaitLine(e, lines, "awake")
	cancel()
	// The command was cancelled, so it returns an error.
	_ = logs.Wait()
}

// awaitLine reads lines until one has the text.
func awaitLine(e *env, from io.Reader, text string) {
	e.Helper()
	scanner := bufio.NewScanner(from)
	for scanner.Scan() {
		if strings.Contains(scanner.Text(), text) {
			return
		}
	}
	e.Fatalf("no line has %q: %v", text, scanner.Err())
}

// TestKubectlFnRun checks that the command run serves a function on this machine, and
// restarts it when its file changes.
func TestKubectlFnRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	term := newTerminal(&env{T: t, ctx: ctx})
	term.write("handler.js", "module.exports = { main: (event) => `one ${event.data.name}` };\n")
	term.write("package.json", "{}")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err := errors.Join(err, listener.Close()); err != nil {
		t.Fatal(err)
	}
	url := "http://127.0.0.1:" + port
	server := term.command(ctx, "fn", "run", "--port="+port)
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGINT) }
	words, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLine(term.env, words, url)
	term.untilLocalAnswer(url, "one you")
	term.write("handler.js", "module.exports = { main: () => 'two' };\n")
	awaitLine(term.env, words, "A file has changed")
	term.untilLocalAnswer(url, "two")

	cancel()
	// This is the exit code of shells after ctrl-C.
	if err := server.Wait(); server.ProcessState.ExitCode() != 130 {
		t.Errorf("kubectl fn run ended with %v, want exit code 130", err)
	}
}

// untilLocalAnswer calls a server that is starting until it answers.
func (t *terminal) untilLocalAnswer(url, want string) {
	t.Helper()
	var got string
	err := wait.PollUntilContextCancel(t.ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		answer, err := http.Post(url, "application/json", strings.NewReader(`{"name": "you"}`))
		if err != nil {
			return false, nil
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		got = string(body)
		return err == nil && answer.StatusCode == http.StatusOK, nil
	})
	if err != nil || got != want {
		t.Fatalf("the function answered %q, %v; want %q", got, err, want)
	}
}

// TestKubectlFnWords creates a Function in each state that scripts can see.
func TestKubectlFnWords(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	term := newTerminal(e)
	named := func(name string, fn *v1alpha1.Function) *v1alpha1.Function {
		fn.Name = name
		// Then it has a pod without a call.
		fn.Spec.MinReplicas = new(int32(1))
		return e.create(fn)
	}
	serves := named("serves", function(answering("yes")))
	crashes := named("crashes", function("throw new Error('broken');\n"))
	homeless := function(answering("never"))
	homeless.Spec.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1000")
	homeless = named("homeless", homeless)
	fails := function(answering("never"))
	fails.Spec.Deps = `{"dependencies": {"ms": "99.99.99"}}`
	fails = named("fails", fails)

	e.until(serves, test.Ready)
	term.wantStatusWords("serves", "completed", "running", "running")
	e.untilCondition(fails, apis.Condition{Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionFalse, Reason: builder.reasons.Failed})
	term.wantStatusWords("fails", "error", "not_found")
	e.untilUnscheduled(homeless)
	term.wantStatusWords("homeless", "completed", "pending", "pending")
	e.untilCondition(crashes, revisionFailed())
	term.wantStatusWords("crashes", "completed", "terminated", "terminated")
	e.deleteBuildOf(serves)
	term.wantStatusWords("serves", "not_found", "running", "running")

	e.untilInstalling(named("builds", installing(asleep)))
	term.wantStatusWords("builds", "in_progress", "waiting")
	e.forbidPods()
	e.untilCondition(named("forbidden", function(answering("never"))),
		apis.Condition{Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonQuotaExceeded})
	term.wantStatusWords("forbidden", "pending", "waiting")
}

// TestScreencast compares the session in docs/guides/terminal.md with the output of kubectl
// fn.
func TestScreencast(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	page, err := os.ReadFile("../../docs/guides/terminal.md")
	if err != nil {
		e.Fatal(err)
	}
	const begin, end = "<!-- hack/screencast.sh -->\n```console\n", "```\n<!-- end -->\n"
	_, shown, found := strings.Cut(string(page), begin)
	shown, _, ended := strings.Cut(shown, end)
	if !found || !ended {
		e.Fatalf("docs/guides/terminal.md has nothing between %q and %q", begin, end)
	}
	play := exec.CommandContext(e.ctx, "../../hack/screencast.sh", e.namespace)
	play.Env = newTerminal(e).environment()
	printed, err := play.Output()
	if err != nil {
		e.Fatalf("hack/screencast.sh: %v: %s", err, printed)
	}
	if diff := cmp.Diff(strings.Split(shown, "\n"), strings.Split(string(printed), "\n")); diff != "" {
		e.Errorf("docs/guides/terminal.md differs from the output of hack/screencast.sh (-shown, +printed):\n%s", diff)
	}
}

// untilUnscheduled waits until a Function has a pod that fits no node.
func (e *env) untilUnscheduled(fn *v1alpha1.Function) {
	e.Helper()
	err := test.Until(e.ctx, clients.Kube.CoreV1().Pods(e.namespace), ofFunction(fn), func(pods []*corev1.Pod) error {
		for _, pod := range pods {
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
					return nil
				}
			}
		}
		return fmt.Errorf("each of the %d pods of %s has a node", len(pods), fn.Name)
	})
	if err != nil {
		e.Fatal(err)
	}
}

// deleteBuildOf deletes the builds of a ready Function.
func (e *env) deleteBuildOf(fn *v1alpha1.Function) {
	e.Helper()
	for _, b := range e.liveBuilds(builder, ofFunction(fn)) {
		e.deleteBuild(b)
	}
	e.untilBuilds(func(found []*build) error {
		return gone(slices.DeleteFunc(found, func(b *build) bool { return !ownedBy(b, fn) }))
	})
}
