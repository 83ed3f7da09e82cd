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

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fakekube "k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/controller"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/serve/podspec"
	"github.com/kiln-dev/kiln/pkg/slim"
)

const (
	namespace = "default"
	imageA    = "registry.example.com/functions/default/greeter@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	imageB    = "registry.example.com/functions/default/greeter@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

type edit func(*v1alpha1.Function)

func function(edits ...edit) *v1alpha1.Function {
	fn := &v1alpha1.Function{
		ObjectMeta: metav1.ObjectMeta{Name: "greeter", Namespace: namespace, UID: "uid", Generation: 1},
		Spec: v1alpha1.FunctionSpec{
			Runtime: "nodejs24", TimeoutSeconds: new(int64(30)),
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}},
		},
	}
	fn.Status.InitializeConditions()
	fn.Status.AcceptedGeneration, fn.Status.Image, fn.Status.Serving = 1, imageA, string(config.KubernetesServer)
	for _, edit := range edits {
		edit(fn)
	}
	return fn
}

// world is a server with an API server that its cache follows.
type world struct {
	*testing.T
	*Server
	ctx    context.Context
	client *fakekube.Clientset
	caches map[string]cache.Indexer
	config *config.Config
	// version is the newest resource version.
	version int
	roles   *ktesting.Roles
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{T: t, client: fakekube.NewClientset(objects...), caches: map[string]cache.Indexer{}, config: config.FromContextOrDefaults(t.Context())}
	w.ctx = config.ToContext(controller.WithEventRecorder(t.Context(), &noRecorder{}), w.config)
	for kind := range kinds {
		informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, nil, 0, slim.Indexers())
		w.caches[kind] = informer.GetIndexer()
		w.ctx = context.WithValue(w.ctx, informerKey(kind), informer) //nolint:fatcontext // There are five kinds.
	}
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	w.caches["Pod"] = pods
	roles, err := ktesting.LoadRoles("../../../config", "controller")
	if err != nil {
		t.Fatal(err)
	}
	w.roles = roles
	w.client.PrependReactor("create", "*", w.store)
	w.client.PrependReactor("update", "*", w.store)
	w.Server = &Server{
		Client: w.client, Pods: corev1listers.NewPodLister(pods),
		MountEvents:  corev1listers.NewEventLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})),
		CheckCurrent: func(context.Context, *v1alpha1.Function) error { return nil },
		Stores:       storesOf(w.ctx),
	}
	w.sync()
	return w
}

// store completes an object as a real API server does: it sets defaults, and counts versions
// and generations. An update without effect changes neither.
func (w *world) store(action clientgotesting.Action) (bool, runtime.Object, error) {
	a, ok := action.(clientgotesting.CreateAction)
	if !ok {
		return false, nil, nil
	}
	ktesting.SetDefaults(a.GetObject())
	object := a.GetObject().(metav1.Object)
	if object.GetUID() == "" {
		object.SetUID(types.UID("uid-" + object.GetName()))
	}
	if action.GetVerb() == "update" {
		stored, err := w.client.Tracker().Get(action.GetResource(), namespace, object.GetName())
		if err == nil && equality.Semantic.DeepEqual(stored, a.GetObject()) {
			return true, stored, nil
		}
	}
	w.version++
	object.SetResourceVersion(strconv.Itoa(w.version))
	object.SetGeneration(object.GetGeneration() + 1)
	return false, nil, nil
}

// lists returns what lists the objects of each kind, past the caches.
func (w *world) lists() map[string]func() (runtime.Object, error) {
	return map[string]func() (runtime.Object, error){
		deploymentKind: func() (runtime.Object, error) {
			return w.client.AppsV1().Deployments(namespace).List(w.ctx, metav1.ListOptions{})
		},
		serviceKind: func() (runtime.Object, error) {
			return w.client.CoreV1().Services(namespace).List(w.ctx, metav1.ListOptions{})
		},
		scalerKind: func() (runtime.Object, error) {
			return w.client.AutoscalingV2().HorizontalPodAutoscalers(namespace).List(w.ctx, metav1.ListOptions{})
		},
		budgetKind: func() (runtime.Object, error) {
			return w.client.PolicyV1().PodDisruptionBudgets(namespace).List(w.ctx, metav1.ListOptions{})
		},
		ingressKind: func() (runtime.Object, error) {
			return w.client.NetworkingV1().Ingresses(namespace).List(w.ctx, metav1.ListOptions{})
		},
	}
}

