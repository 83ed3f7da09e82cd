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
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/yaml"
)

// crd judges Functions as the API server does, by the shipped CRD.
type crd struct {
	schema     *apiextensionsv1.JSONSchemaProps
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

func shippedCRD(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile("../../../../config/300-function.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shipped := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, shipped); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(shipped)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&shipped.Spec)
	return shipped
}

func newCRD(t testing.TB) *crd {
	t.Helper()
	props := shippedCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	return &crd{
		schema:     props,
		structural: structural,
		validator:  validator,
		rules:      cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}
}

// validate returns what the API server says without a webhook.
func (c *crd) validate(t testing.TB, object map[string]any) field.ErrorList {
	t.Helper()
	defaulting.Default(object, c.structural)
	errs := validation.ValidateCustomResource(nil, object, c.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, object)...)
	byRules, _ := c.rules.Validate(t.Context(), nil, c.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, byRules...)
}

// unstructured returns the Function as it is sent to the API server.
func unstructured(t testing.TB, fn *Function) map[string]any {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(fn)
	if err != nil {
		t.Fatal(err)
	}
	object["apiVersion"], object["kind"] = SchemeGroupVersion.String(), "Function"
	return object
}

// TestCRD checks what the API server checks before it takes a CRD, such as the
// costs of rules.
func TestCRD(t *testing.T) {
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(shippedCRD(t), internal, nil); err != nil {
		t.Fatal(err)
	}
	internal.Status.StoredVersions = []string{"v1alpha1"}
	for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), internal) {
		t.Error(err)
	}
}

// webhookOnly are the cases that the webhook denies and the CRD cannot: for they
// depend on configuration, or a rule would cost the API server too much.
var webhookOnly = []string{
	"Unicode, in bytes",
	"a GPU requested without a limit",
	"archive with bad %",
	"build env too large",
	"build request above limit",
	"build timeout above the most",
	"build with too much",
	"deps a string",
	"deps an array",
	"deps and a rest",
	"deps cut off",
	"deps not JSON",
	"deps null",
	"deps of a list",
	"deps with commas",
	"env from a bad name",
	"env from with a bad prefix",
	"env name with =",
	"env name with a digit",
	"env name with a space",
	"env of a bad name and key",
	"env value with NUL",
	"folders beyond numbers",
	"folders too large",
	"folders too large with a default",
	"label key with a space",
	"label of Azure",
	"label value",
	"many resources",
	"negative request",
	"no runtime",
	"node selector key",
	"node selector value",
	"own Dockerfile as the source",
	"own Dockerfile with dependencies",
	"request above limit",
	"rollout on nothing",
	"rollout on what",
	"toleration key",
	"toleration value",
	"too large",
	"unknown resource",
	"unknown runtime",
}

// TestCRDAgreesWithWebhook checks that the CRD accepts everything that the webhook
// accepts, and rejects the rest with a few exceptions.
func TestCRDAgreesWithWebhook(t *testing.T) {
	crd := newCRD(t)
	ctx := withConfig(t)
	var only []string
	for name, test := range validationCases() {
		fn := validFunction()
		test.edit(fn)
		if fn.DeletionTimestamp != nil || fn.Name == "" {
			continue // Names are generated before.
		}
		if test.want == "" {
			fn.SetDefaults(apis.WithinCreate(ctx))
		}
		errs := crd.validate(t, unstructured(t, fn))
		switch {
		case test.want == "" && len(errs) > 0:
			t.Errorf("%s: the CRD denies what the webhook takes: %v", name, errs.ToAggregate())
		case test.want != "" && len(errs) == 0:
			only = append(only, name)
		case test.want != "":
			t.Logf("%s: %v", name, errs.ToAggregate())
		}
	}
	slices.Sort(only)
	for _, name := range only {
		if !slices.Contains(webhookOnly, name) {
			t.Errorf("%s: the CRD takes what the webhook denies", name)
		}
	}
	for _, name := range webhookOnly {
		if !slices.Contains(only, name) {
			t.Errorf("%s: the CRD does deny it, or it is no case", name)
		}
	}
}

