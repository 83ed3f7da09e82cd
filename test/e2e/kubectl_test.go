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
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// kubectl runs the kubectl on PATH in the test's namespace and returns its output.
func (e *env) kubectl(args ...string) string {
	e.Helper()
	return e.kubectlIn("", args...)
}

// kubectlIn is kubectl with that standard input.
func (e *env) kubectlIn(stdin string, args ...string) string {
	e.Helper()
	command := exec.CommandContext(e.ctx, "kubectl", append([]string{"--namespace=" + e.namespace}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.Output()
	if err != nil {
		var words []byte
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			words = exit.Stderr
		}
		e.Fatalf("kubectl %s: %v: %s%s", strings.Join(args, " "), err, out, words)
	}
	return string(out)
}

const kubectlFunction = `
apiVersion: serverless.kiln.dev/v1alpha1
kind: Function
metadata: {name: fn}
spec:
  source: "module.exports = { main: () => process.env.WORD ?? 'none' };"
  resources: {requests: {cpu: 5m}}
`

// TestKubectl checks the output of plain kubectl, from the first apply to the events. No
// other test runs in parallel: one of them kills the controller, and unsent events would be
// lost.
func TestKubectl(t *testing.T) {
	e := newEnv(t)
	e.kubectlIn(kubectlFunction, "apply", "--filename=-")
	e.kubectl("wait", "--for=condition=Ready", "fn/fn", "--timeout=5m")

	wantTable(e, e.kubectl("get", "fn"), map[string]string{
		"NAME": "fn", "CONFIGURED": "True", "BUILT": "True", "RUNNING": "True", "RUNTIME": "nodejs24", "VERSION": "1", "AGE": "*",
	})
	fn := e.until(&v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "fn"}}, test.Ready)
	wantTable(e, e.kubectl("get", "functions.serverless.kiln.dev", "--output=wide"), map[string]string{
		"NAME": "fn", "CONFIGURED": "True", "BUILT": "True", "RUNNING": "True", "RUNTIME": "nodejs24", "VERSION": "1", "AGE": "*",
		"PHASE": "Running", "URL": fn.Status.URL.String(), "REASON": "",
	})
	for _, category := range []string{"all", "knative"} {
		if got := e.kubectl("get", category, "--output=name"); !strings.Contains(got, "function.serverless.kiln.dev/fn\n") {
			e.Errorf("kubectl get %s has no Function:\n%s", category, got)
		}
	}

	// Neither a change without effect nor a reconcile without a change sends an event.
	e.kubectl("label", "fn/fn", "team=a")
	e.kubectl("patch", "fn/fn", "--type=merge", `--patch={"spec": {"env": [{"name": "WORD", "value": "said"}]}}`)
	e.kubectl("wait", "--for=jsonpath={.status.observedGeneration}=2", "fn/fn", "--timeout=1m")
	e.kubectl("wait", "--for=condition=Ready", "fn/fn", "--timeout=5m")
	fn = e.until(fn, test.Ready)
	e.wantAnswerSoon(fn, "said")
	wantStory(e, fn,
		"Normal ConfigMapCreated", "Normal "+builder.reasons.Created, "Normal "+builder.reasons.Running, "Normal "+builder.reasons.Succeeded,
		"Normal ServiceCreated", "Normal ServiceReady", "Normal ServiceUpdated", "Normal ServiceReady")

	described := e.kubectl("describe", "fn/fn")
	for _, words := range []string{"Events:", builder.reasons.Succeeded, "ServiceUpdated", "Observed Generation:", "Latest Ready Revision Name:"} {
		if !strings.Contains(described, words) {
			e.Errorf("kubectl describe does not print %q:\n%s", words, described)
		}
	}
}

