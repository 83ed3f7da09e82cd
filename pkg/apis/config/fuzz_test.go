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
	"knative.dev/pkg/configmap"
	"sigs.k8s.io/yaml"

	. "knative.dev/pkg/configmap/testing"
)

// configured returns the data of a ConfigMap without its long _example, whose mutations
// test nothing.
func configured(data map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range data {
		if key == configmap.ExampleKey {
			continue
		}
		kept[key] = ""
		for line := range strings.Lines(value) {
			if !strings.HasPrefix(strings.TrimSpace(line), "#") {
				kept[key] += line
			}
		}
	}
	return kept
}

// FuzzConfigMaps checks that every ConfigMap is accepted or rejected without a panic, and
// always with the same result. Accepted values must keep the bounds that the rest of Kiln
// relies on.
func FuzzConfigMaps(f *testing.F) {
	for name, keys := range map[string][]string{
		FunctionsConfigName: nil,
		BuildConfigName:     {kanikoImageKey, composeImageKey},
		RegistryConfigName:  nil,
		RuntimesConfigName:  {"dockerfile", "nodejs22", "nodejs24", "python313"},
	} {
		shipped, example := ConfigMapsFromTestFile(f, name, keys...)
		for _, configMap := range []*corev1.ConfigMap{shipped, example} {
			text, err := yaml.Marshal(configured(configMap.Data))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(text))
		}
	}
	f.Add("timeout: 1ms")
	f.Add("memory-limit: 9e99\nmax-memory: -1")
	f.Add("runtimes: {language: custom, dockerfile: \"FROM {{.BaseImage}\\n\"}")
	f.Add("x: |\n  language: dockerfile\n  deprecated: true")
	f.Add("x: |\n  language: nodejs\n  baseImage: \"a b\\nRUN c\"")
	f.Fuzz(func(t *testing.T, text string) {
		configMap := &corev1.ConfigMap{}
		if yaml.Unmarshal([]byte(text), &configMap.Data) != nil {
			return
		}
		again := configMap.DeepCopy()
		functions, err := NewFunctionsFromConfigMap(configMap)
		checkParsed(t, functions, err, func() (any, error) { return NewFunctionsFromConfigMap(again) })
		if err == nil && (functions.MaxSourceBytes < leastSourceBytes || functions.MaxSourceBytes > mostSourceBytes) {
			t.Errorf("max-source-size is %d", functions.MaxSourceBytes)
		}
		build, err := NewBuildFromConfigMap(configMap)
		checkParsed(t, build, err, func() (any, error) { return NewBuildFromConfigMap(again) })
		if err == nil && (build.Timeout <= 0 || build.Timeout > build.MaxTimeout) {
			t.Errorf("timeout is %s, max-timeout %s", build.Timeout, build.MaxTimeout)
		}
		registry, err := NewRegistryFromConfigMap(configMap)
		checkParsed(t, registry, err, func() (any, error) { return NewRegistryFromConfigMap(again) })
		runtimes, err := NewRuntimesFromConfigMap(configMap)
		checkParsed(t, runtimes, err, func() (any, error) { return NewRuntimesFromConfigMap(again) })
		for name, runtime := range runtimes {
			if strings.ContainsAny(runtime.BaseImage, " \t\r\n") {
				t.Errorf("runtime %s has base image %q", name, runtime.BaseImage)
			}
		}
		if diff := cmp.Diff(again, configMap); diff != "" {
			t.Errorf("to read it has changed it (-was, +is):\n%s", diff)
		}
	})
}

// checkParsed checks that parsing is deterministic, and that each rejection has a
// message.
func checkParsed(t *testing.T, got any, err error, again func() (any, error)) {
	t.Helper()
	second, secondErr := again()
	switch {
	case (err == nil) != (secondErr == nil):
		t.Errorf("read once: %v, and again: %v", err, secondErr)
	case err != nil && strings.TrimSpace(err.Error()) == "":
		t.Error("it is refused without a word")
	case err == nil:
		if diff := cmp.Diff(got, second); diff != "" {
			t.Errorf("read once and again (-once, +again):\n%s", diff)
		}
	}
}
