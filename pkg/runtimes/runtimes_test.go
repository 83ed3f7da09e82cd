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
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFor(t *testing.T) {
	for _, language := range Languages() {
		r, ok := For(language)
		if !ok || r.Language != language {
			t.Errorf("For(%q) = %q, %v", language, r.Language, ok)
		}
		// Every embedded file must be there and the template must be usable.
		if _, err := r.BuildContext(Function{BaseImage: "base"}); err != nil {
			t.Errorf("BuildContext of %s: %v", language, err)
		}
	}
	if _, ok := For("cobol"); ok {
		t.Error(`For("cobol") found a runtime`)
	}
}

func TestBuildContext(t *testing.T) {
	const base = "registry.example/node@sha256:0123"
	tests := []struct {
		name         string
		dependencies string
		wantDeps     string
		wantInstall  bool
	}{
		{"none", "", "{}\n", false},
		{"blank", " \n", "{}\n", false},
		{"empty object", "{}", "{}", false},
		{"no dependencies", `{"type": "module", "dependencies": {}}`, `{"type": "module", "dependencies": {}}`, false},
		{"development only", `{"devDependencies": {"ms": "1"}}`, `{"devDependencies": {"ms": "1"}}`, false},
		{"dependencies", `{"dependencies": {"ms": "1"}}`, `{"dependencies": {"ms": "1"}}`, true},
		{"optional", `{"optionalDependencies": {"ms": "1"}}`, `{"optionalDependencies": {"ms": "1"}}`, true},
		{"byte order mark", "\ufeff{\"dependencies\": {\"ms\": \"1\"}}", `{"dependencies": {"ms": "1"}}`, true},
		{"byte order mark alone", "\ufeff\r\n", "{}\n", false},
		{"CRLF", "{\r\n\t\"dependencies\": {}\r\n}\r\n", "{\r\n\t\"dependencies\": {}\r\n}\r\n", false},
		{"Unicode", `{"description": "größer, 大, 🚀"}`, `{"description": "größer, 大, 🚀"}`, false},
		{"peer", `{"peerDependencies": {"ms": "1"}}`, `{"peerDependencies": {"ms": "1"}}`, true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			files, err := languages["nodejs"].BuildContext(Function{
				BaseImage: base, Source: "source", Dependencies: tc.dependencies,
			})
			if err != nil {
				t.Fatal("BuildContext:", err)
			}
			want := []string{"compat.cjs", "handler.js", "layout.json", "package.json", "sdk.cjs", "server.cjs"}
			if tc.wantInstall {
				want = append([]string{"Dockerfile"}, want...)
			}
			if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
				t.Fatalf("files = %v, want %v", got, want)
			}
			if got := files["package.json"]; got != tc.wantDeps {
				t.Errorf("package.json = %q, want %q", got, tc.wantDeps)
			}
			if got := files["handler.js"]; got != "source" {
				t.Errorf("handler.js = %q, want %q", got, "source")
			}
			if !tc.wantInstall {
				return
			}
			if !strings.Contains(files["Dockerfile"], " npm install ") {
				t.Errorf("Dockerfile does not install:\n%s", files["Dockerfile"])
			}
			if !strings.HasPrefix(files["Dockerfile"], "FROM "+base+"\n") {
				t.Errorf("Dockerfile is not built on %s:\n%s", base, files["Dockerfile"])
			}
		})
	}
}

// TestLayoutUsesTheContext checks that the image has exactly the files of the context.
// A missing file would fail the build. An unused one would cause useless builds.
func TestLayoutUsesTheContext(t *testing.T) {
	for _, language := range Languages() {
		files, err := languages[language].BuildContext(Function{BaseImage: "base"})
		if err != nil {
			t.Fatal("BuildContext:", err)
		}
		var layout Layout
		if err := json.Unmarshal([]byte(files[LayoutName]), &layout); err != nil {
			t.Fatalf("%s: %v", language, err)
		}
		delete(files, DockerfileName) // The image does not have it.
		used := append(slices.Collect(maps.Keys(layout.Files)), LayoutName)
		slices.Sort(used)
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, used) {
			t.Errorf("%s: context has %v, used are %v", language, got, used)
		}
		if len(layout.Entrypoint) == 0 || layout.User == "" || layout.WorkingDir == "" {
			t.Errorf("%s: layout lacks a field: %+v", language, layout)
		}
	}
}

