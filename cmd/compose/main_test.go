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
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kiln-dev/kiln/pkg/compose"
	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
)

func TestParsePush(t *testing.T) {
	got := parsePush([]string{
		"--base=b", "--dependencies=d", "--destination=to", "--keep=k", "--insecure-registry=r", "--insecure-registry=s",
		"--context=/c", "--layers=/l", "--layout=/layout.json", "--config=/config.json", "--label=x=y=z", "--label=a=",
		"--source=/source.json", "--image-url-file=/u", "--image-digest-file=/d", "--base-image-file=/b", "--results-file=/r",
	})
	want := &compose.PushStep{
		Base: "b", Dependencies: "d", Destination: "to", Keep: "k", InsecureRegistries: []string{"r", "s"},
		ContextFolder: "/c", Layers: "/l", Layout: "/layout.json", Config: "/config.json", Labels: map[string]string{"x": "y=z", "a": ""},
		SourceFile: "/source.json", ImageURLFile: "/u", ImageDigestFile: "/d", BaseImageFile: "/b", ResultsFile: "/r",
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(compose.PushStep{}, "Log")); diff != "" {
		t.Errorf("step (-want, +got):\n%s", diff)
	}
	if got.Log != os.Stderr {
		t.Error("the log does not go to standard error")
	}
}

func TestParseFetch(t *testing.T) {
	got, err := parseFetch([]string{
		"--archive=u", "--sha256=0", "--git=g", "--revision=r", "--folder=f", "--s3-endpoint=e", "--s3-region=eu", "--s3-path-style=true",
		"--credentials=/c", "--registry-credentials=/r", "--insecure-registry=a", "--insecure-registry=b",
		"--max-download-size=1", "--max-unpacked-size=2", "--max-unpacked-files=3", "--max-unpacked-ratio=4",
		"--files=/f", "--work=/w", "--tree=source", "--language=nodejs", "--source-file=handler.js", "--source-file=handler.ts", "--dependency-file=package.json",
		"--origin-file=/o",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &compose.FetchStep{
		Archive: fetch.Archive{
			URL: "u", SHA256: "0", S3: fetch.S3Store{Endpoint: "e", Region: "eu", PathStyle: new(true)},
			Credentials: "/c", RegistryCredentials: "/r", Insecure: []string{"a", "b"},
		},
		Git:    fetch.Git{URL: "g", Revision: "r", Folder: "f", Credentials: "/c"},
		Limits: sources.Limits{Download: 1, Size: 2, Files: 3, Ratio: 4},
		Files:  "/f", Work: "/w", Tree: "source", Language: "nodejs", SourceFiles: []string{"handler.js", "handler.ts"}, DependencyFile: "package.json",
		OriginFile: "/o",
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(compose.FetchStep{}, "Log")); diff != "" {
		t.Errorf("step (-want, +got):\n%s", diff)
	}
	if got.Log != os.Stderr {
		t.Error("the log does not go to standard error")
	}
	if _, err := parseFetch([]string{"--s3-path-style=maybe"}); err == nil {
		t.Error("parseFetch() accepts an invalid boolean")
	}
}
