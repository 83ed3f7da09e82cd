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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// answering starts a server that answers calls, and returns the last call.
func (w *world) answering(status int) (asked *http.Request, to *target) {
	asked, to = &http.Request{}, &target{}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		*asked = *in
		out.WriteHeader(status)
		_, _ = in.Body.Read(make([]byte, 1))
		_, _ = out.Write([]byte("answer"))
	}))
	w.Cleanup(server.Close)
	w.forward = func(_ context.Context, _ *Clients, found target) (string, func(), error) {
		*to = found
		return server.Listener.Addr().String(), func() {}, nil
	}
	return asked, to
}

func TestInvoke(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), pod("fn-00001", "a"), crashing("fn-00002", "b"), pod("fn-00002", "c"))
	asked, to := w.answering(http.StatusOK)
	w.want("answer", "invoke", "fn")
	if asked.Method != http.MethodGet || asked.Host != "fn.default.svc.cluster.local" || *to != (target{namespace: namespace, pod: "c", revision: "fn-00002"}) {
		t.Errorf("asked %s %s of %+v", asked.Method, asked.Host, *to)
	}
	if got := w.errOut.String(); !strings.HasPrefix(got, "\n200 OK in ") {
		t.Errorf("it prints %q", got)
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

// A call of a function without pods goes through the activator and names the revision.
func TestInvokeWakes(t *testing.T) {
	activator := pod("", "activator-1")
	activator.Namespace, activator.Labels = servingNamespace, map[string]string{"app": "activator"}
	w := newWorld(t, newFunction("fn", serves), activator)
	asked, to := w.answering(http.StatusOK)
	w.want("answer", "invoke", "fn")
	if *to != (target{namespace: servingNamespace, pod: "activator-1", revision: "fn-00002", wakes: true}) ||
		asked.Header.Get(revisionHeader) != "fn-00002" || asked.Header.Get(namespaceHeader) != namespace {
		t.Errorf("asked %+v with %v", *to, asked.Header)
	}
	newWorld(t, newFunction("fn", serves)).wantError("neither revision fn-00002 nor Serving's activator has a ready pod", "kubectl get pods --namespace=knative-serving", "invoke", "fn")
}

// A call of a function that a Deployment serves goes to the function's own port.
func TestInvokeDeployment(t *testing.T) {
	deployed := func(fs *v1alpha1.FunctionStatus) { serves(fs); fs.Serving = string(config.KubernetesServer) }
	served := pod("", "a")
	served.Labels = map[string]string{serverless.FunctionUIDLabelKey: "uid-of-fn", serverless.RevisionLabelKey: "fn-00002"}
	w := newWorld(t, newFunction("fn", deployed), served)
	asked, to := w.answering(http.StatusOK)
	w.want("answer", "invoke", "fn")
	if to.pod != "a" || to.port() != 8080 || asked.Header.Get(revisionHeader) != "" || asked.Header.Get(namespaceHeader) != "" {
		t.Errorf("asked port %d of %+v with %v", to.port(), *to, asked.Header)
	}
	newWorld(t, newFunction("fn", deployed)).wantError("revision fn-00002 has no ready pod", "kubectl fn status fn", "invoke", "fn")
	w = newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"))
	_, to = w.answering(http.StatusOK)
	w.want("answer", "invoke", "fn")
	if to.port() != servingPort {
		t.Errorf("asked port %d of %+v, want that of Serving's proxy", to.port(), *to)
	}
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

// activator returns a ready pod of Serving's activator.
func activator(name string) *corev1.Pod {
	p := pod("", name)
	p.Namespace, p.Labels = servingNamespace, map[string]string{"app": "activator"}
	return p
}

func TestFindTarget(t *testing.T) {
	deleted := pod("fn-00002", "deleted")
	deleted.DeletionTimestamp, deleted.Finalizers = new(ago(0)), []string{"example.com/test"}
	starting := activator("starting")
	starting.Status.Conditions = nil
	split := func(fs *v1alpha1.FunctionStatus) {
		serves(fs)
		fs.Traffic = []v1alpha1.TrafficStatus{{RevisionName: "fn-00002", Tag: "next"}, {RevisionName: "fn-00001", Percent: new(int64(100))}}
	}
	noTraffic := func(fs *v1alpha1.FunctionStatus) {
		serves(fs)
		fs.Traffic = nil
	}
	ofServing := target{namespace: servingNamespace, pod: "activator-1", revision: "fn-00002", wakes: true}
	tests := map[string]struct {
		mark func(*v1alpha1.FunctionStatus)
		pods []runtime.Object
		want target
	}{
		"ready pod":              {serves, []runtime.Object{pod("fn-00002", "a")}, target{namespace: namespace, pod: "a", revision: "fn-00002"}},
		"of the traffic":         {split, []runtime.Object{pod("fn-00002", "a"), pod("fn-00001", "b")}, target{namespace: namespace, pod: "b", revision: "fn-00001"}},
		"of the latest":          {noTraffic, []runtime.Object{pod("fn-00001", "a"), pod("fn-00002", "b")}, target{namespace: namespace, pod: "b", revision: "fn-00002"}},
		"first by name":          {serves, []runtime.Object{pod("fn-00002", "b"), pod("fn-00002", "a")}, target{namespace: namespace, pod: "a", revision: "fn-00002"}},
		"scaled to zero":         {serves, []runtime.Object{activator("activator-1")}, ofServing},
		"only of another":        {serves, []runtime.Object{pod("fn-00001", "a"), activator("activator-1")}, ofServing},
		"only crashing":          {serves, []runtime.Object{crashing("fn-00002", "a"), activator("activator-1")}, ofServing},
		"only deleted":           {serves, []runtime.Object{deleted, activator("activator-1")}, ofServing},
		"one activator is ready": {serves, []runtime.Object{starting, activator("activator-1")}, ofServing},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := newWorld(t, tc.pods...).clients.findTarget(t.Context(), newFunction("fn", tc.mark))
			if err != nil || got != tc.want {
				t.Errorf("findTarget() = %+v, %v, want %+v", got, err, tc.want)
			}
		})
	}
}