// sync makes the caches those of the API server.
func (w *world) sync() {
	w.Helper()
	for kind, list := range w.lists() {
		found, err := list()
		if err != nil {
			w.Fatal(err)
		}
		var all []any
		for _, object := range itemsOf(found) {
			if object.(metav1.Object).GetLabels()[serverless.ServerLabelKey] == "" {
				continue
			}
			kept, err := Slim(object)
			if err != nil {
				w.Fatal(err)
			}
			all = append(all, kept)
		}
		if err := w.caches[kind].Replace(all, ""); err != nil {
			w.Fatal(err)
		}
	}
	w.client.ClearActions()
}

func itemsOf(list runtime.Object) (all []any) {
	switch list := list.(type) {
	case *appsv1.DeploymentList:
		for i := range list.Items {
			all = append(all, list.Items[i].DeepCopy())
		}
	case *corev1.ServiceList:
		for i := range list.Items {
			all = append(all, list.Items[i].DeepCopy())
		}
	case *autoscalingv2.HorizontalPodAutoscalerList:
		for i := range list.Items {
			all = append(all, list.Items[i].DeepCopy())
		}
	case *policyv1.PodDisruptionBudgetList:
		for i := range list.Items {
			all = append(all, list.Items[i].DeepCopy())
		}
	case *networkingv1.IngressList:
		for i := range list.Items {
			all = append(all, list.Items[i].DeepCopy())
		}
	}
	return all
}

// apply applies the Function, and returns the writes, as verb and kind.
func (w *world) apply(fn *v1alpha1.Function) (writes []string) {
	w.Helper()
	w.client.ClearActions()
	if err := w.Apply(w.ctx, fn); err != nil {
		w.Fatal(err)
	}
	return w.writes()
}

// writes returns the writes since the last step. It checks that the controller's roles allow
// all requests.
func (w *world) writes() (writes []string) {
	w.Helper()
	for _, action := range w.client.Actions() {
		if err := w.roles.Check(action); err != nil {
			w.Error(err)
		}
		if verb := action.GetVerb(); verb != "get" && verb != "list" {
			writes = append(writes, verb+" "+action.GetResource().Resource)
		}
	}
	slices.Sort(writes)
	return writes
}

func (w *world) deployment() *appsv1.Deployment {
	w.Helper()
	d, err := w.client.AppsV1().Deployments(namespace).Get(w.ctx, "greeter", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return d
}

// rollOut does the work of the Deployment controller: all pods are of the newest revision.
func (w *world) rollOut(available int32) {
	w.Helper()
	d := w.deployment()
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-" + revisionOf(d), Namespace: namespace, Labels: d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind(deploymentKind))},
		},
		Spec: appsv1.ReplicaSetSpec{Template: *d.Spec.Template.DeepCopy()},
	}
	set.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "hash"
	_, _ = w.client.AppsV1().ReplicaSets(namespace).Create(w.ctx, set, metav1.CreateOptions{})
	replicas := replicasOf(d)
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: replicas, AvailableReplicas: min(available, replicas),
	}
	w.setStatus(d)
}

func (w *world) setStatus(d *appsv1.Deployment) {
	w.Helper()
	if err := w.client.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), d, namespace); err != nil {
		w.Fatal(err)
	}
	w.sync()
}

// serving returns a world in which the Function serves.
func serving(t *testing.T, fn *v1alpha1.Function) *world {
	t.Helper()
	w := newWorld(t)
	w.apply(fn)
	w.rollOut(1000)
	w.apply(fn)
	if !fn.Status.GetCondition(v1alpha1.FunctionConditionRunning).IsTrue() {
		t.Fatalf("it does not serve: %+v", fn.Status.GetCondition(v1alpha1.FunctionConditionRunning))
	}
	return w
}

func (w *world) wantRunning(fn *v1alpha1.Function, status corev1.ConditionStatus, reason, text string) {
	w.Helper()
	c := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
	if c.Status != status || c.Reason != reason || !strings.Contains(c.Message, text) {
		w.Errorf("Running is %s, %s: %s; want %s, %s: %s", c.Status, c.Reason, c.Message, status, reason, text)
	}
}

