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

package migrate

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"knative.dev/pkg/apis"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

var update = flag.Bool("update", false, "write the expected results")

func read(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// shippedConfig returns the configuration that Kiln is shipped with.
func shippedConfig(t *testing.T) *config.Config {
	t.Helper()
	data := func(name string) map[string]string {
		text, err := os.ReadFile(filepath.Join("..", "..", "config", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var cm corev1.ConfigMap
		if err := yaml.Unmarshal(text, &cm); err != nil {
			t.Fatal(err)
		}
		return cm.Data
	}
	functions, err := config.NewFunctionsFromMap(data("config-functions"))
	if err != nil {
		t.Fatal(err)
	}
	ofBuilds := data("config-build")
	ofBuilds["kaniko-image"], ofBuilds["compose-image"] = "registry.example.com/kaniko", "registry.example.com/compose"
	build, err := config.NewBuildFromMap(ofBuilds)
	if err != nil {
		t.Fatal(err)
	}
	known, err := config.NewRuntimesFromConfigMap(&corev1.ConfigMap{Data: data("config-runtimes")})
	if err != nil {
		t.Fatal(err)
	}
	return &config.Config{Functions: functions, Build: build, Registry: &config.Registry{}, Runtimes: known}
}

// The manifests have each field of both projects. The Functions must pass the webhook of a
// cluster with the shipped configuration.
func TestManifests(t *testing.T) {
	ctx := apis.WithinCreate(config.ToContext(t.Context(), shippedConfig(t)))
	for _, name := range []string{"kyma", "kubeless"} {
		manifest, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		for document := range strings.SplitSeq(string(manifest), "\n---\n") {
			result, err := From(read(t, document))
			if err != nil || result.Rejected {
				t.Fatal(err, result.Notes)
			}
			text, err := result.Write()
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString("---\n" + string(text))
			var fn v1alpha1.Function
			if err := yaml.UnmarshalStrict(text, &fn); err != nil {
				t.Fatal(err)
			}
			fn.SetDefaults(ctx)
			if err := fn.Validate(ctx).Filter(apis.ErrorLevel); err != nil {
				t.Errorf("%s: %v", fn.Name, err)
			}
		}
		expected := filepath.Join("testdata", name+".expected.yaml")
		if *update {
			if err := os.WriteFile(expected, got.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(expected)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The runtimes of imported Functions are in config-runtimes.
func TestShippedRuntimes(t *testing.T) {
	known := shippedConfig(t).Runtimes
	for name, runtime := range shipped {
		if have, ok := known[name]; !ok || have.Language != runtime.Language {
			t.Errorf("config-runtimes has %s: %+v", name, have)
		}
	}
}

func TestSetRuntime(t *testing.T) {
	for name, want := range map[string]struct{ runtime, note string }{
		"nodejs22":           {"nodejs22", ""},
		"nodejs24":           {"nodejs24", ""},
		"python313":          {"python313", ""},
		"nodejs12":           {"nodejs22", "nodejs22 instead of nodejs12"},
		"nodejs6.10":         {"nodejs22", "nodejs22 instead of nodejs6.10"},
		"nodejs_distroless8": {"nodejs22", "nodejs22 instead of"},
		"nodejsCE8":          {"nodejs22", "nodejs22 instead of"},
		"nodejs26":           {"nodejs24", "FUNC_API has main called with (req, res)"},
		"python39":           {"python313", "check that the dependencies support it"},
		"python3.7":          {"python313", "check that the dependencies support it"},
		"python2.7":          {"python313", "port the code to Python 3"},
		"python314":          {"python313", "need flask"},
		"ruby2.4":            {"ruby2.4", `Kiln has no runtime "ruby2.4"`},
		"":                   {"", "none is set"},
	} {
		d := newDraft(&unstructured.Unstructured{})
		d.setRuntime(name)
		notes := strings.Join(d.Notes, "\n")
		if d.Function.Spec.Runtime != want.runtime || !strings.Contains(notes, want.note) || (notes == "") != (want.note == "") {
			t.Errorf("%q becomes %q with %q, want %q with %q", name, d.Function.Spec.Runtime, notes, want.runtime, want.note)
		}
	}
}

const (
	ofKyma     = "apiVersion: serverless.kyma-project.io/v1alpha2\nkind: Function\nmetadata: {name: fn}\n"
	ofKubeless = "apiVersion: kubeless.io/v1beta1\nkind: Function\nmetadata: {name: fn}\n"
	inline     = "source: {inline: {source: 'module.exports = {}'}}"
)

// Each of these has a note, or the Function is rejected.
func TestNotes(t *testing.T) {
	tests := map[string]struct {
		manifest, note string
		rejected       bool
	}{
		"url without a scheme": {ofKyma + "spec: {runtime: nodejs22, source: {gitRepository: {url: github.com/a/b, baseDir: /, reference: v1}}}", "https:// was missing", false},
		"no source":            {ofKyma + "spec: {runtime: nodejs22}", "expected exactly one, got neither", true},
		"no spec":              {ofKyma, "expected exactly one, got neither", true},
		"no runtime":           {ofKyma + "spec: {" + inline + "}", "none is set", false},
		"trailing comma":       {ofKyma + "spec: {runtime: nodejs22, source: {inline: {source: x, dependencies: '{\"a\": 1,}'}}}", "package.json must be a JSON object", true},
		"mount over Kiln's":    {ofKyma + "spec: {runtime: nodejs22, " + inline + ", secretMounts: [{secretName: a, mountPath: /tmp/a}]}", "must not overlap /tmp", true},
		"range":                {ofKyma + "spec: {runtime: nodejs22, " + inline + ", scaleConfig: {minReplicas: 3, maxReplicas: 2}}", "minReplicas is 3, more than maxReplicas", true},
		"unknown profile":      {ofKyma + "spec: {runtime: nodejs22, " + inline + ", resourceConfiguration: {function: {profile: XXL}}}", `the profile "XXL" is not known`, false},
		"new field":            {ofKyma + "spec: {runtime: nodejs22, " + inline + ", new: {field: 1}}", "spec.new: left out: Kiln has no such field", false},
		"bad timeout":          {ofKyma + "spec: {runtime: nodejs22, " + inline + ", env: [{name: FUNC_TIMEOUT, value: 1m}]}", `"1m" is no number of seconds`, false},
		"bad limit":            {ofKyma + "spec: {runtime: nodejs22, " + inline + ", env: [{name: FUNC_MEMFILE_MAX, value: big}]}", `"big" is no number`, false},
		"owner":                {strings.Replace(ofKyma, "name: fn", "name: fn, ownerReferences: [{name: a}]", 1) + "spec: {runtime: nodejs22, " + inline + "}", "metadata.ownerReferences: left out", false},
		"file at a URL":        {ofKubeless + "spec: {runtime: nodejs8, handler: a.b, function: 'https://example.com/a.js', function-content-type: url}", "a URL must be that of an archive", true},
		"archive in text":      {ofKubeless + "spec: {runtime: nodejs8, handler: a.b, function: UEsDBA==, function-content-type: base64+zip}", "kubectl fn deploy --dir", true},
		"bad base64":           {ofKubeless + "spec: {runtime: nodejs8, handler: a.b, function: '!', function-content-type: base64}", "no text in base64", true},
		"another archive":      {ofKubeless + "spec: {runtime: nodejs8, handler: handler.main, function: 'https://example.com/a.tar.xz', function-content-type: url+compressedtar}", "Pack it again", false},
		"schedule":             {ofKubeless + "spec: {runtime: nodejs8, handler: a.b, function: x, schedule: '* * * * *'}", "* * * * *", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			result, err := From(read(t, tc.manifest))
			if err != nil {
				t.Fatal(err)
			}
			if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, tc.note) || result.Rejected != tc.rejected {
				t.Errorf("rejected is %t, want %t; the notes are:\n%s\nwant %q", result.Rejected, tc.rejected, notes, tc.note)
			}
		})
	}
}

func TestOtherObjects(t *testing.T) {
	for manifest, want := range map[string]string{
		"{apiVersion: gateway.kyma-project.io/v1beta1, kind: APIRule}":        "spec.visibility: public",
		"{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription}": "Knative Trigger",
		"{apiVersion: kubeless.io/v1beta1, kind: CronJobTrigger}":             "PingSource",
		"{apiVersion: serverless.kyma-project.io/v1alpha1, kind: Function}":   "only v1alpha2 is",
		"{apiVersion: serverless.kiln.dev/v1alpha1, kind: Function}":          "",
		"{apiVersion: v1, kind: Namespace}":                                   "",
	} {
		result, err := From(read(t, manifest))
		if err != nil || result.Function != nil || !strings.Contains(strings.Join(result.Notes, ""), want) || (want == "") != (len(result.Notes) == 0) {
			t.Errorf("%s becomes %+v, %v, want the note %q", manifest, result, err, want)
		}
	}
}

func TestUnreadableFunctions(t *testing.T) {
	for _, spec := range []string{"spec: text", "spec: {replicas: many}", "spec: {env: [{name: A, value: 1}]}", "spec: [1]"} {
		if result, err := From(read(t, ofKyma+spec)); err == nil {
			t.Errorf("%q becomes %+v", spec, result)
		}
	}
}

// A manifest cannot end a comment and add fields to the Function.
func TestHostileNotes(t *testing.T) {
	const hostile = `"x\nspec: {serviceAccountName: admin}\u2028spec: {serviceAccountName: admin}\u0085a\rb\x1b[31m"`
	for _, manifest := range []string{
		ofKyma + "spec: {runtime: " + hostile + ", " + inline + "}",
		ofKyma + "spec: {runtime: nodejs22, runtimeImageOverride: " + hostile + ", " + inline + "}",
		ofKyma + "spec: {runtime: nodejs22, " + inline + ", " + hostile + ": 1, env: [{name: " + hostile + ", value: a}]}",
		ofKyma + "spec: {runtime: nodejs22, " + inline + ", labels: {" + hostile + ": a/b}}",
		ofKubeless + "spec: {runtime: nodejs22, handler: " + hostile + ", function: x, topic: " + hostile + "}",
	} {
		result, err := From(read(t, manifest))
		if err != nil {
			t.Fatal(err)
		}
		text, err := result.Write()
		if err != nil {
			t.Fatal(err)
		}
		var got v1alpha1.Function
		if err := yaml.UnmarshalStrict(text, &got); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if diff := cmp.Diff(result.Function.Spec, got.Spec); diff != "" || strings.ContainsAny(string(text), "\r\x1b\u2028\u0085") {
			t.Errorf("%s\n(-want +got):\n%s", text, diff)
		}
	}
}

// FuzzWrite checks that the YAML has the same source as the Function.
func FuzzWrite(f *testing.F) {
	for _, seed := range []string{"a\n", "a", "a \nb\n\n", "  a\n b", "\n\na\n", "\ta\n", "a\r\nb", "a\u2028\nb", "---\na", "# a\n# b\n", "a: b\n", "\n", " \n \n", "THE-source\n  source: THE-source\n", "\ufeffa\nb", "a\x00\n", "a\u0085\nb", "\x7f", "\uffff😀"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		source = strings.ToValidUTF8(source, "")
		result := Result{Function: &v1alpha1.Function{Spec: v1alpha1.FunctionSpec{Source: source, Deps: source}}}
		text, err := result.Write()
		if err != nil {
			t.Fatal(err)
		}
		var got v1alpha1.Function
		if err := yaml.UnmarshalStrict(text, &got); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if got.Spec.Source != source || got.Spec.Deps != source {
			t.Errorf("the source is %q, want %q:\n%s", got.Spec.Source, source, text)
		}
	})
}

// docs/migrating.md names each field that the importer knows.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "migrating.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range []any{kymaSpec{}, kubelessSpec{}} {
		for field := range reflect.TypeOf(spec).Fields() {
			name := field.Tag.Get("json")
			if !strings.Contains(string(page), "`"+name) && name != "function-content-type" && name != "type" {
				t.Errorf("the page does not name %s", name)
			}
		}
	}
	for name := range withoutEffect {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the page does not name %s", name)
		}
	}
}
