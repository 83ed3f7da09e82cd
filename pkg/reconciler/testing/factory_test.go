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

package testing

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	fakeservingclientset "knative.dev/serving/pkg/client/clientset/versioned/fake"
)

// TestAdmitUpdate checks that an update is validated against the stored object.
func TestAdmitUpdate(t *testing.T) {
	stored := &servingv1.Service{ObjectMeta: metav1.ObjectMeta{
		Name: "greeter", Namespace: "default", Annotations: map[string]string{serving.CreatorAnnotation: "someone"},
	}}
	stored.Spec.Template.Spec.Containers = []corev1.Container{{Image: "image"}}
	client := fakeservingclientset.NewSimpleClientset(stored)
	client.PrependReactor("update", "*", admit(client.Tracker()))
	services := client.ServingV1().Services("default")

	edited := stored.DeepCopy()
	edited.Spec.Template.Spec.Containers[0].Image = "other"
	if _, err := services.Update(t.Context(), edited, metav1.UpdateOptions{}); err != nil {
		t.Errorf("an edit is denied: %v", err)
	}
	edited.Annotations = nil
	if _, err := services.Update(t.Context(), edited, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("another creator: %v, want a denial", err)
	}
}