// TestFirstDeployment also checks that nothing is written in steady state, and that a lost
// status changes no object.
func TestFirstDeployment(t *testing.T) {
	fn := function()
	w := newWorld(t)
	if diff := gocmp.Diff([]string{"create deployments", "create horizontalpodautoscalers", "create services"}, w.apply(fn)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	w.wantRunning(fn, corev1.ConditionUnknown, v1alpha1.ReasonDeploymentCreated, "greeter")
	w.sync()
	if writes := w.apply(fn); writes != nil {
		t.Errorf("a second reconcile writes %v", writes)
	}
	w.rollOut(1)
	if writes := w.apply(fn); writes != nil {
		t.Errorf("steady state writes %v", writes)
	}
	w.wantRunning(fn, corev1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "One pod stays")
	if got, want := fn.Status.URL.String(), "http://greeter.default.svc.cluster.local"; got != want || fn.Status.Address.URL.String() != want {
		t.Errorf("URL = %s, want %s", got, want)
	}
	if fn.Status.LatestReadyRevisionName != "greeter-00001" || fn.Status.Traffic[0].RevisionName != "greeter-00001" || fn.Status.Replicas != 1 || fn.Status.Selector == "" {
		t.Errorf("status = %+v", fn.Status)
	}
	lost := function()
	w.apply(lost)
	if d := w.deployment(); revisionOf(d) != "greeter-00001" {
		t.Errorf("a lost status causes revision %s", revisionOf(d))
	}
}

// TestPod checks what Serving gives its pods, and a Deployment must give too.
func TestPod(t *testing.T) {
	w := serving(t, function())
	template := w.deployment().Spec.Template
	container := template.Spec.Containers[0]
	env := map[string]string{}
	for _, e := range container.Env {
		env[e.Name] = e.Value
	}
	for name, want := range map[string]string{"PORT": "8080", "K_SERVICE": "greeter", "K_CONFIGURATION": "greeter", "K_REVISION": "greeter-00001", "FUNC_TIMEOUT": "30"} {
		if env[name] != want {
			t.Errorf("%s = %q, want %q", name, env[name], want)
		}
	}
	if container.ReadinessProbe.HTTPGet.Port.IntVal != 8080 || *template.Spec.TerminationGracePeriodSeconds != 45 || container.Lifecycle.PreStop.Sleep.Seconds != 5 {
		t.Errorf("probe %v, grace %d", container.ReadinessProbe.HTTPGet, *template.Spec.TerminationGracePeriodSeconds)
	}
	if *template.Spec.AutomountServiceAccountToken || !*container.SecurityContext.RunAsNonRoot {
		t.Error("the pod is not restricted")
	}
	selector := w.deployment().Spec.Selector.MatchLabels
	if len(selector) != 2 || template.Labels[serverless.ServerLabelKey] == "" {
		t.Errorf("the selector %v would also select pods of builds", selector)
	}
}

// TestRevisions checks that an edit is a new revision, that an edit back is the earlier one,
// and that spec.traffic brings back the template of a revision.
func TestRevisions(t *testing.T) {
	fn := function()
	w := serving(t, fn)
	step := func(name, revision, image string, edit func()) {
		t.Helper()
		edit()
		w.apply(fn)
		w.sync()
		w.rollOut(1)
		if writes := w.apply(fn); writes != nil {
			t.Errorf("%s: steady state writes %v", name, writes)
		}
		d := w.deployment()
		if got := d.Spec.Template.Spec.Containers[0].Image; revisionOf(d) != revision || got != image {
			t.Errorf("%s: revision %s with image %s, want %s with %s", name, revisionOf(d), got, revision, image)
		}
		if got := fn.Status.Traffic[0].RevisionName; got != revision {
			t.Errorf("%s: status.traffic names %s, want %s", name, got, revision)
		}
	}
	step("edited", "greeter-00002", imageB, func() { fn.Status.Image = imageB })
	step("edited back", "greeter-00001", imageA, func() { fn.Status.Image = imageA })
	step("edited again", "greeter-00002", imageB, func() { fn.Status.Image = imageB })
	step("rolled back", "greeter-00001", imageA, func() {
		fn.Spec.Traffic = []v1alpha1.TrafficTarget{{RevisionName: "greeter-00001", Percent: new(int64(100))}}
	})
	step("an edit does not count meanwhile", "greeter-00001", imageA, func() { fn.Spec.Env = []corev1.EnvVar{{Name: "A", Value: "1"}} })
	step("latest again", "greeter-00003", imageB, func() { fn.Spec.Traffic = nil })
	step("a Secret is read", "greeter-00004", imageB, func() { fn.Status.ContentHash = "names.a" })
	step("a Secret has changed", "greeter-00005", imageB, func() { fn.Status.ContentHash = "names.b" })
	if fn.Status.LatestCreatedRevisionName != "greeter-00005" {
		t.Errorf("the newest revision is %s", fn.Status.LatestCreatedRevisionName)
	}
	if got := w.deployment().Spec.Template.Annotations[serverless.ContentHashAnnotationKey]; got != "names.b" {
		t.Errorf("the hash on the pods is %q", got)
	}
}

// TestRefused checks that what a Deployment cannot do changes nothing that serves.
func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		edit         edit
		reason, text string
	}{
		"split": {func(fn *v1alpha1.Function) {
			fn.Spec.Traffic = []v1alpha1.TrafficTarget{{RevisionName: "greeter-00001", Percent: new(int64(50))}, {LatestRevision: new(true), Percent: new(int64(50))}}
		}, v1alpha1.ReasonTrafficUnsupported, "more than one target"},
		"tag": {func(fn *v1alpha1.Function) {
			fn.Spec.Traffic = []v1alpha1.TrafficTarget{{LatestRevision: new(true), Percent: new(int64(100)), Tag: "next"}}
		}, v1alpha1.ReasonTrafficUnsupported, "tags"},
		"no such revision": {func(fn *v1alpha1.Function) {
			fn.Spec.Traffic = []v1alpha1.TrafficTarget{{RevisionName: "greeter-00007", Percent: new(int64(100))}}
		}, v1alpha1.ReasonRevisionMissing, "greeter-00007; it has greeter-00001"},
		"public": {func(fn *v1alpha1.Function) { fn.Spec.Visibility = v1alpha1.VisibilityPublic }, v1alpha1.ReasonVisibilityUnsupported, "public-domain"},
	} {
		t.Run(name, func(t *testing.T) {
			fn := function()
			w := serving(t, fn)
			before := w.deployment()
			tc.edit(fn)
			if writes := w.apply(fn); writes != nil {
				t.Errorf("it writes %v", writes)
			}
			w.wantRunning(fn, corev1.ConditionFalse, tc.reason, tc.text)
			if diff := gocmp.Diff(before, w.deployment()); diff != "" {
				t.Errorf("the Deployment has changed (-before +after):\n%s", diff)
			}
		})
	}
}

