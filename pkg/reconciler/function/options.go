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

	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	clientset "github.com/kiln-dev/kiln/pkg/client/clientset/versioned"
	"github.com/kiln-dev/kiln/pkg/images"
	"github.com/kiln-dev/kiln/pkg/sources/poll"
)

// Options configures a Reconciler. All fields are required.
type Options struct {
	// Kiln reads Functions and writes their status.
	Kiln clientset.Interface

	// Kube writes ConfigMaps.
	Kube kubernetes.Interface

	// ConfigMaps lists the ConfigMaps with Kiln's label, as slim.ConfigMap leaves them.
	ConfigMaps corev1listers.ConfigMapLister

	// Builders build the images.
	Builders Builders

	// NewServers returns the Servers. checkCurrent returns an error if the cached Function
	// is stale.
	NewServers func(checkCurrent func(context.Context, *v1alpha1.Function) error) Servers

	// Secrets provides registry credentials.
	Secrets Secrets

	// Queue limits concurrent builds.
	Queue *queue.Queue

	// Lookups, Taggings and Checks talk to registries, and Polls to Git servers.
	Lookups  Background[images.Lookup, images.Found]
	Taggings Background[images.Tagging, struct{}]
	Polls    Background[poll.Branch, poll.Found]
	Checks   Background[images.Check, images.Checked]

	// Contents reads Secrets and ConfigMaps of authors.
	Contents Contents
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	r := &Reconciler{
		kiln: o.Kiln, kube: o.Kube, configMapLister: o.ConfigMaps,
		builders: o.Builders, secrets: o.Secrets,
		queue: o.Queue, lookups: o.Lookups, taggings: o.Taggings, polls: o.Polls, checks: o.Checks, contents: o.Contents,
	}
	r.servers = o.NewServers(r.checkCurrent)
	return r
}
