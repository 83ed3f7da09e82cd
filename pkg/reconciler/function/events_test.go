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
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"knative.dev/pkg/apis"
	fakekubeclient "knative.dev/pkg/client/injection/kube/client/fake"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"
	rtesting "knative.dev/pkg/reconciler/testing"
	"knative.dev/pkg/system"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
)

func TestIsNews(t *testing.T) {
	of := func(status corev1.ConditionStatus, reason, message string) *apis.Condition {
		return &apis.Condition{Type: v1alpha1.FunctionConditionRunning, Status: status, Reason: reason, Message: message}
	}
	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	tests := map[string]struct {
		before, now *apis.Condition
		want        bool
	}{
		"nothing is known yet":                 {nil, of(unknown, "", ""), false},
		"the first that is known":              {nil, of(unknown, "ServiceCreated", "a"), true},
		"the same again":                       {of(yes, "ServiceReady", "a"), of(yes, "ServiceReady", "a"), false},
		"the same failure again":               {of(no, "ServiceFailed", "a"), of(no, "ServiceFailed", "a"), false},
		"another reason":                       {of(unknown, "ServiceCreated", "a"), of(unknown, "ServiceWaiting", "a"), true},
		"another status":                       {of(unknown, "ServiceWaiting", "a"), of(yes, "ServiceReady", "a"), true},
		"from ready to failed":                 {of(yes, "ServiceReady", "a"), of(no, "ServiceFailed", "b"), true},
		"other words while it is on its way":   {of(unknown, "ServiceWaiting", "a"), of(unknown, "ServiceWaiting", "b"), false},
		"other words of a failure":             {of(no, "ServiceFailed", "a"), of(no, "ServiceFailed", "b"), true},
		"another revision is ready":            {of(yes, "ServiceReady", "a"), of(yes, "ServiceReady", "b"), true},
		"it waits for the step before":         {of(yes, "ServiceReady", "a"), of(unknown, v1alpha1.ReasonWaitingForBuild, "b"), false},
		"it waits for the step before that":    {of(yes, "ServiceReady", "a"), of(unknown, v1alpha1.ReasonWaitingForConfiguration, "b"), false},
		"it is ready after having waited":      {of(unknown, v1alpha1.ReasonWaitingForBuild, "a"), of(yes, "ServiceReady", "b"), true},
		"what was known is unknown again":      {of(yes, "ServiceReady", "a"), of(unknown, "", ""), false},
		"the condition was lost by somebody":   {of(yes, "ServiceReady", "a"), nil, false},
		"it is as before after having been so": {of(unknown, "", ""), of(yes, "ServiceReady", "a"), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := isNews(tc.before, tc.now); got != tc.want {
				t.Errorf("isNews() = %v", got)
			}
		})
	}
}

