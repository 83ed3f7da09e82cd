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

package builds

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

const tag = "0123456789abcdef0123456789abcdef"

func TestNameOf(t *testing.T) {
	request := Request{Tag: tag, Generation: 1}
	for _, name := range []string{"greeter", "a", strings.Repeat("long", 15) + "end"} {
		fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}}
		for _, attempt := range []int32{1, 1 << 30} {
			got := NameOf(fn, request, attempt)
			if problems := validation.IsDNS1035Label(got); len(problems) > 0 {
				t.Errorf("%q is no name: %v", got, problems)
			}
		}
	}
	fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "greeter", UID: "uid"}}
	// Another name would start the running builds of a cluster again after an upgrade.
	if got, want := NameOf(fn, request, 1), "greeter-cefd3bb84f-1"; got != want {
		t.Errorf("NameOf() = %q, want %q", got, want)
	}
	request.Commit = "c0ffee"
	if got, want := NameOf(fn, request, 2), "greeter-6c0663da7f-2"; got != want {
		t.Errorf("NameOf() = %q, want %q", got, want)
	}
}

func TestNameDiffersByInput(t *testing.T) {
	fn := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "greeter", UID: "uid"}}
	other := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "greeter", UID: "other"}}
	request := Request{Tag: tag, Generation: 1}
	first := NameOf(fn, request, 1)
	if again := NameOf(fn, request, 1); again != first {
		t.Errorf("NameOf() = %q, then %q", first, again)
	}
	for what, name := range map[string]string{
		"attempt":    NameOf(fn, request, 2),
		"UID":        NameOf(other, request, 1),
		"tag":        NameOf(fn, Request{Tag: strings.ToUpper(tag), Generation: 1}, 1),
		"generation": NameOf(fn, Request{Tag: tag, Generation: 2}, 1),
		"rebuild":    NameOf(fn, Request{Tag: tag, Generation: 1, Rebuild: "x"}, 1),
	} {
		if name == first {
			t.Errorf("another %s makes the same name", what)
		}
	}
}
