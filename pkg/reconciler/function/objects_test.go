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

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgotesting "k8s.io/client-go/testing"
	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// The worlds that most rows begin in, or end in.
var (
	firstRun = taskRun(function(), builds.ReasonFirstBuild)

	// running1 is a Function of generation 1 that runs, with all its children.
	running1 = function(observed(configured, built(taskRun(function(), builds.ReasonFirstBuild, taskRunSucceeded(digestA)), digestA), running))
	tr1      = taskRun(function(), builds.ReasonFirstBuild, taskRunSucceeded(digestA))
	svc1     = service(running1, serviceReady)
)

// edited returns the running Function after an edit that no reconcile has seen.
func edited(options ...functionOption) *v1alpha1.Function {
	fn := running1.DeepCopy()
	fn.Generation = 2
	for _, option := range options {
		option(fn)
	}
	return fn
}

func podWith(name string, conditions ...corev1.PodCondition) *corev1.Pod {
	p := pod(running1, "greeter-00001")
	p.Name = name
	p.Status.Conditions = conditions
	return p
}

// answer makes the API server answer the verb on the resource with the object.
func answer(verb, resource string, obj runtime.Object) clientgotesting.ReactionFunc {
	return func(action clientgotesting.Action) (bool, runtime.Object, error) {
		return action.Matches(verb, resource), obj, nil
	}
}

// fail makes the verb on the resource fail with the error.
func fail(verb, resource string, err error) clientgotesting.ReactionFunc {
	return func(action clientgotesting.Action) (bool, runtime.Object, error) {
		return action.Matches(verb, resource) && action.GetSubresource() == "", nil, err
	}
}

// failOnce makes the verb fail the first time, of a subresource too.
func failOnce(verb, resource string, err error) clientgotesting.ReactionFunc {
	failed := false
	return func(action clientgotesting.Action) (bool, runtime.Object, error) {
		if failed || !action.Matches(verb, resource) {
			return false, nil, nil
		}
		failed = true
		return true, nil, err
	}
}