// TestReconcileEvents checks that only changes of state emit events, also after the
// controller has restarted.
func TestReconcileEvents(t *testing.T) {
	held := func(message string) *v1alpha1.Function {
		tr := taskRun(function(), builds.ReasonFirstBuild, taskRunRunning)
		return function(observed(configured, buildRunning(tr), marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "TaskRun %s has not ended: ExceededNodeResources: %s", tr.Name, message)
		})))
	}
	heldRun := taskRun(function(), builds.ReasonFirstBuild, succeededCondition(corev1.ConditionUnknown, "ExceededNodeResources", "1 Insufficient memory"))
	failed := func(words string) *v1alpha1.Function {
		fn := running1.DeepCopy()
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "RevisionFailed: %s", words)
		fn.Status.UpdatePhase()
		return fn
	}
	broken := service(running1, serviceStatus(corev1.ConditionFalse, "RevisionFailed", "B", "greeter-00001", "greeter-00001"))
	brokenRevision := revision(corev1.ConditionFalse, corev1.ConditionTrue, "", "")

	rtesting.TableTest{{
		Name:    "a running Function is reconciled again",
		Key:     key,
		Objects: []runtime.Object{running1, configMap(running1), tr1, svc1},
	}, {
		Name:    "a failed Function is reconciled again",
		Key:     key,
		Objects: []runtime.Object{failed("B"), configMap(running1), tr1, broken, brokenRevision},
	}, {
		Name:    "a build that is held up is reconciled again",
		Key:     key,
		Objects: []runtime.Object{held("1 Insufficient memory"), configMap(function()), heldRun},
	}, {
		Name:              "a build is held up by something else: the status says so, no event does",
		Key:               key,
		Objects:           []runtime.Object{held("1 Insufficient cpu"), configMap(function()), heldRun},
		WantStatusUpdates: statusUpdate(held("1 Insufficient memory")),
	}, {
		Name:              "a failure has other words: that is news",
		Key:               key,
		Objects:           []runtime.Object{failed("A"), configMap(running1), tr1, broken, brokenRevision},
		WantStatusUpdates: statusUpdate(failed("B")),
		WantEvents:        []string{"Warning ServiceFailed RevisionFailed: B"},
	}}.Test(t, factory())
}

// TestEventRecorder checks that an event is written, and logged with the key of its object.
// Events of the generated reconciler, one for each failed attempt, are not.
func TestEventRecorder(t *testing.T) {
	ctx := t.Context()
	core, logs := observer.New(zap.InfoLevel)
	ctx, kube := fakekubeclient.With(logging.WithLogger(ctx, zap.New(core).Sugar()))
	ctx = withEventRecorder(ctx)
	cm := systemConfigMap(config.BuildConfigName, nil)
	controller.GetEventRecorder(ctx).Event(cm, corev1.EventTypeWarning, "InternalError", "A try has failed")
	controller.GetEventRecorder(ctx).Event(cm, corev1.EventTypeWarning, "Reason", "the problem")

	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		return len(kube.Actions()) > 0 && logs.Len() > 0, nil
	}); err != nil {
		t.Fatal("There was no event:", err)
	}
	wantAllowed(t, kube.Actions())
	got := kube.Actions()[0].(clientgotesting.CreateAction).GetObject().(*corev1.Event)
	if got.InvolvedObject.Kind != "ConfigMap" || got.Message != "the problem" || got.Source.Component != component {
		t.Errorf("The event: %+v", got)
	}
	entry := logs.All()[0]
	if key := entry.ContextMap()["knative.dev/key"]; key != system.Namespace()+"/"+config.BuildConfigName || entry.Message != "the problem" {
		t.Errorf("The log: %+v", entry)
	}
	if again := withEventRecorder(ctx); again != ctx {
		t.Error("A second recorder was made")
	}
}

// TestEventSink checks that an event whose write gets no answer delays no other, and is
// written again.
func TestEventSink(t *testing.T) {
	var asked atomic.Bool
	written := make(chan string, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // The client has gone.
		}
		if !asked.Swap(true) {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
		written <- r.Method
	}))
	defer server.Close()
	client, err := typedcorev1.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}})
	if err != nil {
		t.Fatal(err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(t.Context()), record.WithSleepDuration(time.Millisecond))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(eventSink{ctx: t.Context(), events: client.Events(""), timeout: 50 * time.Millisecond})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
	cm := systemConfigMap(config.BuildConfigName, nil)
	// A repeated event only increments the count of the first.
	for _, reason := range []string{"Lost", "Another", "Another"} {
		recorder.Event(cm, corev1.EventTypeNormal, reason, "the message")
	}
	for _, want := range []string{http.MethodPost, http.MethodPost, http.MethodPatch} {
		select {
		case got := <-written:
			if got != want {
				t.Errorf("The event was written by %s, want %s", got, want)
			}
		case <-time.After(wait.ForeverTestTimeout):
			t.Fatal("An event is not written, since one was not answered")
		}
	}
}
