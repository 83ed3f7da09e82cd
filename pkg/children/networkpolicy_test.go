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

package children_test

import (
	"os"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// TestBuildNetworkPolicy checks that the example is a policy for the pods of builds,
// which have the labels of their TaskRuns, and for no others.
func TestBuildNetworkPolicy(t *testing.T) {
	data, err := os.ReadFile("../../examples/build-network-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policy := &networkingv1.NetworkPolicy{}
	if err := yaml.UnmarshalStrict(data, policy); err != nil {
		t.Fatal(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	if !selector.Matches(labels.Set(tekton.MakeTaskRun(stored("greeter"), fuzzConfig(t), builds.Spec{Request: builds.Request{Tag: tag}}).Labels)) {
		t.Errorf("%s does not select builds", selector)
	}
	if selector.Matches(labels.Set(knative.MakeService(stored("greeter"), image).Spec.Template.Labels)) {
		t.Errorf("%s selects functions", selector)
	}
	if len(policy.Spec.Ingress) > 0 || len(policy.Spec.PolicyTypes) != 2 {
		t.Errorf("the policy lets others in, or is not of both directions: %+v", policy.Spec)
	}
	for _, rule := range policy.Spec.Egress {
		if len(rule.To) == 0 || len(rule.Ports) == 0 {
			t.Errorf("a rule is for everything: %+v", rule)
		}
	}
}
