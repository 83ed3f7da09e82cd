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
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/observe"
)

// kubeconfig writes a kubeconfig with a context that leads to the server and returns
// its file.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: server, InsecureSkipTLSVerify: strings.HasPrefix(server, "https:")}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: "s3cret"}
	config.Contexts["team"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: "team"}
	config.Contexts["other"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "team"
	file := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestNew runs kubectl fn as main does, with the API of a server.
func TestNew(t *testing.T) {
	var asked *http.Request
	server := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		asked = in
		out.Header().Set("Content-Type", "application/json")
		out.Header().Set("Warning", `299 - "runtime nodejs20 is deprecated"`)
		fn := newFunction("fn", serves)
		fn.TypeMeta = metav1.TypeMeta{APIVersion: "serverless.kiln.dev/v1alpha1", Kind: "Function"}
		_ = json.NewEncoder(out).Encode(fn)
	}))
	defer server.Close()
	file := kubeconfig(t, server.URL)
	tests := map[string]struct {
		args     []string
		wantPath string
	}{
		"current context":   {nil, "/apis/serverless.kiln.dev/v1alpha1/namespaces/team/functions/fn"},
		"other context":     {[]string{"--context=other"}, "/apis/serverless.kiln.dev/v1alpha1/namespaces/default/functions/fn"},
		"another namespace": {[]string{"--namespace=mine"}, "/apis/serverless.kiln.dev/v1alpha1/namespaces/mine/functions/fn"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			streams, _, out, errOut := genericiooptions.NewTestIOStreams()
			command := New(streams)
			command.SetArgs(append([]string{"get", "fn", "-o", "name", "--kubeconfig", file}, tc.args...))
			if err := command.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, want := out.String(), "function.serverless.kiln.dev/fn\n"; got != want {
				t.Errorf("it prints %q, want %q", got, want)
			}
			if got, want := errOut.String(), "Warning: runtime nodejs20 is deprecated\n"; got != want {
				t.Errorf("it warns %q, want %q", got, want)
			}
			if asked.URL.Path != tc.wantPath || asked.Header.Get("Authorization") != "Bearer s3cret" {
				t.Errorf("it asks for %s with %q, want %s with the token of the kubeconfig", asked.URL.Path, asked.Header.Get("Authorization"), tc.wantPath)
			}
		})
	}
}

// TestServerErrors shows each error of an API server as the user sees it.
func TestServerErrors(t *testing.T) {
	functions := schema.GroupResource{Group: serverless.GroupName, Resource: "functions"}
	tests := map[string]struct {
		err           *apierrs.StatusError
		words, advice string
	}{
		"no Function": {
			apierrs.NewNotFound(functions, "fn"),
			"there is no Function fn in namespace team", "kubectl fn list --all-namespaces",
		},
		"no kind": {
			apierrs.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "404 page not found", 0, true),
			"Kiln is probably not installed on this cluster", "kubectl config current-context",
		},
		"forbidden": {
			apierrs.NewForbidden(functions, "fn", errors.New("no role")),
			`failed to get Function fn: functions.serverless.kiln.dev "fn" is forbidden: no role`, askAdministrator,
		},
		"unauthorized": {
			apierrs.NewUnauthorized("token has expired"),
			"failed to get Function fn: token has expired", "log in to the cluster again, or: kubectl config current-context",
		},
		"internal": {
			apierrs.NewInternalError(errors.New("etcd is down")),
			"etcd is down", "the command with --help",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
				status := tc.err.Status()
				status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
				out.Header().Set("Content-Type", "application/json")
				out.WriteHeader(int(status.Code))
				_ = json.NewEncoder(out).Encode(status)
			}))
			defer server.Close()
			streams, _, _, _ := genericiooptions.NewTestIOStreams()
			command := New(streams)
			command.SetArgs([]string{"status", "fn", "--kubeconfig", kubeconfig(t, server.URL)})
			err := Explain(command.ExecuteContext(t.Context()))
			if err == nil || !strings.Contains(err.Error(), tc.words) || !strings.HasSuffix(err.Error(), "\nTry: "+tc.advice) {
				t.Errorf("error is %v\nwant %q in it and the advice %q", err, tc.words, tc.advice)
			}
		})
	}
}

func TestKubeconfigErrors(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args          []string
		words, advice string
	}{
		"no server": {[]string{"--kubeconfig", kubeconfig(t, closed.URL)}, "connection refused", "kubectl cluster-info"},
		"broken":    {[]string{"--kubeconfig", broken}, "failed to read kubeconfig: ", "the command with --help"},
		"no context": {
			[]string{"--kubeconfig", kubeconfig(t, closed.URL), "--context=absent"}, "context was not found for specified context: absent", "set KUBECONFIG, or: kubectl config get-contexts",
		},
		"bad address": {[]string{"--kubeconfig", kubeconfig(t, "http://a b")}, "failed to ", "the command with --help"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			streams, _, _, _ := genericiooptions.NewTestIOStreams()
			command := New(streams)
			command.SetArgs(append([]string{"status", "fn"}, tc.args...))
			err := Explain(command.ExecuteContext(t.Context()))
			if err == nil || !strings.Contains(err.Error(), tc.words) || !strings.HasSuffix(err.Error(), "\nTry: "+tc.advice) {
				t.Errorf("error is %v\nwant %q in it and the advice %q", err, tc.words, tc.advice)
			}
		})
	}
}

