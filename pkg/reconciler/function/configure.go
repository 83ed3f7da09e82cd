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
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
)

// plan is what the Function and the configuration, as they are now, ask for.
type plan struct {
	// request is the image that is wanted.
	request builds.Request

	// lookup finds it in the registry.
	lookup images.Lookup

	// files is what the image is built from, and installFiles those of it that may be
	// read while dependencies are installed.
	files, installFiles map[string]string

	// runtime knows the words of its package manager.
	runtime runtimes.Runtime

	// credentials is the Secret with the credentials of registries; it is nil
	// where the namespace has none.
	credentials *corev1.Secret
}

// makePlan returns what is to be built. Where that cannot be told, a condition
// says what the user, or the administrator, is to fix.
func makePlan(ctx context.Context, fn *v1alpha1.Function) (*plan, bool) {
	cfg := config.FromContextOrDefaults(ctx)
	configured, runtime, ok := runtimeOf(cfg, fn)
	if !ok {
		return nil, false
	}
	if !isAccepted(fn) {
		// The webhook may have been away when the spec was stored.
		if err := fn.Validate(ctx).Filter(apis.ErrorLevel); err != nil {
			fn.Status.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "%s", err.Error())
			return nil, false
		}
		fn.Status.AcceptedGeneration = fn.Generation
	}
	if !cfg.Registry.Configured() {
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonRegistryNotConfigured,
			"There is nowhere to push the image to: set push in config-registry.")
		return nil, false
	}
	files, err := runtime.BuildContext(runtimes.Function{
		BaseImage:    configured.BaseImage,
		Source:       fn.Spec.Source,
		Dependencies: fn.Spec.Deps,
		Dockerfile:   configured.Dockerfile,
		Fetched:      fn.Spec.IsFetched(),
	})
	if err != nil {
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "%s", err.Error())
		return nil, false
	}
	inputs := builds.Inputs{
		Repository:     cfg.Registry.PushImage(fn.Namespace, fn.Name, ""),
		Runtime:        fn.Spec.Runtime,
		BaseImage:      configured.BaseImage,
		Dockerfile:     configured.Dockerfile,
		SourceFile:     runtime.SourceFile,
		DependencyFile: runtime.DependencyFile,
		Files:          files,
		Fetched:        fetchedSource(fn),
	}
	tag := inputs.Tag()
	return &plan{
		request: builds.Request{
			Tag:         tag,
			Fingerprint: inputs.Fingerprint(),
			Rebuild:     fn.Annotations[serverless.RebuildAnnotationKey],
			Generation:  fn.Generation,
		},
		lookup: images.Lookup{
			Repository:   repositoryOf(ctx, fn),
			Tag:          reusableTag(fn, tag),
			Base:         configured.BaseImage,
			BaseInsecure: cfg.Registry.IsInsecure(configured.BaseImage),
			Dependencies: inputs.Dependencies(installEnvironment(fn)...),
		},
		files:        files,
		installFiles: inputs.InstallFiles(),
		runtime:      runtime,
	}, true
}

// fetchedSource tells which source the build is to fetch: by its hash, where that
// is known, wherever it is to be had. It is "" where the Function has the source.
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
		// Another store has other buckets.
		return archive.S3.Endpoint + "\x00" + archive.URL
	default:
		return archive.URL
	}
}

// reusableTag returns the tag that the registry may hold the image by already: ""
// where the same inputs need not make the same image.
func reusableTag(fn *v1alpha1.Function, tag string) string {
	if fn.Spec.IsFetched() && !isPinned(fn) {
		return ""
	}
	return tag
}

// isPinned says whether the Function tells which source it is to be, and not only
// where it is.
func isPinned(fn *v1alpha1.Function) bool {
	if fn.Spec.Git != nil {
		return sources.IsCommit(fn.Spec.Git.Revision)
	}
	return fn.Spec.Archive != nil && fn.Spec.Archive.SHA256 != ""
}

// installEnvironment returns what the author says of how dependencies are
// installed. It decides nothing until the next build, and then which of them are
// to be had from an earlier one.
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

// isAccepted says whether nothing was found wrong with the spec, now or earlier.
// It stays accepted when the configuration becomes stricter.
func isAccepted(fn *v1alpha1.Function) bool {
	return fn.Status.AcceptedGeneration == fn.Generation
}

// runtimeOf returns the Function's runtime, as it is configured and as Kiln knows
// its language.
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
			"Runtime %q in config-runtimes is of language %q, which Kiln does not know; it knows: %s.",
			fn.Spec.Runtime, configured.Language, config.KnownLanguages())
	}
	return configured, runtime, ok
}