// TestScaling checks who sets the number of pods, and with what.
func TestScaling(t *testing.T) {
	for name, tc := range map[string]struct {
		edit     edit
		scaler   string
		budget   bool
		replicas int32
	}{
		"default":        {func(*v1alpha1.Function) {}, "1-10", false, 4},
		"maximum":        {func(fn *v1alpha1.Function) { fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(2)), new(int32(5)) }, "2-5", true, 4},
		"no range":       {func(fn *v1alpha1.Function) { fn.Spec.MinReplicas, fn.Spec.MaxReplicas = new(int32(3)), new(int32(3)) }, "", true, 3},
		"no CPU request": {func(fn *v1alpha1.Function) { fn.Spec.Resources.Requests = nil }, "", false, 1},
		"replicas":       {func(fn *v1alpha1.Function) { fn.Spec.Replicas = new(int32(2)) }, "", true, 2},
		"stopped":        {func(fn *v1alpha1.Function) { fn.Spec.Replicas = new(int32(0)) }, "", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fn := function()
			w := serving(t, fn)
			// An autoscaler has scaled it.
			d := w.deployment()
			d.Spec.Replicas = new(int32(4))
			w.setStatus(d)
			tc.edit(fn)
			w.apply(fn)
			w.sync()
			w.rollOut(1000)
			if writes := w.apply(fn); writes != nil {
				t.Errorf("steady state writes %v", writes)
			}
			if got := replicasOf(w.deployment()); got != tc.replicas {
				t.Errorf("%d replicas, want %d", got, tc.replicas)
			}
			scalers, err := w.client.AutoscalingV2().HorizontalPodAutoscalers(namespace).List(w.ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			scaler := ""
			for _, s := range scalers.Items {
				scaler = fmt.Sprintf("%d-%d", *s.Spec.MinReplicas, s.Spec.MaxReplicas)
			}
			budgets, err := w.client.PolicyV1().PodDisruptionBudgets(namespace).List(w.ctx, metav1.ListOptions{})
			if err != nil || scaler != tc.scaler || (len(budgets.Items) > 0) != tc.budget {
				t.Errorf("the autoscaler is %q, want %q; %d budgets, want %v", scaler, tc.scaler, len(budgets.Items), tc.budget)
			}
			w.wantRunning(fn, corev1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "")
		})
	}
}

