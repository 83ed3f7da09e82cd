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
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const tag = "0123456789abcdef0123456789abcdef"

func TestNames(t *testing.T) {
	for _, name := range []string{"greeter", "a", strings.Repeat("long", 15) + "end"} {
		fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}}
		for _, got := range []string{ConfigMapName(fn, tag), ServiceName(fn)} {
			if problems := validation.IsDNS1035Label(got); len(problems) > 0 {
				t.Errorf("%q is no name: %v", got, problems)
			}
		}
	}
	fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "greeter", UID: "uid"}}
	if got := ConfigMapName(fn, tag); got != "greeter-0123456789" {
		t.Errorf("ConfigMapName() = %q", got)
	}
	if got := ServiceName(fn); got != "greeter" {
		t.Errorf("ServiceName() = %q", got)
	}
}
