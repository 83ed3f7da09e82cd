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

package resources

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources/names"
)

// MakeConfigMap returns the ConfigMap with the files that the image of the
// given tag is built from. It is immutable, and there is one for each tag, so
// that no build can make anything else than its tag says.
func MakeConfigMap(fn *v1alpha1.Function, tag string, files map[string]string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		ObjectMeta: objectMeta(fn, names.ConfigMap(fn, tag)),
		Immutable:  new(true),
		Data:       files,
	}
	cm.Labels[serverless.ImageTagLabelKey] = tag
	return cm
}
