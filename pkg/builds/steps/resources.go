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

package steps

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// Timeout returns the timeout of the build. The ceiling also applies to Functions
// that were accepted before it was lowered.
func Timeout(fn *v1alpha1.Function, cfg *config.Build) time.Duration {
	if fn.Spec.Build == nil || fn.Spec.Build.Timeout == nil || fn.Spec.Build.Timeout.Duration <= 0 {
		return cfg.Timeout
	}
	return min(fn.Spec.Build.Timeout.Duration, cfg.MaxTimeout)
}

// buildResources returns the resources of the installation: those of the Function up
// to the ceilings, and the configured ones for the rest. Where a request of one is
// above a limit of the other, the Function's value wins.
func buildResources(fn *v1alpha1.Function, cfg *config.Build) corev1.ResourceRequirements {
	resources := *cfg.Resources.DeepCopy()
	if fn.Spec.Build == nil {
		return resources
	}
	own := fn.Spec.Build.Resources
	resources.Requests = overlay(resources.Requests, own.Requests, cfg.MaxResources)
	resources.Limits = overlay(resources.Limits, own.Limits, cfg.MaxResources)
	for name, limit := range resources.Limits {
		request, ok := resources.Requests[name]
		if !ok || request.Cmp(limit) <= 0 {
			continue
		}
		if _, ok := own.Limits[name]; ok {
			resources.Requests[name] = limit
		} else {
			resources.Limits[name] = request
		}
	}
	return resources
}

// overlay returns the list with the quantities of own, each at most that of most.
func overlay(list, own, most corev1.ResourceList) corev1.ResourceList {
	if list == nil && len(own) > 0 {
		list = make(corev1.ResourceList, len(own))
	}
	for name, quantity := range own {
		if ceiling, ok := most[name]; ok && quantity.Cmp(ceiling) > 0 {
			quantity = ceiling
		}
		list[name] = quantity
	}
	return list
}
