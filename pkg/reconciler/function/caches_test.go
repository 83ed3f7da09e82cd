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
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/steps"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/children"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
	"github.com/kiln-dev/kiln/pkg/slim"
)

// slimPod is the transform of the controller's Pods.
var slimPod = pods.Slim(knative.RevisionLabelKey)

// decodedFunction returns a copy that shares nothing, as the cache has it.
func decodedFunction(t *testing.T, fn *v1alpha1.Function) *v1alpha1.Function {
	t.Helper()
	text, err := json.Marshal(fn)
	if err != nil {
		t.Fatal(err)
	}
	read := &v1alpha1.Function{}
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	return cached(read, slim.Function)
}

// TestShare checks that cached Functions are complete, and share equal texts.
func TestShare(t *testing.T) {
	live := readyFunction()
	a, b := decodedFunction(t, live), decodedFunction(t, live)
	want := live.DeepCopy()
	want.ManagedFields, want.Annotations = nil, nil
	want.Digests, want.Spec.Source = live.TextDigests(), ""
	if !equality.Semantic.DeepEqual(want, a) {
		t.Errorf("what is kept (-want, +got): %s", cmp.Diff(want, a))
	}
	if a.Status.Address.URL != a.Status.URL {
		t.Error("the address has its own URL")
	}
	for name, texts := range map[string][2]string{
		"namespace": {a.Namespace, b.Namespace},
		"runtime":   {a.Spec.Runtime, b.Spec.Runtime},
		"condition": {string(a.Status.Conditions[0].Type), string(b.Status.Conditions[0].Type)},
		"reason":    {a.Status.Conditions[0].Reason, b.Status.Conditions[0].Reason},
	} {
		if unsafe.StringData(texts[0]) != unsafe.StringData(texts[1]) {
			t.Errorf("%s %q is there twice", name, texts[0])
		}
	}
	for name, lists := range map[string][2]corev1.ResourceList{
		"requests": {a.Spec.Resources.Requests, b.Spec.Resources.Requests},
		"limits":   {a.Spec.Resources.Limits, b.Spec.Resources.Limits},
	} {
		if reflect.ValueOf(lists[0]).Pointer() != reflect.ValueOf(lists[1]).Pointer() {
			t.Errorf("%s are there twice", name)
		}
	}
}

// TestShareLabels checks that the labels with the owner share its texts, and that an object
// without an owner gets none.
func TestShareLabels(t *testing.T) {
	nameless := metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Function"}}}
	slim.ShareMeta(&nameless)
	if len(nameless.Labels) != 0 {
		t.Errorf("labels = %v, want none", nameless.Labels)
	}
	owner := metav1.OwnerReference{Name: "greeter", UID: "1-2-3"}
	meta := metav1.ObjectMeta{
		OwnerReferences: []metav1.OwnerReference{owner},
		Labels: map[string]string{
			serverless.FunctionNameLabelKey: strings.Clone(owner.Name), serverless.FunctionUIDLabelKey: strings.Clone(string(owner.UID)), "app": "other",
		},
	}
	want := maps.Clone(meta.Labels)
	slim.ShareMeta(&meta)
	if diff := cmp.Diff(want, meta.Labels); diff != "" {
		t.Error("labels (-want, +got):", diff)
	}
	for key, text := range map[string]string{serverless.FunctionNameLabelKey: owner.Name, serverless.FunctionUIDLabelKey: string(owner.UID)} {
		if unsafe.StringData(meta.Labels[key]) != unsafe.StringData(text) {
			t.Errorf("%s %q is there twice", key, text)
		}
	}
}

func cached[T interface{ DeepCopy() T }](object T, transform cache.TransformFunc) T {
	kept, err := transform(object.DeepCopy())
	if err != nil {
		panic(err)
	}
	return kept.(T)
}

func TestSlimTaskRun(t *testing.T) {
	live := taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)
	live.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "controller"}}
	live.Status.TaskSpec = live.Spec.TaskSpec.DeepCopy()
	kept := cached(live, tekton.Slim)
	if kept.Spec.TaskSpec != nil || kept.Status.TaskSpec != nil || kept.ManagedFields != nil {
		t.Errorf("what the TaskRun does is kept: %v, %v, %v", kept.Spec.TaskSpec, kept.Status.TaskSpec, kept.ManagedFields)
	}
	if diff := cmp.Diff(live.Status.Status, kept.Status.Status); diff != "" {
		t.Errorf("how it fares (-want, +got): %s", diff)
	}
}

