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

package job

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/steps/stepstest"
)

// TestMakeJob checks each byte of the Jobs. A difference means that the builds of an
// upgraded Kiln differ.
func TestMakeJob(t *testing.T) {
	stepstest.CheckGolden(t, MakeJob)
}

// TestIsolation checks that the container that runs the author's code comes before the one
// that reports, and sees neither credentials nor a token.
func TestIsolation(t *testing.T) {
	fn := stepstest.Function(func(fn *v1alpha1.Function) {
		fn.Spec.Git = &v1alpha1.GitSource{URL: "https://example.com/a.git", SecretName: "store"}
	})
	build := stepstest.Build()
	build.Credentials = &corev1.Secret{}
	build.Credentials.Name = "registry"
	job := MakeJob(fn, stepstest.Config(), build)
	spec := job.Spec.Template.Spec

	mounted := map[string][]string{}
	var order []string
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		order = append(order, c.Name)
		for _, mount := range c.VolumeMounts {
			mounted[c.Name] = append(mounted[c.Name], mount.Name)
		}
	}
	want := map[string][]string{
		"fetch": {"context", "work", "source-credentials"}, "install": {"kaniko", "layers", "work"}, "push": {"work", "layers", "credentials"},
	}
	if diff := cmp.Diff(want, mounted); diff != "" {
		t.Errorf("mounted volumes (-want, +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"fetch", "install", "push"}, order); diff != "" {
		t.Errorf("order (-want, +got):\n%s", diff)
	}
	if *spec.AutomountServiceAccountToken || *spec.EnableServiceLinks || spec.ShareProcessNamespace != nil {
		t.Errorf("the pod is not isolated: %+v", spec)
	}
	if got := job.Spec.Template.Labels[serverless.FunctionUIDLabelKey]; got != "uid" {
		t.Errorf("the cache of Pods does not hold the pod of Function %q", got)
	}
}
