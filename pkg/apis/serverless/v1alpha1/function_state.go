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

package v1alpha1

import "github.com/kiln-dev/kiln/pkg/runtimes"

// IsAccepted reports whether the controller has accepted this generation of the spec.
// An accepted spec stays accepted when the configuration becomes stricter.
func (fn *Function) IsAccepted() bool {
	return fn.Status.AcceptedGeneration == fn.Generation
}

// DesiredMinReplicas returns the number of pods that the Function keeps at any time.
func (fn *Function) DesiredMinReplicas() int {
	if fn.Spec.MinReplicas == nil {
		return 0
	}
	return int(*fn.Spec.MinReplicas)
}

// TextDigests returns the digests of spec.source and spec.deps, also where the cache has
// dropped the texts.
func (fn *Function) TextDigests() *runtimes.Digests {
	if fn.Digests != nil {
		return fn.Digests
	}
	return runtimes.DigestsOf(fn.Spec.Source, fn.Spec.Deps)
}