// TestSlimTaskRunSteps checks that the cache keeps which step has failed, and where its log is.
func TestSlimTaskRunSteps(t *testing.T) {
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: "results", ContainerID: "containerd://1"}}
	}
	live := taskRun(function(), builds.ReasonFirstBuild)
	live.Status.Steps = []pipelinev1.StepState{
		{Name: "a", Container: "step-a", ImageID: "image", ContainerState: ended(0)},
		{Name: "b", Container: "step-b", ImageID: "image", ContainerState: ended(2)},
		{Name: "c", Container: "step-c", ContainerState: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}
	kept := cached(live, tekton.Slim)
	if failed := kept.Status.Steps[1].Terminated; failed == nil || failed.ExitCode != 2 || kept.Status.Steps[0].Terminated != nil {
		t.Errorf("the exit codes are lost: %+v", kept.Status.Steps)
	}
	for i, step := range kept.Status.Steps {
		if want := live.Status.Steps[i]; step.Name != want.Name || step.Container != want.Container {
			t.Errorf("step %q of container %q is kept in place of %q of %q", step.Name, step.Container, want.Name, want.Container)
		}
		if step.ImageID != "" || step.Terminated != nil && (step.Terminated.Message != "" || step.Terminated.ContainerID != "") {
			t.Errorf("of step %s is kept: %+v", step.Name, step)
		}
	}
}

// TestSlimTaskRunEnded checks that the cache keeps of a TaskRun that has succeeded only
// what describes its build.
func TestSlimTaskRunEnded(t *testing.T) {
	live := endedTaskRun(function(withBuildEnv("TOKEN", "x")))
	live.Annotations[serverless.BuildEnvAnnotationKey] = "TOKEN=x"
	live.Status.Steps = []pipelinev1.StepState{{Name: steps.Install, Container: "step-install"}, {Name: steps.Push}}
	kept := cached(live, tekton.Slim)
	if diff := cmp.Diff(cached(kept, tekton.Slim), kept); diff != "" {
		t.Errorf("what is kept changes when it is kept again (-want, +got): %s", diff)
	}
	if diff := cmp.Diff(pipelinev1.TaskRunSpec{}, kept.Spec); diff != "" {
		t.Errorf("of what it does is kept (-want, +got): %s", diff)
	}
	if diff := cmp.Diff(live.Status.Steps[:1], kept.Status.Steps); diff != "" {
		t.Errorf("steps (-want, +got): %s", diff)
	}
	for key := range kept.Annotations {
		if !strings.HasPrefix(key, serverless.GroupName) || key == serverless.BuildEnvAnnotationKey {
			t.Errorf("annotation %s is kept", key)
		}
	}
	fn := function()
	if diff := cmp.Diff(buildsOf(fn, runsOf(live)), buildsOf(fn, runsOf(kept))); diff != "" {
		t.Errorf("the build (-want, +got): %s", diff)
	}
	if got, want := tekton.RunOf(kept).Digest, tekton.RunOf(live).Digest; got != want || got == "" {
		t.Errorf("digest = %q, want %q", got, want)
	}
}

// TestSlimService checks that the cache keeps what Kiln reads of the revision template,
// also when the transform runs twice.
func TestSlimService(t *testing.T) {
	live := svc1.DeepCopy()
	live.SetDefaults(apis.WithinCreate(t.Context()))
	edited := live.DeepCopy()
	edited.Spec.Template.Spec.Containers[0].Image += "0"
	remembered := knative.Remember(live)
	for name, test := range map[string]struct {
		svc  *servingv1.Service
		want bool
	}{"as it was written": {live, false}, "edited": {edited, true}} {
		kept := cached(test.svc, knative.Slim)
		for range 2 {
			if knative.HasTemplate(kept) || !knative.HasTemplate(test.svc) {
				t.Errorf("%s: the template is kept: %v", name, kept.Spec.Template)
			}
			if got := knative.IsTemplateEdited(kept, remembered); got != test.want {
				t.Errorf("%s: IsTemplateEdited() = %v", name, got)
			}
			if got, want := knative.Remember(kept), knative.Remember(test.svc); got != want {
				t.Errorf("%s: Remember() = %s, want %s", name, got, want)
			}
			kept = cached(kept, knative.Slim)
		}
		if diff := cmp.Diff(test.svc.Spec.RouteSpec, kept.Spec.RouteSpec); diff != "" {
			t.Errorf("%s: the routes (-want, +got): %s", name, diff)
		}
	}
}

