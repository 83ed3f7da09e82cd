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
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
)

// withFunctions returns a context with the data of a config-functions.
func withFunctions(t testing.TB, data map[string]string) context.Context {
	t.Helper()
	functions, err := config.NewFunctionsFromMap(data)
	if err != nil {
		t.Fatal(err)
	}
	return config.ToContext(t.Context(), &config.Config{Functions: functions})
}

// list makes a ResourceList of names and quantities in turn.
func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func resources(requests, limits corev1.ResourceList) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

var shipped = resources(list("cpu", "50m", "memory", "64Mi"), list("memory", "256Mi"))

func TestSetDefaults(t *testing.T) {
	bounded := map[string]string{"default-min-replicas": "2", "default-max-replicas": "4"}
	tests := map[string]struct {
		config   map[string]string
		in, want FunctionSpec
	}{
		"everything left out": {
			in: FunctionSpec{Source: "x"},
			want: FunctionSpec{
				Source: "x", Runtime: "nodejs24", MinReplicas: new(int32(0)), MaxReplicas: new(int32(0)), Resources: shipped,
			},
		},
		"everything said": {
			config: bounded,
			in: FunctionSpec{
				Runtime: "nodejs22", MinReplicas: new(int32(0)), MaxReplicas: new(int32(9)),
				TimeoutSeconds: new(int64(7)), Visibility: VisibilityPublic,
				Resources: resources(list("cpu", "1", "memory", "1Gi"), list("cpu", "2", "memory", "2Gi")),
			},
			want: FunctionSpec{
				Runtime: "nodejs22", MinReplicas: new(int32(0)), MaxReplicas: new(int32(9)),
				TimeoutSeconds: new(int64(7)), Visibility: VisibilityPublic,
				Resources: resources(list("cpu", "1", "memory", "1Gi"), list("cpu", "2", "memory", "2Gi")),
			},
		},
		"configured bounds": {
			config: bounded,
			in:     FunctionSpec{},
			want: FunctionSpec{
				Runtime: "nodejs24", MinReplicas: new(int32(2)), MaxReplicas: new(int32(4)), Resources: shipped,
			},
		},
		"a folder without a size": {
			config: map[string]string{"default-empty-dir-size": "1Mi"},
			in:     FunctionSpec{EmptyDirMounts: []EmptyDirMount{{MountPath: "/a"}, {MountPath: "/b", SizeLimit: new(resource.MustParse("2Mi"))}}},
			want: FunctionSpec{
				Runtime: "nodejs24", MinReplicas: new(int32(0)), MaxReplicas: new(int32(0)), Resources: shipped,
				EmptyDirMounts: []EmptyDirMount{{MountPath: "/a", SizeLimit: new(resource.MustParse("1Mi"))}, {MountPath: "/b", SizeLimit: new(resource.MustParse("2Mi"))}},
			},
		},
		"a minimum above the default maximum raises it": {
			config: bounded,
			in:     FunctionSpec{MinReplicas: new(int32(7))},
			want: FunctionSpec{
				Runtime: "nodejs24", MinReplicas: new(int32(7)), MaxReplicas: new(int32(7)), Resources: shipped,
			},
		},
		"a maximum below the default minimum lowers it": {
			config: bounded,
			in:     FunctionSpec{MaxReplicas: new(int32(1))},
			want: FunctionSpec{
				Runtime: "nodejs24", MinReplicas: new(int32(1)), MaxReplicas: new(int32(1)), Resources: shipped,
			},
		},
		"no maximum bounds nothing": {
			config: bounded,
			in:     FunctionSpec{MaxReplicas: new(int32(0))},
			want: FunctionSpec{
				Runtime: "nodejs24", MinReplicas: new(int32(2)), MaxReplicas: new(int32(0)), Resources: shipped,
			},
		},
		"a request above the default limit raises it": {
			in: FunctionSpec{Resources: resources(list("memory", "1Gi"), nil)},
			want: FunctionSpec{
				Runtime: "nodejs24", MinReplicas: new(int32(0)), MaxReplicas: new(int32(0)),
				Resources: resources(list("cpu", "50m", "memory", "1Gi"), list("memory", "1Gi")),
			},
		},
		"a limit below the default request lowers it": {
			in: FunctionSpec{Resources: resources(nil, list("cpu", "20m", "memory", "32Mi", "nvidia.com/gpu", "1"))},
			want: FunctionSpec{
				Runtime: "nodejs24", MinReplicas: new(int32(0)), MaxReplicas: new(int32(0)),
				Resources: resources(list("cpu", "20m", "memory", "32Mi"),
					list("cpu", "20m", "memory", "32Mi", "nvidia.com/gpu", "1")),
			},
		},
		"configured timeout": {
			config: map[string]string{"default-timeout": "1m30s"},
			in:     FunctionSpec{},
			want: FunctionSpec{
				Runtime: "nodejs24", MinReplicas: new(int32(0)), MaxReplicas: new(int32(0)), Resources: shipped,
				TimeoutSeconds: new(int64(90)),
			},
		},
		"no default resources": {
			config: map[string]string{
				"default-cpu-request": "", "default-memory-request": "", "default-memory-limit": "",
			},
			in:   FunctionSpec{},
			want: FunctionSpec{Runtime: "nodejs24", MinReplicas: new(int32(0)), MaxReplicas: new(int32(0))},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// Few of the rows are about these.
			if test.want.TimeoutSeconds == nil {
				test.want.TimeoutSeconds = new(int64(300))
			}
			if test.want.Visibility == "" {
				test.want.Visibility = VisibilityClusterLocal
			}
			ctx := apis.WithinCreate(withFunctions(t, test.config))
			fn := &Function{Spec: test.in}
			fn.SetDefaults(ctx)
			if diff := cmp.Diff(test.want, fn.Spec); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			fn.SetDefaults(ctx)
			if diff := cmp.Diff(test.want, fn.Spec); diff != "" {
				t.Errorf("the second time (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSetDefaultsOnUpdate edits a Function that has the defaults of its creation.
func TestSetDefaultsOnUpdate(t *testing.T) {
	tests := map[string]struct{ edit, want corev1.ResourceRequirements }{
		"nothing":                               {shipped, shipped},
		"a request within the default limit":    {resources(list("cpu", "50m", "memory", "128Mi"), list("memory", "256Mi")), resources(list("cpu", "50m", "memory", "128Mi"), list("memory", "256Mi"))},
		"a request above the default limit":     {resources(list("cpu", "50m", "memory", "1Gi"), list("memory", "256Mi")), resources(list("cpu", "50m", "memory", "1Gi"), list("memory", "1Gi"))},
		"a limit below the default request":     {resources(list("cpu", "50m", "memory", "64Mi"), list("memory", "32Mi")), resources(list("cpu", "50m", "memory", "32Mi"), list("memory", "32Mi"))},
		"a new limit below the default request": {resources(list("cpu", "50m", "memory", "64Mi"), list("cpu", "10m", "memory", "256Mi")), resources(list("cpu", "10m", "memory", "64Mi"), list("cpu", "10m", "memory", "256Mi"))},
		"both, against each other":              {resources(list("cpu", "50m", "memory", "1Gi"), list("memory", "512Mi")), resources(list("cpu", "50m", "memory", "1Gi"), list("memory", "512Mi"))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := &Function{}
			before.SetDefaults(t.Context())
			now := before.DeepCopy()
			now.Spec.Resources = *test.edit.DeepCopy()
			now.SetDefaults(apis.WithinUpdate(t.Context(), before))
			if diff := cmp.Diff(test.want, now.Spec.Resources); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}

	t.Run("a limit the author chose stays", func(t *testing.T) {
		before := &Function{Spec: FunctionSpec{Resources: resources(list("memory", "64Mi"), list("memory", "100Mi"))}}
		now := before.DeepCopy()
		now.Spec.Resources.Requests = list("memory", "1Gi")
		now.SetDefaults(apis.WithinUpdate(t.Context(), before))
		if diff := cmp.Diff(list("memory", "100Mi"), now.Spec.Resources.Limits); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestSetDefaultsLeavesAlone changes the configuration after a Function was
// accepted: that must not make a new revision of it.
func TestSetDefaultsLeavesAlone(t *testing.T) {
	accepted := &Function{}
	accepted.SetDefaults(apis.WithinCreate(withFunctions(t, nil)))
	changed := withFunctions(t, map[string]string{
		"default-cpu-limit": "1", "default-runtime": "nodejs22", "default-min-replicas": "3", "default-timeout": "1m",
	})
	withLimit := *accepted.Spec.DeepCopy()
	withLimit.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1")
	withLimit.Source = "edited"

	tests := map[string]struct {
		ctx  context.Context
		edit func(*Function)
		want FunctionSpec
	}{
		"in a reconcile":           {changed, func(*Function) {}, accepted.Spec},
		"in an update of metadata": {apis.WithinUpdate(changed, accepted), func(fn *Function) { fn.Labels = map[string]string{"a": "b"} }, accepted.Spec},
		"until the spec is edited": {apis.WithinUpdate(changed, accepted), func(fn *Function) { fn.Spec.Source = "edited" }, withLimit},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fn := accepted.DeepCopy()
			test.edit(fn)
			fn.SetDefaults(test.ctx)
			if diff := cmp.Diff(test.want, fn.Spec); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSetDefaultsAfterUpgrade shows a Function that was accepted when there was
// no timeout and no visibility yet.
func TestSetDefaultsAfterUpgrade(t *testing.T) {
	before := &Function{}
	before.SetDefaults(t.Context())
	before.Spec.TimeoutSeconds, before.Spec.Visibility = nil, ""

	now := before.DeepCopy()
	now.SetDefaults(t.Context())
	if diff := cmp.Diff(before, now); diff != "" {
		t.Errorf("a reconcile changes it (-want +got):\n%s", diff)
	}
	now.Labels = map[string]string{"a": "b"}
	now.SetDefaults(apis.WithinUpdate(t.Context(), before))
	if diff := cmp.Diff(before.Spec, now.Spec); diff != "" {
		t.Errorf("an edit of labels changes the spec (-want +got):\n%s", diff)
	}
	now.Spec.Source = "edited"
	now.SetDefaults(apis.WithinUpdate(t.Context(), before))
	if now.Spec.TimeoutSeconds == nil || now.Spec.Visibility == "" {
		t.Errorf("an edit of the spec does not complete it: %+v", now.Spec)
	}
}

func TestSetDefaultsOfStatusUpdate(t *testing.T) {
	fn := &Function{}
	fn.SetDefaults(apis.WithinSubResourceUpdate(t.Context(), &Function{}, "status"))
	if diff := cmp.Diff(&Function{}, fn); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSetDefaultsCopies checks that a Function does not share maps with the config.
func TestSetDefaultsCopies(t *testing.T) {
	ctx := withFunctions(t, nil)
	fn := &Function{}
	fn.SetDefaults(ctx)
	fn.Spec.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("1")
	if got := config.FromContext(ctx).Functions.DefaultResources; !cmp.Equal(shipped, got) {
		t.Errorf("the config changed to %v", got)
	}
}
