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

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelineinformers "github.com/tektoncd/pipeline/pkg/client/informers/externalversions"
	pipelinelisters "github.com/tektoncd/pipeline/pkg/client/listers/pipeline/v1"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	appsv1listers "k8s.io/client-go/listers/apps/v1"
	autoscalingv2listers "k8s.io/client-go/listers/autoscaling/v2"
	batchv1listers "k8s.io/client-go/listers/batch/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/kmeta"
	servinginformers "knative.dev/serving/pkg/client/informers/externalversions"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	kilninformers "github.com/kiln-dev/kiln/pkg/client/informers/externalversions"
	kilnlisters "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test/controlplane"
)

// judge watches Kiln's objects without the proxy, and checks them against the stories.
type judge struct {
	images     *controlplane.Images
	functions  kilnlisters.FunctionLister
	configMaps corev1listers.ConfigMapLister
	taskRuns   pipelinelisters.TaskRunLister
	jobs       batchv1listers.JobLister
	services   servinglisters.ServiceLister
	// deployments, clusterIPs and scalers are what serves a Function without Knative.
	deployments appsv1listers.DeploymentLister
	clusterIPs  corev1listers.ServiceLister
	scalers     autoscalingv2listers.HorizontalPodAutoscalerLister
	changed     chan struct{}

	mu      sync.Mutex
	stories []*story
	// live are the unfinished builds by the UID of their Function.
	live map[types.UID]map[string]struct{}
	// most is the largest number of unfinished builds at one time.
	most  int
	wrong []string
}

// newJudge returns a judge that watches until ctx ends.
func newJudge(ctx context.Context, k *controlplane.Kiln) (*judge, error) {
	ours := func(o *metav1.ListOptions) { o.LabelSelector = serverless.FunctionUIDLabelKey }
	kiln := kilninformers.NewSharedInformerFactory(k.Admin.Kiln, 0)
	kube := informers.NewSharedInformerFactoryWithOptions(k.Admin.Kube, 0, informers.WithTweakListOptions(ours))
	tekton := pipelineinformers.NewSharedInformerFactoryWithOptions(k.Admin.Pipeline, 0, pipelineinformers.WithTweakListOptions(ours))
	serving := servinginformers.NewSharedInformerFactoryWithOptions(k.Admin.Serving, 0, servinginformers.WithTweakListOptions(ours))
	fns, cms := kiln.Serverless().V1alpha1().Functions(), kube.Core().V1().ConfigMaps()
	deployments, clusterIPs, scalers := kube.Apps().V1().Deployments(), kube.Core().V1().Services(), kube.Autoscaling().V2().HorizontalPodAutoscalers()
	trs, svcs, jobs := tekton.Tekton().V1().TaskRuns(), serving.Serving().V1().Services(), kube.Batch().V1().Jobs()
	j := &judge{
		images: k.Images, functions: fns.Lister(), configMaps: cms.Lister(), taskRuns: trs.Lister(), jobs: jobs.Lister(), services: svcs.Lister(),
		deployments: deployments.Lister(), clusterIPs: clusterIPs.Lister(), scalers: scalers.Lister(),
		changed: make(chan struct{}, 1), live: map[types.UID]map[string]struct{}{},
	}
	for _, informer := range []cache.SharedIndexInformer{trs.Informer(), jobs.Informer()} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: j.see, UpdateFunc: func(_, obj any) { j.see(obj) }, DeleteFunc: j.unsee,
		})
		if err != nil {
			return nil, fmt.Errorf("failed to watch builds: %w", err)
		}
	}
	var synced []cache.InformerSynced
	for _, informer := range []cache.SharedIndexInformer{
		fns.Informer(), cms.Informer(), trs.Informer(), jobs.Informer(), svcs.Informer(), deployments.Informer(), clusterIPs.Informer(), scalers.Informer(),
	} {
		synced = append(synced, informer.HasSynced)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: j.wake, UpdateFunc: func(_, obj any) { j.wake(obj) }, DeleteFunc: j.wake,
		})
		if err != nil {
			return nil, fmt.Errorf("failed to watch: %w", err)
		}
	}
	for _, factory := range []interface{ Start(<-chan struct{}) }{kiln, kube, tekton, serving} {
		factory.Start(ctx.Done())
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, errors.New("failed to watch: the run has ended")
	}
	return j, nil
}

func (j *judge) wake(any) {
	select {
	case j.changed <- struct{}{}:
	default:
	}
}

// expect sets the stories to check.
func (j *judge) expect(stories []*story) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stories = stories
}