func TestSlimPod(t *testing.T) {
	want := pod(running1, "greeter-00001", crashed2)
	want.DeletionTimestamp = &noon
	want.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}}
	full := want.DeepCopy()
	full.Annotations = map[string]string{"a": "b"}
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	full.Spec.Containers = []corev1.Container{{Name: "function"}}
	full.Labels["pod-template-hash"] = "x"
	full.Status.Conditions = append(full.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized})
	full.Status.ContainerStatuses[0].Image = "image"
	full.Status.PodIP = "10.0.0.1"
	got, err := slimPod(full)
	if err != nil {
		t.Fatal("slimPod() =", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("slimPod() (-want, +got):\n%s", diff)
	}
	other := &corev1.ConfigMap{}
	if got, err := slimPod(other); err != nil || got != other {
		t.Errorf("slimPod(ConfigMap) = %v, %v", got, err)
	}
}

// TestSlimPodOfBuild checks that the cache keeps of a build's pod only whether it was evicted
// or deleted.
func TestSlimPodOfBuild(t *testing.T) {
	full := completedPod(endedTaskRun(function()))
	podDisrupted(full)
	kept := cached(full, slimPod)
	if diff := cmp.Diff(full.Status.Conditions, kept.Status.Conditions); diff != "" {
		t.Errorf("conditions (-want, +got): %s", diff)
	}
	if kept.Status.ContainerStatuses != nil {
		t.Errorf("containers are kept: %v", kept.Status.ContainerStatuses)
	}
	if kept.Name != full.Name || kept.Labels[serverless.FunctionNameLabelKey] != name {
		t.Errorf("it is kept as %s, of Function %q", kept.Name, kept.Labels[serverless.FunctionNameLabelKey])
	}
}

func TestSlimEvent(t *testing.T) {
	want := mountFailed(pod(running1, "greeter-00001"), 2)
	full := want.DeepCopy()
	full.Source.Component, full.ReportingController = "kubelet", "kubelet"
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	full.InvolvedObject.Namespace = "default"
	got, err := pods.SlimEvent(full)
	if err != nil {
		t.Fatal("pods.SlimEvent() =", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods.SlimEvent() (-want, +got):\n%s", diff)
	}
	other := &corev1.ConfigMap{}
	if got, err := pods.SlimEvent(other); err != nil || got != other {
		t.Errorf("pods.SlimEvent(ConfigMap) = %v, %v", got, err)
	}
}

func TestMountTroubleOf(t *testing.T) {
	creating := corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	started := corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	sidecar := corev1.ContainerStatus{Name: "queue-proxy", State: creating.State}
	other := pod(running1, "greeter-00001", creating)
	other.UID = "other"
	unrelated := mountFailed(pod(running1, "greeter-00001"), 9)
	unrelated.Reason = "Unhealthy"
	const words = `FailedMount: MountVolume.SetUp failed for volume "secret-0" : secret "late" not found`

	tests := map[string]struct {
		status corev1.ContainerStatus
		event  *corev1.Event
		want   string
	}{
		"again and again":     {creating, mountFailed(pod(running1, "greeter-00001"), 2), words},
		"once":                {creating, mountFailed(pod(running1, "greeter-00001"), 1), ""},
		"the pod has started": {started, mountFailed(pod(running1, "greeter-00001"), 9), ""},
		"of another pod":      {creating, mountFailed(other, 9), ""},
		"something else":      {creating, unrelated, ""},
		"no status yet":       {sidecar, mountFailed(pod(running1, "greeter-00001"), 9), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := pod(running1, "greeter-00001", tc.status)
			if got := pods.StateOf([]*corev1.Pod{p}, []*corev1.Event{tc.event}).Trouble; got != tc.want {
				t.Errorf("trouble = %q, want %q", got, tc.want)
			}
		})
	}
}

