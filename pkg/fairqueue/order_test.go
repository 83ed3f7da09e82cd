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

package fairqueue_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/kiln-dev/kiln/pkg/fairqueue"
)

func TestOrder(t *testing.T) {
	begun := func(key types.NamespacedName) bool { return key.Name == "begun" }
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Queue: fairqueue.NewOrder(begun)})
	add := func(namespace string, names ...string) {
		for _, name := range names {
			queue.Add(types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	var got []string
	take := func(n int) {
		for range n {
			key, _ := queue.Get()
			queue.Done(key)
			got = append(got, key.String())
		}
	}
	add("a", "1", "2", "3", "4", "1")
	add("b", "1", "2")
	take(3)
	// A key that comes later waits for one key of each other namespace.
	add("c", "1")
	add("b", "3")
	// Begun keys go before the others of their namespace.
	add("a", "begun")
	add("c", "begun")
	take(7)
	want := []string{"a/1", "b/1", "a/2", "b/2", "a/begun", "c/begun", "b/3", "a/3", "c/1", "a/4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the order (-want, +got):\n%s", diff)
	}
	if left := queue.Len(); left > 0 {
		t.Errorf("%d keys are left", left)
	}
}
