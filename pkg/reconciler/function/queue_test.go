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
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelineclientset "github.com/tektoncd/pipeline/pkg/client/clientset/versioned"
	tektonv1 "github.com/tektoncd/pipeline/pkg/client/clientset/versioned/typed/pipeline/v1"
	fakepipelineclient "github.com/tektoncd/pipeline/pkg/client/injection/client/fake"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgotesting "k8s.io/client-go/testing"
	pkgreconciler "knative.dev/pkg/reconciler"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/children"
	fakekilnclient "github.com/kiln-dev/kiln/pkg/client/injection/client/fake"
	functioninformer "github.com/kiln-dev/kiln/pkg/client/injection/informers/serverless/v1alpha1/function"
	"github.com/kiln-dev/kiln/pkg/fairqueue"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// busyQueue returns a queue in which a build of another namespace runs, and some
// Functions of this one wait since the morning.
func busyQueue(limits queue.Limits, waiting ...string) *queue.Queue {
	q := openedQueue(limits)
	q.See(queue.Build{Name: types.NamespacedName{Namespace: "other", Name: "build"}, Function: types.NamespacedName{Namespace: "other", Name: "fn"}})
	for _, name := range waiting {
		q.Ask(types.NamespacedName{Namespace: namespace, Name: name}, queue.Ticket{Since: noon.Add(-time.Hour)})
	}
	return q
}

// stuckQueue returns a queue in which this namespace may have one build, and two are stalled.
func stuckQueue() *queue.Queue {
	q := openedQueue(queue.Limits{Namespace: 1})
	for _, name := range []string{"a", "b"} {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		q.See(queue.Build{Name: key, Function: key, Pending: noon.Add(-time.Hour)})
	}
	return q
}

// queued describes a build that waits since noon.
func queued(reason, where string) functionOption {
	return func(fn *v1alpha1.Function) {
		want := request(fn)
		fn.Status.Build = &v1alpha1.BuildStatus{
			Reason: reason, Generation: want.Generation, ImageTag: want.Tag, Inputs: want.Fingerprint, Rebuild: want.Rebuild,
			QueuedTime: new(metav1.NewMicroTime(noon.Time)),
		}
		fn.Status.MarkBuildUnknown(v1alpha1.ReasonBuildQueued, "All build slots are in use. This build is %s in the queue.", where)
	}
}

// queuedSinceNoon sets since when the build waits. Without it, that would be now.
func queuedSinceNoon(fn *v1alpha1.Function) {
	fn.Status.Build = &v1alpha1.BuildStatus{Reason: builds.ReasonFirstBuild, QueuedTime: new(metav1.NewMicroTime(noon.Time))}
}

