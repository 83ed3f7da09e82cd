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
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestContextDigests checks that digests tell the same of a build context as its texts.
func TestContextDigests(t *testing.T) {
	custom := Custom{SourceFile: "main.pl", DependencyFile: "cpanfile", Files: map[string]string{"serve.pl": "listen"}}.Runtime()
	bare := Custom{}.Runtime()
	failed := 0
	for name, runtime := range map[string]Runtime{
		"nodejs": languages["nodejs"], "python": languages["python"], "custom": custom, "custom, no dependencies": bare, "dockerfile": OwnDockerfile(),
	} {
		for _, dependencies := range []string{"", " \n", "\ufeff", "{}", `{"dependencies": {"ms": "1"}}`, "\ufeff{\"dependencies\": {\"ms\": \"1\"}}", "[]", "null", "requests==2.32\n",
			locked, "{}" + lock, lock, "{} {}", "requests==2.32 --hash=sha256:aa\n"} {
			for _, dockerfile := range []string{"", "FROM {{.BaseImage}}{{if .HasDependencies}}\nRUN install{{end}}", "{{"} {
				for _, fetched := range []bool{false, true} {
					fn := Function{BaseImage: "base", Dockerfile: dockerfile, Fetched: fetched}
					got, gotErr := runtime.ContextDigests(fn, DigestsOf("main", dependencies))
					fn.Source, fn.Dependencies = "main", dependencies
					files, wantErr := runtime.BuildContext(fn)
					var want map[string]string
					if wantErr == nil {
						want = map[string]string{}
					}
					for file, text := range files {
						want[file] = Digest(text)
					}
					if diff := cmp.Diff(want, got); diff != "" || textOf(gotErr) != textOf(wantErr) {
						t.Errorf("%s, dependencies %q, Dockerfile %q, fetched %t: error %v, want %v (-want, +got): %s",
							name, dependencies, dockerfile, fetched, gotErr, wantErr, diff)
					}
					if wantErr != nil {
						failed++
					}
				}
			}
		}
	}
	if failed == 0 {
		t.Error("no context is invalid, so errors are not compared")
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestDigest(t *testing.T) {
	for _, text := range []string{"", "a", strings.Repeat("exports.main = () => 1\n", 1000)} {
		sum := sha256.Sum256([]byte(text))
		if got, want := Digest(text), "sha256:"+hex.EncodeToString(sum[:]); got != want {
			t.Errorf("Digest() of %d bytes = %s, want %s", len(text), got, want)
		}
	}
}

func TestDigestCopiesNoWholeText(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Digest(large)
		}
	})
	if got := result.AllocedBytesPerOp(); got > 8<<10 {
		t.Errorf("Digest() of 1 MiB allocates %d bytes", got)
	}
}

func TestShorten(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", ""},
		{"must be a JSON object", "must be a JSON object"},
		{strings.Repeat("x", 1000), strings.Repeat("x", maxProblemBytes)},
		{"x" + strings.Repeat("é", 1000), "x" + strings.Repeat("é", (maxProblemBytes-1)/2)},
	} {
		if got := shorten(test.text); got != test.want {
			t.Errorf("shorten(%q) = %q, want %q", test.text, got, test.want)
		}
	}
}
