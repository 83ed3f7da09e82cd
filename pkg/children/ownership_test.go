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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func TestOwnershipOf(t *testing.T) {
	const name = "greeter"
	fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-1"}}
	noon := metav1.Now()
	ref := func(kind, apiVersion, name, uid string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, APIVersion: apiVersion, Name: name, UID: types.UID("uid-" + uid), Controller: new(true)}}
	}
	labelled := map[string]string{serverless.FunctionUIDLabelKey: string(fn.UID)}
	tests := map[string]struct {
		meta metav1.ObjectMeta
		want Ownership
	}{
		"ours":                       {metav1.ObjectMeta{OwnerReferences: ref("Function", "serverless.kiln.dev/v1alpha1", name, "1")}, Owned},
		"ours, being deleted":        {metav1.ObjectMeta{OwnerReferences: ref("Function", "serverless.kiln.dev/v1alpha1", name, "1"), DeletionTimestamp: &noon}, Leaving},
		"ours by label":              {metav1.ObjectMeta{Labels: labelled}, Owned},
		"ours by label, and going":   {metav1.ObjectMeta{Labels: labelled, DeletionTimestamp: &noon}, Leaving},
		"nobody's":                   {metav1.ObjectMeta{}, Foreign},
		"a deleted Function's":       {metav1.ObjectMeta{OwnerReferences: ref("Function", "serverless.kiln.dev/v1alpha1", name, "0")}, Leaving},
		"of another API version":     {metav1.ObjectMeta{OwnerReferences: ref("Function", "serverless.kiln.dev/v1", name, "0")}, Leaving},
		"another Function's":         {metav1.ObjectMeta{OwnerReferences: ref("Function", "serverless.kiln.dev/v1alpha1", "other", "2")}, Foreign},
		"a Function's, not of Kiln":  {metav1.ObjectMeta{OwnerReferences: ref("Function", "example.com/v1", name, "0")}, Foreign},
		"somebody's, with our label": {metav1.ObjectMeta{Labels: labelled, OwnerReferences: ref("Deployment", "apps/v1", name, "9")}, Foreign},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := OwnershipOf(&tc.meta, fn); got != tc.want {
				t.Errorf("OwnershipOf() = %v, want %v", got, tc.want)
			}
		})
	}
}
