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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	tektonfake "github.com/tektoncd/pipeline/pkg/client/clientset/versioned/fake"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingfake "knative.dev/serving/pkg/client/clientset/versioned/fake"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	kilnfake "github.com/kiln-dev/kiln/pkg/client/clientset/versioned/fake"
)

const namespace = "default"

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

// world is a cluster in memory and a kubectl fn that uses it.
type world struct {
	*testing.T
	*cli
	kube    *kubefake.Clientset
	kiln    *kilnfake.Clientset
	tekton  *tektonfake.Clientset
	serving *servingfake.Clientset
	out     *bytes.Buffer
	errOut  *bytes.Buffer
	clients *Clients
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	var kube, kiln, tekton, serving []runtime.Object
	for _, object := range objects {
		switch object.(type) {
		case *v1alpha1.Function:
			kiln = append(kiln, object)
		case *pipelinev1.TaskRun:
			tekton = append(tekton, object)
		case *servingv1.Revision:
			serving = append(serving, object)
		default:
			kube = append(kube, object)
		}
	}
	w := &world{
		T: t, kube: kubefake.NewClientset(kube...), kiln: kilnfake.NewSimpleClientset(kiln...),
		tekton: tektonfake.NewSimpleClientset(tekton...), serving: servingfake.NewSimpleClientset(serving...),
	}
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	w.out, w.errOut = out, errOut
	w.clients = &Clients{
		Kube: w.kube, Kiln: w.kiln, Tekton: w.tekton, Serving: w.serving, Namespace: namespace,
	}
	w.cli = &cli{
		IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), now: func() time.Time { return noon },
		connect: func() (*Clients, error) { return new(*w.clients), nil },
	}
	return w
}

// run runs kubectl fn with these arguments and returns what it prints.
func (w *world) run(args ...string) (string, error) {
	return w.runIn(w.Context(), args...)
}

func (w *world) runIn(ctx context.Context, args ...string) (string, error) {
	w.out.Reset()
	w.errOut.Reset()
	command := w.command()
	command.SetArgs(args)
	err := Explain(command.ExecuteContext(ctx))
	return w.out.String(), err
}

// want runs kubectl fn and checks its output.
func (w *world) want(want string, args ...string) {
	w.Helper()
	got, err := w.run(args...)
	if err != nil {
		w.Fatalf("kubectl fn %s: %v", strings.Join(args, " "), err)
	}
	if diff := cmp.Diff(strings.TrimLeft(want, "\n"), got); diff != "" {
		w.Errorf("kubectl fn %s (-want +got):\n%s", strings.Join(args, " "), diff)
	}
}

// wantError runs kubectl fn and checks that its error has these words and ends with
// the advice.
func (w *world) wantError(words, advice string, args ...string) {
	w.Helper()
	_, err := w.run(args...)
	if err == nil || !strings.Contains(err.Error(), words) || !strings.HasSuffix(err.Error(), "\nTry: "+advice) {
		w.Errorf("kubectl fn %s: error is %v\nwant %q in it and the advice %q", strings.Join(args, " "), err, words, advice)
	}
}

// function returns the Function of that name from the API server.
func (w *world) function(name string) *v1alpha1.Function {
	w.Helper()
	fn, err := w.kiln.ServerlessV1alpha1().Functions(namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return fn
}

func newFunction(name string, marks ...func(*v1alpha1.FunctionStatus)) *v1alpha1.Function {
	fn := &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: "uid-of-fn", Generation: 2, CreationTimestamp: ago(time.Hour),
		},
		Spec: v1alpha1.FunctionSpec{Runtime: "nodejs24", Source: "module.exports = {}"},
	}
	fn.Status.ObservedGeneration = 2
	fn.Status.InitializeConditions()
	for _, mark := range marks {
		mark(&fn.Status)
	}
	fn.Status.UpdatePhase()
	for i := range fn.Status.Conditions {
		fn.Status.Conditions[i].LastTransitionTime = apis.VolatileTime{Inner: ago(time.Minute)}
	}
	return fn
}

func builds(fs *v1alpha1.FunctionStatus) {
	fs.MarkConfigurationReady("ConfigMapCreated", "written")
	fs.Build = &v1alpha1.BuildStatus{
		Ref: &v1alpha1.BuildReference{APIVersion: "tekton.dev/v1", Kind: "TaskRun", Name: "fn-1"}, Reason: "SourceChanged", Generation: 2, ImageTag: "abc", Attempts: 1, StartTime: new(ago(5 * time.Minute)),
	}
	fs.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun fn-1 runs.")
}

