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

	"go.opentelemetry.io/otel"

	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	configmapinformer "knative.dev/pkg/client/injection/kube/informers/core/v1/configmap/filtered"
	podinformer "knative.dev/pkg/client/injection/kube/informers/core/v1/pod/filtered"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/background"
	"github.com/kiln-dev/kiln/pkg/builds/job"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/children"
	kilnclient "github.com/kiln-dev/kiln/pkg/client/injection/client"
	functioninformer "github.com/kiln-dev/kiln/pkg/client/injection/informers/serverless/v1alpha1/function"
	functionreconciler "github.com/kiln-dev/kiln/pkg/client/injection/reconciler/serverless/v1alpha1/function"
	"github.com/kiln-dev/kiln/pkg/contents"
	"github.com/kiln-dev/kiln/pkg/fairqueue"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/metrics"
	"github.com/kiln-dev/kiln/pkg/platform"
	"github.com/kiln-dev/kiln/pkg/pods"
	"github.com/kiln-dev/kiln/pkg/reconciler/credentials"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
	"github.com/kiln-dev/kiln/pkg/serve/kubernetes"
	"github.com/kiln-dev/kiln/pkg/slim"
	"github.com/kiln-dev/kiln/pkg/sources/poll"
)

const queueName = "functions"

// NewController returns the controller of Functions. The context must carry informers
// that children.LabelSelector filters.
func NewController(ctx context.Context, cmw configmap.Watcher) *controller.Impl {
	logger := logging.FromContext(ctx)
	ctx = withEventRecorder(ctx)
	functions := functioninformer.Get(ctx)
	configMaps := configmapinformer.Get(ctx, children.LabelSelector)
	podInformer := podinformer.Get(ctx, children.LabelSelector)
	podLister := slim.PodLister{PodLister: podInformer.Lister(), Indexer: slim.Indexed(ctx, podInformer.Informer())}
	mounts := pods.MountEvents(ctx)
	mountEvents := corev1listers.NewEventLister(mounts.GetIndexer())
	secrets := credentials.Get(ctx)

	r := &Reconciler{
		kiln:            kilnclient.Get(ctx),
		kube:            kubeclient.Get(ctx),
		configMapLister: slim.ConfigMapLister{ConfigMapLister: configMaps.Lister(), Indexer: slim.Indexed(ctx, configMaps.Informer())},
		secrets:         secrets,
	}
	servers, watchServers := newServers(ctx, podLister, mountEvents, secrets, r.checkCurrent)
	builders, watchBuilds := newBuilders(ctx, podLister, mountEvents, secrets)
	r.servers, r.builders = servers, builders

	var fair *fairqueue.Queue
	impl := functionreconciler.NewImpl(ctx, r, func(impl *controller.Impl) controller.Options {
		fair = fairqueue.New(queueName, isBegun(functions.Lister()), impl.EnqueueKey)
		r.queue = queue.New(ctx, queue.Limits{Cluster: 1}, fair.Add)
		store := config.NewStore(logger.Named("config-store"), setLimits(r.queue), func(string, any) {
			for _, fn := range functions.Informer().GetStore().List() {
				fair.AddObject(fn)
			}
		})
		store.WatchConfigs(cmw)
		// ReconcileKind writes the status itself.
		return controller.Options{ConfigStore: store, SkipStatusUpdates: true, DemoteFunc: r.Demote}
	})

	polls, checks, content := r.startBackground(ctx, images.NewClient(secrets.Keychain), fair.Add)
	if err := metrics.Instrument(otel.GetMeterProvider(), impl, functions); err != nil {
		logger.Panicw("Failed to set up metrics", "error", err)
	}
	fair.Leader = NewLeader(ctx, impl.Reconciler.(fairqueue.Leader), r.queue, functions.Lister(), r.builders)
	fair.Start(ctx, impl.Concurrency)
	impl.Reconciler = fair
	warnOfConfig(ctx, cmw, fair)

	ofChild := enqueueFunctionOf(fair.Add)
	slim.Watch(ctx, functions.Informer(), slim.Function, controller.HandleAll(fair.AddObject))
	slim.Watch(ctx, functions.Informer(), slim.Function, ReleaseDeleted(r.queue.Release, polls.Forget, checks.Forget, content.Forget))
	slim.Watch(ctx, configMaps.Informer(), slim.ConfigMap, controller.HandleAll(ofChild))
	slim.Watch(ctx, podInformer.Informer(), pods.Slim(knative.RevisionLabelKey, serverless.RevisionLabelKey),
		NewPodHandler(functions.Lister(), mountEvents, fair.Add))
	_, _ = podInformer.Informer().AddEventHandler(hurryPulls(checks.Hurry))
	slim.Watch(ctx, mounts, pods.SlimEvent, controller.HandleAll(pods.EnqueueFunctionOfMount(podInformer.Lister(), fair.Add)))
	for _, watch := range watchBuilds {
		watch(ctx, r.queue, ofChild)
	}
	for _, watch := range watchServers {
		watch(ctx, ofChild)
	}
	secrets.OnChange(enqueueFunctionsBeside(ctx, fair.Add, functions.Lister()))
	return impl
}

