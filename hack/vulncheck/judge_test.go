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
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const report = `{"config": {"scanner_version": "v1.9.0"}}
{"osv": {"id": "GO-1"}}
{"finding": {"osv": "GO-0", "trace": [{"module": "m", "version": "v1.0.0"}]}}
{"finding": {"osv": "GO-1", "fixed_version": "v1.2.0", "trace": [{"module": "m", "version": "v1.0.0", "package": "m/p", "function": "F"}]}}
{"finding": {"osv": "GO-1", "fixed_version": "v1.2.0", "trace": [{"module": "m", "version": "v1.0.0", "package": "m/p", "function": "G"}]}}
{"finding": {"osv": "GO-2", "trace": [{"module": "n", "version": "v2.0.0", "package": "n", "function": "F"}]}}
{"finding": {"osv": "GO-3", "fixed_version": "v1.26.9", "trace": [{"module": "stdlib", "version": "v1.26.8", "package": "net", "function": "F"}]}}
`

func TestJudge(t *testing.T) {
	found, err := parseFindings("webhook", []byte(report))
	if err != nil {
		t.Fatal(err)
	}
	excepted := func(image, id, module string) exception {
		return exception{ID: id, Image: image, Module: module, Reason: "r"}
	}
	one, two := excepted("webhook", "GO-1", "m"), excepted("webhook", "GO-2", "n")
	for name, tc := range map[string]struct {
		exceptions []exception
		toolchain  string
		want       []string
	}{
		"all excepted": {[]exception{one, two}, "go1.26.10", nil},
		"none": {nil, "go1.26.9", []string{
			"image webhook has GO-1 in m v1.0.0: fixed in v1.2.0",
			"image webhook has GO-2 in n v2.0.0: no version fixes it",
		}},
		"an old toolchain": {[]exception{one, two}, "go1.26.8", []string{"image webhook has GO-3 in stdlib v1.26.8: fixed in v1.26.9"}},
		"of another image, which has it not": {[]exception{two, excepted("kaniko", "GO-1", "m")}, "go1.26.10", []string{
			"image kaniko does not have GO-1 in m any more: remove the exception",
			"image webhook has GO-1 in m v1.0.0: fixed in v1.2.0",
		}},
	} {
		built := slices.DeleteFunc(slices.Clone(found), func(f finding) bool { return f.isFixedIn(tc.toolchain) })
		if diff := cmp.Diff(tc.want, judge(built, tc.exceptions)); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", name, diff)
		}
	}
}

func TestParseFindingsOfNoReport(t *testing.T) {
	if _, err := parseFindings("webhook", []byte("no report")); err == nil {
		t.Error("parseFindings() accepts a text that is no report")
	}
}

func TestParseExceptions(t *testing.T) {
	got, err := parseExceptions([]byte("- {id: GO-1, image: kaniko, module: m, reason: r}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]exception{{ID: "GO-1", Image: "kaniko", Module: "m", Reason: "r"}}, got); diff != "" {
		t.Errorf("(-want, +got):\n%s", diff)
	}
	for _, invalid := range []string{"- {id: GO-1, image: kaniko, module: m}", "- {id: GO-1, until: never}", "x"} {
		if _, err := parseExceptions([]byte(invalid)); err == nil {
			t.Errorf("parseExceptions(%q) accepts it", invalid)
		}
	}
}
