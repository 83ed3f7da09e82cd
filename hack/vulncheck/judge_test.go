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
	"os"
	"path/filepath"
	"regexp"
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
{"finding": {"osv": "GO-4", "fixed_version": "v1.26.10", "trace": [{"module": "stdlib", "version": "v1.26.8", "package": "net", "function": "F"}]}}
`

func TestJudge(t *testing.T) {
	found, err := parseFindings("webhook", []byte(report))
	if err != nil {
		t.Fatal(err)
	}
	excepted := func(id string, programs ...string) exception {
		return exception{ID: id, Programs: programs, Reason: "r"}
	}
	unfixed := finding{program: "webhook", id: "GO-5", module: stdlib, version: "v1.26.8"}
	for name, tc := range map[string]struct {
		found      []finding
		exceptions []exception
		want       []string
	}{
		"all excepted, but what a newer Go fixes": {found, []exception{excepted("GO-1", "webhook"), excepted("GO-2", "webhook")}, nil},
		"none excepted": {found, nil, []string{
			"webhook has GO-1 in m v1.0.0: fixed in v1.2.0",
			"webhook has GO-2 in n v2.0.0: no version fixes it",
		}},
		"what no Go fixes": {[]finding{unfixed}, nil, []string{"webhook has GO-5 in stdlib v1.26.8: no version fixes it"}},
		"of another program, which does not have it": {found, []exception{excepted("GO-1", "kaniko"), excepted("GO-2", "webhook", "kaniko")}, []string{
			"kaniko does not have GO-1 any more: remove the exception",
			"kaniko does not have GO-2 any more: remove the exception",
			"webhook has GO-1 in m v1.0.0: fixed in v1.2.0",
		}},
	} {
		if diff := cmp.Diff(tc.want, judge(tc.found, tc.exceptions)); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", name, diff)
		}
	}
	if got := newerGo(found); got != "go1.26.10" {
		t.Errorf("newerGo() is %q, want go1.26.10", got)
	}
	if got := newerGo([]finding{unfixed}); got != "" {
		t.Errorf("newerGo() of what no Go fixes is %q, want none", got)
	}
}

// TestPrograms fails for an image in the manifests that the check does not know.
func TestPrograms(t *testing.T) {
	files, err := filepath.Glob("../../config/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	images := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, image := range regexp.MustCompile(`ko://\S+/(\S+)`).FindAllStringSubmatch(string(text), -1) {
			images++
			if _, ok := programs[image[1]]; !ok {
				t.Errorf("%s has image %s, which the check does not know", file, image[0])
			}
		}
	}
	if images == 0 {
		t.Error("the manifests have no image")
	}
}

func TestParseFindingsOfNoReport(t *testing.T) {
	if _, err := parseFindings("webhook", []byte("no report")); err == nil {
		t.Error("parseFindings() accepts a text that is no report")
	}
}

func TestParseExceptions(t *testing.T) {
	got, err := parseExceptions([]byte("- {id: GO-1, programs: [kaniko], reason: r}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]exception{{ID: "GO-1", Programs: []string{"kaniko"}, Reason: "r"}}, got); diff != "" {
		t.Errorf("(-want, +got):\n%s", diff)
	}
	for _, invalid := range []string{"- {id: GO-1, programs: [kaniko]}", "- {id: GO-1, reason: r}", "- {id: GO-1, until: never}", "x"} {
		if _, err := parseExceptions([]byte(invalid)); err == nil {
			t.Errorf("parseExceptions(%q) accepts it", invalid)
		}
	}
}
