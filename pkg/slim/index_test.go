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

package slim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
)

// uncounted is a lister that must not be asked.
type uncounted struct {
	corev1listers.ConfigMapNamespaceLister
	asked int
}

func (u *uncounted) List(labels.Selector) ([]*corev1.ConfigMap, error) {
	u.asked++
	return nil, nil
}

func TestListIndexed(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, Indexers())
	for _, cm := range []struct{ namespace, name, uid string }{
		{"ns", "mine", "a"}, {"ns", "theirs", "b"}, {"ns", "alike", "uid-2"}, {"ns", "same", "uid-1"}, {"elsewhere", "mine", "a"}, {"ns", "nobodys", ""},
	} {
		err := indexer.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: cm.namespace, Name: cm.name, Labels: map[string]string{serverless.FunctionUIDLabelKey: cm.uid, "color": "red"},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	const mine = serverless.FunctionUIDLabelKey + "=a"
	for _, test := range []struct {
		selector string
		want     []string
		asked    int
	}{
		{selector: mine, want: []string{"mine"}},
		{selector: mine + ",color=red", want: []string{"mine"}},
		{selector: mine + ",color=blue"},
		{selector: serverless.FunctionUIDLabelKey + "=c"},
		{selector: serverless.FunctionUIDLabelKey + "=uid-1", want: []string{"same"}},
		{selector: "color=red", asked: 1},
	} {
		selector, err := labels.Parse(test.selector)
		if err != nil {
			t.Fatal(err)
		}
		others := &uncounted{}
		found, err := Namespace[*corev1.ConfigMap]{NamespaceLister: others, Indexer: indexer, Name: "ns"}.List(selector)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, cm := range found {
			got = append(got, cm.Name)
		}
		if diff := cmp.Diff(test.want, got); diff != "" || others.asked != test.asked {
			t.Errorf("%s (-want, +got): %s; others were asked %d times, want %d", test.selector, diff, others.asked, test.asked)
		}
	}
}
