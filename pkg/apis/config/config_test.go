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
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	. "knative.dev/pkg/configmap/testing"

	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// These stand for what ko makes of the references that are shipped.
const (
	kanikoImage  = "registry.example.com/kaniko@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	composeImage = "registry.example.com/compose@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func TestShippedFunctions(t *testing.T) {
	shipped, example := ConfigMapsFromTestFile(t, FunctionsConfigName)
	for name, configMap := range map[string]*corev1.ConfigMap{"shipped": shipped, "example": example} {
		got, err := NewFunctionsFromConfigMap(configMap)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(defaultFunctions(), got); diff != "" {
			t.Errorf("%s is not the default (-want +got):\n%s", name, diff)
		}
	}
}

func TestShippedBuild(t *testing.T) {
	shipped, example := ConfigMapsFromTestFile(t, BuildConfigName, kanikoImageKey, composeImageKey)
	want := defaultBuild()
	want.KanikoImage, want.ComposeImage = kanikoImage, composeImage
	for name, configMap := range map[string]*corev1.ConfigMap{"shipped": shipped, "example": example} {
		if _, err := NewBuildFromConfigMap(configMap); err == nil || !strings.Contains(err.Error(), "install Kiln with ko") {
			t.Errorf("%s: an unresolved reference gave %v", name, err)
		}
		configMap.Data[kanikoImageKey], configMap.Data[composeImageKey] = kanikoImage, composeImage
		got, err := NewBuildFromConfigMap(configMap)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is not the default (-want +got):\n%s", name, diff)
		}
	}
}

func TestShippedRuntimes(t *testing.T) {
	shipped, example := ConfigMapsFromTestFile(t, RuntimesConfigName, "dockerfile", "nodejs22", "nodejs24", "python313")
	want := Runtimes{
		"dockerfile": {Language: "dockerfile"},
		"nodejs22":   {BaseImage: "node:22-bookworm-slim", Language: "nodejs"},
		"nodejs24":   {BaseImage: "node:24-bookworm-slim", Language: "nodejs"},
		"python313":  {BaseImage: "python:3.13-slim-trixie", Language: "python"},
	}
	for name, configMap := range map[string]*corev1.ConfigMap{"shipped": shipped, "example": example} {
		got, err := NewRuntimesFromConfigMap(configMap)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, ok := want[defaultFunctions().DefaultRuntime]; !ok {
		t.Errorf("the default runtime %q is not shipped", defaultFunctions().DefaultRuntime)
	}
}

func TestShippedRegistry(t *testing.T) {
	shipped, example := ConfigMapsFromTestFile(t, RegistryConfigName)
	got, err := NewRegistryFromConfigMap(shipped)
	if err != nil {
		t.Fatal(err)
	}
	if got.Configured() {
		t.Errorf("the registry is configured as shipped: %+v", got)
	}
	got, err = NewRegistryFromConfigMap(example)
	if err != nil {
		t.Fatal(err)
	}
	const host = "registry.example.com:5000"
	want := &Registry{Push: host, Pull: host, Prefix: "functions", Insecure: []string{host}, Credentials: "kiln-registry-credentials", CheckInterval: 10 * time.Minute}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("example (-want +got):\n%s", diff)
	}
}

