//go:build e2e

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

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	containerregistry "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// imageReused is the condition of a Function whose image was already in the registry.
var imageReused = apis.Condition{
	Type:   v1alpha1.FunctionConditionBuildReady,
	Status: corev1.ConditionTrue,
	Reason: v1alpha1.ReasonImageReused,
}

// TestSourceEditedBack checks that a return to an earlier source needs no build, and that
// the tag of each version names that version's image.
func TestSourceEditedBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(answering("A"))), test.Ready)
	imageA := fn.Status.Image
	e.wantVersion(fn)

	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("B") }), test.Ready)
	imageB := fn.Status.Image
	e.wantVersion(fn)
	e.wantBuilds(2)

	fn = e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("A") })
	fn, _ = e.untilCondition(fn, imageReused)
	fn = e.until(fn, test.Ready)
	e.wantAnswerSoon(fn, "A")
	e.wantBuilds(2)
	e.wantRevisions(3)
	if fn.Status.Image != imageA {
		e.Errorf("image is %s, want that of the first version, %s", fn.Status.Image, imageA)
	}
	e.wantVersion(fn)
	for generation, image := range map[int64]string{1: imageA, 2: imageB, 3: imageA} {
		e.wantTag(fn, fmt.Sprintf("g%d", generation), image)
	}
}

// TestForgedTags moves the tags of an image and of its dependencies to another image, as
// every tenant can who can push to the registry. Edits of the Function never use that image.
func TestForgedTags(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function(answering("A"))
	fn.Spec.Deps = `{"dependencies": {"ms": "2.1.3"}}`
	fn = e.until(e.create(fn), test.Ready)
	imageA, tagA := fn.Status.Image, fn.Status.ImageTag
	if len(fn.Status.DependencyImages) != 1 {
		e.Fatalf("dependencyImages are %v, want one", fn.Status.DependencyImages)
	}
	installed := fn.Status.DependencyImages[0]
	e.wantTag(fn, installed.Tag, "registry.example.com/fn@"+installed.Digest)

	setSource := func(text string) func(*v1alpha1.Function) {
		return func(fn *v1alpha1.Function) { fn.Spec.Source = answering(text) }
	}
	fn = e.until(e.edit(fn, setSource("forged")), test.Ready)
	forged := fn.Status.Image
	e.moveTag(fn, tagA, forged)
	e.moveTag(fn, installed.Tag, forged)

	fn = e.until(e.edit(fn, setSource("A")), test.Ready)
	e.wantAnswerSoon(fn, "A")
	if fn.Status.Image != imageA {
		e.Errorf("image is %s, want that of the first version, %s", fn.Status.Image, imageA)
	}
	e.wantBuilds(2)

	e.moveTag(fn, installed.Tag, forged)
	fn = e.until(e.edit(fn, setSource("C")), test.Ready)
	e.wantAnswerSoon(fn, "C")
	for _, build := range e.wantBuilds(3) {
		if reason := build.Annotations[serverless.BuildReasonAnnotationKey]; reason == builds.ReasonFirstBuild {
			continue
		}
		args := strings.Join(build.pushArgs, " ")
		if !strings.Contains(args, "--dependencies=") || !strings.Contains(args, "@"+installed.Digest) {
			e.Errorf("%s %s does not build on the dependencies that the first build pushed: %s", builder.name, build.Name, args)
		}
	}
}

// moveTag gives a tag in the Function's repository to another of its images.
func (e *env) moveTag(fn *v1alpha1.Function, tag, image string) {
	e.Helper()
	digest, err := name.NewDigest(image)
	if err != nil {
		e.Fatal(err)
	}
	manifest := e.askRegistry(fn, http.MethodGet, "manifests/"+digest.DigestStr(), api.Request{})
	put := api.Request{ContentType: manifest.ContentType, Body: []byte(manifest.Body)}
	if answer := e.askRegistry(fn, http.MethodPut, "manifests/"+tag, put); answer.Status != http.StatusCreated {
		e.Fatalf("the registry answers %+v", answer)
	}
	e.wantTag(fn, tag, image)
}

// TestAppliedAgain checks that a Function that is deleted and applied again is built
// again: no image that only a tag names is used.
func TestAppliedAgain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	first := e.until(e.create(function(answering("again"))), test.Ready)
	functions := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace)
	if err := functions.Delete(e.ctx, first.Name, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	if err := test.UntilEmpty(e.ctx, clients, e.namespace); err != nil {
		e.Fatal(err)
	}

	again := e.until(e.create(function(answering("again"))), test.Ready)
	e.wantAnswerSoon(again, "again")
	e.wantBuilds(2)
	e.wantVersion(again)
	if again.UID == first.UID || again.Status.Image != first.Status.Image {
		e.Errorf("image of %s is %s, want that of %s, %s", again.UID, again.Status.Image, first.UID, first.Status.Image)
	}
}

// TestVersionWithoutBuild checks that a generation without a build also gets its tag.
func TestVersionWithoutBuild(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(answering("tagged"))), test.Ready)
	image := fn.Status.Image
	fn = e.until(e.edit(fn, setEnv("A", "1")), test.Ready)
	e.wantVersion(fn)
	e.wantTag(fn, "g1", image)
	e.wantTag(fn, "g2", image)
	e.wantBuilds(1)
}

