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
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netapi "knative.dev/networking/pkg/apis/networking"
	netv1alpha1 "knative.dev/networking/pkg/apis/networking/v1alpha1"
	"knative.dev/serving/pkg/apis/serving"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

func TestFunctionWithDependency(t *testing.T) {
	t.Parallel()
	for runtime, of := range wrapped(t) {
		if of.Language != "nodejs" {
			continue // TestPackageRegistry has one for Python.
		}
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			fn := example(t, "greeter.yaml")
			fn.Spec.Runtime = runtime
			fn = e.until(e.create(fn), test.Ready)

			e.wantPhase(fn, v1alpha1.FunctionRunning)
			e.wantAnswer(fn, `{"name": "world"}`, "hello world, 3600000")
			e.wantBuilds(1)
			e.wantRevisions(1)
			wantStatus(e, fn)
			wantClusterLocal(e, fn)
			wantColumns(e, fn)
			wantRestricted(e, fn)
		})
	}
}

// TestFunctionWithoutDependency tests the other forms of a function in each runtime: an ES
// module with either kind of export, and a coroutine.
func TestFunctionWithoutDependency(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ source, want string }{
		"nodejs22": {
			source: "const version = await Promise.resolve(process.version);\nexport const main = () => version.split('.')[0];\n",
			want:   "v22",
		},
		"nodejs24": {
			source: "export default { main: async () => process.version.split('.')[0] };\n",
			want:   "v24",
		},
		"python313": {
			source: "import sys\n\n\nasync def main(event, context):\n    return '%d.%d' % sys.version_info[:2]\n",
			want:   "3.13",
		},
	}
	for runtime := range wrapped(t) {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			written, ok := tests[runtime]
			if !ok {
				t.Fatal("the test has no function for this runtime")
			}
			e := newEnv(t)
			fn := function(written.source)
			fn.Spec.Runtime = runtime
			e.wantAnswer(e.until(e.create(fn), test.Ready), "{}", written.want)
		})
	}
}

// TestErrorOfFunction checks the response of a function that throws: it hides details, and
// the function continues to serve.
func TestErrorOfFunction(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(`module.exports = {
  main: (event) => {
    if (event.data.fail) throw new Error('the password is swordfish');
    return 'fine';
  },
};
`)), test.Ready)

	answer, err := relay.CallFunction(e.ctx, request(fn, `{"fail": true}`))
	if err != nil {
		e.Fatal(err)
	}
	// The random hexadecimal id in the response cannot contain this word.
	if answer.Status != http.StatusInternalServerError || strings.Contains(answer.Body, "swordfish") || strings.Contains(answer.Body, "handler.js") {
		e.Errorf("the function that throws answered %+v, want status 500 and no detail", answer)
	}
	e.wantAnswer(fn, `{}`, "fine")
}

func wantStatus(e *env, fn *v1alpha1.Function) {
	e.Helper()
	status := fn.Status
	if status.Address == nil || status.Address.URL.String() != status.URL.String() {
		e.Errorf("address is %v, want the URL %s", status.Address, status.URL)
	}
	container := server.pods(e, fn).Containers[0]
	if !strings.Contains(status.Image, "@sha256:") || container.Image != status.Image {
		e.Errorf("image is %q, and %q is deployed; want both the same, by digest", status.Image, container.Image)
	}
	build := e.onlyBuild()
	if status.Build == nil || status.Build.BuildName() != build.Name || status.Build.Ref.Kind != builder.name || status.Build.CompletionTime == nil || status.Build.Failure != nil {
		e.Errorf("build is %+v, want that of %s %s", status.Build, builder.name, build.Name)
	}
	if status.ImageTag == "" || build.Labels[serverless.ImageTagLabelKey] != status.ImageTag {
		e.Errorf("imageTag is %q, want that of %s %s, %q", status.ImageTag, builder.name, build.Name, build.Labels[serverless.ImageTagLabelKey])
	}
}