// TestFolders checks the constants. The API rejects mounts in these folders, except in
// ModulesFolder: a mount there hides only the module sdk.
func TestFolders(t *testing.T) {
	for _, language := range Languages() {
		runtime := languages[language]
		for name, file := range runtime.layout.Files {
			if folder := path.Dir(file); folder != FunctionFolder && folder != WrapperFolder && path.Dir(folder) != ModulesFolder {
				t.Errorf("%s: %s is in %s", language, name, folder)
			}
		}
		if err := ValidateDockerfile(runtime.DockerfileTemplate()); err != nil {
			t.Errorf("the Dockerfile of %s: %v", language, err)
		}
	}
}

// TestDockerfileCopiesDependenciesAlone checks that installed packages do not depend on
// the source. Later builds reuse them.
func TestDockerfileCopiesDependenciesAlone(t *testing.T) {
	for _, language := range Languages() {
		runtime := languages[language]
		for line := range strings.Lines(runtime.DockerfileTemplate()) {
			words := strings.Fields(line)
			if len(words) > 1 && words[0] == "COPY" && words[1] != runtime.DependencyFile {
				t.Errorf("%s: the Dockerfile copies %s", language, words[1])
			}
			if len(words) > 3 && words[0] == "COPY" && words[2] != "{{if" {
				t.Errorf("%s: the Dockerfile copies %s", language, words[2:])
			}
		}
	}
}

func TestBuildContextErrors(t *testing.T) {
	tests := []struct {
		name string
		fn   Function
		want string
	}{
		{"cut off", Function{Dependencies: `{"dependencies":`}, "package.json must be a JSON object: line 1, column 16: unexpected end of JSON input"},
		{"array", Function{Dependencies: "[]"}, "package.json must be a JSON object: it is of type array"},
		{"null", Function{Dependencies: "null"}, "package.json must be a JSON object: it is null"},
		{"dependencies are a list", Function{Dependencies: `{"dependencies":["ms"]}`}, "package.json dependencies must be a JSON object: it is of type array"},
		{"template syntax", Function{Dockerfile: "FROM {{"}, "failed to parse Dockerfile template: "},
		{"template field", Function{Dockerfile: "FROM {{.Image}}"}, "failed to render Dockerfile template: "},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := languages["nodejs"].BuildContext(tc.fn)
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("BuildContext error = %v, want prefix %q", err, tc.want)
			}
		})
	}
}

func TestOwnDockerfile(t *testing.T) {
	const own = "FROM {{.BaseImage}}\n{{if .HasDependencies}}RUN install\n{{end}}"
	if err := ValidateDockerfile(own); err != nil {
		t.Error("ValidateDockerfile:", err)
	}
	if err := ValidateDockerfile(own + strings.Repeat("#", MaxDockerfileBytes)); err == nil {
		t.Error("a Dockerfile template that is too large is accepted")
	}
	files, err := languages["nodejs"].BuildContext(Function{BaseImage: "base", Dockerfile: own})
	if err != nil {
		t.Fatal("BuildContext:", err)
	}
	if got, want := files["Dockerfile"], "FROM base\n"; got != want {
		t.Errorf("Dockerfile = %q, want %q", got, want)
	}
}