// configure writes the ConfigMap that the build reads, and deletes those of
// earlier builds.
func (r *Reconciler) configure(ctx context.Context, fn *v1alpha1.Function, want *plan, before *v1alpha1.FunctionStatus) error {
	desired := resources.MakeConfigMap(fn, want.request.Tag, want.files)
	existing, from, err := r.getOrCreateConfigMap(ctx, fn, desired)
	if err != nil {
		return err
	}
	switch ownershipOf(existing, fn) {
	case foreign:
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonNotOwned, notOwned, "ConfigMap", existing.Name)
		return awaitName()
	case leaving:
		fn.Status.MarkConfigurationUnknown(v1alpha1.ReasonWaitingForDeletion, "ConfigMap %s is being deleted.", existing.Name)
		return from.awaitDeletion("ConfigMap", existing.Name)
	}
	if digestOfContent(existing) != digestOfContent(desired) {
		// Only one that somebody else has made in our name can differ, as ours is
		// immutable. Its deletion wakes the Function.
		if err := r.kube.CoreV1().ConfigMaps(fn.Namespace).Delete(ctx, existing.Name, deleteOptions(existing)); err != nil && !isGone(err) {
			return fmt.Errorf("failed to delete ConfigMap: %w", err)
		}
		fn.Status.MarkConfigurationUnknown(v1alpha1.ReasonWaitingForDeletion, "ConfigMap %s was changed; it is being replaced.", existing.Name)
		return nil
	}
	_, err = healCached(ctx, r.kube.CoreV1().ConfigMaps(fn.Namespace), "ConfigMap", existing, func(cm metav1.Object) bool { return heal(cm, desired, fn) })
	if err != nil {
		return err
	}
	if err := r.deleteOtherConfigMaps(ctx, fn, existing.Name); err != nil {
		return err
	}
	markConfigured(fn, existing.Name, want.request.Tag, before)
	return nil
}

// getOrCreateConfigMap returns the ConfigMap of the desired name. One that the
// lister does not show may exist all the same, without our label.
func (r *Reconciler) getOrCreateConfigMap(ctx context.Context, fn *v1alpha1.Function, desired *corev1.ConfigMap) (*corev1.ConfigMap, origin, error) {
	existing, err := r.configMapLister.ConfigMaps(fn.Namespace).Get(desired.Name)
	if err == nil {
		return existing, listed, nil
	}
	if !apierrs.IsNotFound(err) {
		return nil, listed, fmt.Errorf("failed to get ConfigMap: %w", err)
	}
	existing, from, err := createOrGet(ctx, r.kube.CoreV1().ConfigMaps(fn.Namespace), "ConfigMap", desired)
	if err == nil || from != created {
		return existing, from, err
	}
	if isRejected(err) {
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonConfigMapFailed, "ConfigMap %s cannot be created: %v", desired.Name, err)
	}
	return nil, from, retry(fmt.Errorf("failed to create ConfigMap: %w", err))
}

// deleteOtherConfigMaps deletes the ConfigMaps of earlier builds.
func (r *Reconciler) deleteOtherConfigMaps(ctx context.Context, fn *v1alpha1.Function, name string) error {
	all, err := r.configMapLister.ConfigMaps(fn.Namespace).List(childrenOf(fn))
	if err != nil {
		return fmt.Errorf("failed to list ConfigMaps: %w", err)
	}
	for _, cm := range all {
		if cm.Name == name || cm.DeletionTimestamp != nil || !metav1.IsControlledBy(cm, fn) {
			continue
		}
		if err := r.kube.CoreV1().ConfigMaps(fn.Namespace).Delete(ctx, cm.Name, deleteOptions(cm)); err != nil && !isGone(err) {
			return fmt.Errorf("failed to delete ConfigMap: %w", err)
		}
	}
	return nil
}

// markConfigured says that the ConfigMap for the image of that tag is there, and
// how it came to be, which does not change while the ConfigMap does not. That is
// told by what the status said before: an earlier ConfigMap may be gone already.
func markConfigured(fn *v1alpha1.Function, name, tag string, before *v1alpha1.FunctionStatus) {
	reason, message := v1alpha1.ReasonConfigMapCreated, fmt.Sprintf("ConfigMap %s holds what the build needs.", name)
	switch was := before.GetCondition(v1alpha1.FunctionConditionConfigurationReady); {
	case was.IsTrue() && was.Message == message:
		reason = was.Reason
	case was.IsTrue(), before.Build != nil && before.Build.ImageTag != tag:
		reason = v1alpha1.ReasonConfigMapUpdated
	}
	fn.Status.MarkConfigurationReady(reason, "%s", message)
}

// childrenOf selects what Kiln has created for the Function.
func childrenOf(fn *v1alpha1.Function) labels.Selector {
	return labels.SelectorFromSet(labels.Set{serverless.FunctionUIDLabelKey: string(fn.UID)})
}
