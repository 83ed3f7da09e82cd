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
)

// TestDockerfileLanguage checks that Kiln adds no files to a function with its own
// Dockerfile, and rejects text that the image would not have.
func TestDockerfileLanguage(t *testing.T) {
	r := OwnDockerfile()
	if !r.IsOwnDockerfile() || r.SourceFile != DockerfileName || r.DependencyFile != "" {
		t.Errorf("OwnDockerfile() = %+v", r)
	}
	files, err := r.BuildContext(Function{Fetched: true, BaseImage: "base", Dockerfile: "FROM {{.BaseImage}}"})
	if err != nil || files == nil || len(files) != 0 {
		t.Errorf("BuildContext() = %v, %v", files, err)
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"source in the Function": {r.CheckSource("FROM scratch"), "put them into spec.git or spec.archive"},
		"no source":              {r.CheckSource(""), ""},
		"deps":                   {r.CheckDependencies("{}"), "the Dockerfile installs them"},
		"blank deps":             {r.CheckDependencies(" "), ""},
		"a context of source":    {contextError(r, Function{Source: "FROM scratch"}), "put them into spec.git or spec.archive"},
		"a context with deps":    {contextError(r, Function{Fetched: true, Dependencies: "{}"}), "the Dockerfile installs them"},
	} {
		if (tc.err == nil) != (tc.want == "") || tc.err != nil && !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, tc.err, tc.want)
		}
	}
	for _, other := range []Runtime{languages["nodejs"], Custom{}.Runtime()} {
		if err := other.CheckSource("x"); err != nil || other.IsOwnDockerfile() {
			t.Errorf("%s: CheckSource() = %v", other.Language, err)
		}
	}
	const log = "INFO[0001] Running: [/bin/sh -c cargo build]\nerror[E0425]: cannot find value\n" +
		"error building image: error building stage: failed to execute command: waiting for process to exit: exit status 101\n"
	if got := r.ExplainBuildFailure(log); got != "error[E0425]: cannot find value" {
		t.Errorf("ExplainBuildFailure() = %q", got)
	}
}

func contextError(r Runtime, fn Function) error {
	_, err := r.BuildContext(fn)
	return err
}
