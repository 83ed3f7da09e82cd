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
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/children"
	listers "github.com/kiln-dev/kiln/pkg/client/listers/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/fairqueue"
)

func TestBegunGoesFirst(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	add := func(name string, phase v1alpha1.FunctionPhase) types.NamespacedName {
		fn := function()
		fn.Name, fn.Status.Phase = name, phase
		if err := indexer.Add(fn); err != nil {
			t.Fatal(err)
		}
		return children.KeyOf(fn)
	}
	order := fairqueue.NewOrder(isBegun(listers.NewFunctionLister(indexer)))
	for _, key := range []types.NamespacedName{
		add("new", ""), add("running", v1alpha1.FunctionRunning), add("failed", v1alpha1.FunctionFailed),
		add("building", v1alpha1.FunctionBuilding), {Namespace: function().Namespace, Name: "deleted"},
		add("deploying", v1alpha1.FunctionDeploying),
	} {
		order.Push(key)
	}
	var got []string
	for order.Len() > 0 {
		got = append(got, order.Pop().Name)
	}
	want := []string{"building", "deploying", "new", "running", "failed", "deleted"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the order (-want, +got):\n%s", diff)
	}
}