func TestReconcileQueue(t *testing.T) {
	one := queue.Limits{Cluster: 1}
	first := function(observed(configured, queued(builds.ReasonFirstBuild, "number 1")))
	third := function(observed(configured, queued(builds.ReasonFirstBuild, "number 3")))
	far := function(observed(configured, queued(builds.ReasonFirstBuild, "among the first 8")))
	stuck := first.DeepCopy()
	stuck.Status.MarkBuildUnknown(v1alpha1.ReasonBuildQueued, "The pods of other builds of this namespace do not start, and hold its build slots. "+
		"Correct or delete their Functions. This build is number 1 in the queue.")
	started := function(observed(configured, buildCreated(firstRun)))
	runningRun := taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)
	startedEvent := "Normal TaskRunCreated TaskRun " + firstRun.Name + " is about to run."
	// It was edited while it waited: it keeps its place.
	edited2 := first.DeepCopy()
	edited2.Generation, edited2.Spec.Source = 2, sourceB
	edited2Queued := edited2.DeepCopy()
	observed(reconfigured, queued(builds.ReasonFirstBuild, "number 1"))(edited2Queued)
	building := function(observed(configured, buildRunning(runningRun)))
	editedBuilding := building.DeepCopy()
	editedBuilding.Generation, editedBuilding.Spec.Source = 2, sourceB
	cancelled := editedBuilding.DeepCopy()
	observed(reconfigured, buildPlanned(builds.ReasonSourceChanged, runningRun))(cancelled)
	quota := "TaskRun Pod exceeded available resources: pods \"x\" is forbidden: exceeded quota: small"
	stalledRun := taskRun(function(), builds.ReasonFirstBuild, succeededCondition(corev1.ConditionUnknown, "ExceededResourceQuota", quota))
	stalled := function(observed(configured, func(fn *v1alpha1.Function) {
		fn.Status.Build = buildStatus(fn, stalledRun)
		fn.Status.MarkBuildFailed(v1alpha1.ReasonQuotaExceeded, "The namespace's quota does not allow the pod of the build. It is retried every minute: %s", quota)
	}))
	waiting := function(observed(configured, queuedSinceNoon))

	rtesting.TableTest{{
		Name:              "as many builds run as may: it waits, and nothing is asked of the API server",
		Key:               key,
		Objects:           []runtime.Object{waiting, configMap(function())},
		OtherTestData:     map[string]any{queueKey: busyQueue(one)},
		WithReactors:      []clientgotesting.ReactionFunc{rtesting.InduceFailure("get", "functions"), rtesting.InduceFailure("list", "taskruns")},
		WantStatusUpdates: statusUpdate(first),
		WantEvents:        []string{"Normal BuildQueued All build slots are in use. This build is number 1 in the queue."},
	}, {
		Name:              "others came before: it is told its place, not exactly where that is far",
		Key:               key,
		Objects:           []runtime.Object{waiting, configMap(function())},
		OtherTestData:     map[string]any{queueKey: busyQueue(one, "a", "b", "c", "d", "e")},
		WantStatusUpdates: statusUpdate(far),
		WantEvents:        []string{"Normal BuildQueued All build slots are in use. This build is among the first 8 in the queue."},
	}, {
		Name:          "it waits: nothing to write",
		Key:           key,
		Objects:       []runtime.Object{first, configMap(function())},
		OtherTestData: map[string]any{queueKey: busyQueue(one)},
	}, {
		Name:              "its place has become better: that is written, and no event",
		Key:               key,
		Objects:           []runtime.Object{third, configMap(function())},
		OtherTestData:     map[string]any{queueKey: busyQueue(one)},
		WantStatusUpdates: statusUpdate(first),
	}, {
		Name:              "its place can be told exactly now",
		Key:               key,
		Objects:           []runtime.Object{far, configMap(function())},
		OtherTestData:     map[string]any{queueKey: busyQueue(one)},
		WantStatusUpdates: statusUpdate(first),
	}, {
		Name:              "its turn has come: the build starts",
		Key:               key,
		Objects:           []runtime.Object{first, configMap(function())},
		OtherTestData:     map[string]any{queueKey: busyQueue(queue.Limits{Cluster: 2})},
		WantCreates:       []runtime.Object{firstRun},
		WantStatusUpdates: statusUpdate(started),
		WantEvents:        []string{startedEvent},
	}, {
		Name:              "stalled builds hold all slots of the namespace: it is told what to correct",
		Key:               key,
		Objects:           []runtime.Object{first, configMap(function())},
		OtherTestData:     map[string]any{queueKey: stuckQueue()},
		WantStatusUpdates: statusUpdate(stuck),
	}, {
		Name:              "it was edited while it waited: it keeps its place",
		Key:               key,
		Objects:           []runtime.Object{edited2, configMap(first)},
		OtherTestData:     map[string]any{queueKey: busyQueue(one)},
		WantCreates:       []runtime.Object{configMap(edited2)},
		WantDeletes:       []clientgotesting.DeleteActionImpl{deletion("configmaps", configMap(first))},
		WantStatusUpdates: statusUpdate(edited2Queued),
		WantEvents: []string{
			"Normal ConfigMapUpdated ConfigMap " + configMap(edited2).Name + " holds the build context.",
		},
	}, {
		Name:              "it was edited while it was built: the stale build is deleted at once, however many others wait",
		Key:               key,
		Objects:           []runtime.Object{editedBuilding, configMap(building), runningRun},
		OtherTestData:     map[string]any{queueKey: busyQueue(one, "a")},
		WantCreates:       []runtime.Object{configMap(editedBuilding)},
		WantDeletes:       []clientgotesting.DeleteActionImpl{deletion("configmaps", configMap(building)), deletion("taskruns", runningRun)},
		WantStatusUpdates: statusUpdate(cancelled),
		WantEvents: []string{
			"Normal ConfigMapUpdated ConfigMap " + configMap(editedBuilding).Name + " holds the build context.",
			"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + runningRun.Name + ".",
		},
	}, {
		Name:          "the cache does not show its own build yet: no queue",
		Key:           key,
		Objects:       []runtime.Object{building, configMap(function())},
		OtherTestData: map[string]any{queueKey: ownBuild(runningRun), ktesting.Unlisted: []runtime.Object{runningRun}},
	}, {
		Name:              "a quota forbids the build's pod: its words are told",
		Key:               key,
		Objects:           []runtime.Object{started, configMap(function()), stalledRun},
		WantStatusUpdates: statusUpdate(stalled),
		WantEvents:        []string{"Warning QuotaExceeded The namespace's quota does not allow the pod of the build. It is retried every minute: " + quota},
	}, {
		Name:              "the quota was lifted",
		Key:               key,
		Objects:           []runtime.Object{stalled, configMap(function()), runningRun},
		WantStatusUpdates: statusUpdate(building),
		WantEvents:        []string{"Normal TaskRunRunning TaskRun " + firstRun.Name + " runs."},
	}}.Test(t, factory())
}