func built(fs *v1alpha1.FunctionStatus) {
	builds(fs)
	fs.Build.CompletionTime = new(ago(4 * time.Minute))
	fs.Image, fs.ImageTag = "registry.example/fn@sha256:01", "abc"
	fs.MarkBuildReady(v1alpha1.ReasonTaskRunSucceeded, "TaskRun fn-1 built it.")
}

func buildFailed(fs *v1alpha1.FunctionStatus) {
	builds(fs)
	fs.Build.Failure = &v1alpha1.BuildFailure{Reason: v1alpha1.ReasonTaskRunFailed, Message: "Correct it.", Log: "npm error\n"}
	fs.MarkBuildFailed(v1alpha1.ReasonTaskRunFailed, "Correct it.")
}

func serves(fs *v1alpha1.FunctionStatus) {
	built(fs)
	fs.URL = apis.HTTP("fn.default.svc.cluster.local")
	fs.LatestReadyRevisionName = "fn-00002"
	fs.Traffic = []v1alpha1.TrafficStatus{{RevisionName: "fn-00002", LatestRevision: new(true), Percent: new(int64(100))}}
	fs.MarkRunning()
}

// messageOf returns the message of the condition Running of a Function.
func messageOf(mark func(*v1alpha1.FunctionStatus)) string {
	return newFunction("fn", mark).Status.GetCondition(v1alpha1.FunctionConditionRunning).GetMessage()
}

// The progress of a Function that Serving starts, and of one that runs.
var (
	deploying = "Deploying: " + messageOf(built) + "\n"
	running   = "Running: " + messageOf(serves) + "\n"
)

func taskRun() *pipelinev1.TaskRun {
	tr := &pipelinev1.TaskRun{ObjectMeta: metav1.ObjectMeta{Name: "fn-1", Namespace: namespace}}
	tr.Status.PodName = "fn-1-pod"
	tr.Spec.TaskSpec = &pipelinev1.TaskSpec{Steps: []pipelinev1.Step{{Name: "push"}}}
	// At first the status names no steps.
	tr.Status.Steps = []pipelinev1.StepState{{}}
	return tr
}

func buildPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "fn-1-pod", Namespace: namespace, Labels: map[string]string{serverless.FunctionUIDLabelKey: "uid-of-fn"}},
		Status: corev1.PodStatus{
			Phase:             corev1.PodSucceeded,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "step-push", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}},
		},
	}
}

// pod returns a ready pod of a revision.
func pod(revision, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, CreationTimestamp: ago(3 * time.Minute),
			Labels: map[string]string{serverless.FunctionUIDLabelKey: "uid-of-fn", "serving.knative.dev/revision": revision},
		},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "function", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			},
		},
	}
}

// crashing returns a pod in a crash loop.
func crashing(revision, name string) *corev1.Pod {
	p := pod(revision, name)
	p.Status.Conditions = nil
	p.Status.ContainerStatuses[0] = corev1.ContainerStatus{
		Name: "function", RestartCount: 3,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "no such module"}},
	}
	return p
}

func revision(name string, ready corev1.ConditionStatus) *servingv1.Revision {
	r := &servingv1.Revision{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: namespace, CreationTimestamp: ago(10 * time.Minute), Labels: map[string]string{"serving.knative.dev/service": "fn"},
	}}
	r.Spec.Containers = []corev1.Container{{Image: "registry.example/" + name}}
	r.Status.Conditions = append(r.Status.Conditions, apis.Condition{Type: apis.ConditionReady, Status: ready})
	return r
}

func runtimesConfig() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: config.RuntimesConfigName, Namespace: SystemNamespace},
		Data: map[string]string{
			"dockerfile": "language: dockerfile\n",
			"nodejs24":   "baseImage: node:24\nlanguage: nodejs\n",
			"python313":  "baseImage: python:3.13\nlanguage: python\ndeprecated: true\n",
			"_example":   "not read",
		},
	}
}