func TestExplainBuildFailure(t *testing.T) {
	tests := []struct {
		name, log, want string
	}{{
		name: "unknown package",
		log: "INFO[0005] Running: [/bin/sh -c npm install]\n" +
			"npm error code E404\n" +
			"npm error 404 Not Found - GET https://npm.example/nope\n" +
			"npm error 404\n" +
			"npm error 404  The requested resource 'nope@1.0.0' could not be found or you do not have permission to access it.\n" +
			"npm error 404\n" +
			"npm error 404 Note that you can also install from a\n" +
			"npm error 404 tarball, folder, http url, or git url.\n" +
			"npm error Log files were not written due to the config logs-max=0\n" +
			"error building image: error building stage: failed to execute command: waiting for process to exit: exit status 1\n",
		want: "code E404\n404 Not Found - GET https://npm.example/nope\n" +
			"404  The requested resource 'nope@1.0.0' could not be found or you do not have permission to access it.",
	}, {
		name: "unknown version",
		log: "npm error code ETARGET\n" +
			"npm error notarget No matching version found for ms@99.0.0.\n" +
			"npm error notarget In most cases you or one of your dependencies are requesting\n" +
			"npm error notarget a package version that doesn't exist.\n",
		want: "code ETARGET\nnotarget No matching version found for ms@99.0.0.",
	}, {
		name: "older npm, with a timestamp",
		log:  "2026-01-01T00:00:00Z npm ERR! code E404\n2026-01-01T00:00:01Z npm ERR! A complete log of this run can be found in:\n",
		want: "code E404",
	}, {
		name: "npm ci, a lock file that does not match",
		log: "npm error code EUSAGE\n" +
			"npm error\n" +
			"npm error `npm ci` can only install packages when your package.json and package-lock.json are in sync.\n" +
			"npm error\n" +
			"npm error Missing: ms@2.1.3 from lock file\n" +
			"npm error\n" +
			"npm error Clean install a project\n" +
			"npm error\n" +
			"npm error Usage:\n" +
			"npm error [--install-strategy <hoisted|nested|shallow|linked>] [--legacy-bundling]\n" +
			"npm error Run \"npm help ci\" for more info\n",
		want: "code EUSAGE\n`npm ci` can only install packages when your package.json and package-lock.json are in sync.\n" +
			"Missing: ms@2.1.3 from lock file",
	}, {
		name: "no npm error",
		log:  "error building image: failed to push: UNAUTHORIZED\n",
		want: "",
	}}
	pip := "INFO[0005] RUN python3 -m pip install\n" +
		"ERROR: Could not find a version that satisfies the requirement nope==1 (from versions: none)\n" +
		"ERROR: No matching distribution found for nope==1\n"
	if got, want := languages["python"].ExplainBuildFailure(pip), "Could not find a version that satisfies the requirement nope==1 "+
		"(from versions: none)\nNo matching distribution found for nope==1"; got != want {
		t.Errorf("ExplainBuildFailure of pip = %q, want %q", got, want)
	}
	pip = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n" +
		"    ms==1 from https://pypi.example/ms.whl:\n        Expected sha256 aa\n             Got        bb\n" +
		"error building image\n    at the end\n"
	if got, want := languages["python"].ExplainBuildFailure(pip), "THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n"+
		"ms==1 from https://pypi.example/ms.whl:\nExpected sha256 aa\nGot        bb"; got != want {
		t.Errorf("ExplainBuildFailure of pip with another hash = %q, want %q", got, want)
	}
	const brokenBy = "connection broken by 'NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused')': /simple/ms/\n"
	pip = "WARNING: Retrying (Retry(total=1, connect=None, read=None, redirect=None, status=None)) after " + brokenBy +
		"WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after " + brokenBy +
		"ERROR: No matching distribution found for ms\n"
	if got, want := languages["python"].ExplainBuildFailure(pip), brokenBy+"No matching distribution found for ms"; got != want {
		t.Errorf("ExplainBuildFailure of pip without its index = %q, want %q", got, want)
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := languages["nodejs"].ExplainBuildFailure(tc.log); got != tc.want {
				t.Errorf("ExplainBuildFailure = %q, want %q", got, tc.want)
			}
		})
	}
}

// TestNode runs the tests of the Node wrapper with each node in KILN_NODE, or with the
// one on PATH.
func TestNode(t *testing.T) {
	nodes := filepath.SplitList(os.Getenv("KILN_NODE"))
	if len(nodes) == 0 {
		nodes = []string{"node"}
	}
	tests, err := filepath.Glob(filepath.Join("nodejs", "*.test.cjs"))
	if err != nil || len(tests) == 0 {
		t.Fatalf("found no tests of the wrapper: %v", err)
	}
	for _, node := range nodes {
		version, err := exec.CommandContext(t.Context(), node, "--version").Output()
		if err != nil {
			t.Fatal("the tests of the Node runtime need node 20 or newer, on PATH or in KILN_NODE: ", err)
		}
		t.Run(strings.TrimSpace(string(version)), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), node, append([]string{"--test"}, tests...)...)
			// NODE_ENV, NODE_OPTIONS and the like must not change what is tested.
			cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "NODE_") })
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("node --test: %v\n%s", err, out)
			}
		})
	}
}

// python returns a Python that can run the wrapper.
func python(t *testing.T) string {
	t.Helper()
	names := []string{os.Getenv("KILN_PYTHON"), "python3.13", "python3", "/usr/bin/python3"}
	i := slices.IndexFunc(names, func(name string) bool {
		return name != "" && exec.Command(name, "-c", "import uvicorn, uvloop, httptools, flask").Run() == nil
	})
	if i < 0 {
		t.Fatal("the tests of the Python runtime need a Python 3.11 or newer with uvicorn, uvloop, httptools and Flask (on Debian: "+
			"apt-get install python3-uvicorn python3-uvloop python3-httptools python3-flask), which none of these is: ", names)
	}
	return names[i]
}

