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
	"strings"
	"testing"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// withDockerfile gives the Function its own Dockerfile.
func withDockerfile(revision string) functionOption {
	return func(fn *v1alpha1.Function) {
		fn.Spec.Runtime, fn.Spec.Source = "any", ""
		fn.Spec.Git = &v1alpha1.GitSource{URL: "https://example.com/a.git", Revision: revision}
	}
}

func dockerfileConfig() *config.Config {
	return testConfig(func(cfg *config.Config) { cfg.Runtimes["any"] = config.Runtime{Language: "dockerfile"} })
}

// TestPlanOfDockerfile checks that the build fetches everything, and that nobody looks up a
// base image that only the Dockerfile names.
func TestPlanOfDockerfile(t *testing.T) {
	ctx := config.ToContext(t.Context(), dockerfileConfig())
	tags := map[string]bool{}
	for revision, reuses := range map[string]bool{"main": false, strings.Repeat("1", 40): true, strings.Repeat("2", 40): true} {
		fn := function(withDockerfile(revision))
		want, ok := makePlan(ctx, fn)
		if !ok {
			t.Fatalf("there is no plan: %v", fn.Status.Conditions)
		}
		fn.Status.BuiltImages = []v1alpha1.BuiltImage{{Tag: want.request.Tag, Digest: digestA}}
		want, _ = makePlan(ctx, fn)
		if len(want.files) > 0 || len(want.installFiles) > 0 {
			t.Errorf("the ConfigMap has %v", want.files)
		}
		if want.lookup.Base != "" || want.lookup.Dependencies != "" || (want.lookup.Image.Digest != "") != reuses {
			t.Errorf("revision %s: the registry is asked for %+v", revision, want.lookup)
		}
		tags[want.request.Tag] = true
	}
	if len(tags) != 3 {
		t.Errorf("three sources have the tags %v", tags)
	}
	for name, fn := range map[string]*v1alpha1.Function{
		"found by the webhook": function(withRuntime("any")),
		"a runtime that was changed since": function(withRuntime("any"), func(fn *v1alpha1.Function) {
			fn.Status.AcceptedGeneration = fn.Generation
		}),
	} {
		_, ok := makePlan(ctx, fn)
		condition := fn.Status.GetCondition(v1alpha1.FunctionConditionConfigurationReady)
		if ok || condition.GetReason() != v1alpha1.ReasonInvalidSpec || !strings.Contains(condition.GetMessage(), "put them into spec.git or spec.archive") {
			t.Errorf("%s: ConfigurationReady is %+v", name, condition)
		}
	}
}
