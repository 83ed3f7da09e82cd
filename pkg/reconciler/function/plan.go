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
	"strings"

	corev1 "k8s.io/api/core/v1"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
)

// plan is the desired image, derived from the Function and the configuration. It is
// immutable: each phase that learns more makes a copy.
type plan struct {
	// request is the desired image.
	request builds.Request

	// lookup finds the image in the registry.
	lookup images.Lookup

	// files has the digests of the files of the build context, and installFiles those of
	// the files that the install step may read.
	files, installFiles map[string]string

	// runtime is the Function's runtime, and image what else the files depend on.
	runtime runtimes.Runtime
	image   runtimes.Function

	// credentials is the Secret with the namespace's registry credentials, or nil.
	credentials *corev1.Secret

	// withheld is why the namespace must not have registry credentials, or nil.
	withheld error
}

func (p plan) withCommit(commit string) plan {
	p.request.Commit = commit
	return p
}

func (p plan) withCredentials(secret *corev1.Secret, version string) plan {
	p.credentials = secret
	p.request.CredentialsVersion = version
	return p
}

// makePlan returns the plan. If the Function or the configuration is invalid, it returns
// false, and a condition says what to fix.
func makePlan(ctx context.Context, fn *v1alpha1.Function) (plan, bool) {
	cfg := config.FromContextOrDefaults(ctx)
	configured, runtime, ok := runtimeOf(cfg, fn)
	if !ok || !accept(ctx, fn) {
		return plan{}, false
	}
	if !cfg.Registry.Configured() {
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonRegistryNotConfigured,
			"No registry is configured. Set push in the ConfigMap config-registry.")
		return plan{}, false
	}
	image := runtimes.Function{BaseImage: configured.BaseImage, Dockerfile: configured.Dockerfile, Fetched: fn.Spec.IsFetched()}
	files, err := runtime.ContextDigests(image, fn.TextDigests())
	if err != nil {
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "%s", err.Error())
		return plan{}, false
	}
	inputs := builds.Inputs{
		Repository:     cfg.Registry.PushImage(fn.Namespace, fn.Name, ""),
		Runtime:        fn.Spec.Runtime,
		BaseImage:      configured.BaseImage,
		Dockerfile:     configured.Dockerfile,
		SourceFile:     runtime.SourceFile,
		DependencyFile: runtime.DependencyFile,
		LockFile:       runtime.LockFile,
		Files:          files,
		Fetched:        fetchedSource(fn),
	}
	tag := inputs.Tag()
	dependencies := inputs.Dependencies(cfg.Build.DependencyCacheKey, installEnvironment(fn)...)
	return plan{
		request: builds.Request{
			Tag:         tag,
			Fingerprint: inputs.Fingerprint(),
			Rebuild:     fn.Annotations[serverless.RebuildAnnotationKey],
			Generation:  fn.Generation,
		},
		lookup: images.Lookup{
			Repository:   repositoryOf(ctx, fn),
			Image:        reusableImage(fn, tag),
			Base:         configured.BaseImage,
			BaseInsecure: cfg.Registry.IsInsecure(configured.BaseImage),
			Dependencies: dependencies,
			Installed:    images.Installed(&fn.Status, dependencies),
		},
		files:        files,
		installFiles: inputs.InstallFiles(),
		runtime:      runtime,
		image:        image,
	}, true
}

// buildContext returns the files of the build context. The Function must have its texts.
func (p plan) buildContext(fn *v1alpha1.Function) (map[string]string, error) {
	p.image.Source, p.image.Dependencies = fn.Spec.Source, fn.Spec.Deps
	return p.runtime.BuildContext(p.image)
}

// DesiredTag returns the tag of the image that the Function asks for, or "" if the Function
// or the configuration is invalid.
func DesiredTag(ctx context.Context, fn *v1alpha1.Function) string {
	want, _ := makePlan(ctx, fn.DeepCopy())
	return want.request.Tag
}

// accept validates a new generation, because the webhook may have been unavailable when
// the spec was stored. It reports whether the spec is valid.
func accept(ctx context.Context, fn *v1alpha1.Function) bool {
	if fn.IsAccepted() {
		return true
	}
	if err := fn.Validate(ctx).Filter(apis.ErrorLevel); err != nil {
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "%s", err.Error())
		return false
	}
	fn.Status.AcceptedGeneration = fn.Generation
	return true
}

