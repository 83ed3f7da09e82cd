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

package children

import (
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/kmeta"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// All names are deterministic, so a stale cache or a second controller cannot
// create an object twice.

// FunctionContainer is the name of the container that runs the function.
const FunctionContainer = "function"

const hashLength = 10

// KeyOf returns the namespace and name of the Function.
func KeyOf(fn *v1alpha1.Function) types.NamespacedName {
	return types.NamespacedName{Namespace: fn.Namespace, Name: fn.Name}
}

// ConfigMapName returns the name of the ConfigMap that holds the inputs of the image
// of the tag.
func ConfigMapName(fn *v1alpha1.Function, tag string) string {
	return kmeta.ChildName(fn.Name, "-"+tag[:hashLength])
}

// ServiceName returns the name of the object that serves the Function. It is part of
// the Function's address.
func ServiceName(fn *v1alpha1.Function) string {
	return fn.Name
}
