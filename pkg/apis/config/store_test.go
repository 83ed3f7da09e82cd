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

package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	. "knative.dev/pkg/configmap/testing"
	"knative.dev/pkg/depcheck"
	logtesting "knative.dev/pkg/logging/testing"
)

func TestStore(t *testing.T) {
	var seen []string
	store := NewStore(logtesting.TestLogger(t), func(name string, _ any) { seen = append(seen, name) })

	functions := ConfigMapFromTestFile(t, FunctionsConfigName)
	runtimes := ConfigMapFromTestFile(t, RuntimesConfigName, "dockerfile", "nodejs22", "nodejs24", "python313")
	registry := ConfigMapFromTestFile(t, RegistryConfigName)
	build := ConfigMapFromTestFile(t, BuildConfigName, kanikoImageKey, composeImageKey)
	build.Data[kanikoImageKey], build.Data[composeImageKey] = kanikoImage, composeImage
	for _, configMap := range []*corev1.ConfigMap{functions, runtimes, registry, build} {
		store.OnConfigChanged(configMap)
	}
	if len(seen) != 4 {
		t.Errorf("onAfterStore was called for %v", seen)
	}

	want := &Config{
		Functions: must(NewFunctionsFromConfigMap(functions)),
		Runtimes:  must(NewRuntimesFromConfigMap(runtimes)),
		Registry:  must(NewRegistryFromConfigMap(registry)),
		Build:     must(NewBuildFromConfigMap(build)),
	}
	got := FromContext(store.ToContext(t.Context()))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}

	// A caller's changes of its copy must not reach the next caller.
	got.Functions.DefaultResources.Limits[corev1.ResourceMemory] = resource.MustParse("1")
	got.Runtimes["mine"] = Runtime{}
	if diff := cmp.Diff(want, store.Load()); diff != "" {
		t.Errorf("the copy is not deep (-want +got):\n%s", diff)
	}

	// A bad update keeps the last good value.
	bad := functions.DeepCopy()
	bad.Data = map[string]string{"default-min-replicas": "x"}
	store.OnConfigChanged(bad)
	if diff := cmp.Diff(want, store.Load()); diff != "" {
		t.Errorf("after a bad update (-want +got):\n%s", diff)
	}
}

func TestCheck(t *testing.T) {
	tests := map[string]struct{ good, bad map[string]string }{
		FunctionsConfigName: {nil, map[string]string{"default-min-replicas": "x"}},
		RuntimesConfigName:  {nil, map[string]string{"nodejs24": "language: nodejs"}},
		BuildConfigName:     {map[string]string{kanikoImageKey: kanikoImage, composeImageKey: composeImage}, nil},
		RegistryConfigName:  {nil, map[string]string{"push": "no host"}},
	}
	for name := range Constructors() {
		t.Run(name, func(t *testing.T) {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
			cm.Data = tests[name].good
			if err := Check(cm); err != nil {
				t.Errorf("Check(good) = %v", err)
			}
			cm.Data = tests[name].bad
			if err := Check(cm); err == nil || !strings.Contains(err.Error(), "ConfigMap "+name+": ") {
				t.Errorf("Check(bad) = %v, want an error that tells which ConfigMap it is", err)
			}
		})
	}
	if err := Check(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}}); err != nil {
		t.Errorf("Check(somebody else's) = %v", err)
	}
}

func TestFromContextOrDefaults(t *testing.T) {
	if cfg := FromContext(t.Context()); cfg != nil {
		t.Errorf("FromContext of a bare context = %v", cfg)
	}
	want := &Config{Functions: defaultFunctions(), Build: defaultBuild(), Registry: &Registry{}}
	if diff := cmp.Diff(want, FromContextOrDefaults(t.Context())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	own := &Config{Registry: &Registry{Push: "localhost:5000"}}
	want.Registry = own.Registry
	if diff := cmp.Diff(want, FromContextOrDefaults(ToContext(t.Context(), own))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if own.Functions != nil {
		t.Error("FromContextOrDefaults changed the Config in the context")
	}
}

// TestDependencies keeps Tekton, Serving and clients out of what the API needs.
func TestDependencies(t *testing.T) {
	depcheck.AssertNoDependency(t, map[string][]string{
		"github.com/kiln-dev/kiln/pkg/apis/config": {
			"github.com/tektoncd/pipeline",
			"knative.dev/serving",
			"k8s.io/client-go/kubernetes",
		},
	})
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
