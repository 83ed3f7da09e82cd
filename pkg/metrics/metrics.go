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

// Package metrics exports metrics of Functions, builds and reconciles. docs/metrics.md
// describes them.
package metrics

import (
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/reconciler"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	informers "github.com/kiln-dev/kiln/pkg/client/informers/externalversions/serverless/v1alpha1"
)

const (
	scopeName = "github.com/kiln-dev/kiln/pkg/metrics"

	phaseKey   = attribute.Key("phase")
	runtimeKey = attribute.Key("runtime")
	builderKey = attribute.Key("builder")
	reasonKey  = attribute.Key("reason")
	outcomeKey = attribute.Key("outcome")
)

// Instrument measures the controller's reconciles, builds and Functions. A replica counts
// only the Functions that it leads, so the sum over all replicas is correct.
func Instrument(provider metric.MeterProvider, impl *controller.Impl, functions informers.FunctionInformer) error {
	leader, ok := impl.Reconciler.(leader)
	if !ok {
		return fmt.Errorf("%T does not know which Functions it leads", impl.Reconciler)
	}
	meter := provider.Meter(scopeName)
	reconciles, err := newReconciles(meter, leader)
	if err != nil {
		return fmt.Errorf("failed to measure reconciles: %w", err)
	}
	builds, err := newBuilds(meter, leader)
	if err != nil {
		return fmt.Errorf("failed to measure builds: %w", err)
	}
	if err := countFunctions(meter, leader, functions.Lister()); err != nil {
		return fmt.Errorf("failed to count Functions: %w", err)
	}
	if _, err := functions.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: builds.onUpdate}); err != nil {
		return fmt.Errorf("failed to watch Functions: %w", err)
	}
	impl.Reconciler = reconciles
	return nil
}

// leader is a reconciler that knows which keys it leads, as those of injection-gen do.
type leader interface {
	controller.Reconciler
	reconciler.LeaderAware
	IsLeaderFor(key types.NamespacedName) bool
}

func keyOf(fn *v1alpha1.Function) types.NamespacedName {
	return types.NamespacedName{Namespace: fn.Namespace, Name: fn.Name}
}
