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

package sbom

import (
	"archive/tar"
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func layer(t *testing.T, files map[string]string) *tar.Reader {
	t.Helper()
	data := &bytes.Buffer{}
	archive := tar.NewWriter(data)
	for name, content := range files {
		if err := archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return tar.NewReader(data)
}

func TestScan(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"npm": {
			files: map[string]string{"function/node_modules/.package-lock.json": `{"lockfileVersion": 3, "packages": {
				"node_modules/ms": {"version": "2.1.3"},
				"node_modules/@scope/a": {"version": "1.0.0-rc.1+x"},
				"node_modules/@scope/a/node_modules/ms": {"version": "1.0.0"},
				"node_modules/other": {"name": "real", "version": "3.0.0"},
				"node_modules/linked": {"link": true, "resolved": "../linked"}}}`},
			want: []string{"pkg:npm/%40scope/a@1.0.0-rc.1+x", "pkg:npm/ms@1.0.0", "pkg:npm/ms@2.1.3", "pkg:npm/real@3.0.0"},
		},
		"Python": {
			files: map[string]string{
				"function/lib/Foo_Bar-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: Foo_Bar.baz\nVersion: 1.2\nSummary: x\n\nName: not this\n",
				"function/lib/a-1.dist-info/METADATA":         "Name: a\nVersion: 1",
				"function/lib/a-1.dist-info/RECORD":           "Name: b\nVersion: 1\n\n",
				"function/lib/METADATA":                       "Name: c\nVersion: 1\n\n",
				"function/lib/b-1.dist-info/METADATA":         "Name: b\n\n",
			},
			want: []string{"pkg:pypi/a@1", "pkg:pypi/foo-bar-baz@1.2"},
		},
		"invalid lists": {files: map[string]string{"node_modules/.package-lock.json": "x", "x.dist-info/METADATA": "\x00"}},
		"other files":   {files: map[string]string{"node_modules/ms/package.json": `{"name": "ms", "version": "2.1.3"}`}},
		"no files":      {},
		"an empty list": {files: map[string]string{"node_modules/.package-lock.json": "{}"}},
	} {
		found, err := Scan(layer(t, tc.files))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for _, p := range found {
			got = append(got, p.URL)
		}
		slices.Sort(got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", name, diff)
		}
	}
	if _, err := Scan(tar.NewReader(strings.NewReader(strings.Repeat("x", 600)))); err == nil {
		t.Error("Scan() of an invalid layer succeeds")
	}
}

func TestEncode(t *testing.T) {
	image := Image{Repository: "registry.example.com:5000/ns/fn", Digest: "sha256:1"}
	base := Image{Repository: "index.docker.io/library/node", Digest: "sha256:2"}
	a, b := Package{URL: "pkg:npm/a@1", Name: "a", Version: "1"}, Package{URL: "pkg:npm/b@1", Name: "b", Version: "1"}
	got, err := Encode(image, base, []Package{b, a, b})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"$schema":"http://cyclonedx.org/schema/bom-1.6.schema.json","bomFormat":"CycloneDX","specVersion":"1.6","version":1,` +
		`"metadata":{"component":{"bom-ref":"pkg:oci/fn@sha256%3A1?repository_url=registry.example.com%3A5000%2Fns%2Ffn","type":"container",` +
		`"name":"registry.example.com:5000/ns/fn","version":"sha256:1","purl":"pkg:oci/fn@sha256%3A1?repository_url=registry.example.com%3A5000%2Fns%2Ffn"}},` +
		`"components":[{"bom-ref":"pkg:oci/node@sha256%3A2?repository_url=index.docker.io%2Flibrary%2Fnode","type":"container",` +
		`"name":"index.docker.io/library/node","version":"sha256:2","purl":"pkg:oci/node@sha256%3A2?repository_url=index.docker.io%2Flibrary%2Fnode"},` +
		`{"bom-ref":"pkg:npm/a@1","type":"library","name":"a","version":"1","purl":"pkg:npm/a@1"},` +
		`{"bom-ref":"pkg:npm/b@1","type":"library","name":"b","version":"1","purl":"pkg:npm/b@1"}]}`
	if diff := cmp.Diff(want, strings.TrimSpace(string(got))); diff != "" {
		t.Errorf("Encode() (-want, +got):\n%s", diff)
	}
	decoded, err := Decode(bytes.NewReader(got))
	if diff := cmp.Diff([]Package{a, b}, decoded); err != nil || diff != "" {
		t.Errorf("Decode() = %v (-want, +got):\n%s", err, diff)
	}
	if none, err := Encode(image, base, nil); err != nil {
		t.Error(err)
	} else if packages, err := Decode(bytes.NewReader(none)); err != nil || packages == nil || len(packages) > 0 {
		t.Errorf("Decode() of no packages = %v, %v", packages, err)
	}
	if _, err := Decode(strings.NewReader("x")); err == nil {
		t.Error("Decode() of an invalid document succeeds")
	}
}
