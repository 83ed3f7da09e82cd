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

package v1alpha1

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
)

// SetDefaults implements apis.Defaultable. An accepted Function keeps its defaults until
// its spec is edited, so a changed configuration does not change it.
func (fn *Function) SetDefaults(ctx context.Context) {
	if apis.IsInStatusUpdate(ctx) || fn.isDefaulted() && !apis.IsInCreate(ctx) && !apis.IsInUpdate(ctx) {
		return
	}
	cfg := config.FromContextOrDefaults(ctx).Functions
	if base := baseline(ctx); base != nil {
		if base.isDefaulted() && equality.Semantic.DeepEqual(base.Spec, fn.Spec) {
			return
		}
		fn.Spec.Resources = yieldDefaults(fn.Spec.Resources, base.Spec.Resources, cfg.DefaultResources)
	}
	fn.Spec.setDefaults(cfg)
}

// isDefaulted reports whether SetDefaults of any version of Kiln was applied. It does not
// check the defaults that a later version has added, because an accepted Function stays
// as it is.
func (fn *Function) isDefaulted() bool {
	return fn.Spec.Runtime != "" && fn.Spec.MinReplicas != nil && fn.Spec.MaxReplicas != nil
}

func (fs *FunctionSpec) setDefaults(cfg *config.Functions) {
	if fs.Runtime == "" {
		fs.Runtime = cfg.DefaultRuntime
	}
	fs.setDefaultReplicas(cfg.DefaultMinReplicas, cfg.DefaultMaxReplicas)
	fs.setDefaultResources(cfg.DefaultResources)
	for i := range fs.EmptyDirMounts {
		if fs.EmptyDirMounts[i].SizeLimit == nil {
			fs.EmptyDirMounts[i].SizeLimit = resource.NewQuantity(cfg.DefaultEmptyDirBytes, resource.BinarySI)
		}
	}
	if fs.TimeoutSeconds == nil {
		fs.TimeoutSeconds = new(int64(cfg.DefaultTimeout / time.Second))
	}
	if fs.Visibility == "" {
		fs.Visibility = VisibilityClusterLocal
	}
}

// setDefaultReplicas adjusts a default to the bound that the author has set. A maximum of 0
// is no bound.
func (fs *FunctionSpec) setDefaultReplicas(least, most int32) {
	if fs.MinReplicas == nil {
		if fs.MaxReplicas != nil && *fs.MaxReplicas > 0 {
			least = min(least, *fs.MaxReplicas)
		}
		fs.MinReplicas = new(least)
	}
	if fs.MaxReplicas == nil {
		if most > 0 {
			most = max(most, *fs.MinReplicas)
		}
		fs.MaxReplicas = new(most)
	}
}

// setDefaultResources lowers a default request to the author's limit and raises
// a default limit to the author's request.
func (fs *FunctionSpec) setDefaultResources(defaults corev1.ResourceRequirements) {
	for name, request := range defaults.Requests {
		if _, ok := fs.Resources.Requests[name]; ok {
			continue
		}
		if limit, ok := fs.Resources.Limits[name]; ok && limit.Cmp(request) < 0 {
			request = limit
		}
		setResource(&fs.Resources.Requests, name, request)
	}
	for name, limit := range defaults.Limits {
		if _, ok := fs.Resources.Limits[name]; ok {
			continue
		}
		if request, ok := fs.Resources.Requests[name]; ok && request.Cmp(limit) > 0 {
			limit = request
		}
		setResource(&fs.Resources.Limits, name, limit)
	}
}

// yieldDefaults returns the resources of an updated Function without the defaults that an
// edit contradicts. An author who adds a request may meet a stored default limit. A value
// counts as a default if it equals the default and the update changed only its
// counterpart.
func yieldDefaults(now, before, defaults corev1.ResourceRequirements) corev1.ResourceRequirements {
	now = *now.DeepCopy()
	for name, limit := range now.Limits {
		request, ok := now.Requests[name]
		if !ok || request.Cmp(limit) <= 0 {
			continue
		}
		requestEdited := !sameResource(name, now.Requests, before.Requests)
		limitEdited := !sameResource(name, now.Limits, before.Limits)
		switch {
		case requestEdited && !limitEdited && sameResource(name, now.Limits, defaults.Limits):
			delete(now.Limits, name)
		case limitEdited && !requestEdited && sameResource(name, now.Requests, defaults.Requests):
			delete(now.Requests, name)
		}
	}
	return now
}

func sameResource(name corev1.ResourceName, a, b corev1.ResourceList) bool {
	inA, okA := a[name]
	inB, okB := b[name]
	return okA == okB && inA.Cmp(inB) == 0
}

func setResource(list *corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = quantity.DeepCopy()
}

// baseline returns the Function as it was before the update that the context
// is in, or nil.
func baseline(ctx context.Context) *Function {
	if !apis.IsInUpdate(ctx) {
		return nil
	}
	base, _ := apis.GetBaseline(ctx).(*Function)
	return base
}