// TestRebuild checks that each new value of the annotation starts one build, even if the
// registry has the image. The tag of the version moves to the new image.
func TestRebuild(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := e.until(e.create(function(answering("built"))), test.Ready)
	e.wantVersion(fn)

	// An annotation does not change the generation.
	fn = e.edit(fn, requestRebuild("1"))
	fn = e.until(fn, answered("1"))
	fn = e.until(fn, test.Ready)
	e.wantRebuilds(2, 1)
	e.wantVersion(fn)

	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		requestRebuild("2")(fn)
		fn.Spec.Source = answering("edited")
	})
	fn = e.until(fn, test.Ready)
	e.wantAnswerSoon(fn, "edited")
	e.wantRebuilds(3, 2)

	// A request that was answered starts no other build.
	fn = e.until(e.edit(fn, setEnv("A", "1")), test.Ready)
	e.wantRebuilds(3, 2)
	e.wantVersion(fn)
}

// requestRebuild returns an edit that requests a rebuild.
func requestRebuild(value string) func(*v1alpha1.Function) {
	return func(fn *v1alpha1.Function) {
		fn.Annotations = map[string]string{serverless.RebuildAnnotationKey: value}
	}
}

// answered returns an error until the Function was built for that value of the annotation.
func answered(value string) func(*v1alpha1.Function) error {
	return func(fn *v1alpha1.Function) error {
		if b := fn.Status.Build; b == nil || b.Rebuild != value || b.CompletionTime == nil {
			return fmt.Errorf("the last build is %+v, want one for rebuild %s", b, value)
		}
		return nil
	}
}

// wantRebuilds checks the total number of builds and how many of them were requested.
func (e *env) wantRebuilds(all, requested int) {
	e.Helper()
	got := 0
	for _, build := range e.wantBuilds(all) {
		if build.Annotations[serverless.BuildReasonAnnotationKey] == builds.ReasonRebuildRequested {
			got++
		}
	}
	if got != requested {
		e.Errorf("%d builds were requested, want %d", got, requested)
	}
}

// wantVersion waits until the status names the Function's image by its version tag, and
// checks the tag in the registry.
func (e *env) wantVersion(fn *v1alpha1.Function) {
	e.Helper()
	want := fmt.Sprintf("g%d", fn.Generation)
	fn = e.until(fn, func(fn *v1alpha1.Function) error {
		if fn.Status.VersionTag != want {
			return fmt.Errorf("versionTag is %q, want %q", fn.Status.VersionTag, want)
		}
		return nil
	})
	e.wantTag(fn, want, fn.Status.Image)
}

// wantTag checks that a tag in the registry names an image.
func (e *env) wantTag(fn *v1alpha1.Function, tag, image string) {
	e.Helper()
	want, err := name.NewDigest(image)
	if err != nil {
		e.Fatal(err)
	}
	if got := e.digest(fn, tag); got != want.DigestStr() {
		e.Errorf("tag %s has digest %s, want %s", tag, got, want.DigestStr())
	}
}

// digest returns the digest of a tag in the registry.
func (e *env) digest(fn *v1alpha1.Function, tag string) string {
	e.Helper()
	digest, _, err := containerregistry.SHA256(strings.NewReader(e.fromRegistry(fn, "manifests/"+tag)))
	if err != nil {
		e.Fatal(err)
	}
	return digest.String()
}

// fromRegistry returns the response of the registry for a path in the Function's
// repository. It calls the registry from inside the cluster.
func (e *env) fromRegistry(fn *v1alpha1.Function, path string) string {
	e.Helper()
	answer := e.askRegistry(fn, http.MethodGet, path, api.Request{})
	if answer.Status != http.StatusOK {
		e.Fatalf("the registry answers %+v for %s", answer, path)
	}
	return answer.Body
}

// askRegistry sends the request for a path in the Function's repository.
func (e *env) askRegistry(fn *v1alpha1.Function, method, path string, request api.Request) api.Answer {
	e.Helper()
	cm, err := clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace).Get(e.ctx, config.RegistryConfigName, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	registry, err := config.NewRegistryFromConfigMap(cm)
	if err != nil {
		e.Fatal(err)
	}
	var options []name.Option
	if registry.PushInsecure() {
		options = append(options, name.Insecure)
	}
	repository, err := name.NewRepository(registry.PushRepository(e.namespace, fn.Name), options...)
	if err != nil {
		e.Fatal(err)
	}
	request.Method = method
	request.URL = fmt.Sprintf("%s://%s/v2/%s/%s", repository.Scheme(), repository.RegistryStr(), repository.RepositoryStr(), path)
	request.Accept = fmt.Sprintf("%s, %s, %s", types.OCIManifestSchema1, types.DockerManifestSchema2, types.OCIImageIndex)
	answer, err := relay.Call(e.ctx, request)
	if err != nil {
		e.Fatal(err)
	}
	if answer.Status == http.StatusUnauthorized {
		e.Skip("the registry shows what it has to nobody without credentials")
	}
	return answer
}
