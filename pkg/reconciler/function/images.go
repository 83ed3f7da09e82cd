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

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	pkgreconciler "knative.dev/pkg/reconciler"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/images"
)

// registry works on one request at a time for each Function, and never keeps a
// reconcile waiting. See images.Background.
type registry[Request, Answer any] interface {
	Ask(types.NamespacedName, Request)
	Answer(key types.NamespacedName, request Request, await bool) (Answer, bool)
	Acknowledge(types.NamespacedName)
	Forget(types.NamespacedName)
	ForgetAll(isMeant func(types.NamespacedName) bool)
}

// lookAhead has the registries asked for what a build that is to start needs to
// know: its base image, and what may save it. They answer while the ConfigMap is
// written. The answer is kept for as long as it is needed, and so outlasts attempts
// to start a build that fail.
func (r *Reconciler) lookAhead(fn *v1alpha1.Function, want *plan, taskRuns []*pipelinev1.TaskRun) {
	request := want.request
	if fn.Status.Build != nil {
		// Whether there are others now is found out later, and seldom starts a build.
		request.CredentialsVersion = fn.Status.Build.CredentialsVersion
	}
	if decision := builds.Decide(request, known(fn, taskRuns)); decision.Action == builds.Start {
		r.lookups.Ask(keyOf(fn), lookupFor(want, decision))
	}
}

// lookupFor returns what to ask the registries before a build starts.
func lookupFor(want *plan, decision builds.Decision) images.Lookup {
	lookup := want.lookup
	if !decision.Reuse {
		lookup.Tag = ""
	}
	return lookup
}

// tagVersion sees to it that the registry knows the image that was deployed by
// the Function's generation. It never fails the Function, and says nothing until
// it is done; then the status, which was as before, tells. A service that is on
// its way changes the status anyway: that write is waited for.
func (r *Reconciler) tagVersion(ctx context.Context, fn *v1alpha1.Function, before *v1alpha1.FunctionStatus) {
	tag := versionTag(fn)
	if fn.Status.VersionTag == tag {
		r.taggings.Acknowledge(keyOf(fn))
		return
	}
	tagging := images.Tagging{Repository: repositoryOf(ctx, fn), Digest: digestIn(fn.Status.Image), Tag: tag}
	r.taggings.Ask(keyOf(fn), tagging)
	settled := !fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).IsUnknown()
	_, done := r.taggings.Answer(keyOf(fn), tagging, settled)
	if done && (settled || !equality.Semantic.DeepEqual(before, &fn.Status)) {
		fn.Status.VersionTag = tag
	}
}

// versionTag returns the tag that the image gets that this generation runs.
func versionTag(fn *v1alpha1.Function) string {
	return "g" + strconv.FormatInt(fn.Generation, 10)
}

// ObserveDeletion implements reconciler.OnDeletionInterface.
func (r *Reconciler) ObserveDeletion(_ context.Context, key types.NamespacedName) error {
	r.lookups.Forget(key)
	r.taggings.Forget(key)
	r.follower.Forget(key)
	r.queue.Release(key)
	r.replaced.forget(key)
	return nil
}

// demote drops what is asked for the Functions that another replica looks after
// from now on. It alone sees one of them deleted, and created anew.
func (r *Reconciler) demote(bucket pkgreconciler.Bucket) {
	r.lookups.ForgetAll(bucket.Has)
	r.taggings.ForgetAll(bucket.Has)
	r.follower.ForgetAll(bucket.Has)
	r.queue.Leave(bucket.Has)
}

// repositoryOf returns where the Function's images are pushed to.
func repositoryOf(ctx context.Context, fn *v1alpha1.Function) images.Repository {
	registry := config.FromContextOrDefaults(ctx).Registry
	return images.Repository{
		Name:        registry.PushRepository(fn.Namespace, fn.Name),
		Insecure:    registry.PushInsecure(),
		Credentials: registry.Credentials,
		Namespace:   fn.Namespace,
	}
}

func keyOf(fn *v1alpha1.Function) types.NamespacedName {
	return types.NamespacedName{Namespace: fn.Namespace, Name: fn.Name}
}
