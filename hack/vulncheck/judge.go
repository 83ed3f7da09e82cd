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
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// stdlib is govulncheck's name of the standard library.
const stdlib = "stdlib"

// finding is a vulnerability in a program.
type finding struct {
	program, id, module, version, fixed string
}

// exception excepts a vulnerability of some programs from the check.
type exception struct {
	ID       string   `json:"id"`
	Programs []string `json:"programs"`
	Reason   string   `json:"reason"`
}

// parseExceptions parses the reviewed file.
func parseExceptions(text []byte) ([]exception, error) {
	var exceptions []exception
	if err := yaml.UnmarshalStrict(text, &exceptions); err != nil {
		return nil, fmt.Errorf("failed to parse exceptions: %w", err)
	}
	for _, e := range exceptions {
		if e.ID == "" || len(e.Programs) == 0 || e.Reason == "" {
			return nil, fmt.Errorf("exception %+v needs an id, programs and a reason", e)
		}
	}
	return exceptions, nil
}

// parseFindings returns the vulnerabilities whose functions are in the program, each once.
func parseFindings(program string, text []byte) ([]finding, error) {
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
		f := finding{program, message.Finding.OSV, at.Module, at.Version, message.Finding.FixedVersion}
		if !slices.Contains(found, f) {
			found = append(found, f)
		}
	}
}

// isFixedByGo reports whether a newer Go fixes it. No change of Kiln does.
func (f finding) isFixedByGo() bool {
	return f.module == stdlib && f.fixed != ""
}

// newerGo names the Go that fixes all that the Go of this machine builds in. It returns
// an empty string if there is nothing to fix.
func newerGo(found []finding) (newest string) {
	for _, f := range found {
		if fix := "go" + strings.TrimPrefix(f.fixed, "v"); f.isFixedByGo() && version.Compare(fix, newest) > 0 {
			newest = fix
		}
	}
	return newest
}

// judge returns the findings without an exception, and the exceptions without a finding.
// It leaves out what a newer Go fixes: the result must not depend on the Go of this machine.
func judge(found []finding, exceptions []exception) []string {
	var problems []string
	for _, f := range found {
		isExcepted := slices.ContainsFunc(exceptions, func(e exception) bool {
			return e.ID == f.id && slices.Contains(e.Programs, f.program)
		})
		if isExcepted || f.isFixedByGo() {
			continue
		}
		fix := "no version fixes it"
		if f.fixed != "" {
			fix = "fixed in " + f.fixed
		}
		problems = append(problems, fmt.Sprintf("%s has %s in %s %s: %s", f.program, f.id, f.module, f.version, fix))
	}
	for _, e := range exceptions {
		for _, program := range e.Programs {
			if !slices.ContainsFunc(found, func(f finding) bool { return f.id == e.ID && f.program == program }) {
				problems = append(problems, fmt.Sprintf("%s does not have %s any more: remove the exception", program, e.ID))
			}
		}
	}
	slices.Sort(problems)
	return problems
}
