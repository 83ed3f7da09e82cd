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

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

// kinds are the informers of the objects with this server's label. Serving's own
// Deployments and Services have Kiln's other labels, and must not fill the cache.
var kinds = map[string]func(informers.SharedInformerFactory) cache.SharedIndexInformer{
	deploymentKind: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Apps().V1().Deployments().Informer()
	},
	serviceKind: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Core().V1().Services().Informer()
	},
	scalerKind: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Autoscaling().V2().HorizontalPodAutoscalers().Informer()
	},
	budgetKind: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Policy().V1().PodDisruptionBudgets().Informer()
	},
	ingressKind: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Networking().V1().Ingresses().Informer()
	},
}

func init() {
	for kind, informer := range kinds {
		injection.Default.RegisterInformer(withInformer(kind, informer))
		injection.Fake.RegisterInformer(withInformer(kind, informer))
	}
}

type informerKey string

func withInformer(kind string, informer func(informers.SharedInformerFactory) cache.SharedIndexInformer) injection.InformerInjector {
	return func(ctx context.Context) (context.Context, controller.Informer) {
		ours := func(options *metav1.ListOptions) { options.LabelSelector = serverless.ServerLabelKey }
		factory := informers.NewSharedInformerFactoryWithOptions(kubeclient.Get(ctx), controller.GetResyncPeriod(ctx), informers.WithTweakListOptions(ours))
		made := informer(factory)
		return context.WithValue(ctx, informerKey(kind), made), made
	}
}

// informerOf returns the informer of the kind. It panics where injection has not set it up.
func informerOf(ctx context.Context, kind string) cache.SharedIndexInformer {
	informer, ok := ctx.Value(informerKey(kind)).(cache.SharedIndexInformer)
	if !ok {
		logging.FromContext(ctx).Panicf("Unable to fetch the informer of %ss from context.", kind)
	}
	return informer
}

// storesOf returns the stores of the informers.
func storesOf(ctx context.Context) Stores {
	return Stores{
		Deployments: informerOf(ctx, deploymentKind).GetStore(),
		Services:    informerOf(ctx, serviceKind).GetStore(),
		Scalers:     informerOf(ctx, scalerKind).GetStore(),
		Budgets:     informerOf(ctx, budgetKind).GetStore(),
		Ingresses:   informerOf(ctx, ingressKind).GetStore(),
	}
}

// WakeOnChange returns a handler that calls wake with each object that changes in the cache.
// Kubernetes writes the status of an autoscaler every few seconds, which Slim drops.
func WakeOnChange(wake func(any)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{AddFunc: wake, DeleteFunc: wake, UpdateFunc: func(old, now any) {
		if !isSame(old, now) {
			wake(now)
		}
	}}
}

// isSame reports whether two versions of an object differ in nothing else.
func isSame(old, now any) bool {
	before, ok := old.(runtime.Object)
	after, is := now.(metav1.Object)
	if !ok || !is {
		return false
	}
	before = before.DeepCopyObject()
	before.(metav1.Object).SetResourceVersion(after.GetResourceVersion())
	return equality.Semantic.DeepEqual(before, after)
}