func namespaceTerminating() error {
	err := apierrs.NewForbidden(corev1.Resource("configmaps"), "x", nil)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// race makes a TaskRun appear just before ours is created.
func race(winner *pipelinev1.TaskRun) []clientgotesting.ReactionFunc {
	return []clientgotesting.ReactionFunc{
		fail("create", "taskruns", apierrs.NewAlreadyExists(pipelinev1.Resource("taskruns"), winner.Name)),
		func(action clientgotesting.Action) (bool, runtime.Object, error) {
			return action.Matches("get", "taskruns"), winner, nil
		},
	}
}

func foreignTaskRun() *pipelinev1.TaskRun {
	tr := firstRun.DeepCopy()
	tr.OwnerReferences, tr.Labels = nil, nil
	return tr
}

func orphaned(tr *pipelinev1.TaskRun) *pipelinev1.TaskRun {
	tr = tr.DeepCopy()
	tr.OwnerReferences = nil
	delete(tr.Labels, serverless.ImageTagLabelKey)
	return tr
}

// labelledTaskRun and labelledConfigMap carry the labels of the Function's own,
// as copies of these do.
func labelledTaskRun() *pipelinev1.TaskRun {
	tr := firstRun.DeepCopy()
	tr.Name, tr.OwnerReferences = "copy", nil
	return tr
}

func labelledConfigMap() *corev1.ConfigMap {
	cm := configMap(function())
	cm.Name, cm.OwnerReferences = "copy", nil
	return cm
}

func unlabelled(tr *pipelinev1.TaskRun) *pipelinev1.TaskRun {
	tr = tr.DeepCopy()
	tr.Labels = nil
	return tr
}

// merged returns what the existing Service becomes for the Function.
func merged(fn *v1alpha1.Function, existing *servingv1.Service) *servingv1.Service {
	svc, _ := knative.MergeService(knative.MakeService(fn, fn.Status.Image), existing, fn.Status.TemplateHash)
	return svc
}

func labelled() *v1alpha1.Function {
	fn := running1.DeepCopy()
	withLabels(map[string]string{"team": "a"})(fn)
	return fn
}

// editedBack returns the running Function after an edit of the source, and one
// that undid it while the build ran.
func editedBack(options ...functionOption) *v1alpha1.Function {
	fn := edited(withSource(sourceB), observed(reconfigured, buildCreated(taskRun(edited(withSource(sourceB)), builds.ReasonSourceChanged)), stillServing))
	fn.Generation = 3
	fn.Spec.Source = sourceA
	for _, option := range options {
		option(fn)
	}
	return fn
}

func reused(fn *v1alpha1.Function) {
	want := request(fn)
	fn.Status.Build = &v1alpha1.BuildStatus{Reason: builds.ReasonImageReused, Generation: fn.Generation, ImageTag: want.Tag, Inputs: want.Fingerprint}
	fn.Status.MarkBuildReady(v1alpha1.ReasonImageReused, "%s was built before.", fn.Status.Image)
}

func nextRun() *pipelinev1.TaskRun {
	return taskRun(edited(withSource(sourceB)), builds.ReasonSourceChanged, taskRunRunning)
}

func nextBuilding() *v1alpha1.Function {
	return edited(withSource(sourceB), observed(reconfigured, buildRunning(nextRun()), stillServing))
}

// revision returns the first revision of the Service.
func revision(ready, available corev1.ConditionStatus, reason, message string) *servingv1.Revision {
	r := &servingv1.Revision{ObjectMeta: metav1.ObjectMeta{Name: "greeter-00001", Namespace: namespace}}
	r.Status.SetConditions(apis.Conditions{
		{Type: servingv1.RevisionConditionReady, Status: ready, Reason: reason, Message: message},
		{Type: servingv1.RevisionConditionResourcesAvailable, Status: available, Reason: reason, Message: message},
	})
	return r
}

// revisionOf returns the revision that Serving makes of the Service.
func revisionOf(svc *servingv1.Service, name string) *servingv1.Revision {
	template := svc.Spec.Template.DeepCopy()
	r := &servingv1.Revision{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	r.Name, r.Namespace = name, svc.Namespace
	r.Labels["serving.knative.dev/service"] = svc.Name
	r.Labels["serving.knative.dev/serviceUID"] = string(svc.UID)
	r.Labels["serving.knative.dev/configurationGeneration"] = "1"
	r.Annotations["serving.knative.dev/creator"] = "someone"
	r.Annotations["serving.knative.dev/routingStateModified"] = "2026-06-01T12:00:00Z"
	return r
}

func predecessorsService() *servingv1.Service {
	fn := running1.DeepCopy()
	fn.UID = "uid-0"
	return service(fn, serviceReady)
}

func withImage(image string) *v1alpha1.Function {
	fn := running1.DeepCopy()
	fn.Status.Image = image
	return fn
}

func pulledFrom(host string, options ...functionOption) *v1alpha1.Function {
	fn := running1.DeepCopy()
	fn.Status.Image = host + "/functions/default/greeter@" + digestA
	fn.Status.MarkBuildReady(v1alpha1.ReasonTaskRunSucceeded, "TaskRun %s built %s.", tr1.Name, fn.Status.Image)
	for _, option := range options {
		option(fn)
	}
	return fn
}

func planIn(cfg *config.Config, fn *v1alpha1.Function) plan {
	want, ok := makePlan(config.ToContext(context.Background(), cfg), fn.DeepCopy())
	if !ok {
		panic("no plan")
	}
	return want
}

func configMapIn(cfg *config.Config, fn *v1alpha1.Function) *corev1.ConfigMap {
	want := planIn(cfg, fn)
	return configMapOf(want, fn)
}

// rebased returns the running Function after its runtime got a new base image.
func rebased(cfg *config.Config) *v1alpha1.Function {
	fn := running1.DeepCopy()
	want := planIn(cfg, fn)
	fn.Status.MarkConfigurationReady(v1alpha1.ReasonConfigMapUpdated, "ConfigMap %s holds the build context.", configMapIn(cfg, fn).Name)
	fn.Status.Build = &v1alpha1.BuildStatus{Reason: builds.ReasonRuntimeChanged, Generation: 1, ImageTag: want.request.Tag, Inputs: want.request.Fingerprint}
	fn.Status.MarkBuildUnknown(v1alpha1.ReasonTaskRunsDeleted, "The build starts when earlier ones are gone: %s.", tr1.Name)
	fn.Status.UpdatePhase()
	return fn
}
