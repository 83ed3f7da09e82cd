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

	"github.com/kiln-dev/kiln/pkg/apis/scheduling"
	"github.com/kiln-dev/kiln/pkg/sources"
)

const (
	// BuildConfigName is the name of the ConfigMap that configures builds.
	BuildConfigName = "config-build"

	// LeastFollowInterval is the shortest interval between polls of a branch. It protects
	// other people's servers.
	LeastFollowInterval = time.Minute

	// LeastBuildTimeout is the shortest timeout of a build. No build ends sooner.
	LeastBuildTimeout = 10 * time.Second

	kanikoImageKey  = "kaniko-image"
	composeImageKey = "compose-image"

	mostBuildTimeout     = 24 * time.Hour
	mostFollowInterval   = 7 * 24 * time.Hour
	mostConcurrentBuilds = 10000
	mostHistory          = 100
	mostCacheKey         = 63

	// A source takes disk space on a node, and its file names take memory.
	mostSource      = 10 << 30
	mostSourceFiles = 100000
	mostSourceRatio = 1000
)

// Builder names what builds images.
type Builder string

const (
	// AutoBuilder is TektonBuilder if the cluster has the API of TaskRuns, and JobBuilder
	// otherwise.
	AutoBuilder Builder = "auto"

	// TektonBuilder builds with Tekton TaskRuns.
	TektonBuilder Builder = "tekton"

	// JobBuilder builds with Kubernetes Jobs.
	JobBuilder Builder = "job"
)

// Build configures builds.
type Build struct {
	// Builder builds the images of builds that start.
	Builder Builder

	// KanikoImage is Kiln's executor image, which runs Dockerfiles.
	KanikoImage string

	// ComposeImage is Kiln's image that makes and pushes functions' images.
	ComposeImage string

	// Timeout is the default timeout of builds.
	Timeout time.Duration

	// MaxTimeout is the longest timeout that a Function may set. It is at least Timeout.
	MaxTimeout time.Duration

	// Resources are the default requests and limits of the installation of dependencies.
	Resources corev1.ResourceRequirements

	// MaxResources bounds the requests and limits that a Function may set for its builds.
	// Other resources are unbounded. It is at least Resources.
	MaxResources corev1.ResourceList

	// PackageRegistrySecret is the name of the Secret with the credentials of package
	// registries, in the namespaces of Functions that do not name one. The Secret is
	// optional.
	PackageRegistrySecret string

	// DependencyCacheKey is part of the key of cached dependencies, so each new value makes
	// builds install them again.
	DependencyCacheKey string

	// MaxConcurrent and MaxConcurrentPerNamespace limit the builds that run at once in the
	// cluster and in each namespace. 0 means no limit.
	MaxConcurrent, MaxConcurrentPerNamespace int32

	// HistoryLimit is how many ended builds of each Function are kept.
	HistoryLimit int32

	// Sources limits the sources that builds fetch.
	Sources sources.Limits

	// FollowInterval is the time between two polls of a Git branch. 0 means never.
	FollowInterval time.Duration

	// FollowAllowedAddresses are the internal addresses at which the controller may poll
	// Git servers.
	FollowAllowedAddresses sources.Addresses

	// PriorityClassName is the priority class of builds' pods. "" means the cluster's
	// default.
	PriorityClassName string

	// NodeSelector are labels that a node must have to run builds.
	NodeSelector map[string]string

	// Tolerations are the taints of nodes that builds' pods tolerate.
	Tolerations []corev1.Toleration
}

func defaultBuild() *Build {
	return &Build{
		Builder:    AutoBuilder,
		Timeout:    15 * time.Minute,
		MaxTimeout: time.Hour,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:              resource.MustParse("100m"),
				corev1.ResourceMemory:           resource.MustParse("256Mi"),
				corev1.ResourceEphemeralStorage: resource.MustParse("512Mi"),
			},
			Limits: corev1.ResourceList{
				corev1.ResourceMemory:           resource.MustParse("2Gi"),
				corev1.ResourceEphemeralStorage: resource.MustParse("4Gi"),
			},
		},
		MaxResources: corev1.ResourceList{
			corev1.ResourceCPU:              resource.MustParse("4"),
			corev1.ResourceMemory:           resource.MustParse("8Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("16Gi"),
		},
		PackageRegistrySecret: "kiln-package-registries",

		MaxConcurrent:             10,
		MaxConcurrentPerNamespace: 5,
		HistoryLimit:              1,

		Sources: sources.Limits{Download: 100 << 20, Size: 500 << 20, Files: 20000, Ratio: 100},
	}
}

