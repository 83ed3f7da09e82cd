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

package main

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// pattern has the objects that Kiln created for one Function. The bare client writes
// copies of them, so both write objects of the same size.
type pattern struct {
	fn        *v1alpha1.Function
	configMap *corev1.ConfigMap
	objects   objects
}

// objects are those that build and serve a Function.
type objects interface {
	// watch calls with for each informer that the bare client needs, and starts them.
	watch(ctx context.Context, c *test.Clients, with func(cache.SharedIndexInformer) error) error
	// build and serve create copies for a Function.
	build(ctx context.Context, c *test.Clients, fn *v1alpha1.Function) error
	serve(ctx context.Context, c *test.Clients, fn *v1alpha1.Function) error
	// isBuilt and isServed report whether the copies have done their work.
	isBuilt(cache.ObjectName) bool
	isServed(cache.ObjectName) bool
}

// patternOf returns the objects that Kiln has created for a Function.
func patternOf(ctx context.Context, c *test.Clients, key types.NamespacedName) (p pattern, err error) {
	if p.fn, err = c.Kiln.ServerlessV1alpha1().Functions(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{}); err != nil {
		return p, fmt.Errorf("failed to get Function: %w", err)
	}
	children := metav1.ListOptions{LabelSelector: serverless.FunctionNameLabelKey + "=" + key.Name}
	configMaps, err := c.Kube.CoreV1().ConfigMaps(key.Namespace).List(ctx, children)
	if err != nil {
		return p, fmt.Errorf("failed to list ConfigMaps: %w", err)
	}
	if p.configMap, err = only(key, configMaps.Items); err != nil {
		return p, err
	}
	if p.fn.Status.Serving == "" {
		p.objects, err = knativeOf(ctx, c, key, children)
	} else {
		p.objects, err = plainOf(ctx, c, key, children)
	}
	return p, err
}

// only returns the only object of a kind that the Function has.
func only[T any](key types.NamespacedName, objects []T) (*T, error) {
	if len(objects) != 1 {
		return nil, fmt.Errorf("failed to find what Function %s consists of: there are %d objects of type %T, want 1", key, len(objects), *new(T))
	}
	return &objects[0], nil
}

// metaFor returns the metadata of a copy for a Function.
func metaFor(fn *v1alpha1.Function, of metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: fn.Namespace, Name: fn.Name, Labels: labelsFor(fn, of.Labels), Annotations: of.Annotations,
		OwnerReferences: []metav1.OwnerReference{*kmeta.NewControllerRef(fn)},
	}
}

// labelsFor returns labels of the pattern as those for a Function.
func labelsFor(fn *v1alpha1.Function, of map[string]string) map[string]string {
	labels := maps.Clone(of)
	for key, value := range map[string]string{serverless.FunctionNameLabelKey: fn.Name, serverless.FunctionUIDLabelKey: string(fn.UID)} {
		if _, ok := labels[key]; ok {
			labels[key] = value
		}
	}
	return labels
}
