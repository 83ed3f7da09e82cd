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
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

func TestErrorsEndWithWhatToTry(t *testing.T) {
	w := newWorld(t, newFunction("fn"))
	w.wantError("expected the name of one Function, got 0 names", "kubectl fn list, or kubectl fn status --help", "status")
	w.wantError("expected the name of one Function, got 2 names", "kubectl fn list, or kubectl fn logs --help", "logs", "a", "b")
	w.wantError("unknown flag: --nope", "kubectl fn status --help", "status", "--nope")
	w.wantError(`unknown command "nope"`, "the command with --help", "nope")
	for _, command := range []string{"status", "build-status", "build-logs", "logs", "revisions", "rollback", "traffic", "rebuild", "delete"} {
		w.wantError("there is no Function gone in namespace default", "kubectl fn list --all-namespaces", command, "gone")
	}
}

func TestExplain(t *testing.T) {
	functions := schema.GroupResource{Group: serverless.GroupName, Resource: "functions"}
	tests := map[string]struct {
		err    error
		advice string
	}{
		"forbidden":     {apierrs.NewForbidden(functions, "fn", errors.New("no")), "kubectl auth can-i --list, and ask an administrator of the cluster for the role edit in the namespace"},
		"unauthorized":  {apierrs.NewUnauthorized("no"), "log in to the cluster again, or: kubectl config current-context"},
		"not installed": {apierrs.NewGenericServerResponse(404, "get", functions, "", "", 0, true), "kubectl config current-context"},
		"conflict":      {apierrs.NewConflict(functions, "fn", errors.New("no")), "the same command again, because another client changed the Function"},
		"bad":           {apierrs.NewBadRequest("no"), "kubectl explain fn.spec"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Explain(tc.err)
			if want := "\nTry: " + tc.advice; !strings.HasSuffix(got.Error(), want) || !errors.Is(got, tc.err) {
				t.Errorf("Explain() = %v, want the end %q", got, want)
			}
			if again := Explain(got); again.Error() != got.Error() {
				t.Errorf("Explain() explains twice: %v", again)
			}
		})
	}
	if err := Explain(nil); err != nil {
		t.Errorf("Explain(nil) = %v", err)
	}
}

func TestExplainKeepsTheCause(t *testing.T) {
	functions := schema.GroupResource{Group: serverless.GroupName, Resource: "functions"}
	tests := map[string]struct {
		err    error
		advice string
	}{
		"no kubeconfig": {fmt.Errorf("failed to read kubeconfig: %w", clientcmd.ErrEmptyConfig), "set KUBECONFIG, or: kubectl config get-contexts"},
		"invalid": {
			apierrs.NewInvalid(schema.GroupKind{Group: serverless.GroupName, Kind: "Function"}, "fn", nil), "kubectl explain fn.spec",
		},
		"network":      {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, "kubectl cluster-info"},
		"request":      {&url.Error{Op: "Get", URL: "https://cluster.example.com", Err: errors.New("EOF")}, "kubectl cluster-info"},
		"a file":       {&fs.PathError{Op: "open", Path: "handler.js", Err: syscall.EISDIR}, "the command with --help"},
		"wrapped":      {fmt.Errorf("failed to get Function fn: %w", apierrs.NewForbidden(functions, "fn", errors.New("no"))), askAdministrator},
		"anything":     {errors.New("broken"), "the command with --help"},
		"several":      {errors.Join(errors.New("broken"), errors.New("again")), "the command with --help"},
		"with advice":  {try(errors.New("broken"), "kubectl fn %s", "list"), "kubectl fn list"},
		"advice below": {fmt.Errorf("failed: %w", try(errors.New("broken"), "kubectl fn list")), "kubectl fn list"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Explain(tc.err)
			if !errors.Is(got, tc.err) {
				t.Errorf("Explain() = %v, which is not %v", got, tc.err)
			}
			if want := "\nTry: " + tc.advice; !strings.HasSuffix(got.Error(), want) || strings.Count(got.Error(), "\nTry: ") != 1 {
				t.Errorf("Explain() = %q, want the end %q, once", got, want)
			}
		})
	}
}

// The message of a condition quotes a log, which may have any characters.
func TestErrorsAreVisible(t *testing.T) {
	err := Explain(fmt.Errorf("function fn failed: %w", errors.New("\x1b]0;title\a")))
	if want := "function fn failed: ␛]0;title␇\nTry: the command with --help"; err.Error() != want {
		t.Errorf("error is %q, want %q", err, want)
	}
}
