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

package job

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	batchv1listers "k8s.io/client-go/listers/batch/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	_ "knative.dev/pkg/client/injection/kube/client/fake"
	_ "knative.dev/pkg/client/injection/kube/informers/batch/v1/job/filtered/fake"
	podinformer "knative.dev/pkg/client/injection/kube/informers/core/v1/pod/filtered"
	_ "knative.dev/pkg/client/injection/kube/informers/core/v1/pod/filtered/fake"
	kubefiltered "knative.dev/pkg/client/injection/kube/informers/factory/filtered"
	_ "knative.dev/pkg/client/injection/kube/informers/factory/filtered/fake"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/builds/steps/stepstest"
	"github.com/kiln-dev/kiln/pkg/children"
)

func failWith(err error) ktesting.ReactionFunc {
	return func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, err }
}

// TestRestore checks that one patch makes the Job a full record of a build that has pushed
// its image, and that nothing writes it again.
func TestRestore(t *testing.T) {
	fn := stepstest.Function()
	unlabeled := func(job *batchv1.Job) {
		job.Labels = map[string]string{"of": "somebody"}
		job.OwnerReferences = nil
	}
	for name, tc := range map[string]struct {
		job  *batchv1.Job
		pod  *corev1.Pod
		want int
	}{
		"it runs":                      {newJob(), newPod(runs(steps.Push)), 0},
		"pushed":                       {newJob(), newPod(pushed), 1},
		"pushed, and unlabeled":        {newJob(unlabeled), newPod(pushed), 1},
		"it runs, and is unlabeled":    {newJob(unlabeled), newPod(runs(steps.Push)), 1},
		"broken results":               {newJob(withResults("{")), newPod(pushed), 1},
		"a full record":                {newJob(complete, withResults(stored)), newPod(pushed), 0},
		"a full record without a pod":  {newJob(complete, withResults(stored)), nil, 0},
		"failed":                       {newJob(failed), newPod(ends(steps.Push, 1, "Error", message)), 0},
		"failed, and results were set": {newJob(failed, withResults("x")), nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuilder(t, nil, tc.job)
			before := RunOf(tc.job, tc.pod)
			run, err := b.Restore(t.Context(), fn, stepstest.Tag, before)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(b.Client.(*fake.Clientset).Actions()); got != tc.want {
				t.Errorf("%d requests, want %d", got, tc.want)
			}
			if diff := cmp.Diff(before.State, run.State); diff != "" {
				t.Errorf("state (-want, +got):\n%s", diff)
			}
			if !metav1.IsControlledBy(run.Object, fn) || run.Tag != stepstest.Tag {
				t.Errorf("the metadata is not restored: %+v", run.Object)
			}
			if again, err := b.Restore(t.Context(), fn, stepstest.Tag, run); err != nil || again.State != run.State || len(b.Client.(*fake.Clientset).Actions()) != tc.want {
				t.Errorf("Restore() writes again: %v", err)
			}
			if run.State != builds.Succeeded {
				return
			}
			alone := RunOf(buildOf(run).Job, nil)
			alone.Object, before.Object = nil, nil
			before.Tag = alone.Tag
			if diff := cmp.Diff(before, alone); diff != "" {
				t.Errorf("the build without its pod (-want, +got):\n%s", diff)
			}
			if got := buildOf(run).Annotations[serverless.BuildResultsAnnotationKey]; len(got) > 1024 {
				t.Errorf("the results have %d bytes", len(got))
			}
		})
	}
}

// TestRestoreStale checks that a stale cache causes no error.
func TestRestoreStale(t *testing.T) {
	b := newBuilder(t, nil)
	run, err := b.Restore(t.Context(), stepstest.Function(), stepstest.Tag, RunOf(newJob(), newPod(pushed)))
	if err != nil || run.State != builds.Succeeded {
		t.Errorf("Restore() of a deleted Job = %+v, %v", run, err)
	}
	patch := b.Client.(*fake.Clientset).Actions()[0].(ktesting.PatchAction)
	if !strings.Contains(string(patch.GetPatch()), `"uid":"job-uid"`) {
		t.Errorf("the patch may change another Job: %s", patch.GetPatch())
	}
}

// TestDelete checks that the pod is deleted with its Job, and no newer Job of that name.
func TestDelete(t *testing.T) {
	job := newJob()
	b := newBuilder(t, nil, job)
	if err := b.Delete(t.Context(), RunOf(job, nil)); err != nil {
		t.Fatal(err)
	}
	opts := b.Client.(*fake.Clientset).Actions()[0].(ktesting.DeleteActionImpl).DeleteOptions
	if *opts.PropagationPolicy != metav1.DeletePropagationBackground || *opts.Preconditions.UID != job.UID {
		t.Errorf("the options are %+v", opts)
	}
	if err := b.Delete(t.Context(), RunOf(job, nil)); err != nil {
		t.Errorf("Delete() of a deleted Job = %v", err)
	}
}

