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
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMakeConfigMap(t *testing.T) {
	const tag = "0123456789abcdef0123456789abcdef"
	files := map[string]string{"Dockerfile": "FROM node:24", "handler.js": "x", "package.json": "{}", "layout.json": "{}"}
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "greeter-0123456789", Namespace: namespace,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "serverless.kiln.dev/v1alpha1", Kind: "Function", Name: name, UID: "uid-1",
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
			Labels: map[string]string{
				"app.kubernetes.io/managed-by":      "kiln",
				"serverless.kiln.dev/function-name": name,
				"serverless.kiln.dev/function-uid":  "uid-1",
				"serverless.kiln.dev/image-tag":     tag,
			},
		},
		Immutable: new(true),
		Data:      files,
	}
	if diff := cmp.Diff(want, MakeConfigMap(function(), tag, files)); diff != "" {
		t.Errorf("MakeConfigMap() (-want, +got):\n%s", diff)
	}
}
