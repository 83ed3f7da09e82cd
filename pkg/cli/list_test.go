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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func TestList(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"), crashing("fn-00002", "b"), buildPod())
	w.want(`
NAME   CONFIGURED   BUILT   RUNNING   RUNTIME    VERSION   AGE   PODS   IMAGE AGE   URL
fn     True         True    True      nodejs24   2         60m   1/2    4m          http://fn.default.svc.cluster.local
`, "list")
	w.want(`
NAMESPACE   NAME   CONFIGURED   BUILT   RUNNING   RUNTIME    VERSION   AGE   PODS   IMAGE AGE   URL
default     fn     True         True    True      nodejs24   2         60m   1/2    4m          http://fn.default.svc.cluster.local
`, "get", "--all-namespaces")
	w.want("function.serverless.kiln.dev/fn\n", "get", "fn", "-o", "name")
	w.want("http://fn.default.svc.cluster.local", "get", "fn", "-o", "jsonpath={.status.url}")
	got, err := w.run("list", "-o", "yaml")
	var list v1alpha1.FunctionList
	if err := yaml.UnmarshalStrict([]byte(got), &list); err != nil || list.Kind != "FunctionList" || len(list.Items) != 1 {
		t.Errorf("kubectl fn list -o yaml is no list of one Function: %v\n%s", err, got)
	}
	if err != nil {
		t.Error(err)
	}
	w.wantError("names cannot be combined with -A or -l", "kubectl fn list --help", "list", "fn", "-A")

	w = newWorld(t, newFunction("fn", buildFailed))
	w.want(`
NAME   CONFIGURED   BUILT   RUNNING   RUNTIME    VERSION   AGE   PODS   IMAGE AGE   URL      PHASE    REASON          IMAGE
fn     True         False   Unknown   nodejs24   2         60m   0/0    <none>      <none>   Failed   TaskRunFailed   <none>
`, "list", "-o", "wide")
	w = newWorld(t)
	w.want("", "list")
	if got := w.errOut.String(); !strings.HasPrefix(got, "There are no Functions in default.") {
		t.Errorf("kubectl fn list without Functions prints %q", got)
	}
}

func TestListSelectsFunctions(t *testing.T) {
	labelled := func(name, in, team string) *v1alpha1.Function {
		fn := newFunction(name)
		fn.Namespace, fn.Labels = in, map[string]string{"team": team}
		return fn
	}
	w := newWorld(t, labelled("a", namespace, "red"), labelled("b", namespace, "blue"), labelled("c", "other", "red"))
	const names = "jsonpath={.items[*].metadata.name}"
	for want, args := range map[string][]string{
		"a b":   {"list", "-o", names},
		"a":     {"list", "-l", "team=red", "-o", names},
		"a b c": {"list", "-A", "-o", names},
		"a c":   {"list", "-A", "-l", "team=red", "-o", names},
		"b a":   {"get", "b", "a", "-o", names},
		"b":     {"get", "b", "-o", "jsonpath={.metadata.name}"},
	} {
		t.Run(strings.Join(args[:len(args)-2], " "), func(*testing.T) { w.want(want, args...) })
	}
	w.wantError("there is no Function c in namespace default", "kubectl fn list --all-namespaces", "get", "a", "c")
	w.wantError("names cannot be combined with -A or -l", "kubectl fn list --help", "get", "a", "-l", "team=red")
}

func TestListWithoutFunctions(t *testing.T) {
	for args, want := range map[string]string{
		"list":    "There are no Functions in default. Start with: kubectl fn init DIR --runtime=nodejs24\n",
		"list -A": "There are no Functions in any namespace. Start with: kubectl fn init DIR --runtime=nodejs24\n",
	} {
		t.Run(args, func(t *testing.T) {
			w := newWorld(t)
			w.want("", strings.Fields(args)...)
			if got := w.errOut.String(); got != want {
				t.Errorf("it prints %q, want %q", got, want)
			}
		})
	}
}

func TestListErrors(t *testing.T) {
	for resource, words := range map[string]string{"functions": "failed to list Functions: ", "pods": "failed to list pods: "} {
		t.Run(resource, func(t *testing.T) {
			w := newWorld(t, newFunction("fn"))
			forbid := func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrs.NewForbidden(corev1.Resource(resource), "", errors.New("no role"))
			}
			w.kube.PrependReactor("list", resource, forbid)
			w.kiln.PrependReactor("list", resource, forbid)
			w.wantError(words, askAdministrator, "list")
		})
	}
}

func TestListRow(t *testing.T) {
	w := newWorld(t)
	bare := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "new", Generation: 1}}
	tests := map[string]struct {
		fn   *v1alpha1.Function
		pods podCount
		want []any
	}{
		"without a status": {bare, podCount{}, []any{
			"new", "Unknown", "Unknown", "Unknown", "<none>", int64(1), "<none>", "0/0", "<none>", "<none>", "", "", "<none>",
		}},
		"serves": {newFunction("fn", serves), podCount{ready: 2, all: 3}, []any{
			"fn", "True", "True", "True", "nodejs24", int64(2), "60m", "2/3", "4m",
			"http://fn.default.svc.cluster.local", "Running", "", "registry.example/fn@sha256:01",
		}},
		"builds": {newFunction("fn", builds), podCount{}, []any{
			"fn", "True", "Unknown", "Unknown", "nodejs24", int64(2), "60m", "0/0", "<none>", "<none>", "Building", "TaskRunRunning", "<none>",
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, w.listRow(tc.fn, tc.pods)); diff != "" {
				t.Errorf("listRow() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestImageTime(t *testing.T) {
	rebuilding := newFunction("fn", built, func(fs *v1alpha1.FunctionStatus) { fs.Build.CompletionTime = nil })
	failed := newFunction("fn", built, func(fs *v1alpha1.FunctionStatus) {
		fs.Build.Failure = &v1alpha1.BuildFailure{Reason: v1alpha1.ReasonTaskRunFailed}
	})
	another := newFunction("fn", built, func(fs *v1alpha1.FunctionStatus) { fs.Build.ImageTag = "def" })
	tests := map[string]struct {
		fn   *v1alpha1.Function
		want *metav1.Time
	}{
		"built":         {newFunction("fn", built), new(ago(4 * time.Minute))},
		"never built":   {newFunction("fn"), nil},
		"builds":        {rebuilding, nil},
		"failed":        {failed, nil},
		"another build": {another, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, imageTime(tc.fn)); diff != "" {
				t.Errorf("imageTime() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCountPods(t *testing.T) {
	of := func(uid string, p *corev1.Pod) corev1.Pod {
		p.Labels[serverless.FunctionUIDLabelKey] = uid
		return *p
	}
	deleted := of("a", pod("r", "deleted"))
	deleted.DeletionTimestamp = new(ago(0))
	list := &corev1.PodList{Items: []corev1.Pod{of("a", pod("r", "1")), of("a", crashing("r", "2")), of("b", crashing("r", "3")), deleted}}
	want := map[types.UID]podCount{"a": {ready: 1, all: 2}, "b": {all: 1}}
	if diff := cmp.Diff(want, countPods(list), cmp.AllowUnexported(podCount{})); diff != "" {
		t.Errorf("countPods() (-want +got):\n%s", diff)
	}
}