func TestIsOfObject(t *testing.T) {
	functions := schema.GroupResource{Group: serverless.GroupName, Resource: "functions"}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"an object": {apierrs.NewNotFound(functions, "fn"), true},
		"wrapped":   {fmt.Errorf("failed: %w", apierrs.NewNotFound(functions, "fn")), true},
		"a kind":    {apierrs.NewGenericServerResponse(http.StatusNotFound, "get", functions, "", "", 0, true), false},
		"no status": {errors.New("not found"), false},
		"no error":  {nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := isOfObject(tc.err); got != tc.want {
				t.Errorf("isOfObject(%v) = %v, want %v", tc.err, got, tc.want)
			}
		})
	}
}

// TestEdit changes a Function that another client changes at the same time.
func TestEdit(t *testing.T) {
	functions := schema.GroupResource{Group: serverless.GroupName, Resource: "functions"}
	conflict := apierrs.NewConflict(functions, "fn", errors.New("the object has been modified"))
	tests := map[string]struct {
		conflicts int
		err       error
		wantErr   string
		wantTries int
	}{
		"alone":            {wantTries: 1},
		"two conflicts":    {conflicts: 2, err: conflict, wantTries: 3},
		"always conflicts": {conflicts: 100, err: conflict, wantErr: "failed to update Function fn: ", wantTries: 4},
		"rejected": {
			conflicts: 1, err: apierrs.NewBadRequest("spec.source is too long"), wantErr: "failed to update Function fn: spec.source is too long", wantTries: 1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, tries := newWorld(t, newFunction("fn")), 0
			w.kiln.PrependReactor("update", "functions", func(clienttesting.Action) (bool, runtime.Object, error) {
				tries++
				return tries <= tc.conflicts, nil, tc.err
			})
			err := w.clients.edit(t.Context(), "fn", func(fn *v1alpha1.Function) { fn.Spec.Runtime = "nodejs22" })
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.HasPrefix(err.Error(), tc.wantErr) {
				t.Errorf("edit() = %v, want %q", err, tc.wantErr)
			}
			if tries != tc.wantTries {
				t.Errorf("edit() tries %d times, want %d", tries, tc.wantTries)
			}
			if got := w.function("fn").Spec.Runtime; (got == "nodejs22") != (tc.wantErr == "") {
				t.Errorf("the runtime is %q after the error %v", got, err)
			}
		})
	}
	err := newWorld(t).clients.edit(t.Context(), "fn", func(*v1alpha1.Function) { t.Error("a Function that does not exist was changed") })
	if err == nil || !strings.HasPrefix(err.Error(), "there is no Function fn in namespace default\n") {
		t.Errorf("edit() of no Function = %v", err)
	}
}

func TestObserve(t *testing.T) {
	noPod := taskRun()
	noPod.Status.PodName = ""
	tests := map[string]struct {
		objects   []runtime.Object
		wantBuild observe.Build
		wantPods  []string
	}{
		"nothing":           {},
		"only a TaskRun":    {objects: []runtime.Object{noPod}, wantBuild: observe.Build{Exists: true}},
		"pod is gone":       {objects: []runtime.Object{taskRun()}, wantBuild: observe.Build{Exists: true}},
		"build and its pod": {objects: []runtime.Object{taskRun(), buildPod()}, wantBuild: observe.Build{Exists: true, Pod: buildPod()}},
		"pods": {
			objects: []runtime.Object{pod("fn-00001", "b"), pod("fn-00002", "a"), buildPod()}, wantPods: []string{"a", "b"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fn := newFunction("fn", built)
			got, err := newWorld(t, tc.objects...).clients.observe(t.Context(), fn)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantBuild, got.Build); diff != "" {
				t.Errorf("build (-want +got):\n%s", diff)
			}
			var names []string
			for _, p := range got.Pods {
				names = append(names, p.Name)
			}
			if diff := cmp.Diff(tc.wantPods, names); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			if got.Function != fn || got.Container != "function" {
				t.Errorf("it observes Function %v and container %q", got.Function, got.Container)
			}
		})
	}
}

func TestObserveErrors(t *testing.T) {
	for verb, words := range map[string]string{"list": "failed to list pods: ", "get": "failed to get pod fn-1-pod: "} {
		t.Run(verb, func(t *testing.T) {
			w := newWorld(t, newFunction("fn", built), taskRun(), buildPod())
			w.kube.PrependReactor(verb, "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrs.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))
			})
			w.wantError(words, askAdministrator, "status", "fn")
			w.wantError(words, askAdministrator, "build-status", "fn")
		})
	}
}
