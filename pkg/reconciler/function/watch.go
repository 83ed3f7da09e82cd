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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/kmeta"
	"knative.dev/pkg/logging"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/pods"
)

// enqueueFunctionOf returns a handler that enqueues the Function of a child. It uses the
// name of the owner, not the UID: the deletion of a child of an earlier Function wakes
// the new Function of that name. The label finds the Function of an orphaned child.
func enqueueFunctionOf(enqueue func(types.NamespacedName)) func(any) {
	byLabel := enqueueFunctionOfLabel(enqueue)
	return func(obj any) {
		child, err := kmeta.DeletionHandlingAccessor(obj)
		if err != nil {
			return
		}
		if owner := metav1.GetControllerOf(child); owner != nil {
			enqueue(types.NamespacedName{Namespace: child.GetNamespace(), Name: owner.Name})
		}
		byLabel(obj)
	}
}

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

// enqueueFunctionsBeside returns a handler that enqueues all Functions in the namespace
// of an object.
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
			enqueue(children.KeyOf(fn))
		}
	}
}

// isBegun reports whether a Function is being built or deployed. Such Functions go first
// in the queue. An ended build then releases its slot at once.
func isBegun(lister listers.FunctionLister) func(types.NamespacedName) bool {
	return func(key types.NamespacedName) bool {
		fn, err := lister.Functions(key.Namespace).Get(key.Name)
		return err == nil && (fn.Status.Phase == v1alpha1.FunctionBuilding || fn.Status.Phase == v1alpha1.FunctionDeploying)
	}
}

// hurryPulls returns a handler that calls hurry for the Function of a pod whose image
// cannot be pulled.
func hurryPulls(hurry func(types.NamespacedName)) cache.ResourceEventHandler {
	return cache.FilteringResourceEventHandler{
		FilterFunc: pods.CannotPull,
		Handler:    controller.HandleAll(enqueueFunctionOfLabel(hurry)),
	}
}
