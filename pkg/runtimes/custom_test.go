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

package runtimes

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCustomBuildContext(t *testing.T) {
	const dockerfile = "FROM {{.BaseImage}}\n{{if .HasDependencies}}RUN install\n{{end}}"
	tests := map[string]struct {
		custom Custom
		fn     Function
		want   map[string]string
		err    string
	}{
		"minimal": {
			fn:   Function{Source: "source"},
			want: map[string]string{"Dockerfile": "FROM base\n", "handler": "source"},
		},
		"complete": {
			custom: Custom{SourceFile: "main.go", DependencyFile: "go.mod", Files: map[string]string{"server.go": "server"}},
			fn:     Function{Source: "source", Dependencies: "deps"},
			want:   map[string]string{"Dockerfile": "FROM base\nRUN install\n", "main.go": "source", "go.mod": "deps", "server.go": "server"},
		},
		"dependency file without deps": {
			custom: Custom{DependencyFile: "go.mod"},
			fn:     Function{Source: "source", Dependencies: " \n"},
			want:   map[string]string{"Dockerfile": "FROM base\n", "handler": "source", "go.mod": " \n"},
		},
		"blank deps without a dependency file": {
			fn:   Function{Source: "source", Dependencies: "\n"},
			want: map[string]string{"Dockerfile": "FROM base\n", "handler": "source"},
		},
		"deps without a dependency file": {fn: Function{Dependencies: "x"}, err: "has no dependencyFile"},
		"no Dockerfile":                  {fn: Function{Dockerfile: " "}, err: "has no dockerfile"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.fn.BaseImage = "base"
			if tc.fn.Dockerfile == "" {
				tc.fn.Dockerfile = dockerfile
			}
			before := len(tc.custom.Files)
			got, err := tc.custom.Runtime().BuildContext(tc.fn)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("BuildContext error = %v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("files (-want, +got):\n%s", diff)
			}
			if len(tc.custom.Files) != before {
				t.Error("the configuration was changed")
			}
		})
	}
}

func TestCustomValidate(t *testing.T) {
	tests := map[string]struct {
		custom Custom
		want   string
	}{
		"nothing":           {Custom{}, ""},
		"everything":        {Custom{SourceFile: "main.go", DependencyFile: "go.mod", Files: map[string]string{"a-1_b.go": "x"}}, ""},
		"folder":            {Custom{SourceFile: "src/main.go"}, `sourceFile: "src/main.go" is not the name of a file`},
		"an option":         {Custom{SourceFile: "--from=x"}, "sourceFile: "},
		"the Dockerfile":    {Custom{SourceFile: "Dockerfile"}, `sourceFile: the name "Dockerfile" is already used by the Dockerfile`},
		"the layout":        {Custom{DependencyFile: "layout.json"}, `dependencyFile: the name "layout.json" is already used by Kiln`},
		"hidden":            {Custom{Files: map[string]string{".dockerignore": "*"}}, `files: ".dockerignore" is not the name of a file`},
		"source and deps":   {Custom{SourceFile: "x", DependencyFile: "x"}, `dependencyFile: the name "x" is already used by sourceFile`},
		"the source is one": {Custom{Files: map[string]string{"handler": ""}}, `files: the name "handler" is already used by sourceFile`},
		"largest":           {Custom{Files: map[string]string{"a": strings.Repeat("x", MaxFilesBytes)}}, ""},
		"too large": {
			Custom{Files: map[string]string{"a": strings.Repeat("x", MaxFilesBytes), "b": "x"}},
			"files: their size is 16385 bytes and the limit is 16384",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.custom.Validate()
			if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("Validate() = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestCustomExplainBuildFailure(t *testing.T) {
	const (
		ran    = "INFO[0001] RUN go build\nINFO[0001] Running: [/bin/sh -c go build]\n"
		failed = "error building image: error building stage: failed to execute command: waiting for process to exit: exit status 1\n"
	)
	tests := map[string]struct{ log, want string }{
		"a compiler": {ran + "# main\n./main.go:3:2: undefined: x\n" + failed, "# main\n./main.go:3:2: undefined: x"},
		"npm":        {ran + "compiling\nnpm error code E404\n" + failed, "code E404"},
		"pip":        {ran + "ERROR: No matching distribution found for x\n" + failed, "No matching distribution found for x"},
		"much":       {ran + strings.Repeat("line\n", 50) + "last\n" + failed, strings.Repeat("line\n", quotedLines-1) + "last"},
		"nothing":    {ran + failed, ""},
		"no command": {"INFO[0001] x\nerror building image: failed to pull base image x: UNAUTHORIZED\n", ""},
		"no log":     {"", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (Custom{}).Runtime().ExplainBuildFailure(tc.log); got != tc.want {
				t.Errorf("ExplainBuildFailure = %q, want %q", got, tc.want)
			}
		})
	}
}
