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
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
)

// replaced remembers the resourceVersion of each Function that Kiln's last status write
// replaced. A reconcile that still sees it is skipped: it would repeat work, and then
// conflict.
type replaced struct {
	versions sync.Map
}

// replacedVersion identifies a version of a Function. A later Function of the same name has
// another UID.
type replacedVersion struct {
	uid      types.UID
	resource string
}

func versionOf(fn *v1alpha1.Function) replacedVersion {
	return replacedVersion{fn.UID, fn.ResourceVersion}
}

func (r *replaced) note(before, after *v1alpha1.Function) {
	if before.ResourceVersion != after.ResourceVersion {
		r.versions.Store(children.KeyOf(before), versionOf(before))
	}
}

// has reports whether the Function was replaced. It forgets a version that the cache has
// moved past.
func (r *replaced) has(fn *v1alpha1.Function) bool {
	last, ok := r.versions.Load(children.KeyOf(fn))
	if ok && last == versionOf(fn) {
		return true
	}
	r.versions.Delete(children.KeyOf(fn))
	return false
}

func (r *replaced) forget(key types.NamespacedName) { r.versions.Delete(key) }
