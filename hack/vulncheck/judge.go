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

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// stdlib is govulncheck's name of the standard library.
const stdlib = "stdlib"

// finding is a vulnerability in the program of an image.
type finding struct {
	image, id, module, version, fixed string
}

// exception excepts a vulnerability of one image from the check.
type exception struct {
	ID     string `json:"id"`
	Image  string `json:"image"`
	Module string `json:"module"`
	Reason string `json:"reason"`
}

// parseExceptions parses the reviewed file.
func parseExceptions(text []byte) ([]exception, error) {
	var exceptions []exception
	if err := yaml.UnmarshalStrict(text, &exceptions); err != nil {
		return nil, fmt.Errorf("failed to parse exceptions: %w", err)
	}
	for _, e := range exceptions {
		if e.ID == "" || e.Image == "" || e.Module == "" || e.Reason == "" {
			return nil, fmt.Errorf("exception %+v needs an id, an image, a module and a reason", e)
		}
	}
	return exceptions, nil
}

// parseFindings returns the vulnerabilities whose functions are in the program, each once.
func parseFindings(image string, text []byte) ([]finding, error) {
	var found []finding
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var message struct {
			Finding *struct {
				OSV          string `json:"osv"`
				FixedVersion string `json:"fixed_version"`
				Trace        []struct{ Module, Version, Function string }
			}
		}
		err := decoder.Decode(&message)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("failed to parse the output of govulncheck: %w", err)
		}
		if message.Finding == nil || len(message.Finding.Trace) == 0 || message.Finding.Trace[0].Function == "" {
			continue
		}
		at := message.Finding.Trace[0]
		f := finding{image, message.Finding.OSV, at.Module, at.Version, message.Finding.FixedVersion}
		if !slices.Contains(found, f) {
			found = append(found, f)
		}
	}
}

// isFixedIn reports whether the toolchain has a standard library with the fix. Go downloads
// the toolchain of a go.mod unless GOTOOLCHAIN forbids it. So the result of the check does
// not depend on the Go of this machine.
func (f finding) isFixedIn(toolchain string) bool {
	return f.module == stdlib && f.fixed != "" && version.Compare("go"+strings.TrimPrefix(f.fixed, "v"), toolchain) <= 0
}

// judge returns the findings without an exception, and the exceptions without a finding.
func judge(found []finding, exceptions []exception) []string {
	var problems []string
	used := map[int]bool{}
	for _, f := range found {
		i := slices.IndexFunc(exceptions, func(e exception) bool {
			return e.ID == f.id && e.Image == f.image && e.Module == f.module
		})
		if i >= 0 {
			used[i] = true
			continue
		}
		fix := "no version fixes it"
		if f.fixed != "" {
			fix = "fixed in " + f.fixed
		}
		problems = append(problems, fmt.Sprintf("image %s has %s in %s %s: %s", f.image, f.id, f.module, f.version, fix))
	}
	for i, e := range exceptions {
		if !used[i] {
			problems = append(problems, fmt.Sprintf("image %s does not have %s in %s any more: remove the exception", e.Image, e.ID, e.Module))
		}
	}
	slices.Sort(problems)
	return problems
}

// toolchainLine is the line of a go.mod that names the toolchain.
var toolchainLine = regexp.MustCompile(`(?m)^toolchain (go\S+)$`)

// toolchainOf returns the toolchain of a go.mod.
func toolchainOf(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("failed to read toolchain: %w", err)
	}
	line := toolchainLine.FindSubmatch(text)
	if line == nil {
		return "", fmt.Errorf("%s has no line toolchain", file)
	}
	return string(line[1]), nil
}