// onWatch calls change once, after the first watch of Functions has begun.
func (w *world) onWatch(change func()) {
	var once sync.Once
	w.kiln.PrependWatchReactor("functions", func(action clienttesting.Action) (bool, watch.Interface, error) {
		changes, err := w.kiln.Tracker().Watch(action.GetResource(), action.GetNamespace())
		once.Do(func() { go change() })
		return true, changes, err
	})
}

// update changes a Function, as a controller does.
func (w *world) update(name string, mark func(*v1alpha1.FunctionStatus)) {
	fn := newFunction(name, mark)
	if _, err := w.kiln.ServerlessV1alpha1().Functions(namespace).Update(context.Background(), fn, metav1.UpdateOptions{}); err != nil {
		w.Error(err)
	}
}

// A command must see later changes.
func TestFollow(t *testing.T) {
	w := newWorld(t, newFunction("fn", builds))
	w.onWatch(func() { w.update("fn", built) })
	seen := 0
	err := w.clients.followFunction(t.Context(), "fn", func(fn *v1alpha1.Function) (bool, error) {
		seen++
		return fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady).IsTrue(), nil
	})
	if err != nil || seen != 2 {
		t.Errorf("followFunction() looked %d times and returned %v, want 2 and no error", seen, err)
	}
}

func TestFollowGoesWithTheFunction(t *testing.T) {
	w := newWorld(t, newFunction("fn", builds))
	w.onWatch(func() {
		if err := w.kiln.ServerlessV1alpha1().Functions(namespace).Delete(context.Background(), "fn", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	err := w.clients.followFunction(t.Context(), "fn", func(*v1alpha1.Function) (bool, error) { return false, nil })
	if err == nil || !strings.Contains(err.Error(), "function fn in namespace default was deleted") {
		t.Errorf("followFunction() = %v", err)
	}
}

// files writes files into a new folder and changes to it.
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

// askAdministrator is the advice for a request that the API server forbids.
const askAdministrator = "kubectl auth can-i --list, and ask an administrator of the cluster for the role edit in the namespace"

// logOptions returns the options of the logs that were read.
func (w *world) logOptions() (all []corev1.PodLogOptions) {
	for _, action := range w.kube.Actions() {
		if generic, ok := action.(clienttesting.GenericActionImpl); ok && generic.Subresource == "log" {
			all = append(all, *generic.Value.(*corev1.PodLogOptions))
		}
	}
	return all
}

// logs starts a server that answers the requests for logs. Other requests stay in memory.
func (w *world) logs(answer func(query url.Values) (status int, text string)) {
	w.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		status, text := answer(in.URL.Query())
		if status != http.StatusOK {
			out.Header().Set("Content-Type", "application/json")
			out.WriteHeader(status)
			reasons := map[int]metav1.StatusReason{http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusBadRequest: metav1.StatusReasonBadRequest}
			_ = json.NewEncoder(out).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Code: int32(status), Reason: reasons[status], Message: text,
			})
			return
		}
		_, _ = io.WriteString(out, text)
	}))
	w.Cleanup(server.Close)
	remote, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		w.Fatal(err)
	}
	w.clients.Kube = logKube{w.kube, remote}
}

// logKube is a cluster in memory with the logs of a server.
type logKube struct {
	kubernetes.Interface
	logs kubernetes.Interface
}

func (k logKube) CoreV1() typedcorev1.CoreV1Interface { return logCore{k.Interface.CoreV1(), k.logs} }

type logCore struct {
	typedcorev1.CoreV1Interface
	logs kubernetes.Interface
}

func (c logCore) Pods(namespace string) typedcorev1.PodInterface {
	return logPods{c.CoreV1Interface.Pods(namespace), c.logs.CoreV1().Pods(namespace)}
}

type logPods struct {
	typedcorev1.PodInterface
	logs typedcorev1.PodInterface
}

func (p logPods) GetLogs(name string, opts *corev1.PodLogOptions) *rest.Request {
	return p.logs.GetLogs(name, opts)
}

func TestFollowErrors(t *testing.T) {
	tests := map[string]struct {
		damage  func(w *world)
		wantErr string
	}{
		"list": {func(w *world) {
			w.kiln.PrependReactor("list", "functions", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("etcd is down")
			})
		}, "failed to list: etcd is down"},
		"watch": {func(w *world) {
			w.kiln.PrependWatchReactor("functions", func(clienttesting.Action) (bool, watch.Interface, error) {
				return true, nil, errors.New("etcd is down")
			})
		}, "failed to watch: etcd is down"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newFunction("fn", builds))
			tc.damage(w)
			w.wantError(tc.wantErr, "the command with --help", "build-logs", "--follow", "fn")
		})
	}
}

