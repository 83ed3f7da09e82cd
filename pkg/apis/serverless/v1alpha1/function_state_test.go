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

import "testing"

func TestIsAccepted(t *testing.T) {
	for name, tc := range map[string]struct {
		generation, accepted int64
		want                 bool
	}{
		"new":                 {1, 0, false},
		"accepted":            {2, 2, true},
		"edited since":        {3, 2, false},
		"older than accepted": {2, 3, false},
	} {
		fn := &Function{}
		fn.Generation, fn.Status.AcceptedGeneration = tc.generation, tc.accepted
		if got := fn.IsAccepted(); got != tc.want {
			t.Errorf("%s: IsAccepted() = %t", name, got)
		}
	}
}

func TestDesiredMinReplicas(t *testing.T) {
	for name, tc := range map[string]struct {
		replicas *int32
		want     int
	}{
		"unset": {nil, 0},
		"zero":  {new(int32(0)), 0},
		"three": {new(int32(3)), 3},
	} {
		fn := &Function{Spec: FunctionSpec{MinReplicas: tc.replicas}}
		if got := fn.DesiredMinReplicas(); got != tc.want {
			t.Errorf("%s: DesiredMinReplicas() = %d, want %d", name, got, tc.want)
		}
	}
}