// TestState checks what the status reports of a Deployment and its pods.
func TestState(t *testing.T) {
	crashing := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: namespace, Labels: map[string]string{serverless.FunctionUIDLabelKey: "uid", serverless.RevisionLabelKey: "greeter-00002"}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: children.FunctionContainer, RestartCount: 3,
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}},
		}}},
	}
	condition := func(of appsv1.DeploymentConditionType, status corev1.ConditionStatus, message string) []appsv1.DeploymentCondition {
		return []appsv1.DeploymentCondition{{Type: of, Status: status, Message: message}}
	}
	for name, tc := range map[string]struct {
		status       appsv1.DeploymentStatus
		pod          *corev1.Pod
		unobserved   bool
		want         corev1.ConditionStatus
		reason, text string
	}{
		"not observed":     {unobserved: true, want: corev1.ConditionUnknown, reason: v1alpha1.ReasonDeploymentUpdated, text: "greeter-00002"},
		"old and new pods": {status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1}, want: corev1.ConditionUnknown, reason: v1alpha1.ReasonDeploymentUpdated},
		"new pods":         {status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}, want: corev1.ConditionTrue, reason: v1alpha1.ReasonDeploymentReady},
		"scaled out":       {status: appsv1.DeploymentStatus{Replicas: 5, UpdatedReplicas: 5, AvailableReplicas: 1}, want: corev1.ConditionTrue, reason: v1alpha1.ReasonDeploymentReady},
		"a pod crashes":    {status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1}, pod: crashing, want: corev1.ConditionFalse, reason: v1alpha1.ReasonDeploymentFailed, text: "greeter-00002"},
		"too late":         {status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1, Conditions: condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "timed out")}, want: corev1.ConditionFalse, reason: v1alpha1.ReasonDeploymentFailed, text: "timed out"},
		"a quota forbids":  {status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 0, Conditions: condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "exceeded quota")}, want: corev1.ConditionFalse, reason: v1alpha1.ReasonDeploymentFailed, text: "exceeded quota"},
	} {
		t.Run(name, func(t *testing.T) {
			fn := function()
			w := serving(t, fn)
			fn.Status.Image = imageB
			w.apply(fn)
			d := w.deployment()
			d.Status = tc.status
			if !tc.unobserved {
				d.Status.ObservedGeneration = d.Generation
			}
			w.setStatus(d)
			if tc.pod != nil {
				if err := w.caches["Pod"].Add(tc.pod); err != nil {
					t.Fatal(err)
				}
			}
			w.apply(fn)
			w.wantRunning(fn, tc.want, tc.reason, tc.text)
		})
	}
	fn := function()
	w := serving(t, fn)
	d := w.deployment()
	d.Status.AvailableReplicas = 0
	w.setStatus(d)
	w.apply(fn)
	w.wantRunning(fn, corev1.ConditionUnknown, v1alpha1.ReasonMinimumReplicasUnavailable, "greeter-00001 has 0 of 1 replicas")
}