// ownBuild returns a queue in which only the Function's own build may run.
func ownBuild(tr *pipelinev1.TaskRun) *queue.Queue {
	q := openedQueue(queue.Limits{Cluster: 1})
	q.See(tekton.QueuedBuild(tr))
	return q
}

// TestTurnIsGivenBack checks that a slot that was not used goes to another
// Function.
func TestTurnIsGivenBack(t *testing.T) {
	waiting := function(observed(configured, queued(builds.ReasonFirstBuild, "number 1")))
	recorded := waiting.DeepCopy()
	recordedBuild(digestA)(recorded)
	invalid := waiting.DeepCopy()
	invalid.Generation, invalid.Spec.Source = 2, " "
	for name, row := range map[string]struct {
		fn    *v1alpha1.Function
		react clientgotesting.ReactionFunc
		data  map[string]any
	}{
		"the TaskRun cannot be created":  {fn: waiting, react: rtesting.InduceFailure("create", "taskruns")},
		"the TaskRun is refused":         {fn: waiting, react: fail("create", "taskruns", apierrs.NewForbidden(corev1.Resource("taskruns"), "x", nil))},
		"the Function is gone":           {fn: waiting, react: fail("get", "functions", apierrs.NewNotFound(v1alpha1.Resource("functions"), name))},
		"the status cannot be written":   {fn: waiting, react: fail("create", "taskruns", errors.New("no connection"))},
		"the Function is invalid by now": {fn: invalid},
		"the registry has the image":     {fn: recorded, data: map[string]any{registryKey: fakeRegistry{digest: digestA}}},
		"the build has ended":            {fn: waiting, data: map[string]any{ktesting.Unlisted: []runtime.Object{tr1}}},
	} {
		t.Run(name, func(t *testing.T) {
			q := openedQueue(queue.Limits{Cluster: 1})
			q.Ask(children.KeyOf(row.fn), queue.Ticket{})
			table := rtesting.TableRow{
				Key: key, Objects: []runtime.Object{row.fn, configMap(waiting)}, OtherTestData: map[string]any{queueKey: q},
			}
			maps.Copy(table.OtherTestData, row.data)
			if row.react != nil {
				table.WithReactors = []clientgotesting.ReactionFunc{row.react}
			}
			reconciler, _, _ := factory()(t, &table)
			_ = reconciler.Reconcile(table.Ctx, key)
			other := types.NamespacedName{Namespace: "other", Name: "fn"}
			if place := q.Ask(other, queue.Ticket{}); !place.Granted {
				t.Errorf("another waits at %+v", place)
			}
		})
	}
}

// TestTurnIsKept checks that a Function keeps its turn during a lookup in the registry,
// and that its status does not change. After a restart, waiting Functions are looked up
// again and start in their order.
func TestTurnIsKept(t *testing.T) {
	waiting := function(observed(configured, queued(builds.ReasonFirstBuild, "number 1")))
	q := openedQueue(queue.Limits{Cluster: 1})
	q.Ask(children.KeyOf(waiting), queue.Ticket{})
	row := rtesting.TableRow{
		Name: "the registries have not answered", Key: key, Objects: []runtime.Object{waiting, configMap(waiting)},
		OtherTestData: map[string]any{queueKey: q, registryKey: fakeRegistry{slow: true}},
	}
	row.Test(t, factory())
	if place := q.Ask(types.NamespacedName{Namespace: "other", Name: "fn"}, queue.Ticket{}); place.Granted {
		t.Error("another has been granted the turn")
	}
}

