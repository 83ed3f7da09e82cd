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

package credentials

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"
	pkgreconciler "knative.dev/pkg/reconciler"
	"knative.dev/pkg/system"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	functioninformer "github.com/kiln-dev/kiln/pkg/client/injection/informers/serverless/v1alpha1/function"
)

const controllerName = "credentials"

// NewController returns a controller that copies the credentials of registries
// to the namespaces of Functions.
func NewController(ctx context.Context, cmw configmap.Watcher) *controller.Impl {
	logger := logging.FromContext(ctx).Named(controllerName)
	functions := functioninformer.Get(ctx)
	r := &Reconciler{
		secrets:        Get(ctx),
		functionLister: functions.Lister(),
		recorder:       newRecorder(ctx),
		now:            time.Now,
	}
	impl := controller.NewContext(ctx, r, controller.ControllerOptions{WorkQueueName: controllerName, Logger: logger})
	r.PromoteFunc = func(bucket pkgreconciler.Bucket, enqueue func(pkgreconciler.Bucket, types.NamespacedName)) error {
		namespaces, err := r.namespaces()
		for _, namespace := range namespaces {
			enqueue(bucket, types.NamespacedName{Name: namespace})
		}
		return err
	}

	enqueueAll := func() {
		namespaces, err := r.namespaces()
		if err != nil {
			logger.Errorw("Failed to list namespaces", "error", err)
		}
		for _, namespace := range namespaces {
			impl.EnqueueKey(types.NamespacedName{Name: namespace})
		}
	}
	store := config.NewStore(logger.Named("config-store"), func(name string, _ any) {
		if name == config.RegistryConfigName {
			enqueueAll()
		}
	})
	store.WatchConfigs(cmw)
	r.store = store

	if _, err := functions.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    impl.EnqueueNamespaceOf,
		DeleteFunc: impl.EnqueueNamespaceOf,
	}); err != nil {
		logger.Panicw("Failed to watch an informer", "error", err)
	}
	r.secrets.OnChange(func(obj any) {
		impl.EnqueueNamespaceOf(obj)
		if namespaceOf(obj) == system.Namespace() {
			enqueueAll()
		}
	})
	return impl
}

// namespaces returns the namespaces that hold Functions, or Secrets that might be
// copies; some of them twice.
func (r *Reconciler) namespaces() ([]string, error) {
	fns, err := r.functionLister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("failed to list Functions: %w", err)
	}
	namespaces, err := r.secrets.namespaces()
	for _, fn := range fns {
		namespaces = append(namespaces, fn.Namespace)
	}
	return append(namespaces, system.Namespace()), err
}

func newRecorder(ctx context.Context) record.EventRecorder {
	if recorder := controller.GetEventRecorder(ctx); recorder != nil {
		return recorder
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: kubeclient.Get(ctx).CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: controllerName})
}
