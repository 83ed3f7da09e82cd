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

package config

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// BuildConfigName is the name of the ConfigMap that tells how builds run.
	BuildConfigName = "config-build"

	kanikoImageKey = "kaniko-image"

	leastBuildTimeout = 30 * time.Second
	mostBuildTimeout  = 24 * time.Hour
)

// Build tells how builds run.
type Build struct {
	// KanikoImage is Kiln's executor image, which builds and pushes.
	KanikoImage string

	// Timeout is how long a build may take.
	Timeout time.Duration

	// Resources are the requests and limits of the build's one step.
	Resources corev1.ResourceRequirements
}

func defaultBuild() *Build {
	return &Build{
		Timeout: 15 * time.Minute,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("100m"),
				corev1.ResourceMemory: resource.MustParse("256Mi"),
			},
			Limits: corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("2Gi"),
			},
		},
	}
}

// NewBuildFromMap parses the data of config-build.
func NewBuildFromMap(data map[string]string) (*Build, error) {
	if _, ok := data[kanikoImageKey]; !ok {
		return nil, inConfigMap(BuildConfigName, errors.New(`"kaniko-image" is required`))
	}
	b := defaultBuild()
	if err := parse(BuildConfigName, data,
		asImage(kanikoImageKey, &b.KanikoImage),
		asDuration("timeout", &b.Timeout, leastBuildTimeout, mostBuildTimeout),
		asResources("", &b.Resources),
	); err != nil {
		return nil, err
	}
	return b, nil
}

// NewBuildFromConfigMap parses the ConfigMap config-build.
func NewBuildFromConfigMap(configMap *corev1.ConfigMap) (*Build, error) {
	return NewBuildFromMap(configMap.Data)
}