// NewBuildFromMap parses the data of config-build.
func NewBuildFromMap(data map[string]string) (*Build, error) {
	for _, key := range []string{kanikoImageKey, composeImageKey} {
		if _, ok := data[key]; !ok {
			return nil, inConfigMap(BuildConfigName, fmt.Errorf("%q is required", key))
		}
	}
	b := defaultBuild()
	if err := parse(BuildConfigName, data,
		asImage(kanikoImageKey, &b.KanikoImage),
		asImage(composeImageKey, &b.ComposeImage),
		cm.AsFunc("builder", &b.Builder, parseBuilder),
		asDuration("timeout", &b.Timeout, LeastBuildTimeout, mostBuildTimeout),
		asDuration("max-timeout", &b.MaxTimeout, LeastBuildTimeout, mostBuildTimeout),
		asResources("", &b.Resources),
		asResource("max-cpu", b.MaxResources, corev1.ResourceCPU),
		asResource("max-memory", b.MaxResources, corev1.ResourceMemory),
		asResource("max-ephemeral-storage", b.MaxResources, corev1.ResourceEphemeralStorage),
		asSecretName("package-registry-secret", &b.PackageRegistrySecret),
		cm.AsFunc("dependency-cache-key", &b.DependencyCacheKey, parseCacheKey),
		asLimit("max-concurrent-builds", &b.MaxConcurrent, mostConcurrentBuilds),
		asLimit("max-concurrent-builds-per-namespace", &b.MaxConcurrentPerNamespace, mostConcurrentBuilds),
		asInt32("history-limit", &b.HistoryLimit, mostHistory),
		asBytes(sources.MaxDownloadSizeKey, &b.Sources.Download, 1, mostSource),
		asBytes(sources.MaxUnpackedSizeKey, &b.Sources.Size, 1, mostSource),
		asCount(sources.MaxUnpackedFilesKey, &b.Sources.Files, mostSourceFiles),
		asCount(sources.MaxUnpackedRatioKey, &b.Sources.Ratio, mostSourceRatio),
		asInterval("follow-interval", &b.FollowInterval, LeastFollowInterval, mostFollowInterval),
		cm.AsFunc(sources.FollowAllowedAddressesKey, &b.FollowAllowedAddresses, sources.ParseAddresses),
		asObjectName("priority-class-name", "PriorityClass", &b.PriorityClassName),
		asYAML("node-selector", &b.NodeSelector, scheduling.ValidateNodeSelector),
		asYAML("tolerations", &b.Tolerations, scheduling.ValidateTolerations),
	); err != nil {
		return nil, err
	}
	b.raiseCeilings()
	return b, nil
}

// parseBuilder parses the name of a builder. A blank value means AutoBuilder.
func parseBuilder(s string) (Builder, error) {
	switch b := Builder(strings.TrimSpace(s)); b {
	case AutoBuilder, TektonBuilder, JobBuilder:
		return b, nil
	case "":
		return AutoBuilder, nil
	}
	return "", fmt.Errorf("it is %q, and must be one of %s, %s, %s", s, AutoBuilder, TektonBuilder, JobBuilder)
}

func parseCacheKey(s string) (string, error) {
	s = strings.TrimSpace(s)
	if len(s) > mostCacheKey {
		return "", fmt.Errorf("it has %d bytes, and %d are allowed", len(s), mostCacheKey)
	}
	return s, nil
}

// raiseCeilings raises each maximum to at least the default, so an administrator can raise
// a default alone.
func (b *Build) raiseCeilings() {
	b.MaxTimeout = max(b.MaxTimeout, b.Timeout)
	for name, most := range b.MaxResources {
		for _, list := range []corev1.ResourceList{b.Resources.Requests, b.Resources.Limits} {
			if have, ok := list[name]; ok && have.Cmp(most) > 0 {
				most = have
			}
		}
		b.MaxResources[name] = most
	}
}

// NewBuildFromConfigMap parses the ConfigMap config-build.
func NewBuildFromConfigMap(configMap *corev1.ConfigMap) (*Build, error) {
	return NewBuildFromMap(configMap.Data)
}
