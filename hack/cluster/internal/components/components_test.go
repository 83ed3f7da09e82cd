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

package components

import (
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kiln-dev/kiln/hack/cluster/internal/baseimages"
	"github.com/kiln-dev/kiln/hack/cluster/internal/cache"
	"github.com/kiln-dev/kiln/hack/cluster/internal/env"
)

const stream = `# A comment.
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: worker}
spec:
  template:
    spec:
      containers:
      - name: worker
        args: ["-shell-image", "upstream", "-other"]
        resources:
          requests: {cpu: 300m, memory: 100Mi}
          limits: {cpu: "1", memory: 600Mi}
        readinessProbe:
          httpGet: {port: 8012}
          initialDelaySeconds: 5
---
---
kind: ConfigMap
metadata: {name: config-network}
data:
  text: |
    a
     --- not a separator
---
kind: CustomResourceDefinition
metadata: {name: things}
---
kind: Namespace
metadata: {name: here}
`

func mustDecode(t *testing.T, text string) []object {
	t.Helper()
	objects, err := decode([]byte(text))
	if err != nil {
		t.Fatal("decode() =", err)
	}
	return objects
}

func TestDecodeInOrder(t *testing.T) {
	var got []string
	for _, o := range inOrder(mustDecode(t, stream)) {
		got = append(got, o.kind()+"/"+o.name())
	}
	want := []string{"Namespace/here", "CustomResourceDefinition/things", "ConfigMap/config-network", "Deployment/worker"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("order (-want, +got):", diff)
	}
}

func TestDecodeFails(t *testing.T) {
	if _, err := decode([]byte("a: b: c")); err == nil {
		t.Error("decode() succeeded")
	}
}

func TestEncodeRoundTrip(t *testing.T) {
	want := mustDecode(t, stream)
	data, err := encode(want)
	if err != nil {
		t.Fatal("encode() =", err)
	}
	if diff := cmp.Diff(want, mustDecode(t, string(data))); diff != "" {
		t.Error("round trip (-want, +got):", diff)
	}
}

func TestStages(t *testing.T) {
	m := manifests{objects: mustDecode(t, stream)}
	if got := len(m.until(afterDefinitions)); got != 2 {
		t.Errorf("until() has %d objects, want 2", got)
	}
	if got := len(m.from(afterDefinitions)); got != 2 {
		t.Errorf("from() has %d objects, want 2", got)
	}
}

func TestSlim(t *testing.T) {
	o := mustDecode(t, stream)[0]
	slim(o)
	c := o.containers()[0]
	want := map[string]any{
		"requests": map[string]any{"cpu": "50m", "memory": "32Mi"},
		"limits":   map[string]any{"memory": "600Mi"},
	}
	if diff := cmp.Diff(want, c["resources"]); diff != "" {
		t.Error("resources (-want, +got):", diff)
	}
	if got := at(c, "startupProbe", "httpGet"); got == nil {
		t.Error("there is no startup probe")
	}
	if got := at(c, "readinessProbe", "initialDelaySeconds"); got != nil {
		t.Errorf("initialDelaySeconds = %v, want none", got)
	}
}

func TestEdits(t *testing.T) {
	objects := mustDecode(t, stream)
	tekton.edit(objects[0], &baseimages.Set{Debian: "ours"})
	want := []any{"-shell-image", "ours", "-other"}
	if diff := cmp.Diff(want, objects[0].containers()[0]["args"]); diff != "" {
		t.Error("args (-want, +got):", diff)
	}
	serving.edit(objects[1], nil)
	if got := text(objects[1], "data", "ingress-class"); got != ingressClass {
		t.Errorf("ingress-class = %q, want %q", got, ingressClass)
	}
	if got := text(objects[1], "data", "text"); !strings.Contains(got, "not a separator") {
		t.Errorf("text = %q", got)
	}
}

func TestReferences(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	got := references([]byte(`
image: localhost:5001/tekton/nop`+digest+`
other: localhost:5001/tekton/nop`+digest+`
args: ["-image", "localhost:5001/a/b`+digest+`", "-win", "mcr.example.com/x`+digest+`"]`), "localhost:5001")
	want := []string{"localhost:5001/a/b" + digest, "localhost:5001/tekton/nop" + digest}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("references (-want, +got):", diff)
	}
}

func TestCatalog(t *testing.T) {
	for _, c := range slices.Concat(of(env.Knative), of(env.Plain)) {
		if c.sample == "" {
			continue
		}
		if _, err := decode([]byte(c.sample)); err != nil {
			t.Errorf("sample of %s: %v", c.name, err)
		}
	}
	objects, err := traefik.sources[0].read(t.Context(), "../../../../third_party/traefik")
	if err != nil {
		t.Fatal("read() =", err)
	}
	if got := namesOf(objects, "Deployment"); len(got) != 1 {
		t.Errorf("Traefik has Deployments %v", got)
	}
}