// TestBuildsOfCluster checks what the builder lists, and that it does not attribute the pod
// of an earlier Job of the same name.
func TestBuildsOfCluster(t *testing.T) {
	ended, unrelated := newJob(complete), newJob()
	ended.Name, ended.UID = "ended", "uid-2"
	unrelated.Name, unrelated.Labels = "unrelated", nil
	earlier := newPod(pushed, func(pod *corev1.Pod) { pod.Labels[batchv1.ControllerUidLabel] = "earlier" })
	job := newJob()
	b := newBuilder(t, []runtime.Object{job, earlier}, job, ended, unrelated)
	running, err := b.Running(t.Context())
	if diff := cmp.Diff([]queue.Build{QueuedBuild(RunOf(job, nil))}, running); diff != "" || err != nil {
		t.Errorf("Running() = %v (-want, +got):\n%s", err, diff)
	}
	runs, err := b.List(stepstest.Function())
	if err != nil || len(runs) != 1 || runs[0].State != builds.Running {
		t.Errorf("List() = %+v, %v", runs, err)
	}
	got, err := b.Get(t.Context(), "default", "ended")
	if err != nil || got.Ref.Name != "ended" {
		t.Errorf("Get() = %+v, %v", got, err)
	}
	if run, from, err := b.Start(t.Context(), stepstest.Function(), stepstest.Build()); err != nil || run.Ref.Name != job.Name || from == 0 {
		t.Errorf("Start() of a Job that exists = %+v, %v, %v", run, from, err)
	}
}

// TestRunningPastCache checks that a new leader does not take a build for a pending one whose pod
// the cache does not show.
func TestRunningPastCache(t *testing.T) {
	job, pod := newJob(), newPod(runs(steps.Fetch))
	for name, cached := range map[string][]runtime.Object{"no pod": nil, "an older pod": {newPod()}} {
		b := newBuilder(t, cached, job, pod)
		running, err := b.Running(t.Context())
		if diff := cmp.Diff([]queue.Build{QueuedBuild(RunOf(job, pod))}, running); diff != "" || err != nil {
			t.Errorf("with %s in the cache, Running() = %v (-want, +got):\n%s", name, err, diff)
		}
	}
}

// TestFindSecret checks that a Secret is found that the author's code can read until the
// Job has ended.
func TestFindSecret(t *testing.T) {
	mine := func(job *batchv1.Job) {
		job.Spec.Template.Spec.Volumes = append(job.Spec.Template.Spec.Volumes, corev1.Volume{
			Name: "packages", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "mine"}},
		})
	}
	for name, tc := range map[string]struct {
		job  *batchv1.Job
		want bool
	}{
		"it runs":        {newJob(mine), true},
		"it has ended":   {newJob(mine, failed), false},
		"another Secret": {newJob(), false},
	} {
		found, err := newBuilder(t, nil, tc.job).FindSecret(t.Context(), "mine", "default")
		if err != nil || (found != nil) != tc.want {
			t.Errorf("%s: FindSecret() = %v, %v", name, found, err)
		}
		if found != nil && (found.Kind != "Job" || found.Name != tc.job.Name) {
			t.Errorf("%s: FindSecret() = %v", name, found)
		}
	}
}

func TestInstallLog(t *testing.T) {
	without := newPod(pushed)
	without.Status.InitContainerStatuses = nil
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"installed":         {newPod(pushed), "log of install"},
		"nothing installed": {without, ""},
		"the pod is gone":   {nil, ""},
	} {
		got, err := newBuilder(t, nil).InstallLog(t.Context(), RunOf(newJob(withResults(stored)), tc.pod))
		if err != nil || got != tc.want {
			t.Errorf("%s: InstallLog() = %q, %v, want %q", name, got, err, tc.want)
		}
	}
}

