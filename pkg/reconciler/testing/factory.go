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

// Package testing runs one reconcile of a Function at a time with fake clients and listers.
// The tests are table rows of knative.dev/pkg/reconciler/testing.
package testing

import (
	"cmp"
	"context"
	"testing"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelineclientset "github.com/tektoncd/pipeline/pkg/client/clientset/versioned"
	fakepipelineclientset "github.com/tektoncd/pipeline/pkg/client/clientset/versioned/fake"
	pipelinelisters "github.com/tektoncd/pipeline/pkg/client/listers/pipeline/v1"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	fakekubeclientset "k8s.io/client-go/kubernetes/fake"
	batchv1listers "k8s.io/client-go/listers/batch/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	networkingclientset "knative.dev/networking/pkg/client/clientset/versioned"
	fakenetworkingclientset "knative.dev/networking/pkg/client/clientset/versioned/fake"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"
	logtesting "knative.dev/pkg/logging/testing"
	"knative.dev/pkg/reconciler"
	rtesting "knative.dev/pkg/reconciler/testing"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingclientset "knative.dev/serving/pkg/client/clientset/versioned"
	fakeservingclientset "knative.dev/serving/pkg/client/clientset/versioned/fake"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	clientset "github.com/kiln-dev/kiln/pkg/client/clientset/versioned"
	fakeclientset "github.com/kiln-dev/kiln/pkg/client/clientset/versioned/fake"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
)

const maxEvents = 20

var addToSchemes = []func(*runtime.Scheme) error{
	fakekubeclientset.AddToScheme,
	fakeclientset.AddToScheme,
	fakepipelineclientset.AddToScheme,
	fakeservingclientset.AddToScheme,
	fakenetworkingclientset.AddToScheme,
}

// World is the environment of a reconciler: clients with the row's objects, and listers for
// them.
type World struct {
	Kiln       clientset.Interface
	Kube       kubernetes.Interface
	Tekton     pipelineclientset.Interface
	Serving    servingclientset.Interface
	Networking networkingclientset.Interface

	FunctionLister  listers.FunctionLister
	ConfigMapLister corev1listers.ConfigMapLister
	TaskRunLister   pipelinelisters.TaskRunLister
	JobLister       batchv1listers.JobLister
	ServiceLister   servinglisters.ServiceLister
	PodLister       corev1listers.PodLister
	EventLister     corev1listers.EventLister
	SecretLister    corev1listers.SecretLister

	Recorder record.EventRecorder
	Row      *rtesting.TableRow
}

// Unlisted is the key in a row's OtherTestData for objects ([]runtime.Object) that the API
// server has and the listers do not return.
const Unlisted = "unlisted"

// Make creates the reconciler under test.
type Make func(context.Context, *World) controller.Reconciler

