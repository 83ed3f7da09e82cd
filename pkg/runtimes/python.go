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
	"fmt"
	"regexp"
	"strings"
)

// pythonLayout has a user that the image may not have.
var pythonLayout = Layout{
	Files: map[string]string{
		"handler.py":       FunctionFolder + "/handler.py",
		"requirements.txt": FunctionFolder + "/requirements.txt",
		"compat.py":        WrapperFolder + "/compat.py",
		"server.py":        WrapperFolder + "/server.py",
	},
	Env: map[string]string{
		"HOME": "/tmp",
		"PORT": "8080",
		// The Dockerfile installs packages here.
		"PYTHONUSERBASE": FunctionFolder + "/packages",
		// Output must reach the log immediately.
		"PYTHONUNBUFFERED": "1",
		// The image's file system is read-only.
		"PYTHONDONTWRITEBYTECODE": "1",
	},
	User:       "1000:1000",
	WorkingDir: FunctionFolder,
	// -P keeps the folder of the wrapper off the module search path.
	Entrypoint: []string{"python3", "-P", WrapperFolder + "/server.py", FunctionFolder + "/handler.py"},
}

// readRequirements implements Runtime.readDependencies for pip. install is always
// true: the base image may lack the packages of the wrapper. Requirements with hashes are
// a lock file.
func readRequirements(text string) (dependencies, error) {
	text = strings.TrimPrefix(text, byteOrderMark)
	return dependencies{text: text, install: true, locked: hasHashes(text)}, nil
}

var (
	requirementsComment = regexp.MustCompile(`(^|\s)#.*`)
	hashOption          = regexp.MustCompile(`(^|\s)--(hash[=\s]|require-hashes(\s|$))`)
)

// hasHashes reports whether pip requires a hash of each package. One hash suffices for
// that.
func hasHashes(text string) bool {
	if !strings.Contains(text, "--hash") && !strings.Contains(text, "--require-hashes") {
		return false
	}
	for line := range strings.Lines(text) {
		if hashOption.MatchString(requirementsComment.ReplaceAllString(line, "")) {
			return true
		}
	}
	return false
}

// exports are the commands that turn the lock files of other package managers into
// requirements with hashes.
var exports = []struct{ lock, command string }{
	{"uv.lock", "uv export --no-dev --no-emit-project --output-file=requirements.txt"},
	{"poetry.lock", "poetry export --output=requirements.txt"},
	{"pdm.lock", "pdm export --prod --output=requirements.txt"},
	{"Pipfile.lock", "pipenv requirements --hash >requirements.txt"},
	{"pylock.toml", "uv pip compile --generate-hashes --output-file=requirements.txt pyproject.toml"},
}

// findPythonLock implements Runtime.findLock. A requirements.txt has its own hashes, and
// replaces the other lock files.
func findPythonLock(has func(string) bool) (string, error) {
	if has("requirements.txt") {
		return "", nil
	}
	for _, export := range exports {
		if has(export.lock) {
			return "", fmt.Errorf("%s is not a lock file of pip, which installs the packages: "+
				"add a requirements.txt with %s, or an empty one to install nothing", export.lock, export.command)
		}
	}
	return "", nil
}

// explainPip implements Runtime.explainBuildFailure for pip. Its errors start with
// "ERROR:", and indented lines continue them. The last warning about an unreachable index
// is part of the explanation.
func explainPip(log string) string {
	var words []string
	explains := false
	for line := range strings.Lines(log) {
		_, text, ok := strings.Cut(line, "ERROR: ")
		if _, try, warns := strings.Cut(line, "WARNING: Retrying (Retry(total=0,"); warns {
			_, text, ok = strings.Cut(try, "after ")
		}
		if explains && strings.HasPrefix(line, "    ") {
			text, ok = line, true
		}
		explains = ok
		if text = strings.TrimSpace(text); ok && text != "" {
			words = append(words, text)
		}
	}
	return strings.Join(words, "\n")
}
