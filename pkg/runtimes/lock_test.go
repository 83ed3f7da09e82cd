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
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	ms     = `{"dependencies": {"ms": "^2.1.0"}}`
	lock   = "\n" + `{"lockfileVersion": 3, "packages": {"node_modules/ms": {"version": "2.1.2"}}}` + "\n"
	locked = ms + lock
)

// TestLockInBuildContext checks that a lock file after the dependency file becomes a file of
// its own, and that the Dockerfile installs from it.
func TestLockInBuildContext(t *testing.T) {
	type result struct {
		Files   []string
		Deps    string
		Lock    string
		Install string
	}
	node := []string{"Dockerfile", "compat.cjs", "handler.js", "layout.json", "package.json", "sdk.cjs", "server.cjs"}
	withLock := []string{"Dockerfile", "compat.cjs", "handler.js", "layout.json", "package-lock.json", "package.json", "sdk.cjs", "server.cjs"}
	python := []string{"Dockerfile", "compat.py", "handler.py", "layout.json", "requirements.txt", "server.py"}
	const hashed = "ms==1 \\\n    --hash=sha256:aa\n"
	for name, tc := range map[string]struct {
		language, dependencies string
		want                   result
	}{
		"npm, no lock":       {"nodejs", ms, result{node, ms, "", "npm install"}},
		"npm, a lock":        {"nodejs", locked, result{withLock, ms, lock, "npm ci"}},
		"npm, same line":     {"nodejs", "\ufeff" + ms + strings.TrimSpace(lock), result{withLock, ms, strings.TrimSpace(lock), "npm ci"}},
		"npm, nothing in it": {"nodejs", "{}" + lock, result{node[1:], "{}", "", ""}},
		"pip, no hash":       {"python", "ms==1\n", result{python, "ms==1\n", "", "--quiet"}},
		"pip, hashes":        {"python", hashed, result{python, hashed, "", "--require-hashes"}},
	} {
		t.Run(name, func(t *testing.T) {
			runtime := languages[tc.language]
			files, err := runtime.BuildContext(Function{BaseImage: "base", Source: "source", Dependencies: tc.dependencies})
			if err != nil {
				t.Fatal(err)
			}
			got := result{Files: slices.Sorted(maps.Keys(files)), Deps: files[runtime.DependencyFile], Lock: files["package-lock.json"]}
			for _, command := range []string{"npm install", "npm ci", "--require-hashes", "--quiet"} {
				if got.Install == "" && strings.Contains(files["Dockerfile"], command) {
					got.Install = command
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("BuildContext() (-want, +got):\n%s", diff)
			}
			fetched, err := runtime.LockedDockerfile("base")
			if err != nil {
				t.Fatal(err)
			}
			isLocked := tc.want.Install == "npm ci" || tc.want.Install == "--require-hashes"
			if (files["Dockerfile"] == fetched) != isLocked {
				t.Errorf("The Dockerfile is that of a lock file: %t, want %t", !isLocked, isLocked)
			}
		})
	}
}

func TestLockErrors(t *testing.T) {
	for name, tc := range map[string]struct{ dependencies, want string }{
		"a lock alone":        {lock, "package.json must come before its lock file: the text is a lock file alone"},
		"not a lock":          {ms + "{}", "package.json must be a JSON object: line 1, column 35: invalid character '{' after top-level value"},
		"a lock that is cut":  {ms + lock[:20], "package.json must be a JSON object: line 2, column 1: invalid character '{' after top-level value"},
		"a lock, and more":    {locked + "{}", "package.json must be a JSON object: line 2, column 1: invalid character '{' after top-level value"},
		"the manifest is odd": {"[]" + lock, "package.json must be a JSON object: it is of type array"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := languages["nodejs"].CheckDependencies(tc.dependencies); err == nil || err.Error() != tc.want {
				t.Errorf("CheckDependencies() = %v, want %q", err, tc.want)
			}
		})
	}
	// The file of an archive is one document.
	if _, _, err := languages["nodejs"].ReadDependencies(locked); err == nil || !strings.Contains(err.Error(), "must be one JSON object") {
		t.Errorf("ReadDependencies() = %v", err)
	}
}

