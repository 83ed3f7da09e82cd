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
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// env is the environment of one test: its namespace and the history of its objects.
type env struct {
	*testing.T
	ctx       context.Context
	namespace string
	taskRuns  *test.History[*pipelinev1.TaskRun]
	jobs      *test.History[*batchv1.Job]
	revisions revisions

	errors *errorTexts
}

// errorTexts are the error messages of a test.
type errorTexts struct {
	mu    sync.Mutex
	texts []string
}

// add adds a text and returns it.
func (e *errorTexts) add(text string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.texts = append(e.texts, text)
	return text
}

func (e *errorTexts) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.texts, "\n")
}

// newEnv creates the environment of a test. If the test fails, its objects are printed.
func newEnv(t *testing.T) *env {
	t.Helper()
	return newEnvFor(t, testTimeout)
}

// newEnvFor is newEnv for a test with another timeout.
func newEnvFor(t *testing.T, timeout time.Duration) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	// Builds run as root in their containers, so they need the level baseline. Another test
	// checks that functions are restricted.
	namespace, err := createNamespace(ctx, "kiln-e2e-", "baseline")
	if err != nil {
		t.Fatal(err)
	}
	e := &env{
		T:         t,
		ctx:       ctx,
		namespace: namespace,
		jobs:      test.Record[*batchv1.Job](ctx, clients.Kube.BatchV1().Jobs(namespace), metav1.ListOptions{}),
		revisions: server.record(ctx, namespace),
		errors:    &errorTexts{},
	}
	if hasTekton {
		e.taskRuns = test.Record[*pipelinev1.TaskRun](ctx, clients.Pipeline.TektonV1().TaskRuns(namespace), metav1.ListOptions{})
	}
	t.Cleanup(e.end)
	return e
}

// end deletes the namespace. If the test has failed, it first prints the objects of the
// namespace, and then all errors again, which are hard to find above that output.
func (e *env) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if e.Failed() {
		dump := &strings.Builder{}
		test.Dump(ctx, clients, e.namespace, dump)
		e.Logf("Objects of namespace %s:\n%s\n%s", e.namespace, dump, e.errors)
	}
	if err := deleteNamespace(ctx, e.namespace); err != nil {
		e.T.Error(err)
	}
}

// Error is testing.T's, and keeps the text for the end of the test. So do the next three.
func (e *env) Error(args ...any) {
	e.Helper()
	e.T.Error(e.errors.add(strings.TrimSuffix(fmt.Sprintln(args...), "\n")))
}

// Errorf is testing.T's.
func (e *env) Errorf(format string, args ...any) {
	e.Helper()
	e.T.Error(e.errors.add(fmt.Sprintf(format, args...)))
}

// Fatal is testing.T's.
func (e *env) Fatal(args ...any) {
	e.Helper()
	e.T.Fatal(e.errors.add(strings.TrimSuffix(fmt.Sprintln(args...), "\n")))
}

// Fatalf is testing.T's.
func (e *env) Fatalf(format string, args ...any) {
	e.Helper()
	e.T.Fatal(e.errors.add(fmt.Sprintf(format, args...)))
}

// example returns a Function of the folder examples.
func example(t *testing.T, file string) *v1alpha1.Function {
	t.Helper()
	fn := &v1alpha1.Function{}
	readExample(t, file, fn)
	return fn
}

// readExample reads an object of the folder examples.
func readExample(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("failed to read %s: %v", file, err)
	}
}

// function returns a Function with that source.
func function(source string) *v1alpha1.Function {
	return &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Name: "fn"},
		Spec: v1alpha1.FunctionSpec{
			Runtime: "nodejs24",
			Source:  source,
			// Many functions and old revisions share a small node.
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m")}},
		},
	}
}

// answering returns the source of a function that always gives that answer.
func answering(text string) string {
	return fmt.Sprintf("module.exports = { main: () => %q };\n", text)
}

// create creates a Function.
func (e *env) create(fn *v1alpha1.Function) *v1alpha1.Function {
	e.Helper()
	fn, err := e.tryCreate(fn)
	if err != nil {
		e.Fatalf("failed to create Function: %v", err)
	}
	return fn
}

// tryCreate creates a Function that may be denied.
func (e *env) tryCreate(fn *v1alpha1.Function) (*v1alpha1.Function, error) {
	return clients.Kiln.ServerlessV1alpha1().Functions(e.namespace).Create(e.ctx, fn, metav1.CreateOptions{})
}

// edit changes a Function and retries after a conflict.
func (e *env) edit(fn *v1alpha1.Function, change func(*v1alpha1.Function)) *v1alpha1.Function {
	e.Helper()
	functions := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace)
	return edit(e, functions, fn.Name, change)
}

// client reads and writes one kind of object.
type client[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Update(ctx context.Context, object T, opts metav1.UpdateOptions) (T, error)
}

// editBackoff outlasts controllers that write several updates of a status in a row.
var editBackoff = wait.Backoff{Steps: 14, Duration: 10 * time.Millisecond, Factor: 1.5, Jitter: 0.5}

