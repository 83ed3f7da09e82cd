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

package platform

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var taskRuns = schema.GroupVersionResource{Group: "tekton.dev", Version: "v1", Resource: "taskruns"}

var (
	errAbsent = apierrs.NewNotFound(schema.GroupResource{}, "")
	served    = answer{resources: []string{"tasks", "taskruns"}}
	absent    = answer{err: errAbsent}
	broken    = answer{err: apierrs.NewInternalError(errors.New("etcd is gone"))}
)

type answer struct {
	resources []string
	err       error
}

// cluster gives one answer after the other, and repeats the last.
type cluster struct {
	mu      sync.Mutex
	answers []answer
	asked   int
}

func (c *cluster) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.answers[min(c.asked, len(c.answers)-1)]
	c.asked++
	list := &metav1.APIResourceList{}
	for _, name := range now.resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, now.err
}

func TestDiscover(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer answer
		want   APIs
		fails  bool
	}{
		{name: "served", answer: served, want: APIs{taskRuns: true}},
		{name: "no group", answer: absent, want: APIs{taskRuns: false}},
		{name: "a group without the resource", answer: answer{resources: []string{"tasks"}}, want: APIs{taskRuns: false}},
		{name: "a broken API server is no absence", answer: broken, fails: true},
		{name: "an API server that refuses is no absence", answer: answer{err: apierrs.NewForbidden(schema.GroupResource{}, "", nil)}, fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Discover(&cluster{answers: []answer{test.answer}}, taskRuns)
			if (err != nil) != test.fails {
				t.Errorf("Discover() = %v, want an error: %t", err, test.fails)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Discover() (-want +got):\n%s", diff)
			}
		})
	}
}

// An API server that is broken at the start must not make Kiln choose another builder.
func TestAwaitRetries(t *testing.T) {
	c := &cluster{answers: []answer{broken, served}}
	got, err := Await(t.Context(), c, taskRuns)
	if err != nil || !got[taskRuns] || c.asked != 2 {
		t.Errorf("Await() = %v, %v after %d questions, want the API after 2", got, err, c.asked)
	}
}

func TestAwaitEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Await(ctx, &cluster{answers: []answer{broken}}, taskRuns); err == nil {
		t.Error("Await() = nil, want the error of the context")
	}
}

func TestWatch(t *testing.T) {
	for _, test := range []struct {
		name    string
		has     bool
		answers []answer
		want    bool
	}{
		{name: "nothing changes", has: true, answers: []answer{served}},
		{name: "appears", has: false, answers: []answer{absent, served}, want: true},
		{name: "goes", has: true, answers: []answer{served, absent}, want: true},
		{name: "goes for one moment", has: true, answers: []answer{absent, served}},
		{name: "errors are no change", has: true, answers: []answer{broken}},
		{name: "an error between", has: true, answers: []answer{absent, broken, absent}, want: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			ended := false
			APIs{taskRuns: test.has}.watch(ctx, &cluster{answers: test.answers}, time.Millisecond, func() { ended = true })
			if ended != test.want {
				t.Errorf("The process ended: %t, want %t", ended, test.want)
			}
		})
	}
}
