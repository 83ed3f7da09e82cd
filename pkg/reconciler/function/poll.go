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

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/children"
	"github.com/kiln-dev/kiln/pkg/contents"
	"github.com/kiln-dev/kiln/pkg/sources/poll"
)

// poll polls the branch of a Function that is built, and returns the plan with the commit
// to build. If the branch has moved, moved is true and the status has the next build.
// That build starts only after the status is written, so a crash cannot lose it. The
// first build needs no poll.
func (r *Reconciler) poll(ctx context.Context, fn *v1alpha1.Function, want plan, current gathered) (_ plan, moved bool) {
	build := config.FromContextOrDefaults(ctx).Build
	interval := build.FollowInterval
	if fn.Spec.Git == nil || isPinned(fn) || interval == 0 {
		r.polls.Forget(children.KeyOf(fn))
		fn.Status.ClearSourceFollowed()
		return want, false
	}
	if !current.known.IsSettled(want.request) {
		// Stop polling a server that the Function may no longer name.
		r.polls.Forget(children.KeyOf(fn))
		return want.withCommit(commitToBuild(fn, want)), false
	}
	branch := poll.Branch{
		URL: fn.Spec.Git.URL, Revision: fn.Spec.Git.Revision,
		Namespace: fn.Namespace, Secret: fn.Spec.Git.SecretName,
		Allowed: build.FollowAllowedAddresses,
		Built:   commitBuilt(fn), Interval: interval,
	}
	r.polls.Ask(children.KeyOf(fn), branch)
	found, ok := r.polls.Answer(children.KeyOf(fn), branch, true)
	name := "Revision " + branch.Revision
	if branch.Revision == "" {
		name = "The default branch"
	}
	switch {
	case ok && found.Commit != "":
		fn.Status.MarkSourceFollowed("%s is at commit %s.", name, found.Commit)
	case ok:
		fn.Status.MarkSourceNotFollowed("%s cannot be polled. The last build stays, and Kiln keeps retrying: %s", name, found.Failure)
	}
	if found.Commit == "" || found.Commit == branch.Built {
		return want.withCommit(branch.Built), false
	}
	want = want.withCommit(found.Commit)
	remember(fn, builds.Spec{Request: want.request, Reason: builds.ReasonCommitChanged, Attempt: 1})
	fn.Status.MarkBuildUnknown("", "%s has moved. The build is about to start.", name)
	return want, true
}

func commitToBuild(fn *v1alpha1.Function, want plan) string {
	if b := fn.Status.Build; b != nil && b.ImageTag == want.request.Tag && b.Rebuild == want.request.Rebuild {
		return b.Commit
	}
	return ""
}

// Contents reads the Secrets and ConfigMaps that Functions name, in the background.
type Contents interface {
	Background[contents.Request, contents.Found]

	// Hurry makes the next look at the objects of a Function due soon.
	Hurry(types.NamespacedName)
}

// followContents puts a hash of the Function's Secrets and ConfigMaps into the status, if the
// author asks for it. A changed hash causes a new revision. If they cannot be read, the hash
// stays. The hash also stays when the author no longer asks, so that causes no revision.
//
// It reports whether the deployment must wait: for the first look at these objects, which
// would cause a second revision; or until the status is written, because a controller that
// has lost the hash would go back to the last one.
func (r *Reconciler) followContents(fn *v1alpha1.Function) (waits bool) {
	key, request := children.KeyOf(fn), contents.Of(fn)
	if fn.Annotations[serverless.RolloutOnChangeAnnotationKey] != "true" || request.Objects == "" {
		r.contents.Forget(key)
		fn.Status.ClearContentFollowed()
		return false
	}
	if n := request.Count(); n > contents.MaxObjects {
		r.contents.Forget(key)
		fn.Status.MarkContentNotFollowed("The Function names %d Secrets and ConfigMaps. Their changes cause a new revision of Functions with at most %d.", n, contents.MaxObjects)
		return false
	}
	r.contents.Ask(key, request)
	found, ok := r.contents.Answer(key, request, true)
	switch {
	case !ok && request.Matches(fn.Status.ContentHash):
		return false
	case !ok:
		r.contents.Hurry(key)
		return true
	case found.Unanswered && request.Matches(fn.Status.ContentHash):
		// The last look still counts.
		return false
	case found.Hash == "":
		fn.Status.MarkContentNotFollowed("Changes cause no new revision, and Kiln keeps retrying: %s", found.Failure)
		return false
	}
	waits = fn.Status.ContentHash != found.Hash
	fn.Status.ContentHash = found.Hash
	fn.Status.MarkContentFollowed("A change of these causes a new revision: %s.", request.Objects)
	return waits
}