func TestFindTargetErrors(t *testing.T) {
	forbidden := apierrs.NewForbidden(corev1.Resource("pods"), "", errors.New("no role"))
	tests := map[string]struct {
		namespace     string
		err           error
		words, advice string
	}{
		"pods of the function":    {namespace, forbidden, "failed to list pods: ", askAdministrator},
		"activator, forbidden":    {servingNamespace, forbidden, "function fn has scaled to zero, and you may not access Serving's activator, which starts it: ", "call it from inside the cluster at http://fn.default.svc.cluster.local, or set spec.minReplicas to 1"},
		"activator, another":      {servingNamespace, errors.New("etcd is down"), "failed to list the pods of Serving's activator: etcd is down", "the command with --help"},
		"no pod of the activator": {"nowhere", nil, "neither revision fn-00002 nor Serving's activator has a ready pod", "kubectl get pods --namespace=knative-serving"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newFunction("fn", serves))
			w.kube.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return action.GetNamespace() == tc.namespace, nil, tc.err
			})
			w.wantError(tc.words, tc.advice, "invoke", "fn")
		})
	}
}

func TestExplainForward(t *testing.T) {
	forbidden := apierrs.NewForbidden(corev1.Resource("pods"), "a", errors.New("no role"))
	upgrade := errors.New("unable to upgrade connection: Forbidden: user cannot create pods/portforward is forbidden")
	ofFunction := target{namespace: namespace, pod: "a"}
	ofServing := target{namespace: servingNamespace, pod: "activator-1", wakes: true}
	const scaled = "function fn has scaled to zero, and you may not access Serving's activator, which starts it: "
	const inside = "call it from inside the cluster at http://fn.default.svc.cluster.local, or set spec.minReplicas to 1"
	tests := map[string]struct {
		to            target
		err           error
		words, advice string
	}{
		"function, forbidden":  {ofFunction, forbidden, "failed to connect to pod a: ", "kubectl auth can-i create pods/portforward --namespace=default"},
		"function, upgrade":    {ofFunction, upgrade, "failed to connect to pod a: ", "kubectl auth can-i create pods/portforward --namespace=default"},
		"function, another":    {ofFunction, errors.New("the connection closed"), "failed to connect to pod a: the connection closed", "kubectl fn status fn"},
		"activator, forbidden": {ofServing, forbidden, scaled, inside},
		"activator, upgrade":   {ofServing, upgrade, scaled, inside},
		"activator, another":   {ofServing, errors.New("the connection closed"), "failed to connect to pod activator-1: the connection closed", "kubectl fn status fn"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"))
			if tc.to.wakes {
				w = newWorld(t, newFunction("fn", serves), activator("activator-1"))
			}
			w.forward = func(_ context.Context, _ *Clients, to target) (string, func(), error) {
				if to.namespace != tc.to.namespace || to.pod != tc.to.pod {
					t.Errorf("it connects to %+v, want %+v", to, tc.to)
				}
				return "", nil, tc.err
			}
			w.wantError(tc.words, tc.advice, "invoke", "fn")
		})
	}
}