// TestNotListening checks that the status reports an image that does not listen long before
// the progress deadline, and that it forgets that when the image listens.
func TestNotListening(t *testing.T) {
	const listens = "The command in the Dockerfile must listen on $PORT, which is 8080."
	age := func(age time.Duration) *time.Duration { return &age }
	late := []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Message: "timed out."}}
	for name, tc := range map[string]struct {
		runtime string
		// age is how long the container has run, if there is a pod.
		age          *time.Duration
		ready        bool
		conditions   []appsv1.DeploymentCondition
		want         corev1.ConditionStatus
		reason, text string
		requeue      time.Duration
	}{
		"no pod yet":        {runtime: "any", want: corev1.ConditionUnknown, reason: v1alpha1.ReasonDeploymentUpdated, requeue: podspec.PortTimeout},
		"has just started":  {runtime: "any", age: age(10 * time.Second), want: corev1.ConditionUnknown, reason: v1alpha1.ReasonDeploymentUpdated, requeue: podspec.PortTimeout - 10*time.Second},
		"has run for long":  {runtime: "any", age: age(podspec.PortTimeout), want: corev1.ConditionUnknown, reason: v1alpha1.ReasonDeploymentWaiting, text: "Revision greeter-00002: its image runs but does not listen on port 8080 yet. " + listens + " See the log of its pod."},
		"is ready":          {runtime: "any", age: age(time.Hour), ready: true, want: corev1.ConditionUnknown, reason: v1alpha1.ReasonDeploymentUpdated},
		"the deadline":      {runtime: "any", age: age(time.Hour), conditions: late, want: corev1.ConditionFalse, reason: v1alpha1.ReasonDeploymentFailed, text: "timed out. If its pods started: " + listens},
		"wrapper":           {runtime: "nodejs24", age: age(time.Hour), want: corev1.ConditionUnknown, reason: v1alpha1.ReasonDeploymentUpdated},
		"wrapper, deadline": {runtime: "nodejs24", age: age(time.Hour), conditions: late, want: corev1.ConditionFalse, reason: v1alpha1.ReasonDeploymentFailed, text: "not ready in time: timed out."},
	} {
		t.Run(name, func(t *testing.T) {
			fn := function(func(fn *v1alpha1.Function) { fn.Spec.Runtime = tc.runtime })
			w := newWorld(t)
			w.config.Runtimes = config.Runtimes{"any": {Language: runtimes.DockerfileLanguage}, "nodejs24": {BaseImage: "node", Language: "nodejs"}}
			w.apply(fn)
			w.rollOut(1000)
			w.apply(fn)
			fn.Status.Image = imageB
			w.apply(fn)
			d := w.deployment()
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1, Conditions: tc.conditions}
			w.setStatus(d)
			if tc.age != nil {
				w.addPod("greeter-00002", *tc.age, tc.ready)
			}
			for range 2 {
				err := w.Apply(w.ctx, fn)
				_, after := controller.IsRequeueKey(err)
				if off := after - tc.requeue; off > 0 || off < -2*time.Second || (err == nil) != (tc.requeue == 0) {
					t.Errorf("Apply() = %v, after %s, want %s", err, after, tc.requeue)
				}
				w.wantRunning(fn, tc.want, tc.reason, tc.text)
			}
			d.Status.Conditions = nil
			d.Status.Replicas = 1
			w.setStatus(d)
			w.apply(fn)
			w.wantRunning(fn, corev1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "")
		})
	}
}

// addPod adds a pod of the revision whose container has run for that time.
func (w *world) addPod(revision string, age time.Duration, ready bool) {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: namespace, Labels: map[string]string{serverless.FunctionUIDLabelKey: "uid", serverless.RevisionLabelKey: revision}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name:  children.FunctionContainer,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-age))}},
		}}},
	}
	if ready {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if err := w.caches["Pod"].Add(pod); err != nil {
		w.Fatal(err)
	}
}