// watchFunc reports each build to the queue, and then calls wake with its object.
type watchFunc = func(ctx context.Context, q *queue.Queue, wake func(any))

// newBuilders returns the builders, and how to watch those whose API the cluster has.
func newBuilders(ctx context.Context, podLister corev1listers.PodLister, mountEvents corev1listers.EventLister, secrets *credentials.Secrets) (Builders, []watchFunc) {
	var all Builders
	var watches []watchFunc
	if platform.Has(ctx, tekton.API) {
		taskRuns := tekton.NewBuilder(ctx, podLister, mountEvents)
		secrets.AddFind(taskRuns.FindSecret)
		all, watches = append(all, taskRuns), append(watches, taskRuns.Watch)
	} else {
		all = append(all, Absent(&tekton.Builder{}))
	}
	jobs := job.NewBuilder(ctx, podLister, mountEvents)
	secrets.AddFind(jobs.FindSecret)
	return append(all, jobs), append(watches, jobs.Watch)
}

// newServers returns the servers whose API the cluster has, and how to watch their objects.
func newServers(ctx context.Context, podLister corev1listers.PodLister, mountEvents corev1listers.EventLister, secrets *credentials.Secrets,
	checkCurrent func(context.Context, *v1alpha1.Function) error,
) (Servers, []func(context.Context, func(any))) {
	var all Servers
	var watches []func(context.Context, func(any))
	if platform.Has(ctx, knative.API) {
		services := knative.NewServer(ctx, podLister, mountEvents, checkCurrent)
		secrets.AddFind(services.FindSecret)
		all, watches = append(all, services), append(watches, services.Watch)
	}
	deployments := kubernetes.NewServer(ctx, podLister, mountEvents, checkCurrent)
	secrets.AddFind(deployments.FindSecret)
	return append(all, deployments), append(watches, deployments.Watch)
}

// startBackground starts the workers that talk to registries and Git servers, and that read
// Secrets and ConfigMaps of authors.
func (r *Reconciler) startBackground(ctx context.Context, client *images.Client, wake func(types.NamespacedName)) (
	*background.Worker[poll.Branch, poll.Found], *background.Worker[images.Check, images.Checked], Contents,
) {
	lookups, taggings := images.NewLookups(client, wake), images.NewTaggings(client, wake)
	checks := images.NewChecks(client, wake)
	checks.Start(ctx)
	polls := poll.New(poll.NewResolver(r.kube.CoreV1()), wake)
	lookups.Start(ctx)
	taggings.Start(ctx)
	polls.Start(ctx)
	content := contents.New(contents.NewReader(r.kube.CoreV1()), wake)
	content.Start(ctx)
	r.lookups, r.taggings, r.polls, r.checks, r.contents = lookups, taggings, polls, checks, content
	return polls, checks, content
}