// TestWatch checks that the queue knows the state of a build before its Function wakes,
// whichever object changed.
func TestWatch(t *testing.T) {
	job, fn := newJob(), types.NamespacedName{Namespace: "default", Name: "greeter"}
	jobs, podCache := newIndexer(), newIndexer()
	b := newBuilder(t, nil)
	b.Jobs, b.Pods = batchv1listers.NewJobLister(jobs), corev1listers.NewPodLister(podCache)
	q := queue.New(t.Context(), queue.Limits{}, func(types.NamespacedName) {})
	if err := q.Open(nil, func() ([]queue.Build, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	woken, running := 0, 0
	h := NewHandlers(b, q, func(any) { woken, running = woken+1, len(q.Running(fn, "uid")) })
	set := func(indexer cache.Indexer, obj any) {
		if err := indexer.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, wantWoken, wantRunning int) {
		t.Helper()
		if woken != wantWoken || running != wantRunning {
			t.Errorf("%s: woken %d times, %d builds run, want %d and %d", what, woken, running, wantWoken, wantRunning)
		}
	}

	set(jobs, job)
	h.OnJob(job)
	check("created", 1, 1)
	h.OnEvent(newEvent("e", "FailedCreate", "x", func(e *corev1.Event) { e.InvolvedObject.Name = job.Name }))
	check("no pod", 2, 1)
	h.OnEvent(newEvent("e", "FailedCreate", "x", func(e *corev1.Event) { e.InvolvedObject.Name, e.InvolvedObject.UID = job.Name, "other" }))
	check("no pod of another Job", 2, 1)
	set(podCache, newPod(pushed))
	h.OnPod(newPod(pushed))
	check("pushed", 3, 0)
	h.OnJob(job)
	check("an older state of the Job", 4, 0)
	h.OnPod(newPod(func(pod *corev1.Pod) { pod.Labels[batchv1.ControllerUidLabel] = "other" }))
	h.OnPod(&corev1.Pod{})
	check("other pods", 4, 0)
	if err := podCache.Delete(newPod()); err != nil {
		t.Fatal(err)
	}
	h.OnPod(cache.DeletedFinalStateUnknown{Key: "default/x", Obj: newPod(pushed)})
	check("the pod is deleted", 5, 1)
	if err := jobs.Delete(job); err != nil {
		t.Fatal(err)
	}
	h.OnJob(cache.DeletedFinalStateUnknown{Key: "default/x", Obj: job})
	check("the Job is deleted", 6, 0)
}

// TestNewBuilder checks that the informers fill the caches of the builder, and wake the
// Function for each kind of object.
func TestNewBuilder(t *testing.T) {
	ctx, cancel, informers := rtesting.SetupFakeContextWithCancel(t, func(ctx context.Context) context.Context {
		return kubefiltered.WithSelectors(ctx, children.LabelSelector)
	})
	podInformer := podinformer.Get(ctx, children.LabelSelector)
	b := NewBuilder(ctx, podInformer.Lister(), corev1listers.NewEventLister(newIndexer()))
	q := queue.New(ctx, queue.Limits{}, func(types.NamespacedName) {})
	woken := make(chan any, 10)
	b.Watch(ctx, q, func(obj any) { woken <- obj })
	waitInformers, err := rtesting.RunAndSyncInformers(ctx, informers...)
	if err != nil {
		t.Fatal(err)
	}
	defer waitInformers()
	defer cancel()
	awaitWake := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-woken:
		case <-time.After(10 * time.Second):
			t.Fatalf("the Function does not wake for %s", what)
		}
	}
	job := newJob()
	_, err = b.Client.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
	awaitWake("its Job", err)
	event := newEvent("e", "FailedCreate", "exceeded quota", func(e *corev1.Event) { e.InvolvedObject.Name = job.Name })
	_, err = b.Client.CoreV1().Events(job.Namespace).Create(ctx, event, metav1.CreateOptions{})
	awaitWake("an event", err)
	pod := newPod(runs(steps.Push))
	_, err = b.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	awaitWake("its pod", err)

	all, err := b.List(stepstest.Function())
	if err != nil || len(all) != 1 || buildOf(all[0]).pod == nil || buildOf(all[0]).Spec.Template.Spec.Containers != nil {
		t.Errorf("List() = %+v, %v", all, err)
	}
	if newest, times, err := b.failedCreate(buildOf(all[0]).Job); err != nil || newest == nil || times != 2 {
		t.Errorf("failedCreate() = %v, %d, %v", newest, times, err)
	}
}

// TestSlim checks that the cache keeps nothing that the pod alone reads.
func TestSlim(t *testing.T) {
	job := newJob(complete, withResults(stored))
	job.Annotations["other"] = "x"
	job.Annotations[serverless.BuildEnvAnnotationKey] = "TOKEN=x"
	job.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "controller"}}
	job.Spec.Suspend = new(false)
	job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	kept, err := Slim(job.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	want := job.DeepCopy()
	want.Spec, want.ManagedFields, want.Status.UncountedTerminatedPods = batchv1.JobSpec{ActiveDeadlineSeconds: job.Spec.ActiveDeadlineSeconds}, nil, nil
	delete(want.Annotations, "other")
	delete(want.Annotations, serverless.BuildEnvAnnotationKey)
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("Slim() (-want, +got):\n%s", diff)
	}
	if kept, err := Slim(newJob(suspended)); err != nil || !*kept.(*batchv1.Job).Spec.Suspend {
		t.Errorf("Slim() forgets that a Job is suspended: %v", err)
	}
	if got, err := Slim("x"); err != nil || got != "x" {
		t.Errorf("Slim(text) = %v, %v", got, err)
	}
}