// Factory returns the factory that runs the rows of a table. A row fails if its requests
// exceed the roles.
func Factory(roles *Roles, create Make) rtesting.Factory {
	return func(t *testing.T, row *rtesting.TableRow) (controller.Reconciler, rtesting.ActionRecorderList, rtesting.EventList) {
		scheme := newScheme(t)
		listed := rtesting.NewObjectSorter(scheme)
		listed.AddObjects(row.Objects...)
		stored := rtesting.NewObjectSorter(scheme)
		stored.AddObjects(row.Objects...)
		if unlisted, ok := row.OtherTestData[Unlisted].([]runtime.Object); ok {
			stored.AddObjects(unlisted...)
		}

		kube := fakekubeclientset.NewSimpleClientset(stored.ObjectsForSchemeFunc(fakekubeclientset.AddToScheme)...)
		kiln := fakeclientset.NewSimpleClientset(stored.ObjectsForSchemeFunc(fakeclientset.AddToScheme)...)
		tekton := fakepipelineclientset.NewSimpleClientset(stored.ObjectsForSchemeFunc(fakepipelineclientset.AddToScheme)...)
		serving := fakeservingclientset.NewSimpleClientset(stored.ObjectsForSchemeFunc(fakeservingclientset.AddToScheme)...)
		networking := fakenetworkingclientset.NewSimpleClientset(stored.ObjectsForSchemeFunc(fakenetworkingclientset.AddToScheme)...)
		recorder := record.NewFakeRecorder(maxEvents)

		ctx := logging.WithLogger(cmp.Or(row.Ctx, context.Background()), logtesting.TestLogger(t))
		row.Ctx = controller.WithEventRecorder(ctx, recorder)

		r := create(row.Ctx, &World{
			Kiln: kiln, Kube: kube, Tekton: tekton, Serving: serving, Networking: networking,
			FunctionLister:  listers.NewFunctionLister(listed.IndexerForObjectType(&v1alpha1.Function{})),
			ConfigMapLister: corev1listers.NewConfigMapLister(listed.IndexerForObjectType(&corev1.ConfigMap{})),
			TaskRunLister:   pipelinelisters.NewTaskRunLister(listed.IndexerForObjectType(&pipelinev1.TaskRun{})),
			JobLister:       batchv1listers.NewJobLister(listed.IndexerForObjectType(&batchv1.Job{})),
			ServiceLister:   servinglisters.NewServiceLister(listed.IndexerForObjectType(&servingv1.Service{})),
			PodLister:       corev1listers.NewPodLister(listed.IndexerForObjectType(&corev1.Pod{})),
			EventLister:     corev1listers.NewEventLister(listed.IndexerForObjectType(&corev1.Event{})),
			SecretLister:    corev1listers.NewSecretLister(listed.IndexerForObjectType(&corev1.Secret{})),
			Recorder:        recorder,
			Row:             row,
		})
		if la, ok := r.(reconciler.LeaderAware); ok {
			if err := la.Promote(reconciler.UniversalBucket(), func(reconciler.Bucket, types.NamespacedName) {}); err != nil {
				t.Fatal("Failed to promote the reconciler:", err)
			}
		}

		for _, fake := range []struct {
			*clientgotesting.Fake
			tracker clientgotesting.ObjectTracker
		}{{&kube.Fake, kube.Tracker()}, {&kiln.Fake, kiln.Tracker()}, {&tekton.Fake, tekton.Tracker()}, {&serving.Fake, serving.Tracker()}, {&networking.Fake, networking.Tracker()}} {
			fake.PrependReactor("update", "functions", StatusOnly(fake.tracker))
			for _, reactor := range row.WithReactors {
				fake.PrependReactor("*", "*", reactor)
			}
			fake.PrependReactor("create", "*", admit(fake.tracker))
			fake.PrependReactor("update", "*", admit(fake.tracker))
			fake.PrependReactor("*", "*", authorize(t, roles))
		}
		return r, rtesting.ActionRecorderList{kube, kiln, tekton, serving, networking}, rtesting.EventList{Recorder: recorder}
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range addToSchemes {
		if err := add(scheme); err != nil {
			t.Fatal("Failed to add to the scheme:", err)
		}
	}
	return scheme
}

// authorize fails the test for a request that the API server would forbid.
func authorize(t *testing.T, roles *Roles) clientgotesting.ReactionFunc {
	return func(action clientgotesting.Action) (bool, runtime.Object, error) {
		if err := roles.Check(action); err != nil {
			t.Error(err)
		}
		return false, nil, nil
	}
}

// admit runs the webhooks of Tekton and Serving for each write. An update is validated
// against the object in the tracker. Defaults are not stored, because tests compare the
// written objects.
func admit(tracker clientgotesting.ObjectTracker) clientgotesting.ReactionFunc {
	return func(action clientgotesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "" {
			return false, nil, nil
		}
		obj := action.(clientgotesting.CreateAction).GetObject().DeepCopyObject()
		ctx, err := admissionContext(tracker, action, obj)
		if err != nil {
			return true, nil, err
		}
		if d, ok := obj.(apis.Defaultable); ok {
			d.SetDefaults(ctx)
		}
		if v, ok := obj.(apis.Validatable); ok {
			if err := v.Validate(ctx).Filter(apis.ErrorLevel); err != nil {
				return true, nil, err
			}
		}
		return false, nil, nil
	}
}

// StatusOnly answers a write of a Function's status as the API server does: the write
// changes nothing else. The fake client would store the whole object.
func StatusOnly(tracker clientgotesting.ObjectTracker) clientgotesting.ReactionFunc {
	return func(action clientgotesting.Action) (bool, runtime.Object, error) {
		sent, ok := action.(clientgotesting.UpdateAction).GetObject().(*v1alpha1.Function)
		if !ok || action.GetSubresource() != "status" {
			return false, nil, nil
		}
		found, err := tracker.Get(action.GetResource(), action.GetNamespace(), sent.Name)
		if err != nil {
			return true, nil, err
		}
		stored := found.(*v1alpha1.Function).DeepCopy()
		sent.Status.DeepCopyInto(&stored.Status)
		return true, stored, tracker.Update(action.GetResource(), stored, action.GetNamespace())
	}
}

func admissionContext(tracker clientgotesting.ObjectTracker, action clientgotesting.Action, obj runtime.Object) (context.Context, error) {
	ctx := apis.WithUserInfo(context.Background(), &authenticationv1.UserInfo{Username: "controller"})
	if action.GetVerb() != "update" {
		return apis.WithinCreate(ctx), nil
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	stored, err := tracker.Get(action.GetResource(), action.GetNamespace(), accessor.GetName())
	if err != nil {
		return nil, err
	}
	stored = stored.DeepCopyObject()
	if d, ok := stored.(apis.Defaultable); ok {
		// The creation applied the defaults, too.
		d.SetDefaults(apis.WithinCreate(context.Background()))
	}
	return apis.WithinUpdate(ctx, stored), nil
}
