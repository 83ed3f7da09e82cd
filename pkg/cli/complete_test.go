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
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
