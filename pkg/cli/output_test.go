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
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/transform"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func TestAgeAndTook(t *testing.T) {
	w := newWorld(t)
	for d, want := range map[time.Duration]string{
		0: "0s", 90 * time.Second: "90s", 5 * time.Minute: "5m", 3 * time.Hour: "3h", 50 * time.Hour: "2d2h",
	} {
		if got := w.age(new(ago(d))); got != want {
			t.Errorf("age of %s = %q, want %q", d, got, want)
		}
	}
	if got := w.age(nil); got != none {
		t.Errorf("age of nothing = %q", got)
	}
	tests := map[string]struct {
		from, to *metav1.Time
		want     string
	}{
		"ended":         {new(ago(time.Hour)), new(ago(time.Hour - 75*time.Second)), "75s"},
		"rounded":       {new(ago(time.Hour)), new(ago(time.Hour - 1600*time.Millisecond)), "2s"},
		"not ended":     {new(ago(3 * time.Minute)), nil, "3m"},
		"never started": {nil, new(ago(0)), none},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := w.took(tc.from, tc.to); got != tc.want {
				t.Errorf("took() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestIndent(t *testing.T) {
	for text, want := range map[string]string{
		"":              "",
		"one":           "one",
		"one\n":         "one",
		"one\ntwo\n\n":  "one\n  two",
		"one\n\n three": "one\n  \n   three",
	} {
		if got := indent(text, 2); got != want {
			t.Errorf("indent(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestPrintTable(t *testing.T) {
	rows := [][]any{{"a", 1, "image-a"}, {"longer", 20, "image-b"}}
	for isWide, want := range map[bool]string{
		false: "NAME     COUNT\na        1\nlonger   20\n",
		true:  "NAME     COUNT   IMAGE\na        1       image-a\nlonger   20      image-b\n",
	} {
		var out strings.Builder
		if err := printTable(&out, isWide, columns("Name", "Count", "+Image"), rows); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("table, wide %v (-want +got):\n%s", isWide, diff)
		}
	}
}

// Each command with -o accepts kubectl's formats, and rejects others.
func TestOutputFormats(t *testing.T) {
	objects := []runtime.Object{newFunction("fn", serves), taskRun(), revision("fn-00002", corev1.ConditionTrue), runtimesConfig()}
	tests := map[string]struct {
		args []string
		kind string
		name string
	}{
		"get":               {[]string{"get", "fn"}, "Function", "fn"},
		"list":              {[]string{"list"}, "FunctionList", ""},
		"status":            {[]string{"status", "fn"}, "FunctionStatus", "fn"},
		"build-status":      {[]string{"build-status", "fn"}, "BuildStatus", "fn"},
		"revisions":         {[]string{"revisions", "fn"}, "RevisionsReport", "fn"},
		"describe-runtime":  {[]string{"describe-runtime", "nodejs24"}, "RuntimeReport", "nodejs24"},
		"describe-runtimes": {[]string{"describe-runtime"}, "RuntimesReport", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objects...)
			for _, format := range []string{"json", "yaml"} {
				got, err := w.run(append(tc.args, "-o", format)...)
				if err != nil {
					t.Fatal(err)
				}
				var object struct {
					metav1.TypeMeta   `json:",inline"`
					metav1.ObjectMeta `json:"metadata"`
					Name              string `json:"name"`
				}
				if err := yaml.Unmarshal([]byte(got), &object); err != nil {
					t.Fatal(err)
				}
				want := metav1.TypeMeta{APIVersion: "serverless.kiln.dev/v1alpha1", Kind: tc.kind}
				if object.TypeMeta != want || object.Name+object.ObjectMeta.Name != tc.name {
					t.Errorf("-o %s prints %v of name %q, want %v of %q", format, object.TypeMeta, object.Name+object.ObjectMeta.Name, want, tc.name)
				}
			}
			w.want(tc.kind, append(tc.args, "-o", "go-template={{.kind}}")...)
			w.wantError(`unable to match a printer suitable for the output format "xml"`, "the command with --help", append(tc.args, "-o", "xml")...)
			if got, err := w.run(append(tc.args, "-o", "wide")...); err != nil || got == "" {
				t.Errorf("-o wide prints %q, %v", got, err)
			}
		})
	}
}

// Only a terminal gets text without control characters. Text for a program stays as it is.
func TestDisplay(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	const text = "\x1b]0;title\a\xff"
	shown := display(write)
	if _, err := io.WriteString(shown, text); err != nil || shown.Close() != nil || write.Close() != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(read); err != nil || string(got) != text {
		t.Errorf("a pipe gets %q, %v, want %q", got, err, text)
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there is no terminal: ", err)
	}
	defer terminal.Close()
	if _, ok := display(terminal).(*transform.Writer); !ok {
		t.Error("a terminal gets the text as it is")
	}
}
