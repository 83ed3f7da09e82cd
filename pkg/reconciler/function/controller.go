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

	pipelineclient "github.com/tektoncd/pipeline/pkg/client/injection/client"
	taskruninformer "github.com/tektoncd/pipeline/pkg/client/injection/informers/pipeline/v1/taskrun/filtered"
	"go.opentelemetry.io/otel"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	configmapinformer "knative.dev/pkg/client/injection/kube/informers/core/v1/configmap/filtered"
	podinformer "knative.dev/pkg/client/injection/kube/informers/core/v1/pod/filtered"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/kmeta"
	"knative.dev/pkg/logging"
	servingclient "knative.dev/serving/pkg/client/injection/client"
	serviceinformer "knative.dev/serving/pkg/client/injection/informers/serving/v1/service/filtered"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	kilnclient "github.com/kiln-dev/kiln/pkg/client/injection/client"
	functioninformer "github.com/kiln-dev/kiln/pkg/client/injection/informers/serverless/v1alpha1/function"
	functionreconciler "github.com/kiln-dev/kiln/pkg/client/injection/reconciler/serverless/v1alpha1/function"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/metrics"
	"github.com/kiln-dev/kiln/pkg/reconciler/credentials"
	"github.com/kiln-dev/kiln/pkg/sources/follow"
)

// ChildSelector selects what Kiln has created for Functions. The informers of
// the kinds it creates must be filtered by it, so that the controller does not
// hold every ConfigMap of the cluster in memory.
const ChildSelector = serverless.FunctionUIDLabelKey

// NewController returns a controller that builds and runs Functions.
func NewController(ctx context.Context, cmw configmap.Watcher) *controller.Impl {
	logger := logging.FromContext(ctx)
	ctx = withEventRecorder(ctx)
	functions := functioninformer.Get(ctx)
	configMaps := configmapinformer.Get(ctx, ChildSelector)
	taskRuns := taskruninformer.Get(ctx, ChildSelector)
	services := serviceinformer.Get(ctx, ChildSelector)
	pods := podinformer.Get(ctx, ChildSelector)
	mounts := mountEvents(ctx)
	secrets := credentials.Get(ctx)

	r := &Reconciler{
		kiln:            kilnclient.Get(ctx),
		kube:            kubeclient.Get(ctx),
		tekton:          pipelineclient.Get(ctx),
		serving:         servingclient.Get(ctx),
		configMapLister: indexedConfigMaps{configMaps.Lister(), indexed(ctx, configMaps.Informer())},
		taskRunLister:   indexedTaskRuns{taskRuns.Lister(), indexed(ctx, taskRuns.Informer())},
		serviceLister:   services.Lister(),
		podLister:       indexedPods{pods.Lister(), indexed(ctx, pods.Informer())},

		mountEventLister: corev1listers.NewEventLister(mounts.GetIndexer()),

		secrets: secrets,
		logs:    podLogs{kubeclient.Get(ctx)},
	}
	var fair *fairQueue
	impl := functionreconciler.NewImpl(ctx, r, func(impl *controller.Impl) controller.Options {
		fair = newFairQueue(isBegun(functions.Lister()), impl.EnqueueKey)
		r.queue = queue.New(queue.Limits{Cluster: 1}, fair.Add)
		store := config.NewStore(logger.Named("config-store"), setLimits(r.queue), func(string, any) {
			for _, fn := range functions.Informer().GetStore().List() {
				fair.AddObject(fn)
			}
		})
		store.WatchConfigs(cmw)
		// ReconcileKind writes the status itself.
		return controller.Options{ConfigStore: store, SkipStatusUpdates: true, DemoteFunc: r.demote}
	})

	r.startAsking(ctx, images.NewClient(secrets.Keychain), fair.Add)
	follower := follow.New(follow.NewResolver(r.kube.CoreV1()), fair.Add)
	follower.Start(ctx)
	r.follower = follower
	if err := metrics.Instrument(otel.GetMeterProvider(), impl, functions); err != nil {
		logger.Panicw("Failed to set up metrics", "error", err)
	}
	fair.leader = &queueLeader{leader: impl.Reconciler.(leader), ctx: ctx, queue: r.queue, functions: functions.Lister(), tekton: r.tekton}
	fair.start(ctx, impl.Concurrency)
	impl.Reconciler = fair
	warnOfConfig(ctx, cmw, fair)
	watch(ctx, functions.Informer(), withoutApplied, controller.HandleAll(fair.AddObject))
	watch(ctx, functions.Informer(), withoutApplied, releaseDeleted(r.queue.Release, follower.Forget))
	watch(ctx, taskRuns.Informer(), withoutTask, countBuilds(r.queue, enqueueFunctionOf(fair.Add)))
	watch(ctx, configMaps.Informer(), withoutContent, controller.HandleAll(enqueueFunctionOf(fair.Add)))
	watch(ctx, services.Informer(), withoutTemplate, controller.HandleAll(enqueueFunctionOf(fair.Add)))
	watch(ctx, pods.Informer(), withoutPodSpec, cache.FilteringResourceEventHandler{
		FilterFunc: isTelling(functions.Lister()),
		Handler:    controller.HandleAll(enqueueFunctionOfLabel(fair.Add)),
	})
	watch(ctx, mounts, withoutSource, controller.HandleAll(enqueueFunctionOfMount(pods.Lister(), fair.Add)))
	secrets.OnChange(enqueueFunctionsBeside(ctx, fair.Add, functions.Lister()))
	return impl
}

