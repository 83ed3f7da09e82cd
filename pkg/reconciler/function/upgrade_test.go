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

package function

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// A change of one of these values changes all Functions of an upgraded cluster. Describe it in
// docs/upgrading.md, in the table of versions, before you write the new value here.
const (
	// pinnedTag changes with the wrapper, the Dockerfile, or the way in which they
	// are hashed: every Function is built again.
	pinnedTag = "02ac803a05f8fd2d1e1b29f390648b0b"

	// pinnedTemplate changes with what Kiln writes into Services: every Function
	// gets a new revision.
	pinnedTemplate = "207cbb615fcc0e803820667b9e72ffa1"
)

// TestUpgradeKeepsImagesAndRevisions checks that nobody changes these values by accident.
func TestUpgradeKeepsImagesAndRevisions(t *testing.T) {
	fn := function(func(fn *v1alpha1.Function) {
		fn.Spec.Deps = `{"dependencies": {"ms": "2.1.3"}}`
		fn.Spec.Env = []corev1.EnvVar{{Name: "GREETING", Value: "hello"}}
		fn.Spec.Labels = map[string]string{"team": "a"}
		fn.Spec.MaxReplicas = new(int32(3))
		fn.Spec.Resources = corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		}
	})
	if got := planOf(fn).request.Tag; got != pinnedTag {
		t.Errorf("The tag of unchanged inputs is %s, and was %s.\n"+
			"With this every Function of every cluster is built again on upgrade. If that is meant, note it in docs/upgrading.md and set pinnedTag.", got, pinnedTag)
	}
	template, err := json.Marshal(knative.MakeService(fn, repo+"@"+digestA).Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(template)
	if got := hex.EncodeToString(hash[:])[:32]; got != pinnedTemplate {
		t.Errorf("The hash of the Service's template is %s, and was %s. The template:\n%s\n"+
			"With this every Function of every cluster gets a new revision on upgrade. If that is meant, note it in docs/upgrading.md and set pinnedTemplate.", got, pinnedTemplate, template)
	}
}
