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

package v1alpha1

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/randfill"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/depcheck"

	"github.com/kiln-dev/kiln/pkg/apis/config"
)

var knownRuntimes = config.Runtimes{
	"nodejs18": {Language: "nodejs", Deprecated: true},
	"nodejs24": {Language: "nodejs"},
	"python3":  {Language: "python"},
}

func withConfig(t testing.TB) context.Context {
	t.Helper()
	cfg := *config.FromContextOrDefaults(withFunctions(t, map[string]string{"max-source-size": "1Ki"}))
	cfg.Runtimes = knownRuntimes
	return config.ToContext(t.Context(), &cfg)
}

func variable(name string, source *corev1.EnvVarSource) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: source}
}

func secretKey(name, key string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key,
	}}
}

func configMapKey(name, key string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key,
	}}
}

func TestValidate(t *testing.T) {
	longest := "a" + strings.Repeat("b", 62)
	tests := map[string]struct {
		edit func(*Function)
		// want are the errors, one a line; none where the Function is valid.
		want string
	}{
		"as it is":     {func(*Function) {}, ""},
		"longest name": {func(fn *Function) { fn.Name = longest }, ""},
		"no name yet":  {func(fn *Function) { fn.Name, fn.GenerateName = "", "x-" }, ""},
		"name too long": {
			func(fn *Function) { fn.Name = longest + "b" },
			"invalid value: " + longest + "b: metadata.name\nmust be no more than 63 characters",
		},
		"name begins with a digit": {
			func(fn *Function) { fn.Name = "1st" },
			"invalid value: 1st: metadata.name\na DNS-1035 label must consist of",
		},
		"name with a dot": {func(fn *Function) { fn.Name = "a.b" }, "invalid value: a.b: metadata.name\n"},

		"no runtime":      {func(fn *Function) { fn.Spec.Runtime = "" }, "missing field(s): spec.runtime"},
		"unknown runtime": {func(fn *Function) { fn.Spec.Runtime = "cobol" }, `unknown runtime "cobol": choose one of nodejs18, nodejs24, python3: spec.runtime`},
		"deprecated":      {func(fn *Function) { fn.Spec.Runtime = "nodejs18" }, ""},

		"blank source": {func(fn *Function) { fn.Spec.Source = " \n\t" }, "must not be blank: spec.source"},
		"no source":    {func(fn *Function) { fn.Spec.Source = "" }, "must not be blank: spec.source"},
		"largest":      {func(fn *Function) { fn.Spec.Source, fn.Spec.Deps = strings.Repeat("x", 1022), "{}" }, ""},
		"too large": {
			func(fn *Function) { fn.Spec.Source, fn.Spec.Deps = strings.Repeat("x", 1023), "{}" },
			"source and deps together are 1025 bytes, more than the limit of 1024: spec.deps, spec.source",
		},

		"blank deps":       {func(fn *Function) { fn.Spec.Deps = " \n" }, ""},
		"deps":             {func(fn *Function) { fn.Spec.Deps = `{"dependencies": {"ms": "2.1.3"}}` }, ""},
		"deps in Python":   {func(fn *Function) { fn.Spec.Runtime, fn.Spec.Deps = "python3", "requests==2.32" }, ""},
		"deps of a list":   {func(fn *Function) { fn.Spec.Deps = `{"dependencies": ["ms"]}` }, "package.json dependencies must be a JSON object: it is of type array: spec.deps"},
		"deps an array":    {func(fn *Function) { fn.Spec.Deps = "[]" }, "package.json must be a JSON object: it is of type array: spec.deps"},
		"deps a string":    {func(fn *Function) { fn.Spec.Deps = `"ms"` }, "package.json must be a JSON object: it is of type string: spec.deps"},
		"deps null":        {func(fn *Function) { fn.Spec.Deps = "null" }, "package.json must be a JSON object: it is null: spec.deps"},
		"deps not JSON":    {func(fn *Function) { fn.Spec.Deps = "{\n  \"é\": x}" }, "package.json must be a JSON object: line 2, column 8: invalid character 'x' looking for beginning of value: spec.deps"},
		"deps cut off":     {func(fn *Function) { fn.Spec.Deps = "{\n" }, "package.json must be a JSON object: line 1, column 2: unexpected end of JSON input: spec.deps"},
		"deps and a rest":  {func(fn *Function) { fn.Spec.Deps = "{} {}" }, "package.json must be a JSON object: line 1, column 4: invalid character '{' after top-level value: spec.deps"},
		"deps with commas": {func(fn *Function) { fn.Spec.Deps = "{\"a\": 1,\n}" }, "package.json must be a JSON object: line 2, column 1: invalid character '}' looking for beginning of object key string: spec.deps"},

		"min above max":     {func(fn *Function) { fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(3)), new(int32(2)) }, "minReplicas is 3, more than maxReplicas, which is 2: spec.maxReplicas, spec.minReplicas"},
		"min without a max": {func(fn *Function) { fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(3)), new(int32(0)) }, ""},
		"min is max":        {func(fn *Function) { fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(3)), new(int32(3)) }, ""},
		"min alone":         {func(fn *Function) { fn.Spec.MinReplicas = new(int32(3)) }, ""},
		"min negative":      {func(fn *Function) { fn.Spec.MinReplicas = new(int32(-1)) }, "expected 0 <= -1 <= 1000: spec.minReplicas"},
		"max too many":      {func(fn *Function) { fn.Spec.MaxReplicas = new(int32(1001)) }, "expected 0 <= 1001 <= 1000: spec.maxReplicas"},

		"env": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{
				{Name: "A"},
				{Name: "b.c-d_1", Value: "x"},
				variable("S", secretKey("my.secret", "a.key")), variable("C", configMapKey("c", "k")),
			}
		}, ""},
		"env without a name":    {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Value: "x"}} }, "missing field(s): spec.env[0].name"},
		"env name with =":       {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "A"}, {Name: "A=B"}} }, "invalid value: A=B: spec.env[1].name\n"},
		"env name with a space": {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "A B"}} }, "invalid value: A B: spec.env[0].name\n"},
		"env name with a digit": {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "1A"}} }, "invalid value: 1A: spec.env[0].name\n"},
		"env PORT":              {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "PORT"}} }, "invalid value: PORT: spec.env[0].name\nKnative sets this variable"},
		"env K_SERVICE":         {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "K_SERVICE"}} }, "invalid value: K_SERVICE: spec.env[0].name\nKnative sets this variable"},
		"env FUNC_NAME":         {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "FUNC_NAME"}} }, "invalid value: FUNC_NAME: spec.env[0].name\nKiln sets this variable"},
		"env twice":             {func(fn *Function) { fn.Spec.Env = []corev1.EnvVar{{Name: "A"}, {Name: "B"}, {Name: "A"}} }, `duplicate name "A": spec.env[2].name`},
		"env value and source": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{{Name: "A", Value: "x", ValueFrom: secretKey("s", "k")}}
		}, "expected exactly one, got both: spec.env[0].value, spec.env[0].valueFrom"},
		"env no source": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", &corev1.EnvVarSource{})}
		}, "expected exactly one, got neither: spec.env[0].valueFrom.configMapKeyRef, spec.env[0].valueFrom.secretKeyRef"},
		"env two sources": {func(fn *Function) {
			both := secretKey("s", "k")
			both.ConfigMapKeyRef = configMapKey("c", "k").ConfigMapKeyRef
			fn.Spec.Env = []corev1.EnvVar{variable("A", both)}
		}, "expected exactly one, got both: spec.env[0].valueFrom.configMapKeyRef, spec.env[0].valueFrom.secretKeyRef"},
		"env of a field": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{}})}
		}, "must not set the field(s): spec.env[0].valueFrom.fieldRef"},
		"env of a resource": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{}})}
		}, "must not set the field(s): spec.env[0].valueFrom.resourceFieldRef"},
		"env of a file": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{}})}
		}, "must not set the field(s): spec.env[0].valueFrom.fileKeyRef"},
		"env of nothing in a secret": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", secretKey("", ""))}
		}, "missing field(s): spec.env[0].valueFrom.secretKeyRef.key, spec.env[0].valueFrom.secretKeyRef.name"},
		"env of a bad name and key": {func(fn *Function) {
			fn.Spec.Env = []corev1.EnvVar{variable("A", configMapKey("C", "a/b"))}
		}, "invalid value: C: spec.env[0].valueFrom.configMapKeyRef.name\n"},

		"resources": {func(fn *Function) {
			fn.Spec.Resources = resources(
				list("cpu", "1", "ephemeral-storage", "1Gi", "nvidia.com/gpu", "2"),
				list("cpu", "1", "memory", "1Gi", "nvidia.com/gpu", "2", "amd.com/gpu", "1"))
		}, ""},
		"request above limit": {func(fn *Function) {
			fn.Spec.Resources = resources(list("memory", "2Gi"), list("memory", "1Gi"))
		}, "the request of 2Gi is more than the limit, which is 1Gi: spec.resources.requests[memory]"},
		"negative request": {func(fn *Function) {
			fn.Spec.Resources = resources(list("cpu", "-1"), nil)
		}, "invalid value: -1: spec.resources.requests[cpu]\nit must not be negative"},
		"unknown resource": {func(fn *Function) {
			fn.Spec.Resources = resources(nil, list("ram", "1Gi"))
		}, "invalid key name \"ram\": spec.resources.limits\nuse cpu, memory"},
		"half a GPU": {func(fn *Function) {
			fn.Spec.Resources = resources(nil, list("nvidia.com/gpu", "500m"))
		}, "invalid value: 500m: spec.resources.limits.[nvidia.com/gpu]\nit must be a whole number"},
		"a GPU requested without a limit": {func(fn *Function) {
			fn.Spec.Resources = resources(list("nvidia.com/gpu", "1"), nil)
		}, "the request must equal the limit, since this resource cannot be shared: spec.resources.requests.[nvidia.com/gpu]"},
		"resource claims": {func(fn *Function) {
			fn.Spec.Resources.Claims = []corev1.ResourceClaim{{Name: "x"}}
		}, "must not set the field(s): spec.resources.claims"},

		"labels": {func(fn *Function) {
			fn.Spec.Labels = map[string]string{"a": "", "example.com/b": "c", "app.kubernetes.io/part-of": "shop"}
		}, ""},
		"label key with a space": {func(fn *Function) { fn.Spec.Labels = map[string]string{"a b": "c"} }, "invalid key name \"a b\": spec.labels\n"},
		"label value":            {func(fn *Function) { fn.Spec.Labels = map[string]string{"a": "b c"} }, "invalid value: b c: spec.labels[a]\n"},
		"label of Kiln":          {func(fn *Function) { fn.Spec.Labels = map[string]string{"serverless.kiln.dev/x": "y"} }, "invalid key name \"serverless.kiln.dev/x\": spec.labels\nKiln sets labels of this prefix"},
		"label of Knative":       {func(fn *Function) { fn.Spec.Labels = map[string]string{"serving.knative.dev/service": "y"} }, "invalid key name \"serving.knative.dev/service\": spec.labels\nKnative sets labels of this prefix"},
		"label like Knative":     {func(fn *Function) { fn.Spec.Labels = map[string]string{"myknative.dev/x": "y"} }, ""},

		"being deleted": {func(fn *Function) {
			fn.DeletionTimestamp, fn.Spec = &metav1.Time{Time: time.Now()}, FunctionSpec{}
		}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fn := validFunction()
			test.edit(fn)
			err := fn.Validate(withConfig(t))
			switch got := err.Error(); {
			case test.want == "" && err != nil:
				t.Errorf("unexpected: %v", err)
			case strings.Contains(test.want, "\n") && !strings.HasPrefix(got, test.want):
				t.Errorf("got %q\nwant it to begin with %q", got, test.want)
			case !strings.Contains(test.want, "\n") && got != test.want:
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func validFunction() *Function {
	return &Function{
		ObjectMeta: metav1.ObjectMeta{Name: "greeter", Namespace: "default"},
		Spec:       FunctionSpec{Runtime: "nodejs24", Source: "module.exports = { main: () => 'hello' }"},
	}
}

func TestValidateReportsAll(t *testing.T) {
	fn := validFunction()
	fn.Name = "1st"
	fn.Spec = FunctionSpec{Runtime: "cobol", MinReplicas: new(int32(-1)), Env: []corev1.EnvVar{{Name: "PORT"}}}
	got := fn.Validate(withConfig(t)).Error()
	for _, want := range []string{"metadata.name", "spec.runtime", "spec.source", "spec.minReplicas", "spec.env[0].name"} {
		if !strings.Contains(got, want) {
			t.Errorf("the error does not name %s: %s", want, got)
		}
	}
}

// TestValidateUpdate edits a Function that today's configuration would deny.
func TestValidateUpdate(t *testing.T) {
	before := validFunction()
	before.Spec.Runtime = "cobol"
	ctx := apis.WithinUpdate(withConfig(t), before)

	now := before.DeepCopy()
	now.Labels = map[string]string{"a": "b"}
	if err := now.Validate(ctx); err != nil {
		t.Errorf("an edit of labels: %v", err)
	}
	now.Spec.Source += "\n"
	if err := now.Validate(ctx); err == nil {
		t.Error("an edit of the spec was not denied")
	}
	if err := now.Validate(apis.WithinSubResourceUpdate(withConfig(t), before, "status")); err != nil {
		t.Errorf("an update of the status: %v", err)
	}
}

func TestValidateWithoutConfig(t *testing.T) {
	fn := validFunction()
	fn.Spec.Runtime, fn.Spec.Deps = "cobol", "IDENTIFICATION DIVISION."
	if err := fn.Validate(t.Context()); err != nil {
		t.Errorf("nothing is known of runtimes, yet: %v", err)
	}
	ctx := config.ToContext(t.Context(), &config.Config{Runtimes: config.Runtimes{}})
	if got, want := fn.Validate(ctx).Error(), `unknown runtime "cobol": no runtime is configured: spec.runtime`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDeprecatedRuntimeWarns(t *testing.T) {
	fn := validFunction()
	fn.Spec.Runtime = "nodejs18"
	err := fn.Validate(apis.WithinCreate(withConfig(t)))
	if got := err.Filter(apis.ErrorLevel); got != nil {
		t.Errorf("denied: %v", got)
	}
	if got, want := err.Filter(apis.WarningLevel).Error(), `runtime "nodejs18" is deprecated: spec.runtime`; got != want {
		t.Errorf("warning %q, want %q", got, want)
	}
}

// FuzzFunction checks that no Function makes defaulting or validation panic,
// and that defaulting is idempotent and never makes a Function invalid.
func FuzzFunction(f *testing.F) {
	for seed := range int64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		ctx := withConfig(t)
		fn := validFunction()
		randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 4).Funcs(
			func(q *resource.Quantity, c randfill.Continue) {
				*q = *resource.NewMilliQuantity(c.Int63n(1<<40)-1<<20, resource.BinarySI)
			},
			func(n *corev1.ResourceName, c randfill.Continue) {
				*n = []corev1.ResourceName{"cpu", "memory", "nvidia.com/gpu", "ram"}[c.Intn(4)]
			},
			func(n *int32, c randfill.Continue) { *n = int32(c.Intn(20) - 2) },
			// Half of the specs have nothing random that could be denied but
			// what has a default.
			func(s *FunctionSpec, c randfill.Continue) {
				if c.Bool() {
					c.FillNoCustom(s)
					return
				}
				s.Runtime, s.Source = "", "x"
				c.Fill(&s.MinReplicas)
				c.Fill(&s.MaxReplicas)
				c.Fill(&s.Resources.Requests)
				c.Fill(&s.Resources.Limits)
			},
		).Fill(&fn.Spec)

		// A Function that lacks a runtime is not denied: it gets one.
		if fn.Spec.Runtime == "" {
			fn.Spec.Runtime = "nodejs24"
		}
		before := fn.Validate(ctx)
		fn.SetDefaults(ctx)
		once := fn.DeepCopy()
		fn.SetDefaults(ctx)
		if !equality.Semantic.DeepEqual(once, fn) {
			t.Fatalf("defaulting twice differs (-once +twice):\n%s", cmp.Diff(once, fn))
		}
		if after := fn.Validate(ctx); before == nil && after != nil {
			t.Fatalf("defaulting made the Function invalid: %v", after)
		}
		update := apis.WithinUpdate(ctx, once)
		fn.SetDefaults(update)
		if err := fn.Validate(update); err != nil {
			t.Fatalf("an unchanged Function is denied: %v", err)
		}
	})
}

// TestDependencies keeps Tekton's and Serving's types out of the API.
func TestDependencies(t *testing.T) {
	depcheck.AssertNoDependency(t, map[string][]string{
		"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1": {
			"github.com/tektoncd/pipeline",
			"knative.dev/serving",
			"k8s.io/client-go/kubernetes",
		},
	})
}
