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
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
)

// isBegun reports whether a Function is being built or deployed. Such Functions go first in
// the queue. The first of 5,000 new Functions can then become ready before the last one
// begins, and an ended build releases its slot at once.
func isBegun(lister listers.FunctionLister) func(types.NamespacedName) bool {
	return func(key types.NamespacedName) bool {
		fn, err := lister.Functions(key.Namespace).Get(key.Name)
		return err == nil && (fn.Status.Phase == v1alpha1.FunctionBuilding || fn.Status.Phase == v1alpha1.FunctionDeploying)
	}
}
