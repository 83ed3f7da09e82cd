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

package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/test/controlplane"
)

func TestEntryOf(t *testing.T) {
	const group = "/apis/serverless.kiln.dev/v1alpha1"
	for _, test := range []struct {
		method, path, body string
		watches            bool
		want               entry
		work               bool
	}{
		{http.MethodGet, group + "/namespaces/one/functions/fn-001", "", false, entry{verb: "get", resource: "functions", function: "one/fn-001"}, true},
		{http.MethodPut, group + "/namespaces/one/functions/fn-001/status", "{}", false, entry{verb: "put", resource: "functions", function: "one/fn-001"}, true},
		{
			http.MethodPost, "/apis/tekton.dev/v1/namespaces/two/taskruns", `{"metadata":{"name":"fn-002-0123456789-1"}}`, false,
			entry{verb: "post", resource: "taskruns", function: "two/fn-002"}, true,
		},
		{
			http.MethodPost, "/api/v1/namespaces/two/events", `{"metadata":{"name":"x"},"involvedObject":{"name":"fn-002"}}`, false,
			entry{verb: "post", resource: "events", function: "two/fn-002"}, false,
		},
		{http.MethodGet, "/apis/tekton.dev/v1/taskruns", "", false, entry{verb: "list", resource: "taskruns"}, false},
		{http.MethodGet, "/api/v1/pods", "", true, entry{verb: "watch", resource: "pods"}, false},
		{http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/kiln-system/leases/x", "{}", false, entry{verb: "put", resource: "leases"}, false},
	} {
		request := httptest.NewRequest(test.method, test.path, http.NoBody)
		request.Header.Set("Authorization", "Bearer "+controlplane.TokenOf(controlplane.ControllerUser))
		got := entryOf(request, []byte(test.body), test.watches, lost)
		test.want.user, test.want.happens, got.at = "controller", lost, time.Time{}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("%s %s (-want, +got): %s", test.method, test.path, diff)
		}
		if got.isWork() != test.work {
			t.Errorf("%s %s: isWork is %t", test.method, test.path, got.isWork())
		}
	}
}

func TestTally(t *testing.T) {
	at := time.Now()
	l := newLedger()
	for _, after := range []int{0, 100, 200, 1150, 1500} {
		l.add(entry{at: at.Add(time.Duration(after) * time.Millisecond), user: "controller", verb: "put", resource: "functions", function: "one/fn-001", happens: conflict})
	}
	l.add(entry{at: at, user: "webhook", verb: "get", resource: "functions", function: "one/fn-001"})
	l.drop()
	got := l.take()
	found := got.by["one/fn-001"]
	if found.requests != 5 || found.faults != 5 || found.busiest != 3 || got.faults[string(conflict)] != 5 || got.faults[string(dropped)] != 1 {
		t.Errorf("tally = %+v, %+v", got, found)
	}
	if name, n := got.most(func(s *share) int { return s.requests }); name != "one/fn-001" || n != 5 {
		t.Errorf("most = %s, %d", name, n)
	}
	if l.workSince(at) {
		t.Error("the entries that were taken are still in the ledger")
	}
}