// see checks that a Function has at most one unfinished build of either kind.
func (j *judge) see(obj any) {
	build, err := kmeta.DeletionHandlingAccessor(obj)
	if err != nil {
		return
	}
	owner := metav1.GetControllerOf(build)
	if owner == nil {
		return
	}
	if hasEnded(obj) {
		j.unsee(obj)
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	running := j.live[owner.UID]
	if running == nil {
		running = map[string]struct{}{}
		j.live[owner.UID] = running
	}
	running[build.GetName()] = struct{}{}
	if len(running) > 1 {
		j.wrong = append(j.wrong, fmt.Sprintf("Function %s/%s has %d builds that run: %s", build.GetNamespace(), owner.Name,
			len(running), strings.Join(slices.Sorted(maps.Keys(running)), ", ")))
	}
	all := 0
	for _, running := range j.live {
		all += len(running)
	}
	j.most = max(j.most, all)
}

// hasEnded reports whether a TaskRun or a Job has ended. A Job that has pushed its image
// has, although its status follows later.
func hasEnded(obj any) bool {
	if tr, ok := obj.(*pipelinev1.TaskRun); ok {
		return tr.IsDone()
	}
	job, ok := obj.(*batchv1.Job)
	return ok && (job.Annotations[serverless.BuildResultsAnnotationKey] != "" || len(job.Status.Conditions) > 0)
}

func (j *judge) unsee(obj any) {
	tr, err := kmeta.DeletionHandlingAccessor(obj)
	if err != nil {
		return
	}
	if owner := metav1.GetControllerOf(tr); owner != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.live[owner.UID], tr.GetName())
	}
}

// await waits until check returns nil. It also polls, because no watch reports changes of
// the registry.
func (j *judge) await(ctx context.Context, timeout time.Duration, what string, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("failed to wait until %s: %w", what, cmp.Or(err, context.Cause(ctx)))
		case <-j.changed:
		case <-time.After(quiet / 10):
		}
	}
}

// settled returns nil if every Function has the final state of its story and there are no
// other objects.
func (j *judge) settled() error {
	j.mu.Lock()
	stories := j.stories
	j.mu.Unlock()
	owners := map[types.UID]bool{}
	for _, s := range stories {
		fn, err := j.functions.Functions(s.key.Namespace).Get(s.key.Name)
		switch {
		case err != nil && s.source == "":
			continue
		case err != nil:
			return fmt.Errorf("failed to get Function %s: %w", s.key, err)
		case s.source == "":
			return fmt.Errorf("deleted Function %s still exists", s.key)
		}
		owners[fn.UID] = true
		if err := j.isAsToldBy(s, fn); err != nil {
			return fmt.Errorf("failed to find Function %s, %s, as told: %w", s.key, fn.Status.Phase, err)
		}
	}
	return j.noneBut(owners)
}

// gone returns nil if no Function and no child exists.
func (j *judge) gone() error {
	fns, err := j.functions.List(labels.Everything())
	if err != nil || len(fns) > 0 {
		return fmt.Errorf("%d Functions still exist: %w", len(fns), err)
	}
	return j.noneBut(nil)
}

// noneBut returns nil if each child belongs to one of the owners.
func (j *judge) noneBut(owners map[types.UID]bool) error {
	all, err := j.children(labels.Everything())
	if err != nil {
		return err
	}
	for _, child := range all {
		if owner := metav1.GetControllerOf(child); owner == nil || !owners[owner.UID] {
			return fmt.Errorf("%T %s/%s outlives its Function", child, child.GetNamespace(), child.GetName())
		}
	}
	return nil
}

func (j *judge) children(selector labels.Selector) (all []metav1.Object, err error) {
	cms, err := j.configMaps.List(selector)
	if err != nil {
		return nil, fmt.Errorf("failed to list ConfigMaps: %w", err)
	}
	trs, err := j.taskRuns.List(selector)
	if err != nil {
		return nil, fmt.Errorf("failed to list TaskRuns: %w", err)
	}
	jobs, err := j.jobs.List(selector)
	if err != nil {
		return nil, fmt.Errorf("failed to list Jobs: %w", err)
	}
	svcs, err := j.services.List(selector)
	if err != nil {
		return nil, fmt.Errorf("failed to list Services: %w", err)
	}
	for _, cm := range cms {
		all = append(all, cm)
	}
	for _, tr := range trs {
		all = append(all, tr)
	}
	for _, job := range jobs {
		all = append(all, job)
	}
	for _, svc := range svcs {
		all = append(all, svc)
	}
	return j.plainChildren(all, selector)
}