// An error of visit ends the command.
func TestFollowReturnsTheErrorOfVisit(t *testing.T) {
	w, broken := newWorld(t, newFunction("fn", builds)), errors.New("broken")
	err := w.clients.followFunction(t.Context(), "fn", func(*v1alpha1.Function) (bool, error) { return false, broken })
	if !errors.Is(err, broken) {
		t.Errorf("followFunction() = %v, want the error of visit", err)
	}
}

// A watch that the API server ends is not a change. An interrupt ends the wait for
// the next watch.
func TestFollowIsInterrupted(t *testing.T) {
	for name, end := range map[string]func(*watch.FakeWatcher){
		"while it watches":     func(*watch.FakeWatcher) {},
		"after a closed watch": func(changes *watch.FakeWatcher) { changes.Stop() },
		"after an expired one": func(changes *watch.FakeWatcher) { changes.Error(&metav1.Status{Reason: metav1.StatusReasonExpired}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newFunction("fn", builds))
			ctx, interrupt := context.WithCancel(t.Context())
			w.kiln.PrependWatchReactor("functions", func(clienttesting.Action) (bool, watch.Interface, error) {
				changes := watch.NewFake()
				go func() {
					end(changes)
					interrupt()
				}()
				return true, changes, nil
			})
			visits := 0
			err := w.clients.followFunction(ctx, "fn", func(*v1alpha1.Function) (bool, error) {
				visits++
				return false, nil
			})
			if !isInterrupted(err) || visits != 1 {
				t.Errorf("followFunction() visits %d times and returns %v, want one visit and an interrupt", visits, err)
			}
		})
	}
}

// commands returns the commands of kubectl fn by their names.
func (w *world) commands() map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	for _, command := range w.command().Commands() {
		all[command.Name()] = command
	}
	return all
}

// Each example in the help must be a command with flags that exist.
func TestExamples(t *testing.T) {
	for name, command := range newWorld(t).commands() {
		for line := range strings.Lines(command.Example) {
			words := strings.Fields(line)
			if len(words) < 3 || words[0] != "kubectl" || words[1] != "fn" || (words[2] != name && !slices.Contains(command.Aliases, words[2])) {
				t.Errorf("the example %q of %s does not call it", line, name)
				continue
			}
			for _, word := range words[3:] {
				flag, isFlag := strings.CutPrefix(word, "--")
				flag, _, _ = strings.Cut(flag, "=")
				if isFlag && command.Flags().Lookup(flag) == nil {
					t.Errorf("the example %q of %s has the flag --%s, which does not exist", line, name, flag)
				}
			}
		}
	}
}

// The help has the form of kubectl's: a short description without a full stop, and
// sentences for the flags.
func TestHelp(t *testing.T) {
	for name, command := range newWorld(t).commands() {
		if short := command.Short; short == "" || strings.HasSuffix(short, ".") || strings.ToUpper(short[:1]) != short[:1] {
			t.Errorf("the description of %s is %q", name, short)
		}
		for line := range strings.Lines(command.Long) {
			if len(strings.TrimSuffix(line, "\n")) > 120 {
				t.Errorf("the help of %s has a line of %d characters: %s", name, len(line), line)
			}
		}
		command.NonInheritedFlags().VisitAll(func(flag *pflag.Flag) {
			if usage := flag.Usage; usage == "" || strings.ToUpper(usage[:1]) != usage[:1] && !strings.HasPrefix(usage, "none ") {
				t.Errorf("the flag --%s of %s has the usage %q", flag.Name, name, usage)
			}
		})
	}
	w := newWorld(t)
	got, err := w.run("status", "--help")
	if err != nil || !strings.Contains(got, "kubectl fn status NAME [flags]") {
		t.Errorf("the help does not show how kubectl calls the command: %v\n%s", err, got)
	}
}

// docs/kubectl-fn.md has a row for each command.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubectl-fn.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, match := range regexp.MustCompile("(?m)^\\| `([a-z-]+)").FindAllStringSubmatch(string(page), -1) {
		documented[match[1]] = true
	}
	for name := range newWorld(t).commands() {
		if !documented[name] {
			t.Errorf("the page has no row for %s", name)
		}
	}
}