// startAsking starts what asks registries, and tells them, beside the reconciler.
func (r *Reconciler) startAsking(ctx context.Context, client *images.Client, wake func(types.NamespacedName)) {
	lookups, taggings := images.NewLookups(client, wake), images.NewTaggings(client, wake)
	lookups.Start(ctx)
	taggings.Start(ctx)
	r.lookups, r.taggings = lookups, taggings
}

// enqueueFunctionsBeside finds the Functions of the namespace of an object.
func enqueueFunctionsBeside(ctx context.Context, enqueue func(types.NamespacedName), lister listers.FunctionLister) func(any) {
	return func(obj any) {
		object, err := kmeta.DeletionHandlingAccessor(obj)
		if err != nil {
			logging.FromContext(ctx).Errorw("Failed to read an event", "error", err)
			return
		}
		fns, err := lister.Functions(object.GetNamespace()).List(labels.Everything())
		if err != nil {
			logging.FromContext(ctx).Errorw("Failed to list Functions", "error", err)
		}
		for _, fn := range fns {
			enqueue(keyOf(fn))
		}
	}
}

// watch has the handler called for each event of the informer, which from then
// on keeps what the transform leaves of an object.
func watch(ctx context.Context, informer cache.SharedIndexInformer, transform cache.TransformFunc, handler cache.ResourceEventHandler) {
	logger := logging.FromContext(ctx)
	if err := informer.SetTransform(transform); err != nil {
		logger.Panicw("Failed to set the transform of an informer", "error", err)
	}
	if _, err := informer.AddEventHandler(handler); err != nil {
		logger.Panicw("Failed to watch an informer", "error", err)
	}
}

// withoutApplied drops what kubectl apply notes, which has the source once more. Of a
// Function nothing is written back but its status.
func withoutApplied(obj any) (any, error) {
	fn, ok := obj.(*v1alpha1.Function)
	if !ok {
		return obj, nil
	}
	delete(fn.Annotations, corev1.LastAppliedConfigAnnotation)
	shareMeta(&fn.ObjectMeta)
	shareText(&fn.Spec.Runtime)
	shareText(&fn.Spec.Visibility)
	shareResources(&fn.Spec.Resources)
	shareStatus(&fn.Status.Status)
	shareText(&fn.Status.Phase)
	shareURL(fn.Status.URL, fn.Status.Address)
	return fn, nil
}

// enqueueFunctionOf finds the Function of a child by the name of its owner, not
// by its UID: the deletion of what an earlier Function of that name has left
// wakes the one that waits for it. The label finds the Function of a child that
// has lost its owner reference.
func enqueueFunctionOf(enqueue func(types.NamespacedName)) func(any) {
	byLabel := enqueueFunctionOfLabel(enqueue)
	return func(obj any) {
		child, err := kmeta.DeletionHandlingAccessor(obj)
		if err != nil {
			return // It is no object that a watch tells of.
		}
		if owner := metav1.GetControllerOf(child); owner != nil {
			enqueue(types.NamespacedName{Namespace: child.GetNamespace(), Name: owner.Name})
		}
		byLabel(obj)
	}
}

// enqueueFunctionOfLabel finds the Function that a label names.
func enqueueFunctionOfLabel(enqueue func(types.NamespacedName)) func(any) {
	return func(obj any) {
		child, err := kmeta.DeletionHandlingAccessor(obj)
		if err != nil {
			return
		}
		if name := child.GetLabels()[serverless.FunctionNameLabelKey]; name != "" {
			enqueue(types.NamespacedName{Namespace: child.GetNamespace(), Name: name})
		}
	}
}
