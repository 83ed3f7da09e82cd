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
	"cmp"
	"context"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
	"github.com/kiln-dev/kiln/pkg/sources/follow"
)

// follower asks the servers of repositories, and never keeps a reconcile waiting. See
// follow.Follower.
type follower interface {
	Follow(types.NamespacedName, follow.Branch)
	Found(types.NamespacedName, follow.Branch) (follow.Found, bool)
	Forget(types.NamespacedName)
	ForgetAll(isMeant func(types.NamespacedName) bool)
}

// follow has the branch that the Function is built of followed, once it is built, and
// says whether it has moved. Then the next build is in the status, and starts when that
// is written: who comes after a crash finds it there. The first build finds out by
// itself where the branch is, so that one can be built that Kiln does not reach, or
// whose credentials it may not read.
func (r *Reconciler) follow(ctx context.Context, fn *v1alpha1.Function, want *plan, taskRuns []*pipelinev1.TaskRun) (moved bool) {
	interval := config.FromContextOrDefaults(ctx).Build.FollowInterval
	if fn.Spec.Git == nil || isPinned(fn) || interval == 0 {
		r.follower.Forget(keyOf(fn))
		fn.Status.ClearSourceFollowed()
		return false
	}
	current := known(fn, taskRuns)
	if !current.IsSettled(want.request) {
		// Nor is a server asked that the Function was taken from.
		r.follower.Forget(keyOf(fn))
		want.request.Commit = commitToBuild(fn, want)
		return false
	}
	branch := follow.Branch{
		URL: fn.Spec.Git.URL, Revision: fn.Spec.Git.Revision,
		Namespace: fn.Namespace, Secret: fn.Spec.Git.SecretName,
		Built: commitBuilt(fn), Interval: interval,
	}
	r.follower.Follow(keyOf(fn), branch)
	found, ok := r.follower.Found(keyOf(fn), branch)
	name := "Revision " + branch.Revision
	if branch.Revision == "" {
		name = "The branch that the repository is on"
	}
	switch {
	case ok && found.Commit != "":
		fn.Status.MarkSourceFollowed("%s is at commit %s.", name, found.Commit)
	case ok:
		fn.Status.MarkSourceNotFollowed("%s may have moved; what was built of it stays, and it is asked for again: %s", name, found.Failure)
	}
	if found.Commit == "" || found.Commit == branch.Built {
		want.request.Commit = branch.Built
		return false
	}
	want.request.Commit = found.Commit
	remember(fn, resources.Build{Request: want.request, Reason: builds.ReasonCommitChanged, Attempt: 1})
	fn.Status.MarkBuildUnknown("", "%s has moved: the build is about to start.", name)
	return true
}

// commitToBuild returns the commit that the build is of which has not come to its end.
func commitToBuild(fn *v1alpha1.Function, want *plan) string {
	if b := fn.Status.Build; b != nil && b.ImageTag == want.request.Tag && b.Rebuild == want.request.Rebuild {
		return b.Commit
	}
	return ""
}

// commitBuilt returns the commit that the last build was of, whether it has failed or
// not; "" if that is not known.
func commitBuilt(fn *v1alpha1.Function) string {
	b := fn.Status.Build
	if b.Commit == "" && b.Failure == nil && fn.Status.Source != nil {
		// An earlier Kiln has built it.
		return fn.Status.Source.Commit
	}
	return b.Commit
}

// commitAskedOf returns the commit that the TaskRun was started for, if any.
func commitAskedOf(fn *v1alpha1.Function, tr *pipelinev1.TaskRun) string {
	commit := tr.Annotations[serverless.BuildCommitAnnotationKey]
	if isRemembered(fn, tr) {
		commit = cmp.Or(commit, fn.Status.Build.Commit)
	}
	return commit
}

// commitFetchedBy returns the commit that the TaskRun has fetched, if that is known.
func commitFetchedBy(tr *pipelinev1.TaskRun) string {
	if algorithm, digest := fetchedBy(tr); algorithm == "sha1" {
		return digest
	}
	return ""
}
