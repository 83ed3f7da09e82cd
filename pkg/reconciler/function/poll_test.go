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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgotesting "k8s.io/client-go/testing"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/sources/poll"
)

var (
	commit1 = strings.Repeat("1", 40)
	commit2 = strings.Repeat("2", 40)
	commit3 = strings.Repeat("3", 40)
)

// ofBranch returns a Function that is built of the branch main.
func ofBranch(options ...functionOption) *v1alpha1.Function {
	return function(append([]functionOption{func(fn *v1alpha1.Function) {
		fn.Spec.Source, fn.Spec.Git = "", &v1alpha1.GitSource{URL: "https://git.example.com/a.git", Revision: "main"}
	}}, options...)...)
}

// commitRun returns the n-th attempt at the build of that commit of the branch.
func commitRun(commit, reason string, n int32, options ...taskRunOption) *pipelinev1.TaskRun {
	want := planOf(ofBranch())
	want.request.Commit = commit
	tr := tekton.MakeTaskRun(ofBranch(), testConfig(), builds.Spec{
		Request: want.request, Reason: reason, Attempt: n, BaseImage: want.lookup.Base, Files: want.files, InstallFiles: want.installFiles, Runtime: want.runtime,
	})
	for _, option := range options {
		option(tr)
	}
	return tr
}

// fetching adds the result with the fetched commit to the TaskRun.
func fetching(commit string) taskRunOption {
	return func(tr *pipelinev1.TaskRun) {
		tr.Status.Results = append(tr.Status.Results, pipelinev1.TaskRunResult{
			Name: steps.SourceResult, Value: *pipelinev1.NewObject(map[string]string{"uri": "git+https://git.example.com/a.git", "digest": "sha1:" + commit}),
		})
	}
}

func ofCommit(commit string) functionOption {
	return marked(func(fs *v1alpha1.FunctionStatus) { fs.Source = &v1alpha1.SourceStatus{Commit: commit} })
}

func followedTo(commit string) functionOption {
	return marked(func(fs *v1alpha1.FunctionStatus) { fs.MarkSourceFollowed("Revision main is at commit %s.", commit) })
}

func notFollowed(words string) functionOption {
	return marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkSourceNotFollowed("Revision main cannot be polled. The last build stays, and Kiln keeps retrying: %s", words)
	})
}

// moved describes the build of another commit, which is about to start.
func moved(commit string) functionOption {
	return func(fn *v1alpha1.Function) {
		want := request(ofBranch())
		fn.Status.Build = &v1alpha1.BuildStatus{
			Reason: builds.ReasonCommitChanged, Generation: 1, ImageTag: want.Tag, Inputs: want.Fingerprint, Commit: commit,
		}
		fn.Status.MarkBuildUnknown("", "Revision main has moved. The build is about to start.")
	}
}

