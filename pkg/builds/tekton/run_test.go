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

package tekton

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
)

// TestDigestsOfRun checks that the cached TaskRun has the digests that later builds
// trust, and that other results are ignored.
func TestDigestsOfRun(t *testing.T) {
	a, b, c := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64), "sha256:"+strings.Repeat("c", 64)
	object := func(name string, properties map[string]string) pipelinev1.TaskRunResult {
		return pipelinev1.TaskRunResult{Name: name, Type: pipelinev1.ResultsTypeObject, Value: *pipelinev1.NewObject(properties)}
	}
	base := object(steps.BaseImageResult, map[string]string{"uri": "oci://node", "digest": b})
	for name, tc := range map[string]struct {
		results   []pipelinev1.TaskRunResult
		base      string
		installed v1alpha1.DependencyImage
	}{
		"nothing was installed": {results: []pipelinev1.TaskRunResult{base}, base: b},
		"dependencies": {
			results:   []pipelinev1.TaskRunResult{base, object(steps.DependenciesResult, map[string]string{"tag": "deps-1", "digest": c, "packages": a})},
			base:      b,
			installed: v1alpha1.DependencyImage{Tag: "deps-1", Digest: c, PackagesDigest: a},
		},
		"no list of packages": {
			results:   []pipelinev1.TaskRunResult{object(steps.DependenciesResult, map[string]string{"tag": "deps-1", "digest": c, "packages": ""})},
			installed: v1alpha1.DependencyImage{Tag: "deps-1", Digest: c},
		},
		"no digests": {results: []pipelinev1.TaskRunResult{
			object(steps.BaseImageResult, map[string]string{"digest": "latest"}),
			object(steps.DependenciesResult, map[string]string{"tag": "deps-1", "digest": "sha256:1@" + c}),
		}},
		"no tag": {results: []pipelinev1.TaskRunResult{object(steps.DependenciesResult, map[string]string{"digest": c})}},
		"texts": {results: []pipelinev1.TaskRunResult{
			{Name: steps.BaseImageResult, Value: *pipelinev1.NewStructuredValues(b)}, {Name: steps.DependenciesResult, Value: *pipelinev1.NewStructuredValues(c)},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &pipelinev1.TaskRun{}
			tr.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: corev1.ConditionTrue})
			tr.Status.Results = append(tc.results, pipelinev1.TaskRunResult{Name: steps.ImageDigestResult, Value: *pipelinev1.NewStructuredValues(a)})
			slimmed, err := Slim(tr)
			if err != nil {
				t.Fatal(err)
			}
			run := RunOf(slimmed.(*pipelinev1.TaskRun))
			if run.Digest != a || run.BaseDigest != tc.base {
				t.Errorf("the image is %q on %q, want %q on %q", run.Digest, run.BaseDigest, a, tc.base)
			}
			if diff := cmp.Diff(tc.installed, run.Installed); diff != "" {
				t.Errorf("dependencies (-want, +got):\n%s", diff)
			}
		})
	}
}
