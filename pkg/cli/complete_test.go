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
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func TestCompletion(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), newFunction("greeter"), runtimesConfig(),
		revision("fn-00001", corev1.ConditionTrue), revision("fn-00002", corev1.ConditionTrue),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}})
	for _, tc := range []struct{ typed, want string }{
		{"status |", "fn greeter"},
		{"status g|", "greeter"},
		{"status fn |", ""},
		{"delete fn |", "greeter"},
		{"describe-runtime n|", "nodejs24"},
		{"rollback fn --to |", "fn-00002 fn-00001"},
		{"traffic fn |", "fn-00002= fn-00001= latest="},
		{"traffic fn fn-00001=10,l|", "fn-00001=10,latest="},
		{"list --namespace t|", "team-a"},
		{"status fn --output |", "wide json yaml kyaml name go-template go-template-file template templatefile jsonpath jsonpath-as-json jsonpath-file"},
	} {
		words := strings.Split(strings.TrimSuffix(tc.typed, "|"), " ")
		got, err := w.run(append([]string{"__complete"}, words...)...)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(got[:strings.LastIndex(got, ":")])
		if got := strings.Join(lines, " "); got != tc.want {
			t.Errorf("%q is completed by %q, want %q", tc.typed, got, tc.want)
		}
	}
}

// completed returns the words that complete the last of args, and cobra's directive.
func (w *world) completed(args ...string) (words []string, directive string) {
	w.Helper()
	got, err := w.run(append([]string{"__complete"}, args...)...)
	if err != nil {
		w.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

const (
	// noFiles is the directive of cobra that stops shells from completing files.
	noFiles = ":4"
	// noFilesNoSpace also stops them from adding a space.
	noFilesNoSpace = ":6"
)

func TestCompletionDirectives(t *testing.T) {
	w := newWorld(t, newFunction("fn", serves), runtimesConfig(), revision("fn-00001", corev1.ConditionTrue))
	tests := map[string]struct {
		args      []string
		want      []string
		directive string
	}{
		"name":                     {[]string{"status", ""}, []string{"fn"}, noFiles},
		"second name":              {[]string{"list", "fn", ""}, []string{}, noFiles},
		"no third word of traffic": {[]string{"traffic", "fn", "latest=100", ""}, []string{}, noFiles},
		"shares":                   {[]string{"traffic", "fn", ""}, []string{"fn-00001=", "latest="}, noFilesNoSpace},
		"revision of no Function":  {[]string{"rollback", "--to", ""}, []string{}, noFiles},
		"runtime of init":          {[]string{"init", "x", "--runtime", "py"}, []string{"python313"}, noFiles},
		"runtime of deploy":        {[]string{"deploy", "fn", "--runtime", "nodejs2"}, []string{"nodejs24"}, noFiles},
		"one runtime":              {[]string{"describe-runtime", "nodejs24", ""}, []string{}, noFiles},
		"dry run":                  {[]string{"create", "x", "--dry-run", ""}, []string{"none", "client", "server"}, noFiles},
		"a folder":                 {[]string{"deploy", "fn", "--dir", ""}, []string{}, ":16"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			words, directive := w.completed(tc.args...)
			if diff := cmp.Diff(tc.want, words); diff != "" {
				t.Errorf("words (-want +got):\n%s", diff)
			}
			if directive != tc.directive {
				t.Errorf("directive is %s, want %s", directive, tc.directive)
			}
		})
	}
}

// A cluster that does not respond must not print errors into the user's shell.
func TestCompletionWithoutCluster(t *testing.T) {
	fails := newWorld(t)
	for _, fake := range []interface {
		PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
	}{fails.kube, fails.kiln, fails.serving} {
		fake.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no cluster") })
	}
	unknown := newWorld(t)
	unknown.connect = func() (*Clients, error) { return nil, errors.New("no kubeconfig") }
	for name, w := range map[string]*world{"no response": fails, "no kubeconfig": unknown} {
		for _, args := range [][]string{
			{"status", ""}, {"rollback", "fn", "--to", ""}, {"describe-runtime", ""}, {"list", "--namespace", ""}, {"create", "x", "--runtime", ""},
		} {
			t.Run(name+" to "+strings.Join(args, " "), func(t *testing.T) {
				words, directive := w.completed(args...)
				if len(words) > 0 || directive != noFiles {
					t.Errorf("it is completed by %q with %s, want no words", words, directive)
				}
			})
		}
	}
}

func TestCompleteContexts(t *testing.T) {
	for typed, want := range map[string][]string{"": {"other", "team"}, "t": {"team"}, "x": {}} {
		t.Run(typed, func(t *testing.T) {
			t.Setenv("KUBECONFIG", kubeconfig(t, "http://127.0.0.1:1"))
			words, directive := newWorld(t).completed("status", "--context", typed)
			if diff := cmp.Diff(want, words); diff != "" || directive != noFiles {
				t.Errorf("directive %s, words (-want +got):\n%s", directive, diff)
			}
		})
	}
	broken := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", broken)
	if words, directive := newWorld(t).completed("status", "--context", ""); len(words) > 0 || directive != noFiles {
		t.Errorf("of a broken kubeconfig, it is completed by %q with %s", words, directive)
	}
}
