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
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cm "knative.dev/pkg/configmap/parser"
)

const (
	// FunctionsConfigName is the name of the ConfigMap with the defaults and
	// limits of Functions.
	FunctionsConfigName = "config-functions"

	// MaxReplicasLimit is the greatest number of replicas that a Function can have.
	MaxReplicasLimit = 1000

	// MaxTimeout is the longest timeout of a request.
	MaxTimeout = 24 * time.Hour

	// The source is also stored in a ConfigMap, which Kubernetes limits to 1 MiB. The
	// maximum leaves room for the wrapper and the Dockerfile.
	leastSourceBytes = 1 << 10
	mostSourceBytes  = 936 << 10

	leastEmptyDirBytes = 1 << 20
	mostEmptyDirBytes  = 1 << 40
)

// Functions are the defaults and limits of Functions.
type Functions struct {
	// DefaultRuntime is the runtime of a Function that names none.
	DefaultRuntime string

	// DefaultMinReplicas is the default minimum of pods. It is 0 as shipped: a function
	// scales to zero, as Knative users expect.
	DefaultMinReplicas int32

	// DefaultMaxReplicas is the default maximum of pods. It is 0 as shipped, which means no
	// limit, as in Knative.
	DefaultMaxReplicas int32

	// DefaultResources are the default requests and limits. There is no CPU limit as
	// shipped, because it would slow down every start.
	DefaultResources corev1.ResourceRequirements

	// DefaultTimeout is the default time until the end of a response, in whole seconds.
	DefaultTimeout time.Duration

	// MaxSourceBytes limits a Function's source and dependencies together.
	MaxSourceBytes int64

	// DefaultEmptyDirBytes is the default size of a folder on the disk of a node.
	DefaultEmptyDirBytes int64

	// MaxEmptyDirBytes limits the sizes of all these folders of a pod together.
	MaxEmptyDirBytes int64

	// AllowedAnnotations and AllowedLabels are the keys that Functions may give their
	// pods, besides those of Knative that Kiln knows.
	AllowedAnnotations KeyPatterns
	AllowedLabels      KeyPatterns

	// Server serves the Functions that are created from now on.
	Server Server

	// MostAutoscaled is the maximum of pods of a Function without a maximum, if a
	// HorizontalPodAutoscaler scales it.
	MostAutoscaled int32

	// PublicDomain is the domain of public Functions that Deployments serve, or "".
	PublicDomain string

	// IngressClass is the class of their Ingresses. If it is "", the cluster's default
	// applies.
	IngressClass string
}

func defaultFunctions() *Functions {
	return &Functions{
		DefaultRuntime: "nodejs24",
		DefaultResources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("50m"),
				corev1.ResourceMemory: resource.MustParse("64Mi"),
			},
			Limits: corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("256Mi"),
			},
		},
		DefaultTimeout: 5 * time.Minute,
		MaxSourceBytes: mostSourceBytes,
		AllowedLabels:  KeyPatterns{"app.kubernetes.io/*"},
		Server:         AutoServer,
		MostAutoscaled: 10,

		DefaultEmptyDirBytes: 512 << 20,
		MaxEmptyDirBytes:     4 << 30,
	}
}

// NewFunctionsFromMap parses the data of config-functions.
func NewFunctionsFromMap(data map[string]string) (*Functions, error) {
	f := defaultFunctions()
	if err := parse(FunctionsConfigName, data,
		cm.AsFunc("default-runtime", &f.DefaultRuntime, parseRuntimeName),
		asInt32("default-min-replicas", &f.DefaultMinReplicas, MaxReplicasLimit),
		asInt32("default-max-replicas", &f.DefaultMaxReplicas, MaxReplicasLimit),
		asResources("default-", &f.DefaultResources),
		asSeconds("default-timeout", &f.DefaultTimeout, time.Second, MaxTimeout),
		asBytes("max-source-size", &f.MaxSourceBytes, leastSourceBytes, mostSourceBytes),
		asBytes("default-empty-dir-size", &f.DefaultEmptyDirBytes, leastEmptyDirBytes, mostEmptyDirBytes),
		asBytes("max-empty-dir-size", &f.MaxEmptyDirBytes, leastEmptyDirBytes, mostEmptyDirBytes),
		cm.AsFunc(AllowedAnnotationsKey, &f.AllowedAnnotations, parseKeyPatterns),
		cm.AsFunc(AllowedLabelsKey, &f.AllowedLabels, parseKeyPatterns),
		cm.AsFunc("serving", &f.Server, parseServer),
		asInt32("kubernetes-max-replicas", &f.MostAutoscaled, MaxReplicasLimit),
		cm.AsFunc("public-domain", &f.PublicDomain, parseDomain),
		cm.AsFunc("ingress-class", &f.IngressClass, parseDomain),
	); err != nil {
		return nil, err
	}
	if f.MostAutoscaled < 1 {
		return nil, inConfigMap(FunctionsConfigName, fmt.Errorf("%q is %d, and must be at least 1", "kubernetes-max-replicas", f.MostAutoscaled))
	}
	if f.DefaultEmptyDirBytes > f.MaxEmptyDirBytes {
		return nil, inConfigMap(FunctionsConfigName, fmt.Errorf("%q is %s, more than %q, which is %s", "default-empty-dir-size",
			resource.NewQuantity(f.DefaultEmptyDirBytes, resource.BinarySI), "max-empty-dir-size", resource.NewQuantity(f.MaxEmptyDirBytes, resource.BinarySI)))
	}
	if f.DefaultMaxReplicas > 0 && f.DefaultMinReplicas > f.DefaultMaxReplicas {
		return nil, inConfigMap(FunctionsConfigName, fmt.Errorf("%q is %d, more than %q, which is %d",
			"default-min-replicas", f.DefaultMinReplicas, "default-max-replicas", f.DefaultMaxReplicas))
	}
	return f, nil
}

// NewFunctionsFromConfigMap parses the ConfigMap config-functions.
func NewFunctionsFromConfigMap(configMap *corev1.ConfigMap) (*Functions, error) {
	return NewFunctionsFromMap(configMap.Data)
}

func parseRuntimeName(s string) (string, error) {
	s = strings.TrimSpace(s)
	return s, checkRuntimeName(s)
}
