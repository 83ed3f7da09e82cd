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
)

// replaced has the version of each Function that the last write of its status took the
// place of. While the cache still has that one, whatever is done by it would be done
// again, and its status be refused. The watch is about to tell of the next.
type replaced struct {
	versions sync.Map
}

// replacedVersion is one of one Function, not of another that has its name.
type replacedVersion struct {
	uid      types.UID
	resource string
}

func versionOf(fn *v1alpha1.Function) replacedVersion {
	return replacedVersion{fn.UID, fn.ResourceVersion}
}

// note remembers that before is not there any more.
func (r *replaced) note(before, after *v1alpha1.Function) {
	if before.ResourceVersion != after.ResourceVersion {
		r.versions.Store(keyOf(before), versionOf(before))
	}
}

// has says whether the Function is one that is not there any more. It forgets what no
// cache will have again.
func (r *replaced) has(fn *v1alpha1.Function) bool {
	last, ok := r.versions.Load(keyOf(fn))
	if ok && last == versionOf(fn) {
		return true
	}
	r.versions.Delete(keyOf(fn))
	return false
}

// forget is to be called when there is no Function of that name any more.
func (r *replaced) forget(key types.NamespacedName) { r.versions.Delete(key) }
