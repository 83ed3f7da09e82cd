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
	"context"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
)

// lookAhead starts the lookups that a build will need: of its base image, and of images
// that may replace the build. The registries answer while Kiln writes the ConfigMap.
func (r *Reconciler) lookAhead(fn *v1alpha1.Function, want plan, current gathered) {
	request := want.request
	if fn.Status.Build != nil {
		// The credentials are read later. They seldom change the decision.
		request.CredentialsVersion = fn.Status.Build.CredentialsVersion
	}
	if decision := builds.Decide(request, current.known); decision.Action == builds.Start {
		r.lookups.Ask(children.KeyOf(fn), lookupFor(want, decision))
	}
}

// lookUp returns what the registries hold, once they have answered. A Function that
// waits for a build slot keeps its condition meanwhile.
func (r *Reconciler) lookUp(fn *v1alpha1.Function, want plan, decision builds.Decision) (images.Found, bool) {
	lookup := lookupFor(want, decision)
	r.lookups.Ask(children.KeyOf(fn), lookup)
	found, answered := r.lookups.Answer(children.KeyOf(fn), lookup, true)
	if !answered && !isQueued(fn) {
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonCheckingRegistry,
			"Kiln looks up image %s:%s and its base image.", want.lookup.Name, want.request.Tag)
	}
	return found, answered
}

func lookupFor(want plan, decision builds.Decision) images.Lookup {
	lookup := want.lookup
	if !decision.Reuse {
		lookup.Image, lookup.Installed = v1alpha1.BuiltImage{}, v1alpha1.DependencyImage{}
	}
	return lookup
}

// tagVersion tags the deployed image with the Function's generation, unless the last tagged
// generation differs only in the number of pods. A failure does not fail the Function. While
// a change of the Service is still to be reported, the tag waits for that write of the status.
func (r *Reconciler) tagVersion(ctx context.Context, fn *v1alpha1.Function, before *v1alpha1.FunctionStatus) {
	if isTagged(fn) {
		r.taggings.Acknowledge(children.KeyOf(fn))
		return
	}
	tag := versionTag(fn)
	tagging := images.Tagging{Repository: repositoryOf(ctx, fn), Digest: digestIn(fn.Status.Image), Tag: tag}
	r.taggings.Ask(children.KeyOf(fn), tagging)
	settled := !fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).IsUnknown()
	_, done := r.taggings.Answer(children.KeyOf(fn), tagging, settled)
	if done && (settled || !equality.Semantic.DeepEqual(before, &fn.Status)) {
		fn.Status.VersionTag, fn.Status.VersionHash = tag, versionHash(fn)
	}
}

// isTagged reports whether the image has the tag of the generation, or needs none: an
// autoscaler makes many generations, which differ only in the number of pods.
func isTagged(fn *v1alpha1.Function) bool {
	last := fn.Status.VersionTag
	return last == versionTag(fn) || last != "" && fn.Status.VersionHash == versionHash(fn)
}

// versionHash returns a hash of the image and the spec, without the number of pods. The cache
// has no texts, which are in the image.
func versionHash(fn *v1alpha1.Function) string {
	spec := fn.Spec
	spec.Source, spec.Deps = "", ""
	spec.Replicas, spec.MinReplicas, spec.MaxReplicas = nil, nil, nil
	return podspec.Hash([]any{fn.Status.ImageTag, spec})
}

func versionTag(fn *v1alpha1.Function) string {
	return "g" + strconv.FormatInt(fn.Generation, 10)
}

func repositoryOf(ctx context.Context, fn *v1alpha1.Function) images.Repository {
	registry := config.FromContextOrDefaults(ctx).Registry
	return images.Repository{
		Name:        registry.PushRepository(fn.Namespace, fn.Name),
		Insecure:    registry.PushInsecure(),
		Credentials: registry.Credentials,
		Namespace:   fn.Namespace,
	}
}