func TestReconcileFollow(t *testing.T) {
	following := testConfig(func(cfg *config.Config) { cfg.Build.FollowInterval = time.Minute })
	with := func(found ...any) map[string]any {
		data := map[string]any{configKey: following}
		if len(found) > 0 {
			data[followKey] = found[0]
		}
		return data
	}
	at := func(commit string) poll.Found { return poll.Found{Commit: commit} }

	cm := configMap(ofBranch())
	first := commitRun("", builds.ReasonFirstBuild, 1, taskRunSucceeded(digestA), fetching(commit1))
	runs := func(options ...functionOption) *v1alpha1.Function {
		return ofBranch(observed(append([]functionOption{configured, built(first, digestA), ofCommit(commit1), running}, options...)...))
	}
	svc := service(runs(), serviceReady)
	// The status after the branch has moved, and during the build.
	planned := ofBranch(observed(configured, built(first, digestA), ofCommit(commit1), stillServing, deployed, followedTo(commit2), moved(commit2)))
	next := commitRun(commit2, builds.ReasonCommitChanged, 1)
	nextRuns := commitRun(commit2, builds.ReasonCommitChanged, 1, taskRunRunning)
	building := ofBranch(observed(configured, built(first, digestA), ofCommit(commit1), stillServing, deployed, followedTo(commit2), buildRunning(nextRuns)))
	later := commitRun(commit2, builds.ReasonCommitChanged, 1, taskRunSucceeded(digestB), fetching(commit3))
	laterFn := ofBranch(observed(configured, built(later, digestB), ofCommit(commit3), stillServing, followedTo(commit2)))
	broken := commitRun(commit2, builds.ReasonCommitChanged, 1, taskRunFailed("Failed", "it is broken"), fetching(commit2))
	brokenFn := ofBranch(observed(configured, built(first, digestA), ofCommit(commit1), stillServing, deployed, followedTo(commit2),
		buildFailed(broken, v1alpha1.BuildFailure{Reason: v1alpha1.ReasonTaskRunFailed, Message: "it is broken"})))
	outage := v1alpha1.BuildFailure{Reason: v1alpha1.ReasonPodEvicted, Message: "the node is gone", Transient: true}
	lost := commitRun(commit2, builds.ReasonCommitChanged, 1, taskRunFailed("Failed", "the node is gone"), func(tr *pipelinev1.TaskRun) {
		tr.Status.CompletionTime = new(metav1.NewTime(time.Now().Add(time.Hour)))
	})
	retrying := ofBranch(observed(configured, built(first, digestA), ofCommit(commit1), stillServing, deployed, followedTo(commit2), buildRetrying(lost, outage, 10*time.Second)))
	early := ofBranch(observed(configured, buildFailed(commitRun("", builds.ReasonFirstBuild, 1, taskRunFailed("Failed", "no")), v1alpha1.BuildFailure{Reason: v1alpha1.ReasonSourceUpdateFailed, Message: "no"})))

	rtesting.TableTest{{
		Name:              "the first build waits for nobody to ask where the branch is",
		Key:               key,
		OtherTestData:     with(at(commit2)),
		Objects:           []runtime.Object{ofBranch()},
		WantCreates:       []runtime.Object{cm, commitRun("", builds.ReasonFirstBuild, 1)},
		WantStatusUpdates: statusUpdate(ofBranch(observed(configured, buildCreated(commitRun("", builds.ReasonFirstBuild, 1))))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + cm.Name + " holds the build context.",
			"Normal TaskRunCreated TaskRun " + commitRun("", builds.ReasonFirstBuild, 1).Name + " is about to run.",
		},
	}, {
		Name:          "steady state: nothing is known of the branch yet",
		Key:           key,
		OtherTestData: with(),
		Objects:       []runtime.Object{runs(), cm, first, svc},
	}, {
		Name:              "the branch is where it was",
		Key:               key,
		OtherTestData:     with(at(commit1)),
		Objects:           []runtime.Object{runs(), cm, first, svc},
		WantStatusUpdates: statusUpdate(runs(followedTo(commit1))),
		WantEvents:        []string{"Normal SourceUpdated Revision main is at commit " + commit1 + "."},
	}, {
		Name:          "steady state: the branch is where it was, and that was told",
		Key:           key,
		OtherTestData: with(at(commit1)),
		Objects:       []runtime.Object{runs(followedTo(commit1)), cm, first, svc},
	}, {
		Name:          "steady state: its TaskRun is gone",
		Key:           key,
		OtherTestData: with(at(commit1)),
		Objects:       []runtime.Object{runs(followedTo(commit1)), cm, svc},
	}, {
		Name:              "the branch has moved: the status reports it before a build starts",
		Key:               key,
		OtherTestData:     with(at(commit2)),
		Objects:           []runtime.Object{runs(), cm, first, svc},
		WantStatusUpdates: statusUpdate(planned),
		WantEvents:        []string{"Normal SourceUpdated Revision main is at commit " + commit2 + "."},
	}, {
		Name:          "the status has told: the earlier TaskRun goes first",
		Key:           key,
		OtherTestData: with(),
		Objects:       []runtime.Object{planned, cm, first, svc},
		WantDeletes:   []clientgotesting.DeleteActionImpl{deletion("taskruns", first)},
		WantStatusUpdates: statusUpdate(func() *v1alpha1.Function {
			fn := planned.DeepCopy()
			fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunsDeleted, "The build starts when earlier ones are gone: %s.", first.Name)
			return fn
		}()),
		WantEvents: []string{"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + first.Name + "."},
	}, {
		Name:              "the status has told: the build of the commit starts, also after a crash",
		Key:               key,
		OtherTestData:     with(),
		Objects:           []runtime.Object{planned, cm, svc},
		WantCreates:       []runtime.Object{next},
		WantStatusUpdates: statusUpdate(ofBranch(observed(configured, built(first, digestA), ofCommit(commit1), stillServing, deployed, followedTo(commit2), buildCreated(next)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + next.Name + " is about to run."},
	}, {
		Name:          "the branch moves on while it is built: nothing happens",
		Key:           key,
		OtherTestData: with(at(commit3)),
		Objects:       []runtime.Object{building, cm, nextRuns, svc},
	}, {
		Name:              "built, of a newer commit than it was started for",
		Key:               key,
		OtherTestData:     with(),
		Objects:           []runtime.Object{building, cm, later, svc},
		WantUpdates:       update(merged(laterFn, svc)),
		WantStatusUpdates: statusUpdate(ofBranch(observed(configured, built(later, digestB), ofCommit(commit3), followedTo(commit2), serviceUpdated))),
		WantEvents: []string{
			"Normal TaskRunSucceeded TaskRun " + later.Name + " built " + repo + "@" + digestB + ".",
			"Normal ServiceUpdated Service greeter was updated.",
		},
	}, {
		Name:          "its build has failed: it is not built again",
		Key:           key,
		OtherTestData: with(at(commit2)),
		Objects:       []runtime.Object{brokenFn, cm, broken, svc},
	}, {
		Name:              "its build has failed, and a push has corrected it",
		Key:               key,
		OtherTestData:     with(at(commit3)),
		Objects:           []runtime.Object{brokenFn, cm, broken, svc},
		WantStatusUpdates: statusUpdate(ofBranch(observed(configured, built(first, digestA), ofCommit(commit1), stillServing, deployed, followedTo(commit3), moved(commit3)))),
		WantEvents:        []string{"Normal SourceUpdated Revision main is at commit " + commit3 + "."},
	}, {
		Name:              "its build has failed, and the branch is back where it was",
		Key:               key,
		OtherTestData:     with(at(commit1)),
		Objects:           []runtime.Object{brokenFn, cm, broken, svc},
		WantStatusUpdates: statusUpdate(ofBranch(observed(configured, built(first, digestA), ofCommit(commit1), stillServing, deployed, followedTo(commit1), moved(commit1)))),
		WantEvents:        []string{"Normal SourceUpdated Revision main is at commit " + commit1 + "."},
	}, {
		Name:          "its build waits for a retry: nothing happens meanwhile",
		Key:           key,
		OtherTestData: with(at(commit3)),
		Objects:       []runtime.Object{retrying, cm, lost, svc},
		WantErr:       true,
	}, {
		Name:              "the first build has failed before it knew the commit",
		Key:               key,
		OtherTestData:     with(at(commit1)),
		Objects:           []runtime.Object{early, cm},
		WantStatusUpdates: statusUpdate(ofBranch(observed(configured, followedTo(commit1), moved(commit1)))),
		WantEvents:        []string{"Normal SourceUpdated Revision main is at commit " + commit1 + "."},
	}, {
		Name:              "the server refuses: what was built stays",
		Key:               key,
		OtherTestData:     with(poll.Found{Failure: "its server answered 410 Gone"}),
		Objects:           []runtime.Object{runs(followedTo(commit1)), cm, first, svc},
		WantStatusUpdates: statusUpdate(runs(notFollowed("its server answered 410 Gone"))),
		WantEvents: []string{
			"Warning SourceUpdateFailed Revision main cannot be polled. The last build stays, and Kiln keeps retrying: its server answered 410 Gone",
		},
	}, {
		Name:          "steady state: the server refuses, and that was told",
		Key:           key,
		OtherTestData: with(poll.Found{Failure: "its server answered 410 Gone"}),
		Objects:       []runtime.Object{runs(notFollowed("its server answered 410 Gone")), cm, first, svc},
	}, {
		Name:              "what the server says is told without secrets",
		Key:               key,
		OtherTestData:     with(poll.Found{Failure: "its server says: no https://a:hunter22@example.com"}),
		Objects:           []runtime.Object{runs(), cm, first, svc},
		WantStatusUpdates: statusUpdate(runs(notFollowed("its server says: no https://a:[redacted]@example.com"))),
		WantEvents: []string{
			"Warning SourceUpdateFailed Revision main cannot be polled. The last build stays, and Kiln keeps retrying: its server says: no https://a:[redacted]@example.com",
		},
	}, {
		Name:              "branches are not followed any more: nothing is built",
		Key:               key,
		OtherTestData:     map[string]any{followKey: at(commit2)},
		Objects:           []runtime.Object{runs(followedTo(commit1)), cm, first, svc},
		WantStatusUpdates: statusUpdate(runs()),
	}, {
		Name:              "a rebuild is asked for: of whatever commit there is",
		Key:               key,
		OtherTestData:     with(at(commit2)),
		Objects:           []runtime.Object{runs(followedTo(commit1), withRebuild("now")), cm, svc},
		WantCreates:       []runtime.Object{taskRun(ofBranch(withRebuild("now")), builds.ReasonRebuildRequested)},
		WantStatusUpdates: statusUpdate(runs(followedTo(commit1), withRebuild("now"), buildCreated(taskRun(ofBranch(withRebuild("now")), builds.ReasonRebuildRequested)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + taskRun(ofBranch(withRebuild("now")), builds.ReasonRebuildRequested).Name + " is about to run."},
	}}.Test(t, factory())
}

// TestFollowed checks that the branch of the last build is polled, and nothing else.
func TestFollowed(t *testing.T) {
	first := commitRun("", builds.ReasonFirstBuild, 1, taskRunSucceeded(digestA), fetching(commit1))
	runs := func(options ...functionOption) *v1alpha1.Function {
		return ofBranch(observed(append([]functionOption{configured, built(first, digestA), ofCommit(commit1)}, options...)...))
	}
	branch := poll.Branch{URL: "https://git.example.com/a.git", Revision: "main", Namespace: namespace, Built: commit1, Interval: time.Hour}
	withSecret, olderBuild := branch, branch
	withSecret.Secret = "git"
	for name, tc := range map[string]struct {
		fn       *v1alpha1.Function
		interval time.Duration
		want     *poll.Branch
	}{
		"a branch":                              {runs(), time.Hour, &branch},
		"with a Secret":                         {runs(func(fn *v1alpha1.Function) { fn.Spec.Git.SecretName = "git" }), time.Hour, &withSecret},
		"of an earlier Kiln":                    {runs(func(fn *v1alpha1.Function) { fn.Status.Build.Commit = "" }), time.Hour, &olderBuild},
		"never":                                 {runs(), 0, nil},
		"not built yet":                         {ofBranch(), time.Hour, nil},
		"a commit":                              {runs(func(fn *v1alpha1.Function) { fn.Spec.Git.Revision = commit2 }), time.Hour, nil},
		"no repository":                         {running1.DeepCopy(), time.Hour, nil},
		"another branch, that is not built yet": {runs(func(fn *v1alpha1.Function) { fn.Spec.Git.Revision = "next" }), time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := config.ToContext(context.Background(), testConfig(func(cfg *config.Config) { cfg.Build.FollowInterval = tc.interval }))
			polls := &recorder[poll.Branch, poll.Found]{asked: &poll.Branch{}}
			r := &Reconciler{polls: polls}
			if _, moved := r.poll(ctx, tc.fn, planOf(tc.fn), gather(tc.fn, nil)); moved {
				t.Error("it has moved")
			}
			if diff := cmp.Diff(tc.want, polls.asked); diff != "" {
				t.Errorf("the polled branch (-want, +got):\n%s", diff)
			}
		})
	}
}
