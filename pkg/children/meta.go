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

// Package children holds what Kiln does alike for every object that it creates
// for a Function: metadata, names, ownership, creation and repair.
package children

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"knative.dev/pkg/kmap"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const (
	// ManagedByLabelKey is the label of every object that Kiln creates for a Function.
	ManagedByLabelKey = "app.kubernetes.io/managed-by"

	managedBy = "kiln"

	// LabelSelector selects the objects that Kiln has created for Functions. Informers of
	// their kinds must be filtered by it. Otherwise the caches would hold every ConfigMap
	// and Pod of the cluster.
	LabelSelector = serverless.FunctionUIDLabelKey
)

// ObjectMeta returns the metadata of a child of the Function. It copies no label or
// annotation of the Function, so an edit of those changes no child.
func ObjectMeta(fn *v1alpha1.Function, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:            name,
		Namespace:       fn.Namespace,
		OwnerReferences: []metav1.OwnerReference{*kmeta.NewControllerRef(fn)},
		Labels: map[string]string{
			ManagedByLabelKey:               managedBy,
			serverless.FunctionNameLabelKey: fn.Name,
			serverless.FunctionUIDLabelKey:  string(fn.UID),
		},
	}
}

// BuildLabels returns the labels of the object that builds the image of the tag.
func BuildLabels(fn *v1alpha1.Function, tag string) map[string]string {
	return kmap.Union(ObjectMeta(fn, "").Labels, map[string]string{serverless.ImageTagLabelKey: tag})
}

// SelectorOf selects the children of the Function.
func SelectorOf(fn *v1alpha1.Function) labels.Selector {
	return labels.SelectorFromSet(labels.Set{serverless.FunctionUIDLabelKey: string(fn.UID)})
}

// Restricted returns a security context that meets the restricted Pod Security
// Standard and makes the root filesystem read-only.
func Restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		ReadOnlyRootFilesystem:   new(true),
		RunAsNonRoot:             new(true),
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}