// TestWithoutComments checks that the wrapper in images is the tested program.
func TestWithoutComments(t *testing.T) {
	r, _ := For("python")
	files, err := r.BuildContext(Function{Source: "def main(event, context): pass\n", BaseImage: "python"})
	if err != nil {
		t.Fatal(err)
	}
	const compare = `import ast, sys
def program(file):
    tree = ast.parse(open(file).read())
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node) is not None:
            node.body[0].value.value = ""
    return ast.dump(tree)
sys.exit(program(sys.argv[1]) != program(sys.argv[2]))`
	for _, name := range []string{"compat.py", "server.py"} {
		whole := filepath.Join("python", name)
		built := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(built, []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), python(t), "-c", compare, whole, built).CombinedOutput(); err != nil {
			t.Errorf("without comments %s is another program: %v\n%s", name, err, out)
		}
		for line := range strings.Lines(files[name]) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				t.Errorf("%s in the image has a comment: %s", name, line)
			}
		}
	}
}

// TestPython runs the tests of the Python wrapper.
func TestPython(t *testing.T) {
	name := python(t)
	cmd := exec.CommandContext(t.Context(), name, filepath.Join("python", "test_server.py"))
	// PYTHONPATH and the like must not change what is tested.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "PYTHON") })
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
}

// FuzzCheckDependencies checks that no text causes a panic.
func FuzzCheckDependencies(f *testing.F) {
	for _, seed := range []string{locked, "{}", "[", "{\"é\"", "nul", "\n\n}", `{"dependencies":1}`} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		_ = languages["nodejs"].CheckDependencies(text)
	})
}

// hostile has values with special characters of shells, Dockerfiles and templates.
var hostile = map[string]string{
	"PLAIN":      "value",
	"EMPTY":      "",
	"QUOTES":     `it's "quoted" and ` + "`ls`" + ``,
	"CLOSES":     `'; touch broken; '`,
	"EXPANDS":    "$HOME ${HOME} $(touch broken) $((1+1)) \\$HOME",
	"LINES":      "one\ntouch broken\r\n\nthree\n",
	"ESCAPES":    `\n \t \\ \' \`,
	"DOCKERFILE": "\nRUN touch broken\nENV A=b",
	"TEMPLATE":   "{{.BaseImage}}",
	"FLAG":       "--destination=evil.example.com/x",
	"UNICODE":    "grüße 🔥",
	"_under_1":   " blanks  around ",
}

// TestEnvFile checks that a shell keeps each value.
func TestEnvFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "env")
	env := maps.Clone(hostile)
	// Invalid names must not break the others.
	env["A-B"], env["1A"], env["A;touch broken"], env[""] = "x", "x", "x", "x"
	if err := os.WriteFile(file, []byte(EnvFile(env)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range hostile {
		cmd := exec.Command("sh", "-ec", ". ./env; exec printenv "+name)
		cmd.Dir = dir
		got, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, got)
		}
		if string(got) != want+"\n" {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("a value became a command: there are %v", entries)
	}
	if got, want := EnvFile(map[string]string{"A": "a\x00b"}), "export A='ab'\n"; got != want {
		t.Errorf("with the byte 0 the file is %q, want %q", got, want)
	}
}

// TestDockerfileIsGivenEnvAndPackages checks that only the installation reads the
// environment and the credentials, and does not require them.
func TestDockerfileIsGivenEnvAndPackages(t *testing.T) {
	for _, language := range []string{"nodejs"} {
		without, err := languages[language].BuildContext(Function{BaseImage: "base"})
		if err != nil {
			t.Fatal("BuildContext:", err)
		}
		for _, path := range []string{EnvFilePath, PackagesPath} {
			if strings.Contains(without["Dockerfile"], path) {
				t.Errorf("%s: a Dockerfile without installation reads %s:\n%s", language, path, without["Dockerfile"])
			}
		}
	}
	with, err := languages["nodejs"].BuildContext(Function{BaseImage: "base", Dependencies: `{"dependencies": {"ms": "1"}}`})
	if err != nil {
		t.Fatal("BuildContext:", err)
	}
	for _, want := range []string{"if [ -r " + EnvFilePath + " ]; then . " + EnvFilePath + "; fi;", "NPM_CONFIG_USERCONFIG=" + PackagesPath + "/.npmrc"} {
		if !strings.Contains(with["Dockerfile"], want) {
			t.Errorf("the Dockerfile has no %q:\n%s", want, with["Dockerfile"])
		}
	}
	for line := range strings.Lines(with["Dockerfile"]) {
		if instruction, _, _ := strings.Cut(line, " "); (instruction == "ENV" || instruction == "ARG" || instruction == "COPY") &&
			(strings.Contains(line, PackagesPath) || strings.Contains(line, "/kiln-env")) {
			t.Errorf("this gets into the image: %s", line)
		}
	}
}