// plainChildren appends what serves Functions without Knative.
func (j *judge) plainChildren(all []metav1.Object, selector labels.Selector) ([]metav1.Object, error) {
	deployments, err := j.deployments.List(selector)
	if err != nil {
		return nil, fmt.Errorf("failed to list Deployments: %w", err)
	}
	clusterIPs, err := j.clusterIPs.List(selector)
	if err != nil {
		return nil, fmt.Errorf("failed to list Services: %w", err)
	}
	scalers, err := j.scalers.List(selector)
	if err != nil {
		return nil, fmt.Errorf("failed to list HorizontalPodAutoscalers: %w", err)
	}
	for _, deployment := range deployments {
		all = append(all, deployment)
	}
	for _, clusterIP := range clusterIPs {
		all = append(all, clusterIP)
	}
	for _, scaler := range scalers {
		all = append(all, scaler)
	}
	return all, nil
}

// isAsToldBy returns nil if a Function has the final state of its story.
func (j *judge) isAsToldBy(s *story, fn *v1alpha1.Function) error {
	selector := labels.SelectorFromSet(labels.Set{serverless.FunctionUIDLabelKey: string(fn.UID)})
	cms, err := j.configMaps.ConfigMaps(fn.Namespace).List(selector)
	if err != nil {
		return fmt.Errorf("failed to list ConfigMaps: %w", err)
	}
	build := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady)
	j.mu.Lock()
	running := len(j.live[fn.UID])
	j.mu.Unlock()
	switch {
	case fn.Spec.Source != s.source:
		return errors.New("the watch has not delivered the last edit")
	case fn.Status.ObservedGeneration != fn.Generation:
		return fmt.Errorf("generation %d was not observed, but %d", fn.Generation, fn.Status.ObservedGeneration)
	case running > 0:
		return fmt.Errorf("a build runs, and BuildReady is %s: %s", build.GetReason(), build.GetMessage())
	case len(cms) != 1:
		return fmt.Errorf("it has %d ConfigMaps", len(cms))
	case s.isBroken() && !build.IsFalse():
		return fmt.Errorf("BuildReady is %s: %s, but the source cannot be built", build.GetReason(), build.GetMessage())
	case s.isBroken():
		return nil
	case !fn.IsReady():
		ready := fn.Status.GetCondition(v1alpha1.FunctionConditionReady)
		return fmt.Errorf("condition Ready is %s: %s", ready.GetReason(), ready.GetMessage())
	}
	// The tag may be that of an earlier generation with the same spec.
	if err := j.images.Tagged(fn.Status.Image, fn.Status.VersionTag); err != nil {
		return err
	}
	return j.serves(s, fn)
}

// servedBy returns an error if the chosen server serves no Function. Those that are created
// before Kiln knows the choice have another one.
func (j *judge) servedBy(deployments bool) error {
	fns, err := j.functions.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("failed to list Functions: %w", err)
	}
	isChosen := func(fn *v1alpha1.Function) bool {
		return (fn.Status.Serving == string(config.KubernetesServer)) == deployments
	}
	if !slices.ContainsFunc(fns, isChosen) {
		return fmt.Errorf("the chosen server serves none of %d Functions", len(fns))
	}
	return nil
}

// podSpecOf returns the pods that serve a Function. Only one server may have an object.
func (j *judge) podSpecOf(fn *v1alpha1.Function) (*corev1.PodSpec, error) {
	svc, errService := j.services.Services(fn.Namespace).Get(fn.Name)
	deployment, errDeployment := j.deployments.Deployments(fn.Namespace).Get(fn.Name)
	if errService == nil && errDeployment == nil {
		return nil, errors.New("it has a Knative Service and a Deployment")
	}
	if fn.Status.Serving != string(config.KubernetesServer) {
		if errService != nil {
			return nil, fmt.Errorf("failed to get Service: %w", errService)
		}
		return &svc.Spec.Template.Spec.PodSpec, nil
	}
	if errDeployment != nil {
		return nil, fmt.Errorf("failed to get Deployment: %w", errDeployment)
	}
	if _, err := j.clusterIPs.Services(fn.Namespace).Get(fn.Name); err != nil {
		return nil, fmt.Errorf("failed to get Service: %w", err)
	}
	return &deployment.Spec.Template.Spec, nil
}

// serves returns nil if what serves the Function has the final state of its story.
func (j *judge) serves(s *story, fn *v1alpha1.Function) error {
	pods, err := j.podSpecOf(fn)
	if err != nil {
		return err
	}
	container := pods.Containers[0]
	if container.Image != fn.Status.Image {
		return fmt.Errorf("the pods run %s, but the status names %s", container.Image, fn.Status.Image)
	}
	if !hasGreeting(container, s.greeting) {
		return fmt.Errorf("the pods do not have the variable GREETING=%s", s.greeting)
	}
	annotations, err := j.images.Annotations(container.Image)
	if err != nil {
		return err
	}
	if annotations[sourceAnnotation] != s.source {
		return fmt.Errorf("its image has the source %q, but its source is %q", annotations[sourceAnnotation], s.source)
	}
	return nil
}