// TestEdited checks that Kiln undoes what others change, also while no image is available.
func TestEdited(t *testing.T) {
	for name, do := range map[string]func(*Server, context.Context, *v1alpha1.Function) error{"Apply": (*Server).Apply, "Hold": (*Server).Hold} {
		t.Run(name, func(t *testing.T) {
			fn := function()
			w := serving(t, fn)
			before := w.deployment()
			edited := before.DeepCopy()
			edited.Spec.Template.Spec.Containers[0].Image = imageB
			edited.Labels = nil
			edited.OwnerReferences = nil
			edited.Labels = map[string]string{serverless.FunctionUIDLabelKey: "uid", serverless.ServerLabelKey: "kubernetes"}
			w.setStatus(edited)
			if err := do(w.Server, w.ctx, fn); err != nil {
				t.Fatal(err)
			}
			after := w.deployment()
			if diff := gocmp.Diff(before.Spec.Template, after.Spec.Template); diff != "" {
				t.Errorf("the template (-before +after):\n%s", diff)
			}
			if diff := gocmp.Diff(before.Labels, after.Labels); diff != "" || !metav1.IsControlledBy(after, fn) {
				t.Errorf("the metadata (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("Hold keeps the image", func(t *testing.T) {
		fn := function()
		w := serving(t, fn)
		fn.Status.Image = imageB
		if err := w.Hold(w.ctx, fn); err != nil {
			t.Fatal(err)
		}
		if got := w.deployment().Spec.Template.Spec.Containers[0].Image; got != imageA {
			t.Errorf("it runs %s", got)
		}
	})
}

// TestNotOwned checks that objects of others stay as they are.
func TestNotOwned(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "greeter", Namespace: namespace}
	for kind, object := range map[string]runtime.Object{
		deploymentKind: &appsv1.Deployment{ObjectMeta: meta},
		serviceKind:    &corev1.Service{ObjectMeta: meta},
		scalerKind:     &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta},
		budgetKind:     &policyv1.PodDisruptionBudget{ObjectMeta: meta},
		ingressKind:    &networkingv1.Ingress{ObjectMeta: meta},
	} {
		t.Run(kind, func(t *testing.T) {
			fn := function(func(fn *v1alpha1.Function) {
				fn.Spec.MinReplicas, fn.Spec.Visibility = new(int32(2)), v1alpha1.VisibilityPublic
			})
			w := newWorld(t, object)
			w.config.Functions.PublicDomain = "fn.example.com"
			err := w.Apply(w.ctx, fn)
			if later, _ := controller.IsRequeueKey(err); !later {
				t.Errorf("Apply() = %v, want a retry", err)
			}
			w.wantRunning(fn, corev1.ConditionFalse, v1alpha1.ReasonNotOwned, kind+" greeter")
			for _, action := range w.client.Actions() {
				if action.GetVerb() == "update" || action.GetVerb() == "delete" {
					t.Errorf("it does %s %s", action.GetVerb(), action.GetResource().Resource)
				}
			}
		})
	}
}

// TestPublic checks the Ingress of a public Function, and that it goes with its visibility.
func TestPublic(t *testing.T) {
	fn := function(func(fn *v1alpha1.Function) { fn.Spec.Visibility = v1alpha1.VisibilityPublic })
	w := newWorld(t)
	w.config.Functions.PublicDomain, w.config.Functions.IngressClass = "fn.example.com", "nginx"
	w.apply(fn)
	w.rollOut(1)
	if writes := w.apply(fn); writes != nil {
		t.Errorf("steady state writes %v", writes)
	}
	w.wantRunning(fn, corev1.ConditionTrue, v1alpha1.ReasonDeploymentReady, "")
	if got := fn.Status.URL.String(); got != "http://greeter.default.fn.example.com" {
		t.Errorf("URL = %s", got)
	}
	fn.Spec.Visibility = ""
	if writes := w.apply(fn); !slices.Equal(writes, []string{"delete ingresses"}) {
		t.Errorf("it writes %v, want the Ingress to go", writes)
	}
}

// TestCrash checks that a crash after each write leads to the same objects.
func TestCrash(t *testing.T) {
	crash := errors.New("crash")
	fn := function(func(fn *v1alpha1.Function) { fn.Spec.MinReplicas = new(int32(2)) })
	want := serving(t, fn.DeepCopy()).deployment()
	for after := 1; after <= 4; after++ {
		w := newWorld(t)
		writes := 0
		broken := true
		w.client.PrependReactor("*", "*", func(action clientgotesting.Action) (bool, runtime.Object, error) {
			if verb := action.GetVerb(); broken && verb != "get" && verb != "list" {
				if writes++; writes > after {
					return true, nil, crash
				}
			}
			return false, nil, nil
		})
		_ = w.Apply(w.ctx, fn.DeepCopy())
		broken = false
		w.sync()
		again := fn.DeepCopy()
		w.apply(again)
		w.sync()
		w.rollOut(2)
		if writes := w.apply(again); writes != nil {
			t.Errorf("after %d writes: steady state writes %v", after, writes)
		}
		if diff := gocmp.Diff(want.Spec, w.deployment().Spec); diff != "" {
			t.Errorf("after %d writes (-want +got):\n%s", after, diff)
		}
	}
}

type noRecorder struct{}

func (noRecorder) Event(runtime.Object, string, string, string)          {}
func (noRecorder) Eventf(runtime.Object, string, string, string, ...any) {}
func (noRecorder) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
}