// runtimeOf returns the Function's runtime, as configured and as Kiln implements it.
func runtimeOf(cfg *config.Config, fn *v1alpha1.Function) (config.Runtime, runtimes.Runtime, bool) {
	configured, ok := cfg.Runtimes[fn.Spec.Runtime]
	if !ok {
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonRuntimeUnknown,
			"Runtime %q is not in config-runtimes, which has: %s.", fn.Spec.Runtime, strings.Join(cfg.Runtimes.Names(), ", "))
		return configured, runtimes.Runtime{}, false
	}
	runtime, ok := configured.Find()
	if !ok {
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonRuntimeUnknown,
			"Runtime %q in config-runtimes has the language %q, which Kiln does not support. Kiln supports: %s.",
			fn.Spec.Runtime, configured.Language, config.KnownLanguages())
	}
	return configured, runtime, ok
}

// fetchedSource identifies the source that the build fetches: by its hash where the
// Function has one, and by its address otherwise. It is "" for an inline source.
func fetchedSource(fn *v1alpha1.Function) string {
	if repository := fn.Spec.Git; repository != nil {
		return strings.Join([]string{"git", repository.URL, repository.Revision, repository.ContextDir}, "\x00")
	}
	switch archive := fn.Spec.Archive; {
	case archive == nil:
		return ""
	case archive.SHA256 != "":
		return "sha256:" + archive.SHA256
	case archive.S3 != nil && archive.S3.Endpoint != "":
		// The same bucket name means another bucket in another store.
		return archive.S3.Endpoint + "\x00" + archive.URL
	default:
		return archive.URL
	}
}

// isReusable reports whether the same inputs always make the same image.
func isReusable(fn *v1alpha1.Function) bool {
	return !fn.Spec.IsFetched() || isPinned(fn)
}

// reusableImage returns the recorded image of that tag, or its zero value.
func reusableImage(fn *v1alpha1.Function, tag string) v1alpha1.BuiltImage {
	if !isReusable(fn) {
		return v1alpha1.BuiltImage{}
	}
	return images.Built(&fn.Status, tag)
}

// isPinned reports whether the Function names a fixed source, by commit or hash.
func isPinned(fn *v1alpha1.Function) bool {
	if fn.Spec.Git != nil {
		return sources.IsCommit(fn.Spec.Git.Revision)
	}
	return fn.Spec.Archive != nil && fn.Spec.Archive.SHA256 != ""
}

// installEnvironment returns the author's settings of the package manager. Changing
// them triggers no build; they are part of the dependency cache key of the next one.
func installEnvironment(fn *v1alpha1.Function) []string {
	if fn.Spec.Build == nil {
		return nil
	}
	environment := []string{fn.Spec.Build.SecretName}
	for _, variable := range fn.Spec.Build.Env {
		environment = append(environment, variable.Name, variable.Value)
	}
	return environment
}

// specOf returns the build to start for the decision. found is what the registry holds.
func specOf(fn *v1alpha1.Function, want plan, decision builds.Decision, found images.Found) builds.Spec {
	spec := builds.Spec{
		Request: want.request, Reason: decision.Reason, Attempt: 1,
		BaseImage: byDigest(want.lookup.Base, found.Base), Credentials: want.credentials,
		Files: want.files, InstallFiles: want.installFiles, Runtime: want.runtime,
		Dependencies: builds.Dependencies{Tag: want.lookup.DependenciesTag(found.Base), Digest: found.Dependencies},
	}
	if found.Dependencies != "" {
		spec.Dependencies.Packages = want.lookup.Installed.PackagesDigest
	}
	if last := fn.Status.Build; last != nil && (decision.Again || decision.Reason == builds.ReasonCredentialsChanged) {
		spec.Attempt = last.Attempts + 1
	}
	return spec
}

// byDigest returns the image with its digest, if that is known, so a moved tag has no
// effect.
func byDigest(image, digest string) string {
	if digest == "" || digestIn(image) != "" {
		return image
	}
	return image + "@" + digest
}

func digestIn(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}