// TestPodWatch checks which events of pods wake their Function.
func TestPodWatch(t *testing.T) {
	const revision = "greeter-00001"
	with := func(status corev1.ConditionStatus, edits ...func(*corev1.Pod)) *corev1.Pod {
		p := pod(running1, revision, corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
		for _, edit := range edits {
			edit(p)
		}
		return p
	}
	ready, unready := with(corev1.ConditionTrue), with(corev1.ConditionFalse)
	renewed := with(corev1.ConditionTrue, func(p *corev1.Pod) { p.ResourceVersion, p.Status.ContainerStatuses[0].RestartCount = "2", 1 })
	leaving := with(corev1.ConditionTrue, func(p *corev1.Pod) { p.DeletionTimestamp = &noon })
	ofBuild := func(p *corev1.Pod) { delete(p.Labels, knative.RevisionLabelKey) }
	homeless := with(corev1.ConditionFalse, ofBuild, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}
	})
	crashing := pod(running1, revision, crashed2)
	crashesOn := crashing.DeepCopy()
	crashesOn.Status.ContainerStatuses[0].RestartCount++
	creating := pod(running1, revision, corev1.ContainerStatus{Name: "function", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}})
	gone := cache.DeletedFinalStateUnknown{Key: "default/x", Obj: ready}
	idle, least, deployed := function(), function(withMinReplicas(1)), function(servedBy(config.KubernetesServer))
	runs := function(servedBy(config.KubernetesServer), withMinReplicas(1), running)
	for name, tc := range map[string]struct {
		fn       *v1alpha1.Function
		old, now any
		mount    bool
		want     bool
	}{
		"begins to crash":               {fn: idle, now: crashing, want: true},
		"crashes again":                 {fn: idle, old: crashing, now: crashesOn},
		"has recovered":                 {fn: idle, old: crashing, now: unready, want: true},
		"crashes, and goes":             {fn: idle, old: crashing, want: true},
		"without a node":                {fn: idle, now: homeless, want: true},
		"has got a node":                {fn: idle, old: homeless, now: with(corev1.ConditionFalse, ofBuild), want: true},
		"ready, without a minimum":      {fn: idle, old: unready, now: ready},
		"ready":                         {fn: least, old: unready, now: ready, want: true},
		"ready, of a Deployment":        {fn: deployed, old: unready, now: ready, want: true},
		"ready, and all run":            {fn: runs, old: unready, now: ready},
		"not ready, and all ran":        {fn: runs, old: ready, now: unready, want: true},
		"leaves":                        {fn: runs, old: ready, now: leaving, want: true},
		"has left":                      {fn: runs, old: leaving},
		"gone while the watch was down": {fn: runs, old: gone, want: true},
		"new":                           {fn: least, now: unready},
		"something else":                {fn: least, old: ready, now: renewed},
		"of a build":                    {fn: least, old: with(corev1.ConditionFalse, ofBuild), now: with(corev1.ConditionTrue, ofBuild)},
		"could not mount, and starts":   {fn: idle, old: creating, now: unready, mount: true, want: true},
		"starts":                        {fn: least, old: creating, now: unready},
		"of no Function":                {fn: function(func(fn *v1alpha1.Function) { fn.Name = "other" }), old: unready, now: ready},
		"no pod":                        {fn: least, now: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			fns := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			events := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			if err := fns.Add(tc.fn); err != nil {
				t.Fatal(err)
			}
			if tc.mount {
				if err := events.Add(mountFailed(creating, 2)); err != nil {
					t.Fatal(err)
				}
			}
			var woken []types.NamespacedName
			h := podWatch{
				functions: listers.NewFunctionLister(fns), mountEvents: corev1listers.NewEventLister(events),
				wake: func(key types.NamespacedName) { woken = append(woken, key) },
			}.handler()
			switch {
			case tc.old == nil:
				h.OnAdd(tc.now, false)
			case tc.now == nil:
				h.OnDelete(tc.old)
			default:
				h.OnUpdate(tc.old, tc.now)
			}
			if (len(woken) == 1 && woken[0] == children.KeyOf(function())) != tc.want || len(woken) > 1 {
				t.Errorf("woken are %v, want one: %t", woken, tc.want)
			}
		})
	}
}