// The API server refuses to forward ports to a user without the permission.
func TestForwardPortForbidden(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		asked = in.Method + " " + in.URL.Path
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(out).Encode(apierrs.NewForbidden(corev1.Resource("pods/portforward"), "a", errors.New("no role")).Status())
	}))
	defer server.Close()
	w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"))
	w.clients.Config = &rest.Config{Host: server.URL}
	remote, err := kubernetes.NewForConfig(w.clients.Config)
	if err != nil {
		t.Fatal(err)
	}
	w.forward = func(ctx context.Context, clients *Clients, to target) (string, func(), error) {
		clients.Kube = remote
		return forwardPort(ctx, clients, to)
	}
	w.wantError("failed to connect to pod a: ", "kubectl auth can-i create pods/portforward --namespace=default", "invoke", "fn")
	if want := "GET /api/v1/namespaces/default/pods/a/portforward"; asked != want {
		t.Errorf("it sends %q, want %q", asked, want)
	}
}

// The command prints the response, whatever its status, and follows no redirect.
func TestInvokeResponses(t *testing.T) {
	tests := map[int]string{
		http.StatusOK:                 "",
		http.StatusNoContent:          "",
		http.StatusFound:              "",
		http.StatusBadRequest:         "function fn responded with 400 Bad Request",
		http.StatusNotFound:           "function fn responded with 404 Not Found",
		http.StatusServiceUnavailable: "function fn responded with 503 Service Unavailable",
	}
	// A proxy could not connect to the local address.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	for status, wantErr := range tests {
		t.Run(http.StatusText(status), func(t *testing.T) {
			w := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a"))
			w.answering(status)
			if wantErr == "" {
				_, err := w.run("invoke", "fn")
				if err != nil {
					t.Error(err)
				}
			} else {
				w.wantError(wantErr, "kubectl fn logs fn", "invoke", "fn")
			}
			wantOut := "answer"
			if status == http.StatusNoContent {
				wantOut = ""
			}
			if got := w.out.String(); got != wantOut {
				t.Errorf("it prints %q, want %q", got, wantOut)
			}
			if got, want := w.errOut.String(), fmt.Sprintf("\n%d %s in ", status, http.StatusText(status)); !strings.HasPrefix(got, want) {
				t.Errorf("standard error is %q, want the start %q", got, want)
			}
		})
	}
}

func TestInvokeWithoutAResponse(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"failed to call function fn: ": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"failed to read the response of function fn: ": func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(out, "the start")
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			w, stopped := newWorld(t, newFunction("fn", serves), pod("fn-00002", "a")), false
			w.forward = func(context.Context, *Clients, target) (string, func(), error) {
				return server.Listener.Addr().String(), func() { stopped = true }, nil
			}
			w.wantError(name, "kubectl fn logs fn", "invoke", "fn")
			if !stopped {
				t.Error("the port is still forwarded")
			}
		})
	}
}
