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
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// nodeLayout has the user "node" of the official images.
var nodeLayout = Layout{
	Files: map[string]string{
		"handler.js":   FunctionFolder + "/handler.js",
		"package.json": FunctionFolder + "/package.json",
		"compat.cjs":   WrapperFolder + "/compat.cjs",
		"sdk.cjs":      ModulesFolder + "/sdk/index.js",
		"server.cjs":   WrapperFolder + "/server.cjs",
	},
	Env:        map[string]string{"HOME": "/tmp", "NODE_ENV": "production", "PORT": "8080"},
	User:       "1000:1000",
	WorkingDir: FunctionFolder,
	Entrypoint: []string{"node", WrapperFolder + "/server.cjs", FunctionFolder + "/handler.js"},
}

const byteOrderMark = "\ufeff"

// readPackageJSON implements Runtime.readDependencies for npm, which also installs
// peer dependencies. A lock file may follow package.json.
func readPackageJSON(text string) (dependencies, error) {
	text = strings.TrimPrefix(text, byteOrderMark)
	if isBlank(text) {
		return dependencies{text: "{}\n"}, nil
	}
	text, lock := cutLock(text)
	var manifest *struct {
		LockfileVersion      json.RawMessage            `json:"lockfileVersion"`
		Dependencies         map[string]json.RawMessage `json:"dependencies"`
		OptionalDependencies map[string]json.RawMessage `json:"optionalDependencies"`
		PeerDependencies     map[string]json.RawMessage `json:"peerDependencies"`
	}
	if err := json.Unmarshal([]byte(text), &manifest); err != nil {
		return dependencies{}, explainJSON([]byte(text), err)
	}
	switch {
	case manifest == nil:
		return dependencies{}, errors.New("must be a JSON object: it is null")
	case manifest.LockfileVersion != nil:
		return dependencies{}, errors.New("must come before its lock file: the text is a lock file alone")
	case len(manifest.Dependencies)+len(manifest.OptionalDependencies)+len(manifest.PeerDependencies) == 0:
		return dependencies{text: text}, nil
	}
	return dependencies{text: text, lock: lock, install: true, locked: lock != ""}, nil
}

// cutLock cuts the lock file off that follows a package.json, if any.
func cutLock(text string) (manifest, lock string) {
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&json.RawMessage{}); err != nil {
		return text, ""
	}
	end := decoder.InputOffset()
	var second struct {
		LockfileVersion json.RawMessage `json:"lockfileVersion"`
	}
	if json.Unmarshal([]byte(text[end:]), &second) != nil || second.LockfileVersion == nil {
		return text, ""
	}
	return text[:end], text[end:]
}

// findNPMLock implements Runtime.findLock. npm prefers npm-shrinkwrap.json.
func findNPMLock(has func(string) bool) (string, error) {
	for _, name := range []string{"npm-shrinkwrap.json", "package-lock.json"} {
		if has(name) {
			return name, nil
		}
	}
	for _, name := range []string{"yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb"} {
		if has(name) {
			return "", fmt.Errorf("%[1]s is not a lock file of npm, which installs the packages: "+
				"add a package-lock.json with npm install --package-lock-only, or remove %[1]s", name)
		}
	}
	return "", nil
}

func explainJSON(text []byte, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		line, column := position(text, int(syntax.Offset))
		return fmt.Errorf("must be a JSON object: line %d, column %d: %w", line, column, err)
	}
	mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return err
	case mismatch.Field == "":
		return fmt.Errorf("must be a JSON object: it is of type %s", mismatch.Value)
	default:
		return fmt.Errorf("%s must be a JSON object: it is of type %s", mismatch.Field, mismatch.Value)
	}
}

// position returns the line and the column, from 1, of the byte before the offset.
func position(text []byte, offset int) (line, column int) {
	before := text[:min(max(offset-1, 0), len(text))]
	line = 1 + bytes.Count(before, []byte("\n"))
	column = 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return line, column
}

// npmUsage begins the help that npm ci prints after an error in a lock file.
const npmUsage = "Clean install a project"

func explainNPM(log string) string {
	var words []string
	for line := range strings.Lines(log) {
		text, ok := cutNPMPrefix(line)
		if text == npmUsage {
			break
		}
		if !ok || text == "" || isNPMNoise(text) {
			continue
		}
		words = append(words, text)
	}
	return strings.Join(words, "\n")
}

// cutNPMPrefix finds npm's prefix anywhere in the line. Builders may write a timestamp
// or a level before it.
func cutNPMPrefix(line string) (string, bool) {
	for _, prefix := range []string{"npm error", "npm ERR!"} { // from and before version 10
		if _, text, ok := strings.Cut(line, prefix); ok {
			return strings.TrimSpace(text), true
		}
	}
	return "", false
}

// isNPMNoise reports whether a line does not help: a path of a log, advice, or a code.
func isNPMNoise(text string) bool {
	if len(strings.Fields(text)) < 2 {
		return true
	}
	for _, noise := range []string{
		"A complete log of this run", "Log files were not written",
		"404 Note that you can also install", "404 tarball, folder, http url",
		"notarget In most cases you or one of your dependencies", "notarget a package version that doesn't exist",
	} {
		if strings.HasPrefix(text, noise) {
			return true
		}
	}
	return false
}
