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

package builds

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/util/validation"
)

func inputs(changes ...func(*Inputs)) Inputs {
	in := Inputs{
		Repository:     "registry.example.com/functions/default/greeter",
		Runtime:        "nodejs24",
		BaseImage:      "node:24",
		SourceFile:     "handler.js",
		DependencyFile: "package.json",
		LockFile:       "package-lock.json",
		Files: map[string]string{
			"Dockerfile":   "FROM node:24",
			"handler.js":   "exports.main = () => 1",
			"package.json": "{}",
			"server.cjs":   "listen()",
		},
	}
	for _, change := range changes {
		in.Files = maps.Clone(in.Files)
		change(&in)
	}
	return in
}

func file(name, content string) func(*Inputs) {
	return func(in *Inputs) { in.Files[name] = content }
}

func TestInputs(t *testing.T) {
	tests := map[string]struct {
		change func(*Inputs)
		reason string
	}{
		"source":                  {file("handler.js", "exports.main = () => 2"), ReasonSourceChanged},
		"letter case":             {file("handler.js", "exports.Main = () => 1"), ReasonSourceChanged},
		"deps":                    {file("package.json", `{"dependencies": {}}`), ReasonDepsChanged},
		"wrapper":                 {file("server.cjs", "listen(1)"), ReasonRuntimeChanged},
		"runtime":                 {func(in *Inputs) { in.Runtime = "nodejs22" }, ReasonRuntimeChanged},
		"base image":              {func(in *Inputs) { in.BaseImage = "node:24.1" }, ReasonRuntimeChanged},
		"Dockerfile":              {func(in *Inputs) { in.Dockerfile = "FROM x" }, ReasonRuntimeChanged},
		"Dockerfile of Kiln's":    {file("Dockerfile", "FROM node:24\nUSER 1"), ReasonInputsChanged},
		"registry":                {func(in *Inputs) { in.Repository = "other.example.com/x" }, ReasonRegistryChanged},
		"another kind of source":  {func(in *Inputs) { in.Fetched = "https://example.com/a.zip" }, ReasonSourceChanged},
		"another archive":         {func(in *Inputs) { in.Fetched = "https://example.com/b.zip" }, ReasonSourceChanged},
		"a file more":             {file("more.cjs", ""), ReasonRuntimeChanged},
		"a lock file more":        {file("package-lock.json", "{}"), ReasonDepsChanged},
		"a file's end to another": {func(in *Inputs) { in.Files["handler.js"], in.Files["package.json"] = "exports.main = () =>", " 1{}" }, ReasonInputsChanged},
	}
	was := inputs()
	seen := map[string]string{was.Tag(): "unchanged"}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			is := inputs(tc.change)
			if other, dup := seen[is.Tag()]; dup {
				t.Errorf("Tag() is the same as of %q", other)
			}
			seen[is.Tag()] = name
			if got := changeReason(was.Fingerprint(), is.Fingerprint()); got != tc.reason {
				t.Errorf("changeReason() = %s, want %s", got, tc.reason)
			}
		})
	}
	if got := changeReason("", was.Fingerprint()); got != ReasonInputsChanged {
		t.Errorf("changeReason() from nothing = %s, want %s", got, ReasonInputsChanged)
	}
}

func TestTag(t *testing.T) {
	if a, b := inputs().Tag(), inputs().Tag(); a != b {
		t.Errorf("Tag() = %s, then %s", a, b)
	}
	if problems := validation.IsValidLabelValue(inputs().Tag()); len(problems) > 0 {
		t.Errorf("Tag() is no value of a label: %v", problems)
	}
	// Names and contents must not run into each other.
	one := inputs(func(in *Inputs) { in.Files = map[string]string{"a": "bc"} })
	two := inputs(func(in *Inputs) { in.Files = map[string]string{"ab": "c"} })
	if one.Tag() == two.Tag() {
		t.Error("Tag() does not tell names from contents")
	}
}

func TestInstallFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Inputs)
		want   []string
	}{
		"put apart": {file("layout.json", "{}"), []string{"Dockerfile", "package.json"}},
		"put apart, with a lock file": {
			func(in *Inputs) { in.Files["layout.json"], in.Files["package-lock.json"] = "{}", "{}" },
			[]string{"Dockerfile", "package-lock.json", "package.json"},
		},
		"Dockerfile of the administrator": {func(*Inputs) {}, []string{"Dockerfile", "handler.js", "package.json", "server.cjs"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs(tc.change)
			before := maps.Clone(in.Files)
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(in.InstallFiles()))); diff != "" {
				t.Errorf("InstallFiles() (-want, +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, in.Files); diff != "" {
				t.Errorf("InstallFiles() changed Files (-want, +got):\n%s", diff)
			}
		})
	}
}

func TestDependenciesHash(t *testing.T) {
	layout := file("layout.json", "{}")
	was := inputs(layout).Dependencies("", "TOKEN", "x")
	if len(was) != tagLength {
		t.Errorf("Dependencies() = %q", was)
	}
	for name, tc := range map[string]struct {
		changes     []func(*Inputs)
		environment []string
		cacheKey    string
		same        bool
	}{
		"nothing":          {same: true},
		"source":           {changes: []func(*Inputs){file("handler.js", "y")}, same: true},
		"wrapper":          {changes: []func(*Inputs){file("server.cjs", "y")}, same: true},
		"deps":             {changes: []func(*Inputs){file("package.json", "y")}},
		"lock file":        {changes: []func(*Inputs){file("package-lock.json", "y")}},
		"empty lock file":  {changes: []func(*Inputs){file("package-lock.json", "")}},
		"Dockerfile":       {changes: []func(*Inputs){file("Dockerfile", "y")}},
		"base image":       {changes: []func(*Inputs){func(in *Inputs) { in.BaseImage = "node:24.1" }}},
		"registry":         {changes: []func(*Inputs){func(in *Inputs) { in.Repository = "other.example.com/x" }}},
		"environment":      {environment: []string{"TOKEN", "y"}},
		"cache key":        {cacheKey: "1"},
		"environment more": {environment: []string{"TOKEN", "x", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			environment := tc.environment
			if environment == nil {
				environment = []string{"TOKEN", "x"}
			}
			is := inputs(append(tc.changes, layout)...).Dependencies(tc.cacheKey, environment...)
			if (is == was) != tc.same {
				t.Errorf("Dependencies() = %s, was %s; want the same: %t", is, was, tc.same)
			}
		})
	}
	for name, in := range map[string]Inputs{
		"nothing is installed":            inputs(layout, func(in *Inputs) { delete(in.Files, "Dockerfile") }),
		"Dockerfile of the administrator": inputs(),
		"dependencies that are fetched":   inputs(layout, func(in *Inputs) { in.Fetched = "https://example.com/a.zip" }),
	} {
		if got := in.Dependencies("1"); got != "" {
			t.Errorf("%s: Dependencies() = %q, want none", name, got)
		}
	}
}