// wantClusterLocal checks that a Function is not reachable from outside the cluster.
func wantClusterLocal(e *env, fn *v1alpha1.Function) {
	e.Helper()
	if want := fmt.Sprintf("http://%s.%s.svc.cluster.local", fn.Name, e.namespace); fn.Status.URL.String() != want {
		e.Errorf("url is %s, want %s", fn.Status.URL, want)
	}
	if server == deployments {
		wantInternal(e, fn)
		return
	}
	if got := e.service(fn).Labels[netapi.VisibilityLabelKey]; got != serving.VisibilityClusterLocal {
		e.Errorf("visibility is %q, want %s", got, serving.VisibilityClusterLocal)
	}
	route, err := clients.Serving.ServingV1().Routes(e.namespace).Get(e.ctx, fn.Name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	if route.Status.URL.String() != fn.Status.URL.String() {
		e.Errorf("the route's url is %s, want only %s", route.Status.URL, fn.Status.URL)
	}
	ingress, err := clients.Ingress.NetworkingV1alpha1().Ingresses(e.namespace).Get(e.ctx, fn.Name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	for _, rule := range ingress.Spec.Rules {
		if rule.Visibility != netv1alpha1.IngressVisibilityClusterLocal {
			e.Errorf("the ingress' rule for %v has visibility %s", rule.Hosts, rule.Visibility)
		}
	}
}

// wantColumns checks the columns that kubectl get prints.
func wantColumns(e *env, fn *v1alpha1.Function) {
	e.Helper()
	data, err := clients.Kiln.ServerlessV1alpha1().RESTClient().Get().
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		Namespace(e.namespace).Resource("functions").Name(fn.Name).Do(e.ctx).Raw()
	if err != nil {
		e.Fatal(err)
	}
	table := &metav1.Table{}
	if err := json.Unmarshal(data, table); err != nil {
		e.Fatal(err)
	}
	var narrow, wide []string
	cells := map[string]string{}
	for i, column := range table.ColumnDefinitions {
		name := strings.ToUpper(column.Name)
		cells[name] = fmt.Sprint(table.Rows[0].Cells[i])
		if wide = append(wide, name); column.Priority == 0 {
			narrow = append(narrow, name)
		}
	}
	wantNarrow := []string{"NAME", "CONFIGURED", "BUILT", "RUNNING", "RUNTIME", "VERSION", "AGE"}
	if !slices.Equal(narrow, wantNarrow) {
		e.Errorf("columns are %v, want %v", narrow, wantNarrow)
	}
	for _, name := range []string{"PHASE", "URL", "REASON"} {
		if !slices.Contains(wide, name) {
			e.Errorf("wide columns are %v, want %s among them", wide, name)
		}
	}
	for name, want := range map[string]string{
		"NAME": fn.Name, "CONFIGURED": "True", "BUILT": "True", "RUNNING": "True", "RUNTIME": fn.Spec.Runtime, "VERSION": "1",
		"PHASE": "Running", "URL": fn.Status.URL.String(),
	} {
		if cells[name] != want {
			e.Errorf("column %s is %q, want %q", name, cells[name], want)
		}
	}
}

// wantRestricted checks that a Function's pod passes the pod security standard restricted.
func wantRestricted(e *env, fn *v1alpha1.Function) {
	e.Helper()
	// A call prevents the scale to zero, so that there is a pod.
	e.wantAnswer(fn, `{"name": "pod"}`, "hello pod, 3600000")
	spec := e.podOf(fn).Spec
	spec.NodeName = ""
	for i := range spec.Containers {
		if sc := spec.Containers[i].SecurityContext; sc == nil || sc.ReadOnlyRootFilesystem == nil || !*sc.ReadOnlyRootFilesystem {
			e.Errorf("container %s has a writable root file system", spec.Containers[i].Name)
		}
	}

	namespace, err := createNamespace(e.ctx, "kiln-e2e-restricted-", "restricted")
	if err != nil {
		e.Fatal(err)
	}
	defer func() {
		if err := deleteNamespace(e.ctx, namespace); err != nil {
			e.Error(err)
		}
	}()
	// The pod's volumes name objects that this namespace does not have, and its token
	// volume would clash.
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "", ""
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "as-restricted"}, Spec: spec}
	_, err = clients.Kube.CoreV1().Pods(namespace).Create(e.ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		e.Errorf("the function's pod is not restricted: %v", err)
	}
}

// TestConcurrentCalls checks that each of many concurrent calls gets its own answer. The
// first calls reach a function without pods or with one pod.
func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function("module.exports = { main: (event) => event.data.id };\n")), test.Ready)

	const calls = 20
	answers := make(chan error, calls)
	for id := range calls {
		go func() {
			want := fmt.Sprintf("call-%d", id)
			answer, err := relay.CallFunction(e.ctx, request(fn, fmt.Sprintf(`{"id": %q}`, want)))
			if err == nil && (answer.Status != http.StatusOK || answer.Body != want) {
				err = fmt.Errorf("call %d: %+v", id, answer)
			}
			answers <- err
		}()
	}
	for range calls {
		if err := <-answers; err != nil {
			e.Error(err)
		}
	}
}