// wantTable checks that kubectl printed a table with one row. "*" is any text.
func wantTable(e *env, printed string, want map[string]string) {
	e.Helper()
	header, row, ok := strings.Cut(strings.TrimRight(printed, "\n"), "\n")
	if !ok || strings.Contains(row, "\n") {
		e.Fatalf("kubectl did not print one row:\n%s", printed)
	}
	columns := strings.Fields(header)
	if len(columns) != len(want) {
		e.Errorf("there are %d columns, want %d:\n%s", len(columns), len(want), printed)
	}
	for i, column := range columns {
		from, to := strings.Index(header, column), len(row)
		if i+1 < len(columns) {
			to = min(to, strings.Index(header, columns[i+1]))
		}
		cell := strings.TrimSpace(row[min(from, len(row)):to])
		if text, ok := want[column]; !ok || cell != text && (text != "*" || cell == "") {
			e.Errorf("column %s is %q, want %q:\n%s", column, cell, text, printed)
		}
	}
}

// wantStory checks that the Function has these events, each sent once. ServiceWaiting is
// optional. Events are written after the change that they report, so wantStory waits for
// the last one.
func wantStory(e *env, fn *v1alpha1.Function, want ...string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	of := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(fn.UID)).String()}
	err := test.Until(ctx, clients.Kube.CoreV1().Events(e.namespace), of, func(events []*corev1.Event) error {
		if got := story(events); !slices.Equal(got, want) {
			return fmt.Errorf("the events are\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
		return nil
	})
	if err != nil {
		e.Error(err)
	}
}

// story returns the events in their order. For an event that was sent more than once, it
// includes the count.
func story(events []*corev1.Event) (told []string) {
	// The timestamps have a resolution of one second. The names end with nanoseconds.
	slices.SortFunc(events, func(a, b *corev1.Event) int {
		return cmp.Or(a.FirstTimestamp.Compare(b.FirstTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, event := range events {
		switch {
		case event.Reason == v1alpha1.ReasonServiceWaiting:
		case event.Count > 1:
			told = append(told, fmt.Sprintf("%s %s, %d times: %s", event.Type, event.Reason, event.Count, event.Message))
		default:
			told = append(told, event.Type+" "+event.Reason)
		}
	}
	return told
}

// TestExamples checks that the examples work unchanged.
func TestExamples(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	mac := hmac.New(sha256.New, []byte("change me"))
	mac.Write([]byte(`{"order":1}`))
	tests := map[string]struct{ body, answer string }{
		"event-log":   {`{"a":1}`, ""},
		"signer":      {`{"order":1}`, hex.EncodeToString(mac.Sum(nil))},
		"temperature": {`{"celsius":100}`, `{"fahrenheit":212}`},
	}
	for name := range tests {
		e.kubectl("apply", "--filename=../../examples/"+name+".yaml")
	}
	e.kubectl("wait", "--for=condition=Ready", "fn", "--all", "--timeout=5m")
	for name, tc := range tests {
		fn := e.until(&v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: name}}, test.Ready)
		answer, err := relay.CallFunction(e.ctx, request(fn, tc.body))
		if err != nil {
			e.Fatal(err)
		}
		if answer.Status/100 != 2 || answer.Body != tc.answer {
			e.Errorf("%s answered %+v, want %q", name, answer, tc.answer)
		}
	}
}

// TestKubectlExplain checks that kubectl explain describes every field.
func TestKubectlExplain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for path, words := range map[string]string{
		"fn":                          "code with dependencies",
		"fn.spec":                     "A Function has exactly one of source, git",
		"fn.spec.archive":             "-required-",
		"fn.spec.git":                 "-required-",
		"fn.spec.source":              "module that exports",
		"fn.spec.traffic":             "revisionName",
		"fn.spec.traffic.percent":     "share of the requests",
		"fn.spec.secretMounts":        "-required-",
		"fn.spec.configMapMounts":     "-required-",
		"fn.spec.envFrom.secretRef":   "name",
		"fn.spec.visibility":          "cluster-local",
		"fn.spec.build":               "secretName",
		"fn.status.build.failure.log": "4 KiB",
	} {
		got := e.kubectl("explain", path)
		if !strings.Contains(got, words) || strings.Contains(got, "<no description>") || strings.Contains(got, "<empty>") {
			e.Errorf("kubectl explain %s does not print %q, or a field has no description:\n%s", path, words, got)
		}
	}
}