func TestFunctionsFromMap(t *testing.T) {
	got, err := NewFunctionsFromMap(map[string]string{
		"default-runtime":        " nodejs22 ",
		"default-min-replicas":   "1",
		"default-max-replicas":   "5",
		"default-cpu-request":    "",
		"default-memory-request": "128Mi",
		"default-cpu-limit":      "1",
		"default-timeout":        "1m30s",
		"max-source-size":        "1Ki",
		"default-empty-dir-size": "1Mi",
		"max-empty-dir-size":     "2Gi",

		"allowed-pod-annotations": "example.com/*, prometheus.io/scrape,",
		"allowed-pod-labels":      "",

		"serving":                 " kubernetes ",
		"kubernetes-max-replicas": "20",
		"public-domain":           "fn.example.com",
		"ingress-class":           "nginx",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &Functions{
		DefaultRuntime:     "nodejs22",
		DefaultMinReplicas: 1,
		DefaultMaxReplicas: 5,
		DefaultResources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("1"),
				corev1.ResourceMemory: resource.MustParse("256Mi"),
			},
		},
		DefaultTimeout: 90 * time.Second,
		MaxSourceBytes: 1024,

		DefaultEmptyDirBytes: 1 << 20,
		MaxEmptyDirBytes:     2 << 30,

		AllowedAnnotations: KeyPatterns{"example.com/*", "prometheus.io/scrape"},

		Server:         KubernetesServer,
		MostAutoscaled: 20,
		PublicDomain:   "fn.example.com",
		IngressClass:   "nginx",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestKeyPatterns(t *testing.T) {
	patterns := KeyPatterns{"example.com/*", "prometheus.io/scrape"}
	for key, want := range map[string]bool{
		"team":                 true,
		"example.com/any":      true,
		"example.com/":         true,
		"example.com":          true,
		"prometheus.io/scrape": true,
		"prometheus.io/port":   false,
		"a.example.com/any":    false,
		"Example.com/any":      false,
		"example.com/a/b":      true,
		"/any":                 false,
	} {
		if got := patterns.Allow(key); got != want {
			t.Errorf("Allow(%q) = %v", key, got)
		}
	}
}

func TestBuildFromMap(t *testing.T) {
	got, err := NewBuildFromMap(map[string]string{
		"kaniko-image": kanikoImage, "compose-image": composeImage, "builder": " job ", "timeout": "1h30m", "memory-limit": "", "cpu-limit": "2",
		"ephemeral-storage-request": "", "ephemeral-storage-limit": "20Gi", "max-ephemeral-storage": "8Gi",
		"max-cpu": "1", "max-memory": "", "package-registry-secret": "",
		"max-concurrent-builds": "20", "max-concurrent-builds-per-namespace": " ", "history-limit": "0", "follow-interval": "90s", "dependency-cache-key": " 2026-11-24 ",
		"follow-allowed-addresses": "10.1.2.3/8, fd00::/8",
		"priority-class-name":      "builds", "node-selector": "pool: builds\n\"kubernetes.io/arch\": amd64\n",
		"tolerations": `[{"key": "builds", "operator": "Exists", "effect": "NoSchedule"}]`,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := defaultBuild()
	want.KanikoImage, want.ComposeImage = kanikoImage, composeImage
	want.Builder = JobBuilder
	want.Timeout = 90 * time.Minute
	delete(want.Resources.Requests, corev1.ResourceEphemeralStorage)
	want.Resources.Limits = corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("2"),
		corev1.ResourceEphemeralStorage: resource.MustParse("20Gi"),
	}
	// Ceilings are not below the defaults.
	want.MaxTimeout = 90 * time.Minute
	want.MaxResources = corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("2"),
		corev1.ResourceEphemeralStorage: resource.MustParse("20Gi"),
	}
	want.PackageRegistrySecret = ""
	want.MaxConcurrent, want.MaxConcurrentPerNamespace, want.HistoryLimit = 20, 0, 0
	want.DependencyCacheKey = "2026-11-24"
	want.FollowInterval = 90 * time.Second
	want.FollowAllowedAddresses = "10.0.0.0/8,fd00::/8"
	want.PriorityClassName = "builds"
	want.NodeSelector = map[string]string{"pool": "builds", "kubernetes.io/arch": "amd64"}
	want.Tolerations = []corev1.Toleration{{Key: "builds", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFollowInterval(t *testing.T) {
	for _, never := range []string{"", " ", "0", "0s"} {
		got, err := NewBuildFromMap(map[string]string{"kaniko-image": kanikoImage, "compose-image": composeImage, "follow-interval": never})
		if err != nil || got.FollowInterval != 0 {
			t.Errorf("%q: %+v, %v", never, got, err)
		}
	}
}

func TestRuntimesFromMap(t *testing.T) {
	got, err := NewRuntimesFromMap(map[string]string{
		"_anything": "{",
		"nodejs24":  "{baseImage: 'localhost:5000/node:24', language: nodejs, deprecated: true}",
		"nodejs25":  "baseImage: node:25\nlanguage: nodejs\ndockerfile: |\n  FROM {{ .BaseImage }}\n",
		"bash":      "baseImage: bash\nlanguage: custom\ndockerfile: FROM bash\n",
		"go":        "baseImage: golang\nlanguage: custom\ndockerfile: FROM golang\nsourceFile: main.go\ndependencyFile: go.mod\nfiles: {a.go: package main}\n",
		"anything":  "language: dockerfile\ndeprecated: true\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Runtimes{
		"anything": {Language: "dockerfile", Deprecated: true},
		"nodejs24": {BaseImage: "localhost:5000/node:24", Language: "nodejs", Deprecated: true},
		"nodejs25": {BaseImage: "node:25", Language: "nodejs", Dockerfile: "FROM {{ .BaseImage }}\n"},
		"bash":     {BaseImage: "bash", Language: "custom", Dockerfile: "FROM bash"},
		"go": {
			BaseImage: "golang", Language: "custom", Dockerfile: "FROM golang",
			SourceFile: "main.go", DependencyFile: "go.mod", Files: map[string]string{"a.go": "package main"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"anything", "bash", "go", "nodejs24", "nodejs25"}, got.Names()); diff != "" {
		t.Errorf("Names (-want +got):\n%s", diff)
	}
	if got, err := NewRuntimesFromMap(nil); err != nil || got == nil || len(got) != 0 {
		t.Errorf("no data gave %#v, %v, want known and empty", got, err)
	}
}

// TestFindRuntime checks that an entry says itself what Kiln does not know.
func TestFindRuntime(t *testing.T) {
	tests := map[string]struct {
		runtime            Runtime
		sourceFile, depsAs string
		found              bool
	}{
		"known":     {Runtime{Language: "nodejs"}, "handler.js", "package.json", true},
		"custom":    {Runtime{Language: "custom"}, "handler", "", true},
		"its own":   {Runtime{Language: "custom", SourceFile: "main.go", DependencyFile: "go.mod"}, "main.go", "go.mod", true},
		"bring it":  {Runtime{Language: "dockerfile"}, "Dockerfile", "", true},
		"not known": {Runtime{Language: "cobol"}, "", "", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, found := tc.runtime.Find()
			if got.SourceFile != tc.sourceFile || got.DependencyFile != tc.depsAs || found != tc.found {
				t.Errorf("Find() = %q, %q, %v, want %q, %q, %v", got.SourceFile, got.DependencyFile, found, tc.sourceFile, tc.depsAs, tc.found)
			}
		})
	}
}

// TestLanguageOfANewerKiln checks that a language that is not known keeps no other
// runtime from being read, whatever its entry says.
func TestLanguageOfANewerKiln(t *testing.T) {
	got, err := NewRuntimesFromMap(map[string]string{
		"cobol85":  "language: cobol\ncopybooks: [a, b]\nfiles: none\n",
		"nodejs24": "baseImage: node:24\nlanguage: nodejs\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Runtimes{"cobol85": {Language: "cobol"}, "nodejs24": {BaseImage: "node:24", Language: "nodejs"}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := []string{`config-runtimes: this version of Kiln does not know the language "cobol" of runtime "cobol85" ` +
		"and builds no Function of it; it knows nodejs, python, custom, dockerfile"}
	if diff := cmp.Diff(want, got.Warnings()); diff != "" {
		t.Errorf("Warnings (-want +got):\n%s", diff)
	}
}

// TestErrors checks that an error names the ConfigMap, the key and the value.
func TestErrors(t *testing.T) {
	functions := func(data map[string]string) error { _, err := NewFunctionsFromMap(data); return err }
	runtimesOf := func(data map[string]string) error { _, err := NewRuntimesFromMap(data); return err }
	registry := func(data map[string]string) error { _, err := NewRegistryFromMap(data); return err }
	build := func(data map[string]string) error {
		for key, image := range map[string]string{kanikoImageKey: kanikoImage, composeImageKey: composeImage} {
			if _, ok := data[key]; !ok {
				data[key] = image
			}
		}
		_, err := NewBuildFromMap(data)
		return err
	}
	const (
		node   = "baseImage: node:24\nlanguage: nodejs\n"
		custom = "baseImage: bash\nlanguage: custom\n"
	)

	tests := map[string]struct {
		parse      func(map[string]string) error
		configMap  string
		key, value string
		more       map[string]string
		want       []string
	}{
		"runtime name":         {functions, FunctionsConfigName, "default-runtime", "Node 24", nil, []string{"Node 24"}},
		"blank runtime":        {functions, FunctionsConfigName, "default-runtime", " ", nil, []string{"required"}},
		"min not a number":     {functions, FunctionsConfigName, "default-min-replicas", "one", nil, []string{`"one"`, "whole number between 0 and 1000"}},
		"min negative":         {functions, FunctionsConfigName, "default-min-replicas", "-1", nil, []string{`"-1"`, "not between"}},
		"max beyond int32":     {functions, FunctionsConfigName, "default-max-replicas", "99999999999", nil, []string{`"99999999999"`}},
		"max too many":         {functions, FunctionsConfigName, "default-max-replicas", "1001", nil, []string{`"1001"`, "0 and 1000"}},
		"min above max":        {functions, FunctionsConfigName, "default-min-replicas", "3", map[string]string{"default-max-replicas": "2"}, []string{"default-max-replicas", "3", "2"}},
		"quantity":             {functions, FunctionsConfigName, "default-cpu-limit", "lots", nil, []string{`"lots"`, "quantity"}},
		"quantity zero":        {functions, FunctionsConfigName, "default-cpu-limit", "0", nil, []string{`"0"`, "more than zero"}},
		"request above limit":  {functions, FunctionsConfigName, "default-memory-request", "1Gi", nil, []string{"default-memory-limit", "1Gi", "256Mi"}},
		"annotations, all":     {functions, FunctionsConfigName, "allowed-pod-annotations", "*", nil, []string{`"*"`, "example.com/*"}},
		"annotations, a part":  {functions, FunctionsConfigName, "allowed-pod-annotations", "example.com/a*", nil, []string{`"example.com/a*"`}},
		"labels, subdomains":   {functions, FunctionsConfigName, "allowed-pod-labels", "a/b, *.example.com/x", nil, []string{`"*.example.com/x"`}},
		"labels, no prefix":    {functions, FunctionsConfigName, "allowed-pod-labels", "team", nil, []string{`"team"`}},
		"source size too big":  {functions, FunctionsConfigName, "max-source-size", "1Mi", nil, []string{`"1Mi"`, "1Ki and 936Ki"}},
		"timeout":              {functions, FunctionsConfigName, "default-timeout", "300", nil, []string{`"300"`, "duration"}},
		"timeout of 0":         {functions, FunctionsConfigName, "default-timeout", "0s", nil, []string{`"0s"`, "1s and 24h"}},
		"timeout too long":     {functions, FunctionsConfigName, "default-timeout", "25h", nil, []string{`"25h"`, "24h"}},
		"timeout in parts":     {functions, FunctionsConfigName, "default-timeout", "1500ms", nil, []string{`"1500ms"`, "seconds"}},
		"server unknown":       {functions, FunctionsConfigName, "serving", "deployment", nil, []string{`"deployment"`, "auto, knative, kubernetes"}},
		"no autoscaled pods":   {functions, FunctionsConfigName, "kubernetes-max-replicas", "0", nil, []string{"kubernetes-max-replicas", "at least 1"}},
		"not a domain":         {functions, FunctionsConfigName, "public-domain", "https://example.com", nil, []string{`"https://example.com"`}},
		"folder too small":     {functions, FunctionsConfigName, "max-empty-dir-size", "1Ki", nil, []string{`"1Ki"`, "1Mi and 1Ti"}},
		"folder above max":     {functions, FunctionsConfigName, "default-empty-dir-size", "5Gi", nil, []string{"default-empty-dir-size", "5Gi", "max-empty-dir-size", "4Gi"}},
		"source size negative": {functions, FunctionsConfigName, "max-source-size", "-1", nil, []string{`"-1"`}},

		"runtime key":        {runtimesOf, RuntimesConfigName, "Node", node, nil, []string{`"Node" is not the name`}},
		"unknown field":      {runtimesOf, RuntimesConfigName, "nodejs24", node + "image: x\n", nil, []string{`"image"`}},
		"field twice":        {runtimesOf, RuntimesConfigName, "nodejs24", node + "language: x\n", nil, []string{"language"}},
		"not YAML":           {runtimesOf, RuntimesConfigName, "nodejs24", "{", nil, nil},
		"not a mapping":      {runtimesOf, RuntimesConfigName, "nodejs24", "node:24", nil, nil},
		"base image missing": {runtimesOf, RuntimesConfigName, "nodejs24", "language: nodejs", nil, []string{"baseImage", "required"}},
		"base image bad":     {runtimesOf, RuntimesConfigName, "nodejs24", "baseImage: NODE:24\nlanguage: nodejs", nil, []string{"baseImage", "NODE:24"}},
		"language missing":   {runtimesOf, RuntimesConfigName, "nodejs24", "baseImage: node", nil, []string{"language", "required"}},
		"language blank":     {runtimesOf, RuntimesConfigName, "nodejs24", "baseImage: node\nlanguage: ''", nil, []string{"language", "required", "nodejs", "custom"}},
		"Dockerfile":         {runtimesOf, RuntimesConfigName, "nodejs24", "baseImage: node\nlanguage: nodejs\ndockerfile: FROM {{.Image}}", nil, []string{"dockerfile", "Image"}},
		"Dockerfile size":    {runtimesOf, RuntimesConfigName, "nodejs24", "baseImage: node\nlanguage: nodejs\ndockerfile: '" + strings.Repeat("#", 8<<10+1) + "'", nil, []string{"dockerfile", "8193", "8192"}},
		"custom Dockerfile":  {runtimesOf, RuntimesConfigName, "bash", "baseImage: bash\nlanguage: custom", nil, []string{"dockerfile", "required", "custom"}},
		"custom template":    {runtimesOf, RuntimesConfigName, "bash", custom + "dockerfile: FROM {{.Image}}", nil, []string{"dockerfile", "Image"}},
		"custom folder":      {runtimesOf, RuntimesConfigName, "bash", custom + "dockerfile: x\nsourceFile: a/b.sh", nil, []string{"sourceFile", "a/b.sh", "no folder"}},
		"custom deps":        {runtimesOf, RuntimesConfigName, "bash", custom + "dockerfile: x\ndependencyFile: .npmrc", nil, []string{"dependencyFile", ".npmrc"}},
		"custom file taken":  {runtimesOf, RuntimesConfigName, "bash", custom + "dockerfile: x\nfiles: {handler: x}", nil, []string{"files", `"handler"`, "sourceFile"}},
		"source file":        {runtimesOf, RuntimesConfigName, "nodejs24", node + "sourceFile: index.js", nil, []string{"sourceFile", "custom", "nodejs"}},
		"files":              {runtimesOf, RuntimesConfigName, "nodejs24", node + "files: {a: b}", nil, []string{"files", "custom", "nodejs"}},
		"base of none":       {runtimesOf, RuntimesConfigName, "any", "baseImage: bash\nlanguage: dockerfile", nil, []string{"baseImage", "dockerfile", "each Function has its own Dockerfile"}},
		"template of none":   {runtimesOf, RuntimesConfigName, "any", "dockerfile: FROM bash\nlanguage: dockerfile", nil, []string{"each Function has its own Dockerfile"}},
		"file of none":       {runtimesOf, RuntimesConfigName, "any", "sourceFile: Containerfile\nlanguage: dockerfile", nil, []string{"sourceFile", "each Function has its own Dockerfile"}},
		"empty value":        {runtimesOf, RuntimesConfigName, "nodejs24", "", nil, []string{"baseImage", "required"}},

		"blank image":     {build, BuildConfigName, "kaniko-image", " ", nil, []string{"required"}},
		"bad image":       {build, BuildConfigName, "kaniko-image", "a b", nil, []string{"a b"}},
		"bad timeout":     {build, BuildConfigName, "timeout", "15", nil, []string{`"15"`, "duration"}},
		"ceiling":         {build, BuildConfigName, "max-memory", "much", nil, []string{`"much"`, "quantity"}},
		"disk ceiling":    {build, BuildConfigName, "max-ephemeral-storage", "much", nil, []string{`"much"`, "quantity"}},
		"disk request":    {build, BuildConfigName, "ephemeral-storage-request", "5Gi", nil, []string{"5Gi", "ephemeral-storage-limit", "4Gi"}},
		"secret":          {build, BuildConfigName, "package-registry-secret", "A/b", nil, []string{`"A/b"`, "Secret"}},
		"short timeout":   {build, BuildConfigName, "timeout", "1s", nil, []string{`"1s"`, "10s"}},
		"long timeout":    {build, BuildConfigName, "timeout", "25h", nil, []string{`"25h"`, "24h"}},
		"builds at once":  {build, BuildConfigName, "max-concurrent-builds", "-1", nil, []string{`"-1"`, "0 and 10000"}},
		"in a namespace":  {build, BuildConfigName, "max-concurrent-builds-per-namespace", "few", nil, []string{`"few"`, "whole number"}},
		"cache key":       {build, BuildConfigName, "dependency-cache-key", strings.Repeat("x", 64), nil, []string{"64", "63"}},
		"builder":         {build, BuildConfigName, "builder", "pod", nil, []string{`"pod"`, "auto, tekton, job"}},
		"history":         {build, BuildConfigName, "history-limit", "101", nil, []string{`"101"`, "0 and 100"}},
		"hot interval":    {build, BuildConfigName, "follow-interval", "59s", nil, []string{`"59s"`, "1m0s"}},
		"no address":      {build, BuildConfigName, "follow-allowed-addresses", "git.local", nil, []string{`"git.local"`, "CIDR"}},
		"bad interval":    {build, BuildConfigName, "follow-interval", "often", nil, []string{`"often"`, "duration"}},
		"priority class":  {build, BuildConfigName, "priority-class-name", "Very High", nil, []string{`"Very High"`, "PriorityClass"}},
		"node selector":   {build, BuildConfigName, "node-selector", "{pool: 'a b'}", nil, []string{`a b`}},
		"not a selector":  {build, BuildConfigName, "node-selector", "pool=builds", nil, nil},
		"toleration":      {build, BuildConfigName, "tolerations", "[{key: a, operator: Is}]", nil, []string{"Is", "[0].operator", "Equal or Exists"}},
		"toleration typo": {build, BuildConfigName, "tolerations", "[{keys: a}]", nil, []string{"keys"}},
		"build resources": {build, BuildConfigName, "cpu-request", "2", map[string]string{"cpu-limit": "1"}, []string{"cpu-limit"}},

		"scheme":              {registry, RegistryConfigName, "push", "https://registry.example.com", nil, []string{"https://registry.example.com", "scheme"}},
		"path in host":        {registry, RegistryConfigName, "push", "ghcr.io/someone", nil, []string{"ghcr.io/someone", "prefix"}},
		"bare word":           {registry, RegistryConfigName, "push", "registry", nil, []string{`"registry"`, "registry:5000"}},
		"bad port":            {registry, RegistryConfigName, "push", "registry:port", nil, []string{`"registry:port"`}},
		"user in host":        {registry, RegistryConfigName, "push", "me@registry.example.com", nil, []string{"me@registry.example.com"}},
		"bad pull":            {registry, RegistryConfigName, "pull", "a b", map[string]string{"push": "localhost:5000"}, []string{`"a b"`}},
		"pull alone":          {registry, RegistryConfigName, "pull", "localhost:5000", nil, []string{"push"}},
		"prefix upper case":   {registry, RegistryConfigName, "prefix", "Mine", nil, []string{`"Mine"`}},
		"prefix climbs":       {registry, RegistryConfigName, "prefix", "../x", nil, []string{`"../x"`}},
		"prefix ends in dash": {registry, RegistryConfigName, "prefix", "a-/b", nil, []string{`"a-"`}},
		"prefix double slash": {registry, RegistryConfigName, "prefix", "a//b", nil, []string{`"a//b"`}},
		"prefix too long":     {registry, RegistryConfigName, "prefix", strings.Repeat("x", 128), nil, []string{"255"}},
		"credentials":         {registry, RegistryConfigName, "credentials", "My_Secret", nil, []string{`"My_Secret"`, "Secret"}},
		"bad insecure":        {registry, RegistryConfigName, "insecure", "localhost:5000, http://x", nil, []string{"http://x"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			data := map[string]string{test.key: test.value}
			maps.Copy(data, test.more)
			err := test.parse(data)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(test.want, test.configMap, test.key) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not contain %q: %v", want, err)
				}
			}
		})
	}
	if err := functions(map[string]string{"default-min-replicas": "3"}); err != nil {
		t.Errorf("a maximum of 0 is no limit, got %v", err)
	}
	for missing, data := range map[string]map[string]string{
		kanikoImageKey:  {composeImageKey: composeImage},
		composeImageKey: {kanikoImageKey: kanikoImage},
	} {
		if _, err := NewBuildFromMap(data); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("no %s gave %v", missing, err)
		}
	}
}

// TestLargestSourceFits checks that the largest source fits into a ConfigMap, beside
// a wrapper and the largest Dockerfile.
func TestLargestSourceFits(t *testing.T) {
	const limit = 1 << 20 // of Kubernetes
	for _, language := range runtimes.Languages() {
		runtime, _ := runtimes.For(language)
		files, err := runtime.BuildContext(runtimes.Function{
			Source:     strings.Repeat("x", mostSourceBytes),
			Dockerfile: strings.Repeat("#", runtimes.MaxDockerfileBytes),
		})
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, text := range files {
			size += len(text)
		}
		if size > limit {
			t.Errorf("%s: %d bytes, more than %d", language, size, limit)
		}
	}
}