// TestCRDKeepsFunctionsReadable sets what Go cannot read: one such Function, once
// stored, would keep clients from reading any.
func TestCRDKeepsFunctionsReadable(t *testing.T) {
	crd := newCRD(t)
	tests := map[string]struct{ key, value string }{
		"duration":             {"build", `{"timeout": "soon"}`},
		"duration in words":    {"build", `{"timeout": "10 minutes"}`},
		"duration too long":    {"build", `{"timeout": "9999999999999h"}`},
		"duration of a number": {"build", `{"timeout": 600}`},
		"build's CPU":          {"build", `{"resources": {"limits": {"cpu": "1e1.5"}}}`},
		"CPU":                  {"resources", `{"requests": {"cpu": "1e1.5"}}`},
		"GPU":                  {"resources", `{"limits": {"nvidia.com/gpu": "1e1.5"}}`},
		"divisor": {"env", `[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"},
			"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1e1.5"}}}]`},
		"folder":       {"emptyDirMounts", `[{"mountPath": "/a", "sizeLimit": "1e1.5"}]`},
		"replicas":     {"minReplicas", `4294967296`},
		"concurrency":  {"concurrency", `1.5`},
		"mode of file": {"tolerations", `[{"key": "a", "tolerationSeconds": 1e30}]`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := unstructured(t, validFunction())
			var value any
			if err := json.Unmarshal([]byte(test.value), &value); err != nil {
				t.Fatal(err)
			}
			object["spec"].(map[string]any)[test.key] = value
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &Function{}); err == nil {
				t.Error("it can be read: this is no test")
			}
			if errs := crd.validate(t, object); len(errs) == 0 {
				t.Error("the CRD takes it")
			} else {
				t.Log(errs.ToAggregate())
			}
		})
	}
}

// TestCRDSizes has a source that is within the limit in characters, and not in bytes.
func TestCRDSizes(t *testing.T) {
	crd := newCRD(t)
	fn := validFunction()
	fn.Spec.Source = strings.Repeat("x", 1<<20)
	if errs := crd.validate(t, unstructured(t, fn)); len(errs) > 0 {
		t.Errorf("the largest source: %v", errs.ToAggregate())
	}
	fn.Spec.Deps = "{}"
	if errs := crd.validate(t, unstructured(t, fn)); len(errs) == 0 {
		t.Error("source and deps together are too large, and are taken")
	}
	fn.Spec.Source, fn.Spec.Deps = strings.Repeat("大", 400<<10), ""
	if errs := crd.validate(t, unstructured(t, fn)); len(errs) == 0 {
		t.Error("1200 KiB of UTF-8 are taken")
	}
}

// TestCRDMounts has as many mounts as the lists allow, with the longest paths. The rules must
// not cost more than the API server allows.
func TestCRDMounts(t *testing.T) {
	fn := validFunction()
	path := func(kind string, i int) MountPath {
		return MountPath("/" + strings.Repeat("x", 1015) + fmt.Sprintf("-%s-%02d", kind, i))
	}
	for i := range 32 {
		all(mounts("s", string(path("sec", i))), configMapMount("c", path("con", i)))(fn)
	}
	for i := range 8 {
		all(folder(path("emp", i), "1Mi"), claim("p", path("cla", i)))(fn)
	}
	if err := fn.Validate(withConfig(t)); err != nil {
		t.Fatal(err)
	}
	crd := newCRD(t)
	if errs := crd.validate(t, unstructured(t, fn)); len(errs) > 0 {
		t.Errorf("the most mounts: %v", errs.ToAggregate())
	}
	fn.Spec.PersistentVolumeClaimMounts[7].MountPath = fn.Spec.EmptyDirMounts[7].MountPath
	if errs := crd.validate(t, unstructured(t, fn)); len(errs) == 0 {
		t.Error("two mounts at the same path are taken")
	}
}

// TestCRDIsDocumented checks that kubectl explain has something to say of each
// property.
func TestCRDIsDocumented(t *testing.T) {
	var walk func(path string, schema apiextensionsv1.JSONSchemaProps)
	walk = func(path string, schema apiextensionsv1.JSONSchemaProps) {
		if schema.Description == "" && path != ".metadata" && path != ".status.address.url" {
			t.Errorf("%s has no description", path)
		}
		for name, property := range schema.Properties {
			walk(path+"."+name, property)
		}
		if schema.Items != nil && schema.Items.Schema != nil && schema.Items.Schema.Type == "object" {
			for name, property := range schema.Items.Schema.Properties {
				walk(path+"[]."+name, property)
			}
		}
	}
	walk("", *newCRD(t).schema)
}