func TestHasHashes(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                 false,
		"ms==1":                            false,
		"ms==1 --hash=sha256:aa":           true,
		"ms==1 \\\n\t--hash=sha256:aa":     true,
		"ms==1 \\\r\n--hash sha256:aa\r\n": true,
		"--require-hashes\n":               true,
		"ms==1 # --hash=sha256:aa":         false,
		"#--hash=sha256:aa":                false,
		"ms @ https://example.com/a#sha256=aa --hash=sha256:aa": true,
		"ms==1 --hashes": false,
		"m--hash=1":      false,
	} {
		if got := hasHashes(text); got != want {
			t.Errorf("hasHashes(%q) = %t, want %t", text, got, want)
		}
	}
}

func TestFindLock(t *testing.T) {
	for name, tc := range map[string]struct {
		language, text, files string
		want, err             string
	}{
		"npm, none":                  {"nodejs", ms, "package.json", "", ""},
		"npm":                        {"nodejs", ms, "package.json package-lock.json", "package-lock.json", ""},
		"npm prefers the shrinkwrap": {"nodejs", ms, "package-lock.json npm-shrinkwrap.json", "npm-shrinkwrap.json", ""},
		"npm beside yarn":            {"nodejs", ms, "package-lock.json yarn.lock", "package-lock.json", ""},
		"npm, nothing to install":    {"nodejs", "{}", "package-lock.json yarn.lock", "", ""},
		"npm, no package.json":       {"nodejs", "", "yarn.lock", "", ""},
		"npm, invalid":               {"nodejs", "[]", "yarn.lock", "", ""},
		"yarn":                       {"nodejs", ms, "package.json yarn.lock", "", "yarn.lock is not a lock file of npm"},
		"pnpm":                       {"nodejs", ms, "package.json pnpm-lock.yaml", "", "or remove pnpm-lock.yaml"},
		"bun":                        {"nodejs", ms, "package.json bun.lock", "", "bun.lock is not"},
		"old bun":                    {"nodejs", ms, "package.json bun.lockb", "", "bun.lockb is not"},
		"pip":                        {"python", "ms==1", "requirements.txt uv.lock poetry.lock", "", ""},
		"pip, none":                  {"python", "", "", "", ""},
		"pip, of npm":                {"python", "", "yarn.lock package-lock.json", "", ""},
		"uv":                         {"python", "", "uv.lock pyproject.toml", "", "uv.lock is not a lock file of pip, which installs the packages: add a requirements.txt with uv export"},
		"poetry":                     {"python", "", "poetry.lock", "", "poetry export"},
		"pdm":                        {"python", "", "pdm.lock", "", "pdm export"},
		"pipenv":                     {"python", "", "Pipfile.lock", "", "pipenv requirements --hash"},
		"PEP 751":                    {"python", "", "pylock.toml", "", "an empty one to install nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := languages[tc.language].FindLock(tc.text, func(name string) bool { return slices.Contains(strings.Fields(tc.files), name) })
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("FindLock() = %q, %v, want %q, %q", got, err, tc.want, tc.err)
			}
		})
	}
	if got, err := (Custom{DependencyFile: "package.json"}).Runtime().FindLock(ms, func(string) bool { return true }); got != "" || err != nil {
		t.Errorf("FindLock() of a custom language = %q, %v", got, err)
	}
}

// TestDockerfilesKeepTheirText checks the Dockerfiles of Functions without a lock file.
// Another text builds all of them again.
func TestDockerfilesKeepTheirText(t *testing.T) {
	for language, want := range map[string]string{
		"nodejs": "sha256:b26a6752105139db243e16b7b8e28f9b0b8d61948998b3b8e6c84f4c4418f8db",
		"python": "sha256:b46c83876525afbc766d5667ee52a46a8c07b2874b42f2c9db1137c2fc01dd7a",
	} {
		files, err := languages[language].BuildContext(Function{BaseImage: "base", Dependencies: map[string]string{"nodejs": ms, "python": "ms==1"}[language]})
		if err != nil {
			t.Fatal(err)
		}
		if got := Digest(files[DockerfileName]); got != want {
			t.Errorf("the digest of the Dockerfile of %s is %s, and was %s; note it in docs/upgrading.md:\n%s", language, got, want, files[DockerfileName])
		}
	}
}
