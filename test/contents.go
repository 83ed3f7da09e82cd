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

package test

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Contents returns the objects of every kind in a namespace, except those that Kubernetes
// creates in every namespace.
func Contents(ctx context.Context, c *Clients, namespace string) ([]string, error) {
	resources, err := namespacedResources(c)
	if err != nil {
		return nil, err
	}
	var contents []string
	for _, resource := range resources {
		list, err := c.Metadata.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("failed to list %s: %w", resource.Resource, err)
		}
		for i := range list.Items {
			if !isKubernetesOwn(resource, list.Items[i].Name) {
				contents = append(contents, resource.Resource+"/"+list.Items[i].Name)
			}
		}
	}
	return contents, nil
}

// UntilEmpty waits until Contents would return nothing.
func UntilEmpty(ctx context.Context, c *Clients, namespace string) error {
	for {
		if err := untilEachEmpty(ctx, c, namespace); err != nil {
			return err
		}
		// An object of an earlier kind may exist again.
		contents, err := Contents(ctx, c, namespace)
		if err != nil || len(contents) == 0 {
			return err
		}
	}
}

// untilEachEmpty waits for one kind after the other until it has no objects.
func untilEachEmpty(ctx context.Context, c *Clients, namespace string) error {
	resources, err := namespacedResources(c)
	if err != nil {
		return err
	}
	waits, ctx := errgroup.WithContext(ctx)
	for _, resource := range resources {
		waits.Go(func() error {
			client := c.Metadata.Resource(resource).Namespace(namespace)
			return Until(ctx, client, metav1.ListOptions{}, func(left []*metav1.PartialObjectMetadata) error {
				for _, object := range left {
					if !isKubernetesOwn(resource, object.Name) {
						return fmt.Errorf("%s/%s still exists", resource.Resource, object.Name)
					}
				}
				return nil
			})
		})
	}
	return waits.Wait()
}

func namespacedResources(c *Clients) ([]schema.GroupVersionResource, error) {
	lists, err := discovery.ServerPreferredNamespacedResources(c.Kube.Discovery())
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("failed to discover resources: %w", err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch", "delete"}}, lists)
	found, err := discovery.GroupVersionResources(lists)
	if err != nil {
		return nil, fmt.Errorf("failed to discover resources: %w", err)
	}
	var resources []schema.GroupVersionResource
	for resource := range found {
		// Events outlive their objects. Endpoints repeat EndpointSlices, and each request
		// for them causes a warning.
		if resource.Resource != "events" && resource.Resource != "endpoints" {
			resources = append(resources, resource)
		}
	}
	if len(resources) == 0 {
		return nil, errors.New("the cluster has no resources")
	}
	return resources, nil
}

func isKubernetesOwn(resource schema.GroupVersionResource, name string) bool {
	return resource.Resource == "serviceaccounts" && name == "default" ||
		resource.Resource == "configmaps" && name == "kube-root-ca.crt"
}
