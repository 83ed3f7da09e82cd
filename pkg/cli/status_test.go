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

package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

func TestStatus(t *testing.T) {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "fn.1", Namespace: namespace}, InvolvedObject: corev1.ObjectReference{UID: "uid-of-fn"},
		Type: "Normal", Reason: "ServiceUpdated", Message: "Service fn was updated.", LastTimestamp: ago(2 * time.Minute),
	}
	w := newWorld(t, newFunction("fn", built), crashing("fn-00002", "a"), taskRun(), event)
	w.want(`
default/fn  Deploying  version 2, nodejs24, 60m old
Image     completed: TaskRun fn-1 built it.
Function  terminated: Container failed with: no such module

Steps
  Configuration done        ConfigMapCreated
  Build         done        TaskRunSucceeded
  Service       not yet     -
    The service is about to be updated.

Pods
  a  terminated, 3 restarts, 3m old
    Container failed with: no such module

Last events
  2m    Normal  ServiceUpdated        Service fn was updated.

Next: See the log from before the crash: kubectl fn logs --previous fn
`, "status", "fn")
	w.want("completed terminated", "status", "fn", "-o", "jsonpath={.image} {.function}")
	got, err := w.run("status", "fn", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal([]byte(got), &r); err != nil {
		t.Fatal(err)
	}
	want := map[string]podReport{"a": {Status: "terminated", Message: "Container failed with: no such module", Revision: "fn-00002", Restarts: 3}}
	if diff := cmp.Diff(want, r.PodStatuses); diff != "" {
		t.Errorf("pod_statuses (-want +got):\n%s", diff)
	}
}

func TestNext(t *testing.T) {
	tests := map[string]struct {
		world *world
		want  string
	}{
		"fails to build": {newWorld(t, newFunction("fn", buildFailed)), "See why the build failed: kubectl fn build-logs fn"},
		"builds":         {newWorld(t, newFunction("fn", builds)), "Watch the build: kubectl fn build-logs --follow fn"},
		"waits to build": {newWorld(t, newFunction("fn", func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationReady("", "")
			fs.MarkBuildUnknown(v1alpha1.ReasonBuildQueued, "")
		})), "See what the build waits for: kubectl fn build-status fn"},
		"invalid": {newWorld(t, newFunction("fn", func(fs *v1alpha1.FunctionStatus) {
			fs.MarkConfigurationFailed(v1alpha1.ReasonRuntimeUnknown, "no such runtime")
		})), "Correct the Function as ConfigurationReady says: kubectl edit fn fn"},
		"starts":  {newWorld(t, newFunction("fn", built)), "Wait: kubectl wait --for=condition=Ready fn/fn"},
		"serves":  {newWorld(t, newFunction("fn", serves)), "Call it: kubectl fn invoke fn"},
		"crashes": {newWorld(t, newFunction("fn", built), crashing("fn-00001", "a")), "See the log from before the crash: kubectl fn logs --previous fn"},
		"serves still": {newWorld(t, newFunction("fn", serves, func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonServiceFailed, "it crashes")
		}), pod("fn-00001", "a")), "Correct the Function as Ready says, or go back: kubectl fn rollback fn"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { tc.world.want(tc.want, "status", "fn", "-o", "jsonpath={.next}") })
	}
}

// Scripts want a word where there is no Function, too.
func TestStatusOfNone(t *testing.T) {
	w := newWorld(t)
	for _, command := range []string{"status", "build-status"} {
		got, err := w.run(command, "fn", "-o", "jsonpath={.image}")
		if got != "not_found" || err == nil || !strings.HasSuffix(err.Error(), "Try: kubectl fn list --all-namespaces") {
			t.Errorf("kubectl fn %s prints %q and returns %v", command, got, err)
		}
	}
}
