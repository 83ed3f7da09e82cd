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
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis/duck"
	"knative.dev/pkg/apis/duck/ducktypes"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// addressable marks the kinds that Knative Eventing can send to, and the roles
// by which it may find out where.
const addressable = "duck.knative.dev/addressable"

func TestFunctionDuckTypes(t *testing.T) {
	for name, shape := range map[string]ducktypes.Implementable{
		"conditions":  &duckv1.Conditions{},
		"addressable": &duckv1.Addressable{},
	} {
		if err := duck.VerifyType(&v1alpha1.Function{}, shape); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFunctionIsASink checks what Eventing needs to resolve a Function: the label on the
// CRD, and a role with which its controllers read Functions.
func TestFunctionIsASink(t *testing.T) {
	var object metav1.PartialObjectMetadata
	readYAML(t, crd, &object)
	if object.Labels[addressable] != "true" {
		t.Errorf("the CRD has the labels %v, want %s", object.Labels, addressable)
	}
	manifest, err := os.ReadFile(root + "/config/200-user-roles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(manifest), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict([]byte(text), &role); err != nil {
			t.Fatal(err)
		}
		if role.Labels[addressable] != "true" {
			continue
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.APIGroups, v1alpha1.SchemeGroupVersion.Group) && slices.Contains(rule.Resources, "functions") &&
				slices.Contains(rule.Verbs, "get") && slices.Contains(rule.Verbs, "list") && slices.Contains(rule.Verbs, "watch") {
				return
			}
		}
	}
	t.Errorf("no role labelled %s lets Eventing read Functions", addressable)
}
