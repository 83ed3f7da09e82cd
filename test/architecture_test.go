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
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// maxFunctionLines bounds a function, without its comments.
	maxFunctionLines = 60
	// maxFolderFiles bounds the files of a package, without its tests.
	maxFolderFiles = 22
)

// backends are the modules that only their own packages may import. The main names the
// informers, and the CLI and the test fixtures read the objects of every backend.
var backends = map[string][]string{
	"github.com/tektoncd/pipeline": {"pkg/builds/tekton", "cmd/controller", "pkg/cli", "pkg/reconciler/testing"},
	"knative.dev/serving":          {"pkg/serve/knative", "cmd/controller", "pkg/cli", "pkg/reconciler/testing"},
}

// TestBackendsAreApart checks that Tekton and Serving are each imported below one
// folder, so that there can be a second builder and a second server.
func TestBackendsAreApart(t *testing.T) {
	used := map[string]bool{}
	for path, file := range parseSources(t, parser.ImportsOnly) {
		folder := filepath.Dir(path)
		for _, spec := range file.file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			for module, allowed := range backends {
				if imported != module && !strings.HasPrefix(imported, module+"/") {
					continue
				}
				used[module] = true
				if !slices.Contains(allowed, folder) {
					t.Errorf("%s imports %s. Only these folders may: %s", path, imported, strings.Join(allowed, ", "))
				}
			}
		}
	}
	for module := range backends {
		if !used[module] {
			t.Errorf("nothing imports %s; is the list of backends out of date?", module)
		}
	}
}

// TestFoldersAreLayered checks that no folder directly below pkg imports itself by way of
// others, so that a reader can start at the bottom.
func TestFoldersAreLayered(t *testing.T) {
	imports := map[string]map[string]bool{}
	for path, file := range parseSources(t, parser.ImportsOnly) {
		from, ok := topFolder(path)
		if !ok {
			continue
		}
		for _, spec := range file.file.Imports {
			_, imported, _ := strings.Cut(strings.Trim(spec.Path.Value, `"`), "/kiln/")
			if to, ok := topFolder(imported); ok && to != from {
				if imports[from] == nil {
					imports[from] = map[string]bool{}
				}
				imports[from][to] = true
			}
		}
	}
	if len(imports) == 0 {
		t.Fatal("no folder below pkg imports another")
	}
	for start := range imports {
		reached := map[string]bool{}
		for next := []string{start}; len(next) > 0; {
			folder := next[0]
			next = next[1:]
			for to := range imports[folder] {
				if !reached[to] {
					reached[to] = true
					next = append(next, to)
				}
			}
		}
		if reached[start] {
			t.Errorf("pkg/%s imports itself by way of other folders", start)
		}
	}
}

// topFolder returns the folder directly below pkg that holds the path.
func topFolder(path string) (string, bool) {
	rest, ok := strings.CutPrefix(filepath.ToSlash(path), "pkg/")
	folder, _, _ := strings.Cut(rest, "/")
	return folder, ok
}

// TestSizes checks the length of functions and the number of files in a folder.
func TestSizes(t *testing.T) {
	folders := map[string]int{}
	for path, source := range parseSources(t, parser.ParseComments) {
		folders[filepath.Dir(path)]++
		for _, decl := range source.file.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok || function.Body == nil {
				continue
			}
			if lines := source.lines(function); lines > maxFunctionLines {
				t.Errorf("%s: %s has %d lines, more than %d", path, function.Name.Name, lines, maxFunctionLines)
			}
		}
	}
	for folder, files := range folders {
		if files > maxFolderFiles {
			t.Errorf("%s has %d files, more than %d: split it", folder, files, maxFolderFiles)
		}
	}
}

// source is a parsed file.
type source struct {
	set  *token.FileSet
	file *ast.File
}

// lines returns the number of lines in the body of the function, without the lines that
// hold only comments.
func (s source) lines(function *ast.FuncDecl) int {
	line := func(pos token.Pos) int { return s.set.Position(pos).Line }
	lines := line(function.Body.Rbrace) - line(function.Body.Lbrace) - 1
	for _, group := range s.file.Comments {
		if group.Pos() > function.Body.Lbrace && group.End() < function.Body.Rbrace && s.set.Position(group.Pos()).Column > 1 {
			lines -= line(group.End()) - line(group.Pos()) + 1
		}
	}
	return lines
}

// parseSources parses what is written by hand in cmd and pkg, without tests.
func parseSources(t *testing.T, mode parser.Mode) map[string]source {
	t.Helper()
	sources := map[string]source{}
	for _, root := range []string{"cmd", "pkg"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, entry fs.DirEntry, err error) error {
			name, _ := filepath.Rel("..", path)
			switch {
			case err != nil:
				return err
			case entry.IsDir() && name == filepath.Join("pkg", "client"):
				return filepath.SkipDir
			case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(entry.Name(), "zz_generated"):
				return nil
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, mode)
			sources[name] = source{set: set, file: file}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return sources
}
