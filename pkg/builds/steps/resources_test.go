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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/steps/stepstest"
)

var function, testConfig, testBuild = stepstest.Function, stepstest.Config, stepstest.Build

func TestBuildTimeout(t *testing.T) {
	cfg := &config.Build{Timeout: 10 * time.Minute, MaxTimeout: time.Hour}
	for asked, want := range map[time.Duration]time.Duration{
		-time.Second:  10 * time.Minute, // Tekton would wait for ever.
		0:             10 * time.Minute,
		time.Minute:   time.Minute,
		2 * time.Hour: time.Hour,
	} {
		fn := function(func(fn *v1alpha1.Function) {
			fn.Spec.Build = &v1alpha1.BuildSpec{Timeout: &metav1.Duration{Duration: asked}}
		})
		if got := Timeout(fn, cfg); got != want {
			t.Errorf("the timeout for %s is %s, want %s", asked, got, want)
		}
	}
}

func TestBuildResources(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		list := corev1.ResourceList{}
		if cpu != "" {
			list[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			list[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return list
	}
	cfg := &config.Build{
		Resources:    corev1.ResourceRequirements{Requests: list("100m", "256Mi"), Limits: list("", "2Gi")},
		MaxResources: list("", "4Gi"),
	}
	for name, row := range map[string]struct {
		said, want corev1.ResourceRequirements
	}{
		"nothing": {
			corev1.ResourceRequirements{},
			cfg.Resources,
		},
		"one of them": {
			corev1.ResourceRequirements{Limits: list("1", "")},
			corev1.ResourceRequirements{Requests: list("100m", "256Mi"), Limits: list("1", "2Gi")},
		},
		"a limit below the default request": {
			corev1.ResourceRequirements{Limits: list("", "128Mi")},
			corev1.ResourceRequirements{Requests: list("100m", "128Mi"), Limits: list("", "128Mi")},
		},
		"a request above the default limit": {
			corev1.ResourceRequirements{Requests: list("", "3Gi")},
			corev1.ResourceRequirements{Requests: list("100m", "3Gi"), Limits: list("", "3Gi")},
		},
		"above the ceiling": {
			corev1.ResourceRequirements{Requests: list("64", "8Gi"), Limits: list("", "9Gi")},
			corev1.ResourceRequirements{Requests: list("64", "4Gi"), Limits: list("", "4Gi")},
		},
	} {
		fn := function(func(fn *v1alpha1.Function) { fn.Spec.Build = &v1alpha1.BuildSpec{Resources: row.said} })
		if diff := cmp.Diff(row.want, buildResources(fn, cfg)); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", name, diff)
		}
	}
	if want := list("", "2Gi"); !cmp.Equal(want, cfg.Resources.Limits) {
		t.Errorf("the configuration was changed: %v", cfg.Resources)
	}
}
