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

package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestListedTests checks that the end-to-end tests that the Makefile lists exist. go test
// ignores unknown names.
func TestListedTests(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	lists := regexp.MustCompile(`(?m)^((?:JOB|PLAIN)_TESTS) := .*\^\((.*)\)\$\$$`).FindAllSubmatch(makefile, -1)
	if len(lists) != 2 {
		t.Fatalf("the Makefile has %d lists of tests, want JOB_TESTS and PLAIN_TESTS", len(lists))
	}
	files, err := filepath.Glob("e2e/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if function, ok := decl.(*ast.FuncDecl); ok && function.Recv == nil {
				known[function.Name.Name] = true
			}
		}
	}
	for _, list := range lists {
		for name := range strings.SplitSeq(string(list[2]), "|") {
			if !known[name] {
				t.Errorf("%s has %s, which is no end-to-end test", list[1], name)
			}
		}
	}
}
