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
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func TestSourceFlagsCheck(t *testing.T) {
	tests := map[string]struct {
		flags   sourceFlags
		wantErr string
	}{
		"none":            {sourceFlags{}, ""},
		"file":            {sourceFlags{file: "a.js", deps: "b.json", runtime: "nodejs24"}, ""},
		"folder":          {sourceFlags{dir: ".", pushTo: "registry.example.com/a"}, ""},
		"folder and file": {sourceFlags{dir: ".", file: "a.js"}, "--dir cannot be combined with --file or --deps\nTry: --dir, or --file and --deps"},
		"folder and deps": {sourceFlags{dir: ".", deps: "b.json"}, "--dir cannot be combined with --file or --deps\nTry: --dir, or --file and --deps"},
		"push of nothing": {sourceFlags{pushTo: "registry.example.com/a"}, "--push-to needs --dir\nTry: --dir=. --push-to=registry.example.com/a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tc.flags.check(); (err == nil) != (tc.wantErr == "") || err != nil && err.Error() != tc.wantErr {
				t.Errorf("check() = %v, want %q", err, tc.wantErr)
			}
		})
	}
}

const ms = `{"dependencies": {"ms": "2.1.3"}}`

func TestApplyFile(t *testing.T) {
	both := map[string]string{"handler.js": "js", "package.json": "{}"}
	python := map[string]string{"handler.py": "py", "requirements.txt": "requests"}
	before := v1alpha1.FunctionSpec{
		Runtime: "nodejs22", Source: "old", Deps: "old", Git: &v1alpha1.GitSource{URL: "https://example.com/a.git"},
		Archive: &v1alpha1.ArchiveSource{URL: "https://example.com/a.zip"}, MinReplicas: new(int32(1)),
	}
	tests := map[string]struct {
		files  map[string]string
		flags  sourceFlags
		before v1alpha1.FunctionSpec
		want   v1alpha1.FunctionSpec
	}{
		"found":                 {both, sourceFlags{}, v1alpha1.FunctionSpec{}, v1alpha1.FunctionSpec{Source: "js", Deps: "{}"}},
		"with a runtime":        {both, sourceFlags{runtime: "nodejs24"}, v1alpha1.FunctionSpec{}, v1alpha1.FunctionSpec{Runtime: "nodejs24", Source: "js", Deps: "{}"}},
		"without dependencies":  {map[string]string{"handler.js": "js"}, sourceFlags{}, v1alpha1.FunctionSpec{}, v1alpha1.FunctionSpec{Source: "js"}},
		"replaces other source": {both, sourceFlags{}, before, v1alpha1.FunctionSpec{Runtime: "nodejs22", Source: "js", Deps: "{}", MinReplicas: new(int32(1))}},
		"replaces the runtime":  {both, sourceFlags{runtime: "nodejs24"}, before, v1alpha1.FunctionSpec{Runtime: "nodejs24", Source: "js", Deps: "{}", MinReplicas: new(int32(1))}},
		"Python":                {python, sourceFlags{runtime: "python313"}, v1alpha1.FunctionSpec{}, v1alpha1.FunctionSpec{Runtime: "python313", Source: "py", Deps: "requests"}},
		"lock file": {
			map[string]string{"handler.js": "js", "package.json": ms + "\n", "package-lock.json": "lock", "yarn.lock": "yarn"}, sourceFlags{},
			v1alpha1.FunctionSpec{}, v1alpha1.FunctionSpec{Source: "js", Deps: ms + "\nlock"},
		},
		"lock file of named dependencies": {
			map[string]string{"handler.js": "js", "package.json": ms, "npm-shrinkwrap.json": "lock", "package-lock.json": "other"}, sourceFlags{deps: "package.json"},
			v1alpha1.FunctionSpec{}, v1alpha1.FunctionSpec{Source: "js", Deps: ms + "\nlock"},
		},
		"dependencies of another name": {
			map[string]string{"handler.js": "js", "b.json": ms, "package-lock.json": "lock"}, sourceFlags{deps: "b.json"},
			v1alpha1.FunctionSpec{}, v1alpha1.FunctionSpec{Source: "js", Deps: ms},
		},
		"named file":         {map[string]string{"a.js": "a", "handler.js": "js", "package.json": "{}"}, sourceFlags{file: "a.js"}, v1alpha1.FunctionSpec{}, v1alpha1.FunctionSpec{Source: "a", Deps: "{}"}},
		"named dependencies": {map[string]string{"handler.js": "js", "b.json": "b", "package.json": "{}"}, sourceFlags{deps: "b.json"}, v1alpha1.FunctionSpec{}, v1alpha1.FunctionSpec{Source: "js", Deps: "b"}},
		"unknown extension":  {map[string]string{"a.sh": "sh", "package.json": "{}"}, sourceFlags{file: "a.sh", runtime: "shell"}, v1alpha1.FunctionSpec{}, v1alpha1.FunctionSpec{Runtime: "shell", Source: "sh"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			files(t, tc.files)
			fn := &v1alpha1.Function{Spec: tc.before}
			if err := tc.flags.applyFile(fn); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, fn.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

func TestApplyFileErrors(t *testing.T) {
	const start = "\nTry: --file=FILE, or start with: kubectl fn init DIR --runtime=nodejs24"
	tests := map[string]struct {
		files   map[string]string
		flags   sourceFlags
		wantErr string
	}{
		"no file":            {nil, sourceFlags{}, "folder . must have exactly one of handler.js, handler.ts, handler.py, but has 0" + start},
		"two files":          {map[string]string{"handler.js": "", "handler.py": ""}, sourceFlags{}, "folder . must have exactly one of handler.js, handler.ts, handler.py, but has 2" + start},
		"missing file":       {nil, sourceFlags{file: "a.js"}, "failed to read source: open a.js: no such file or directory" + start},
		"Python, no runtime": {map[string]string{"handler.py": ""}, sourceFlags{}, "no runtime was given for handler.py\nTry: kubectl fn describe-runtime, and then --runtime=NAME"},
		"Dockerfile":         {map[string]string{"Dockerfile": ""}, sourceFlags{runtime: "dockerfile"}, "runtime dockerfile needs a folder with a Dockerfile\nTry: --dir=."},
		"lock file of yarn":  {map[string]string{"handler.js": "", "package.json": ms, "yarn.lock": ""}, sourceFlags{}, "failed to read dependencies in folder .: yarn.lock is not a lock file of npm, which installs the packages: add a package-lock.json with npm install --package-lock-only, or remove yarn.lock"},
		"lock file of uv":    {map[string]string{"handler.py": "", "uv.lock": ""}, sourceFlags{runtime: "python313"}, "failed to read dependencies in folder .: uv.lock is not a lock file of pip, which installs the packages: add a requirements.txt with uv export --no-dev --no-emit-project --output-file=requirements.txt, or an empty one to install nothing"},
		"missing deps":       {map[string]string{"handler.js": ""}, sourceFlags{deps: "b.json"}, "failed to read dependencies: open b.json: no such file or directory\nTry: --deps=FILE"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			files(t, tc.files)
			fn := &v1alpha1.Function{Spec: v1alpha1.FunctionSpec{Source: "old"}}
			err := tc.flags.applyFile(fn)
			if err == nil || err.Error() != tc.wantErr {
				t.Errorf("applyFile() = %v, want %q", err, tc.wantErr)
			}
			if diff := cmp.Diff(v1alpha1.FunctionSpec{Source: "old"}, fn.Spec); diff != "" {
				t.Errorf("the spec changed (-want +got):\n%s", diff)
			}
		})
	}
}

// A dependency file that cannot be read must not become a Function without dependencies.
func TestReadDepsError(t *testing.T) {
	dir := files(t, map[string]string{"handler.js": "js"})
	if err := os.Mkdir(filepath.Join(dir, "package.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	newWorld(t).wantError("failed to read dependencies: ", "the command with --help", "create", "fn")
}

func TestLanguageOf(t *testing.T) {
	for name, want := range map[string]string{
		"nodejs24": "nodejs", "nodejs": "nodejs", "python313-team": "python", "dockerfile": "dockerfile", "dockerfile-gpu": "dockerfile", "team-nodejs": "", "": "",
	} {
		t.Run(name, func(t *testing.T) {
			language, err := languageOf(name)
			if language.Language != want || (err == nil) != (want != "") {
				t.Errorf("languageOf() = %q, %v, want %q", language.Language, err, want)
			}
		})
	}
}
