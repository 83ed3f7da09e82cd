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

// Package test helps tests and the tools of this repository to use Functions on a real
// cluster. It needs only a kubeconfig and works with any cluster.
package test

import (
	"fmt"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	pipelineclient "github.com/tektoncd/pipeline/pkg/client/clientset/versioned"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	ingressclient "knative.dev/networking/pkg/client/clientset/versioned"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"

	kilnclient "github.com/kiln-dev/kiln/pkg/client/clientset/versioned"
	"github.com/kiln-dev/kiln/pkg/platform"
)

// SystemNamespace is the namespace of Kiln's own objects.
const SystemNamespace = "kiln-system"

// Clients are the clients for one cluster.
type Clients struct {
	Kube kubernetes.Interface
	// Definitions reads and writes CustomResourceDefinitions.
	Definitions apiextensionsclient.Interface
	Kiln        kilnclient.Interface
	Pipeline    pipelineclient.Interface
	Serving     servingclient.Interface
	Ingress     ingressclient.Interface
	Metadata    metadata.Interface

	// Namespace is the namespace of the kubeconfig's context.
	Namespace string

	config *rest.Config
}

// NewClients creates clients for the cluster that kubectl would use: the current context of
// the file that KUBECONFIG names, or of ~/.kube/config.
func NewClients() (*Clients, error) {
	kubeconfig := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{})
	namespace, _, err := kubeconfig.Namespace()
	if err != nil {
		return nil, fmt.Errorf("failed to read kubeconfig: %w", err)
	}
	config, err := kubeconfig.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("failed to read kubeconfig: %w", err)
	}
	c, err := NewClientsFor(config)
	if err != nil {
		return nil, err
	}
	c.Namespace = namespace
	return c, nil
}

// NewClientsFor creates clients for the API server of that configuration.
func NewClientsFor(config *rest.Config) (*Clients, error) {
	config = rest.CopyConfig(config)
	// Many tests share the clients, and the API server limits requests itself.
	config.QPS = -1
	c := &Clients{config: config}
	if err := c.connect(config); err != nil {
		return nil, fmt.Errorf("failed to make clients: %w", err)
	}
	return c, nil
}

// As returns clients that impersonate that user, in no group but system:authenticated.
func (c *Clients) As(user string) (*Clients, error) {
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	other := &Clients{Namespace: c.Namespace, config: config}
	if err := other.connect(config); err != nil {
		return nil, fmt.Errorf("failed to make clients: %w", err)
	}
	return other, nil
}

func (c *Clients) connect(config *rest.Config) (err error) {
	if c.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if c.Definitions, err = apiextensionsclient.NewForConfig(config); err != nil {
		return err
	}
	if c.Kiln, err = kilnclient.NewForConfig(config); err != nil {
		return err
	}
	if c.Pipeline, err = pipelineclient.NewForConfig(config); err != nil {
		return err
	}
	if c.Serving, err = servingclient.NewForConfig(config); err != nil {
		return err
	}
	if c.Ingress, err = ingressclient.NewForConfig(config); err != nil {
		return err
	}
	c.Metadata, err = metadata.NewForConfig(config)
	return err
}

// Platform reports whether the cluster has the APIs of Tekton and Knative Serving. Without
// an answer of the API server, it returns an error.
func (c *Clients) Platform() (hasTekton, hasServing bool, err error) {
	taskRuns, services := pipelinev1.SchemeGroupVersion.WithResource("taskruns"), servingv1.SchemeGroupVersion.WithResource("services")
	found, err := platform.Discover(c.Kube.Discovery(), taskRuns, services)
	return found[taskRuns], found[services], err
}