// edit changes an object of any kind and returns the updated object.
func edit[T any](e *env, objects client[T], name string, change func(T)) (edited T) {
	e.Helper()
	err := retry.RetryOnConflict(editBackoff, func() error {
		object, err := objects.Get(e.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(object)
		edited, err = objects.Update(e.ctx, object, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		e.Fatalf("failed to edit %T %s: %v", edited, name, err)
	}
	return edited
}

// until waits until check returns nil for the Function.
func (e *env) until(fn *v1alpha1.Function, check func(*v1alpha1.Function) error) *v1alpha1.Function {
	e.Helper()
	fn, err := test.WaitForFunction(e.ctx, clients, e.namespace, fn.Name, check)
	if err != nil {
		e.Fatal(err)
	}
	return fn
}

// untilCondition waits for a condition of the Function's current generation, and also
// returns the condition.
func (e *env) untilCondition(fn *v1alpha1.Function, want apis.Condition) (*v1alpha1.Function, *apis.Condition) {
	e.Helper()
	fn = e.until(fn, test.HasCondition(want))
	return fn, fn.Status.GetCondition(want.Type)
}

// untilObjects waits until check returns nil for the objects of a kind in the test's
// namespace.
func untilObjects[T metav1.Object, L runtime.Object](e *env, objects test.Watcher[L], check test.Check[T]) {
	e.Helper()
	if err := test.Until(e.ctx, objects, metav1.ListOptions{}, check); err != nil {
		e.Fatal(err)
	}
}

// request is a request to a Function.
func request(fn *v1alpha1.Function, body string) api.Request {
	return api.Request{Method: http.MethodPost, URL: fn.Status.URL.String(), ContentType: "application/json", Body: []byte(body)}
}

// wantAnswer calls a Function from inside the cluster and checks the answer.
func (e *env) wantAnswer(fn *v1alpha1.Function, body, want string) {
	e.Helper()
	answer, err := relay.CallFunction(e.ctx, request(fn, body))
	if err != nil {
		e.Fatal(err)
	}
	if answer.Status != http.StatusOK || answer.Body != want {
		e.Errorf("%s answered %+v, want %q", fn.Status.URL, answer, want)
	}
}

// wantAnswerSoon waits until a Function gives an answer. It is for Functions that change:
// Serving can report a Service as ready while the ingress still uses the old routes.
func (e *env) wantAnswerSoon(fn *v1alpha1.Function, want string) {
	e.Helper()
	if _, err := e.probe(fn, want).Stop(e.ctx); err != nil {
		e.Fatal(err)
	}
}

// probe calls a Function repeatedly, from its first correct answer on.
func (e *env) probe(fn *v1alpha1.Function, answer string) *test.Prober {
	e.Helper()
	return e.probeOften(request(fn, "{}"), 1, answer)[0]
}

// probeOften is probe with so many concurrent callers.
func (e *env) probeOften(call api.Request, sides int, answer string) (probers []*test.Prober) {
	e.Helper()
	// A failure before the ingress knows the route must not count.
	if _, err := relay.CallFunction(e.ctx, call); err != nil {
		e.Fatal(err)
	}
	for range sides {
		prober, err := relay.Probe(e.ctx, call)
		if err != nil {
			e.Fatal(err)
		}
		probers = append(probers, prober)
	}
	for _, prober := range probers {
		e.untilAnswer(prober, answer)
	}
	return probers
}

func (e *env) untilAnswer(prober *test.Prober, answer string) {
	e.Helper()
	if report, err := prober.UntilAnswer(e.ctx, answer); err != nil {
		e.Fatalf("failed to wait for answer %q: %v; the report: %+v", answer, err, report)
	}
}

// wantAnswers stops a prober. It checks that no request failed and that the answers changed
// in exactly this order.
func (e *env) wantAnswers(prober *test.Prober, want ...string) api.Report {
	e.Helper()
	report, err := prober.Stop(e.ctx)
	if err != nil {
		e.Fatal(err)
	}
	if report.Failed > 0 {
		e.Errorf("%d of %d requests failed, such as %+v", report.Failed, report.Requests, report.Failures)
	}
	var got []string
	for _, run := range report.Runs {
		got = append(got, run.Body)
	}
	if !slices.Equal(got, want) {
		e.Errorf("the answers were, in order, %q, want %q", got, want)
	}
	return report
}

// wantRevisions checks the exact number of revisions that were ever created, and returns
// their metadata.
func (e *env) wantRevisions(want int) []metav1.ObjectMeta {
	e.Helper()
	seen, err := e.revisions()
	if err != nil {
		e.Fatal(err)
	}
	if len(seen) != want {
		var names []string
		for _, revision := range seen {
			names = append(names, revision.Name)
		}
		e.Fatalf("%d revisions were created, %v; want %d", len(seen), names, want)
	}
	return seen
}

// podOf calls a Function, which prevents the scale to zero, and returns one of its pods.
func (e *env) podOf(fn *v1alpha1.Function) *corev1.Pod {
	e.Helper()
	pods := e.podsOf(fn)
	if len(pods) == 0 {
		e.Fatalf("there are no pods of Function %s", fn.Name)
	}
	return pods[0]
}

// podsOf returns the pods that run a Function.
func (e *env) podsOf(fn *v1alpha1.Function) []*corev1.Pod {
	e.Helper()
	list, err := clients.Kube.CoreV1().Pods(e.namespace).List(e.ctx, ofFunction(fn))
	if err != nil {
		e.Fatal(err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for _, pod := range list.Items {
		pods = append(pods, &pod)
	}
	return podsOf(pods, fn)
}

// service returns the Knative Service of a Function.
func (e *env) service(fn *v1alpha1.Function) *servingv1.Service {
	e.Helper()
	service, err := clients.Serving.ServingV1().Services(e.namespace).Get(e.ctx, fn.Name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return service
}

// wantPhase checks the phase of a Function.
func (e *env) wantPhase(fn *v1alpha1.Function, want v1alpha1.FunctionPhase) {
	e.Helper()
	if fn.Status.Phase != want {
		e.Errorf("phase is %s, want %s", fn.Status.Phase, want)
	}
}

// setEnv returns an edit that sets an environment variable, which needs a revision and no
// build.
func setEnv(name, value string) func(*v1alpha1.Function) {
	return func(fn *v1alpha1.Function) {
		fn.Spec.Env = []corev1.EnvVar{{Name: name, Value: value}}
	}
}