func TestFiles(t *testing.T) {
	store, err := cache.At(t.TempDir())
	if err != nil {
		t.Fatal("At() =", err)
	}
	cluster := &env.Cluster{
		Host:     env.Host{Root: "/it's here", Store: store, Arch: "amd64"},
		Kubectl:  "kubectl",
		Kind:     "/cache/kind/kind",
		Registry: env.Registry{Push: "localhost:5001", Pods: "registry.local:5000", Nodes: "registry.local:5000"},
	}
	built := &Built{Ko: "/cache/ko/ko", Base: &baseimages.Set{Static: "localhost:5001/static", Node: map[string]string{
		"24": "localhost:5001/kiln-base/node@sha256:24",
	}}}
	got := string(environment(cluster, built))
	for _, want := range []string{
		`export KUBECONFIG='/it'\''s here/build/cluster/kubeconfig'`,
		`export KO_DOCKER_REPO='localhost:5001/kiln'`,
		`export PATH='/cache/ko:/cache/kind':"$PATH"`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("environment lacks %s:\n%s", want, got)
		}
	}

	files, err := overlayOf(cluster.Registry, built)
	if err != nil {
		t.Fatal("overlayOf() =", err)
	}
	push := mustDecode(t, string(files["config-registry.yaml"]))[0]
	if got := text(push, "data", "push"); got != "registry.local:5000" {
		t.Errorf("push = %q", got)
	}
	runtimes := mustDecode(t, string(files["config-runtimes.yaml"]))[0]
	if got := text(runtimes, "data", "nodejs24"); !strings.HasPrefix(got, "baseImage: registry.local:5000/kiln-base/node@") {
		t.Errorf("nodejs24 = %q", got)
	}
	functions := mustDecode(t, string(files["config-functions.yaml"]))[0]
	if got := text(functions, "data", "default-cpu-request"); got != "20m" {
		t.Errorf("default-cpu-request = %q", got)
	}
	if !strings.Contains(string(files["kustomization.yaml"]), "path: config-runtimes.yaml") {
		t.Errorf("kustomization = %s", files["kustomization.yaml"])
	}
}

func TestHosting(t *testing.T) {
	got := hostingOf(env.Registry{Push: "localhost:5001", Pods: "registry.local:5000", Nodes: "registry.local:5000"})
	want := "host: \"localhost:5001\"\nhostFromContainerRuntime: \"registry.local:5000\"\nhostFromClusterNetwork: \"registry.local:5000\"\n"
	if text := text(got, "data", "localRegistryHosting.v1"); text != want {
		t.Errorf("the registry is told of as %q, want %q", text, want)
	}
}

func TestRetry(t *testing.T) {
	calls := 0
	if err := retry(t.Context(), func() error {
		calls++
		if calls < 2 {
			return errors.New("not yet")
		}
		return nil
	}); err != nil || calls != 2 {
		t.Errorf("retry() = %v after %d calls", err, calls)
	}
}

func TestCachedMakesAgainWhatTheRegistryLost(t *testing.T) {
	store, err := cache.At(t.TempDir())
	if err != nil {
		t.Fatal("At() =", err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	b := &builder{host: &env.Host{Store: store}, registry: env.Registry{Push: address}}

	repo, err := name.NewRepository(address + "/tekton/nop")
	if err != nil {
		t.Fatal("NewRepository() =", err)
	}
	digest, err := empty.Image.Digest()
	if err != nil {
		t.Fatal("Digest() =", err)
	}
	builds := 0
	build := func() (string, error) {
		builds++
		// This registry keeps the tag of a deleted manifest, so each push has its own
		// tag.
		return "image: " + repo.Digest(digest.String()).Name() + "\n", remote.Write(repo.Tag(strconv.Itoa(builds)), empty.Image)
	}
	for _, step := range []struct {
		name string
		do   func() error
		want int
	}{
		{"nothing cached", func() error { return nil }, 1},
		{"cached", func() error { return nil }, 1},
		{"image lost", func() error { return remote.Delete(repo.Digest(digest.String())) }, 2},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if _, err := b.cached(t.Context(), io.Discard, "key", build); err != nil {
			t.Fatalf("%s: cached() = %v", step.name, err)
		}
		if builds != step.want {
			t.Errorf("%s: builds = %d, want %d", step.name, builds, step.want)
		}
	}
}

func TestAdapt(t *testing.T) {
	b := &builder{base: &baseimages.Set{Debian: "localhost:5001/debian"}, registry: env.Registry{Push: "localhost:5001", Nodes: "registry.local:5000"}}
	m, err := b.adapt(tekton, []byte(stream+"---\nkind: HorizontalPodAutoscaler\nmetadata: {name: worker}\n"))
	if err != nil {
		t.Fatal("adapt() =", err)
	}
	if len(m.objects) != 4 {
		t.Errorf("objects = %d, want 4: no autoscaler", len(m.objects))
	}
	want := []any{"-shell-image", "registry.local:5000/debian", "-other"}
	if diff := cmp.Diff(want, m.objects[3].containers()[0]["args"]); diff != "" {
		t.Error("args (-want, +got):", diff)
	}
}
