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

package v1alpha1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"knative.dev/pkg/apis"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// guideBlock matches a block of YAML or of shell in a guide, with its indentation.
var guideBlock = regexp.MustCompile("(?ms)^( *)```(?:yaml|sh)\n(.*?)^ *```")

// TestGuideExamples checks that the webhook accepts each Function in README.md and in
// the guides, also those of which a page shows only a part.
func TestGuideExamples(t *testing.T) {
	pages, err := filepath.Glob(root + "/docs/guides/*.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, page := range append(pages, root+"/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range guideBlock.FindAllStringSubmatch(string(text), -1) {
			example := functionOf(strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n"))
			if example == "" {
				continue
			}
			examples++
			if err := accept(t, example); err != nil {
				t.Errorf("%s: %v:\n%s", filepath.Base(page), err, example)
			}
		}
	}
	if examples < 8 {
		t.Errorf("found %d examples of Functions in %d guides", examples, len(pages))
	}
}

// functionOf returns the Function that a block of a guide shows, or nothing. A block may
// show the spec alone, some fields of it, or a shell that writes the Function to a file.
func functionOf(block string) string {
	block = strings.TrimPrefix(block, "\n")
	if _, file, found := strings.Cut(block, "<<'EOF'\n"); found {
		block, _, _ = strings.Cut(file, "EOF\n")
	}
	switch {
	case strings.Contains(block, "kind: Function\nmetadata"):
		return block
	case strings.HasPrefix(block, "spec:\n"):
		return "metadata: {name: example}\n" + block
	case strings.HasPrefix(block, "  deps:"):
		return "metadata: {name: example}\nspec:\n" + block
	}
	return ""
}

// accept reports why the webhook denies the Function.
func accept(t *testing.T, example string) error {
	t.Helper()
	functions, err := config.NewFunctionsFromMap(nil)
	if err != nil {
		t.Fatal(err)
	}
	build, err := config.NewBuildFromMap(map[string]string{"kaniko-image": "registry.example.com/kaniko", "compose-image": "registry.example.com/compose"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := apis.WithinCreate(config.ToContext(t.Context(), &config.Config{
		Functions: functions, Build: build, Registry: &config.Registry{},
		Runtimes: config.Runtimes{functions.DefaultRuntime: {BaseImage: "node", Language: "nodejs"}},
	}))
	var fn v1alpha1.Function
	if err := yaml.UnmarshalStrict([]byte(example), &fn); err != nil {
		return err
	}
	if fn.Spec.Source == "" {
		fn.Spec.Source = "module.exports = { main: () => 'example' };"
	}
	fn.SetDefaults(ctx)
	if err := fn.Validate(ctx); err != nil {
		return err
	}
	return nil
}
