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

// Package resources makes the objects that Kiln creates for a Function. Its
// functions are pure: the same Function and configuration make the same object.
package resources

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// ManagedByLabelKey is put on everything that Kiln creates for a Function.
const ManagedByLabelKey = "app.kubernetes.io/managed-by"

const managedBy = "kiln"

// objectMeta returns the metadata of an object of the Function. Labels and
// annotations of the Function are not copied: an edit of them changes nothing.
func objectMeta(fn *v1alpha1.Function, name string) metav1.ObjectMeta {
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

// restricted returns what the restricted Pod Security Standard asks of a
// container, and a root filesystem that cannot be written.
func restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		ReadOnlyRootFilesystem:   new(true),
		RunAsNonRoot:             new(true),
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// hash returns a hash of the value's JSON.
func hash(value any) string {
	// Only types that JSON does not know, such as channels, could fail.
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:32]
}