// TestQueueAcrossRestart checks that a new leader knows the running builds, although no cache
// shows them, and the waiting Functions in their order.
func TestQueueAcrossRestart(t *testing.T) {
	ctx, impl, watcher := startController(t)
	watcher.OnChange(systemConfigMap(config.BuildConfigName, map[string]string{
		"kaniko-image": "registry.example.com/kaniko", "compose-image": "registry.example.com/compose", "max-concurrent-builds": "2",
	}))
	runs := taskRun(function(withUID("other")), builds.ReasonFirstBuild, taskRunRunning)
	runs.Name = "unseen"
	ended := taskRun(function(withUID("ended")), builds.ReasonFirstBuild, taskRunSucceeded(digestA))
	fakepipelineclient.Get(ctx).PrependReactor("list", "taskruns", func(clientgotesting.Action) (bool, runtime.Object, error) {
		return true, &pipelinev1.TaskRunList{Items: []pipelinev1.TaskRun{*runs, *ended}}, nil
	})
	for name, since := range map[string]time.Duration{"second": 2 * time.Second, "first": time.Second, "third": 3 * time.Second} {
		fn := function(observed(configured, queued(builds.ReasonFirstBuild, "number 1")))
		fn.Name, fn.UID = name, types.UID(name)
		fn.Status.Build.QueuedTime = new(metav1.NewMicroTime(noon.Add(since)))
		if _, err := fakekilnclient.Get(ctx).ServerlessV1alpha1().Functions(namespace).Create(ctx, fn, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := next(ctx, t, impl); got.Name != name {
			t.Fatalf("%s was queued", got)
		}
		_, err := functioninformer.Get(ctx).Lister().Functions(namespace).Get(name)
		if err != nil {
			t.Fatal(err)
		}
	}
	leader := impl.Reconciler.(*fairqueue.Queue).Leader.(*queueLeader)
	if err := leader.Promote(pkgreconciler.UniversalBucket(), nil); err != nil {
		t.Fatal(err)
	}
	got := map[string]queue.Place{}
	for _, name := range []string{"third", "second", "first"} {
		place := leader.queue.Ask(types.NamespacedName{Namespace: namespace, Name: name}, queue.Ticket{})
		place.Since = time.Time{}
		got[name] = place
	}
	want := map[string]queue.Place{"first": {Granted: true}, "second": {Number: 1}, "third": {Number: 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places (-want, +got):\n%s", diff)
	}
	leader.Demote(pkgreconciler.UniversalBucket())
	if place := leader.queue.Ask(types.NamespacedName{Namespace: namespace, Name: "late"}, queue.Ticket{}); place.Granted || place.Number != 1 {
		t.Errorf("who does not lead any more has places: %+v", place)
	}
}

// unanswered is a client whose lists of TaskRuns get no answer. A caller waits until its
// context ends.
type unanswered struct {
	pipelineclientset.Interface
	deadlines chan bool
}

func (u unanswered) TektonV1() tektonv1.TektonV1Interface {
	return unansweredTekton{deadlines: u.deadlines}
}

type unansweredTekton struct {
	tektonv1.TektonV1Interface
	deadlines chan bool
}

func (u unansweredTekton) TaskRuns(string) tektonv1.TaskRunInterface {
	return unansweredTaskRuns{deadlines: u.deadlines}
}

type unansweredTaskRuns struct {
	tektonv1.TaskRunInterface
	deadlines chan bool
}

func (u unansweredTaskRuns) List(ctx context.Context, _ metav1.ListOptions) (*pipelinev1.TaskRunList, error) {
	_, limited := ctx.Deadline()
	u.deadlines <- limited
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestOpenUnanswered checks that a new leader does not wait forever for a lost
// response.
func TestOpenUnanswered(t *testing.T) {
	ctx, impl, _ := startController(t)
	leader := impl.Reconciler.(*fairqueue.Queue).Leader.(*queueLeader)
	client := unanswered{Interface: fakepipelineclient.Get(ctx), deadlines: make(chan bool, 1)}
	leader.builders[0].(*tekton.Builder).Client = client
	promoted := make(chan error)
	go func() { promoted <- leader.Promote(pkgreconciler.UniversalBucket(), nil) }()
	if !<-client.deadlines {
		t.Error("the list of TaskRuns may take for ever")
	}
	leader.Demote(pkgreconciler.UniversalBucket())
	if err := <-promoted; err != nil {
		t.Error(err)
	}
}

// TestDemotedWhileOpening checks that a replica that loses the lease before the queue is open
// does not lead, and that the queue opens when the replica leads again.
func TestDemotedWhileOpening(t *testing.T) {
	ctx, impl, _ := startController(t)
	tried := make(chan struct{}, 1)
	fails := atomic.Bool{}
	fails.Store(true)
	fakepipelineclient.Get(ctx).PrependReactor("list", "taskruns", func(clientgotesting.Action) (bool, runtime.Object, error) {
		select {
		case tried <- struct{}{}:
		default:
		}
		return fails.Load(), nil, errors.New("no connection")
	})
	leader := impl.Reconciler.(*fairqueue.Queue).Leader.(*queueLeader)
	promoted := make(chan error)
	go func() { promoted <- leader.Promote(pkgreconciler.UniversalBucket(), nil) }()
	<-tried
	leader.Demote(pkgreconciler.UniversalBucket())
	if err := <-promoted; err != nil {
		t.Error(err)
	}
	if leader.IsLeaderFor(children.KeyOf(function())) {
		t.Error("who has lost the lease leads")
	}
	fails.Store(false)
	if err := leader.Promote(pkgreconciler.UniversalBucket(), nil); err != nil {
		t.Fatal(err)
	}
	if place := leader.queue.Ask(children.KeyOf(function()), queue.Ticket{}); !leader.IsLeaderFor(children.KeyOf(function())) || !place.Granted {
		t.Errorf("who has won the lease again has the place %+v", place)
	}
}

// TestTicket checks that a build that no edit has caused comes after all others.
func TestTicket(t *testing.T) {
	runs := function(func(fn *v1alpha1.Function) { *fn = *running1.DeepCopy() }, versionTagged("g1"))
	runtimeEdited := edited(versionTagged("g1"), withRuntime("nodejs22"))
	for name, row := range map[string]struct {
		fn     *v1alpha1.Function
		reason string
		want   bool
	}{
		"the runtime has changed":             {runs, builds.ReasonRuntimeChanged, true},
		"all has changed":                     {runs, builds.ReasonInputsChanged, true},
		"a rebuild was requested":             {runs, builds.ReasonRebuildRequested, false},
		"the author names another runtime":    {runtimeEdited, builds.ReasonRuntimeChanged, false},
		"the runtime of what has not run yet": {function(), builds.ReasonRuntimeChanged, false},
	} {
		if got := ticketOf(row.fn, builds.Decision{Reason: row.reason}); got.Yields != row.want {
			t.Errorf("%s: yields is %t, want %t", name, got.Yields, row.want)
		}
	}
}

// TestHistory checks that Kiln keeps as many ended TaskRuns as config-build says.
func TestHistory(t *testing.T) {
	keep := func(n int32) map[string]any {
		return map[string]any{configKey: testConfig(func(cfg *config.Config) { cfg.Build.HistoryLimit = n })}
	}
	runB := edited(withSource(sourceB))
	secondRun := taskRun(runB, builds.ReasonSourceChanged)
	failedRun := taskRun(function(), builds.ReasonFirstBuild, taskRunFailed("TaskRunCancelled", "x"))
	failed := function(observed(configured, buildFailed(failedRun, v1alpha1.BuildFailure{Reason: v1alpha1.ReasonBuildCancelled, Message: "x"})))
	rtesting.TableTest{{
		Name:          "none: the status describes the build, so its TaskRun is deleted",
		Key:           key,
		OtherTestData: keep(0),
		Objects:       []runtime.Object{running1, configMap(running1), tr1, svc1},
		WantDeletes:   []clientgotesting.DeleteActionImpl{deletion("taskruns", tr1)},
	}, {
		Name:          "none, and it is gone: nothing happens",
		Key:           key,
		OtherTestData: keep(0),
		Objects:       []runtime.Object{running1, configMap(running1), svc1},
	}, {
		Name:          "none: the TaskRun of a build that has failed goes, too",
		Key:           key,
		OtherTestData: keep(0),
		Objects:       []runtime.Object{failed, configMap(failed), failedRun},
		WantDeletes:   []clientgotesting.DeleteActionImpl{deletion("taskruns", failedRun)},
	}, {
		Name:          "none: the TaskRun stays until the status describes it",
		Key:           key,
		OtherTestData: keep(0),
		Objects:       []runtime.Object{function(observed(configured, buildRunning(taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)))), configMap(running1), tr1},
		WantCreates:   []runtime.Object{knative.MakeService(running1, running1.Status.Image)},
		WantStatusUpdates: statusUpdate(function(observed(
			configured, built(tr1, digestA), serviceCreated))),
		WantEvents: []string{
			"Normal TaskRunSucceeded TaskRun " + tr1.Name + " built " + repo + "@" + digestA + ".",
			"Normal ServiceCreated Service greeter was created.",
		},
	}, {
		Name:              "two: the next build starts and the last one stays",
		Key:               key,
		OtherTestData:     keep(2),
		Objects:           []runtime.Object{runB, configMap(runB), tr1, svc1},
		WantCreates:       []runtime.Object{secondRun},
		WantStatusUpdates: statusUpdate(edited(withSource(sourceB), observed(reconfigured, buildCreated(secondRun), stillServing))),
		WantEvents: []string{
			"Normal ConfigMapUpdated ConfigMap " + configMap(runB).Name + " holds the build context.",
			"Normal TaskRunCreated TaskRun " + secondRun.Name + " is about to run.",
		},
	}}.Test(t, factory())
}

// TestOpenRetries checks that a new leader lists the running builds until the list succeeds.
func TestOpenRetries(t *testing.T) {
	ctx, impl, _ := startController(t)
	failures := 1
	fakepipelineclient.Get(ctx).PrependReactor("list", "taskruns", func(clientgotesting.Action) (bool, runtime.Object, error) {
		failures--
		return failures >= 0, nil, errors.New("no connection")
	})
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	leader := impl.Reconciler.(*fairqueue.Queue).Leader.(*queueLeader)
	leader.ctx = ctx
	if err := leader.Promote(pkgreconciler.UniversalBucket(), nil); err != nil || failures >= 0 {
		t.Errorf("Promote() = %v, and the list was asked for %d times too few", err, failures+1)
	}
	if place := leader.queue.Ask(children.KeyOf(function()), queue.Ticket{}); !place.Granted {
		t.Errorf("the queue is not open: %+v", place)
	}
}

// TestLostAnswer checks that Kiln finds a TaskRun whose creation got no answer and that the
// cache does not show. The edit in between gives the next TaskRun another name. Kiln deletes
// the first before it creates the next.
func TestLostAnswer(t *testing.T) {
	lost := taskRun(function(), builds.ReasonFirstBuild)
	q := openedQueue(queue.Limits{Cluster: 1})
	row := rtesting.TableRow{
		Key: key, Objects: []runtime.Object{function(observed(configured)), configMap(function())},
		OtherTestData: map[string]any{queueKey: q},
		WithReactors:  []clientgotesting.ReactionFunc{rtesting.InduceFailure("create", "taskruns")},
	}
	reconciler, _, _ := factory()(t, &row)
	if err := reconciler.Reconcile(row.Ctx, key); err == nil {
		t.Fatal("there is no error")
	}
	if place := q.Ask(types.NamespacedName{Namespace: "other", Name: "fn"}, queue.Ticket{}); !place.Granted {
		t.Errorf("another waits at %+v for what may not exist", place)
	}
	q.Release(types.NamespacedName{Namespace: "other", Name: "fn"})

	edited := function(observed(configured), withSource(sourceB))
	edited.Generation = 2
	row = rtesting.TableRow{
		Key: key, Objects: []runtime.Object{edited, configMap(edited)},
		OtherTestData: map[string]any{queueKey: q, ktesting.Unlisted: []runtime.Object{lost}},
	}
	reconciler, actions, _ := factory()(t, &row)
	if err := reconciler.Reconcile(row.Ctx, key); err != nil {
		t.Fatal(err)
	}
	all, err := actions.ActionsByVerb()
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Deletes) != 1 || all.Deletes[0].GetName() != lost.Name || len(all.Creates) != 0 {
		t.Errorf("deleted: %v, created: %v; want TaskRun %s to be deleted and none to be created", all.Deletes, all.Creates, lost.Name)
	}
}
