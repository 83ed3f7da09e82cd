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
	"strings"
	"testing"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

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
