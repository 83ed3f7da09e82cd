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

package test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// fakePods lists existing pods and then sends their changes.
type fakePods struct {
	there   []corev1.Pod
	changes *watch.FakeWatcher
}

func (f *fakePods) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: f.there}, nil
}

func (f *fakePods) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return f.changes, nil
}

func pod(name, resourceVersion string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: resourceVersion}}
}

func namesOf(pods []*corev1.Pod) string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return strings.Join(names, " ")
}

func TestUntilSeesEveryChange(t *testing.T) {
	pods := &fakePods{there: []corev1.Pod{*pod("b", "1")}, changes: watch.NewFakeWithChanSize(3, false)}
	pods.changes.Add(pod("a", "2"))
	pods.changes.Delete(pod("a", "3"))
	pods.changes.Delete(pod("b", "4"))

	var seen []string
	err := Until(t.Context(), pods, metav1.ListOptions{}, func(found []*corev1.Pod) error {
		seen = append(seen, namesOf(found))
		if len(found) > 0 {
			return errors.New("there are pods")
		}
		return nil
	})
	if got, want := strings.Join(seen, ", "), "b, a b, b, "; err != nil || got != want {
		t.Errorf("Until saw %q and returned %v; want %q", got, err, want)
	}
}

func TestUntilTellsWhatIsMissing(t *testing.T) {
	pods := &fakePods{changes: watch.NewFake()}
	missing := errors.New("the pod is missing")
	check := func([]*corev1.Pod) error { return missing }

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := Until(ctx, pods, metav1.ListOptions{}, check)
	if !errors.Is(err, missing) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Until returned %v, want the deadline and the last result", err)
	}
}

func TestUntilGivesUp(t *testing.T) {
	pods := &fakePods{changes: watch.NewFake()}
	hopeless := errors.New("no such image")
	err := Until(t.Context(), pods, metav1.ListOptions{}, func([]*corev1.Pod) error {
		return fmt.Errorf("failed to start: %w", GiveUp(hopeless))
	})
	if err == nil || !strings.Contains(err.Error(), hopeless.Error()) {
		t.Errorf("Until returned %v, want %v", err, hopeless)
	}
}

func TestHistoryRemembersTheGone(t *testing.T) {
	pods := &fakePods{there: []corev1.Pod{*pod("a", "1")}, changes: watch.NewFake()}
	history := Record[*corev1.Pod](t.Context(), pods, metav1.ListOptions{})
	pods.changes.Delete(pod("a", "2"))
	pods.changes.Add(pod("b", "3"))
	pods.changes.Delete(pod("b", "4"))
	pods.changes.Add(pod("c", "5"))
	// The fake accepts a change when the previous one was received.
	pods.changes.Modify(pod("c", "6"))
	pods.changes.Modify(pod("c", "7"))

	seen, err := history.Seen()
	if got, want := namesOf(seen), "a b c"; err != nil || got != want {
		t.Errorf("Seen() = %q, %v; want %q", got, err, want)
	}
}

// restarted returns watchers that behave like a restarted API server. Each watch ends with
// an error, and each list returns the current objects.
type restarted struct {
	fails []error
	lists [][]corev1.Pod
}

func (r *restarted) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	err, items := r.fails[0], r.lists[0]
	if items == nil {
		r.fails, r.lists = r.fails[1:], r.lists[1:]
		return nil, err
	}
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: items}, nil
}

func (r *restarted) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	err := r.fails[0]
	if len(r.fails) > 1 {
		r.fails, r.lists = r.fails[1:], r.lists[1:]
	}
	changes := watch.NewFakeWithChanSize(1, false)
	status := &apierrs.StatusError{}
	if errors.As(err, &status) {
		changes.Error(&status.ErrStatus)
	}
	return changes, nil
}

// TestHistoryResumes checks that a History resumes after a restart of the API server and
// reports the gap. It stops after another error or a long outage.
func TestHistoryResumes(t *testing.T) {
	denied := apierrs.NewForbidden(corev1.Resource("pods"), "", errors.New("not yet"))
	expired := apierrs.NewResourceExpired("too old resource version")
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: syscall.ECONNREFUSED}
	a, b, c := []corev1.Pod{*pod("a", "1")}, []corev1.Pod{*pod("a", "1"), *pod("b", "2")}, []corev1.Pod{*pod("c", "3")}
	lasting := &restarted{fails: []error{expired}, lists: [][]corev1.Pod{a}}
	for range 2 * resumeTimeout / resumePause {
		lasting.fails, lasting.lists = append(lasting.fails, denied), append(lasting.lists, nil)
	}
	lasting.fails, lasting.lists = append(lasting.fails, nil), append(lasting.lists, b)
	tests := map[string]struct {
		server *restarted
		want   string
		gap    bool
		err    error
	}{
		"nothing":   {&restarted{fails: []error{nil}, lists: [][]corev1.Pod{a}}, "a", false, nil},
		"restarted": {&restarted{fails: []error{expired, refused, denied, nil}, lists: [][]corev1.Pod{a, nil, nil, b}}, "a b", true, expired},
		"twice":     {&restarted{fails: []error{expired, expired, nil}, lists: [][]corev1.Pod{a, b, c}}, "a b c", true, expired},
		"no such kind": {
			&restarted{fails: []error{apierrs.NewNotFound(corev1.Resource("pods"), ""), nil}, lists: [][]corev1.Pod{nil, a}},
			"", false, apierrs.NewNotFound(corev1.Resource("pods"), ""),
		},
		"denied for good": {lasting, "a", false, denied},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				history := Record[*corev1.Pod](t.Context(), tc.server, metav1.ListOptions{})
				time.Sleep(3 * resumeTimeout)
				synctest.Wait()
				seen, err := history.Seen()
				if got := namesOf(seen); got != tc.want {
					t.Errorf("the history has %q, want %q", got, tc.want)
				}
				if errors.Is(err, ErrGap) != tc.gap || (err == nil) != (tc.err == nil) || err != nil && !tc.gap && err.Error() != "failed to list: "+tc.err.Error() {
					t.Errorf("Seen() fails with %v, want %v (resumed: %v)", err, tc.err, tc.gap)
				}
			})
		})
	}
}

func TestReady(t *testing.T) {
	fn := &v1alpha1.Function{}
	fn.Generation = 1
	fn.Status.InitializeConditions()
	if Ready(fn) == nil || Healed(fn) == nil {
		t.Error("a Function without an observed generation is ready")
	}

	fn.Status.ObservedGeneration = 1
	fn.Status.MarkConfigurationReady(v1alpha1.ReasonConfigMapCreated, "")
	fn.Status.MarkBuildFailed(v1alpha1.ReasonTaskRunFailed, "npm error 404")
	if err := Ready(fn); !errors.As(err, new(hopelessError)) || !strings.Contains(err.Error(), "npm error 404") {
		t.Errorf("Ready of a failed Function is %v, want it to give up with the reason", err)
	}
	if err := Healed(fn); err == nil || errors.As(err, new(hopelessError)) {
		t.Errorf("Healed of a failed Function is %v, want it to keep waiting", err)
	}
	failed := apis.Condition{Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonTaskRunFailed}
	if err := HasCondition(failed)(fn); err != nil {
		t.Error(err)
	}

	fn.Status.MarkBuildReady(v1alpha1.ReasonTaskRunSucceeded, "")
	fn.Status.MarkRunning()
	if err := Ready(fn); err != nil {
		t.Error(err)
	}
	fn.Generation = 2
	if Ready(fn) == nil || HasCondition(failed)(fn) == nil {
		t.Error("a condition of an earlier generation counts")
	}
}
