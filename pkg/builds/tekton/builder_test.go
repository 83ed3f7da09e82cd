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

package tekton

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
)

// TestQueuedBuild checks which TaskRuns are pending. The reasons are those of Tekton's
// package pod, which needs many modules.
func TestQueuedBuild(t *testing.T) {
	created := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		reason string
		want   time.Time
	}{
		"Tekton has not seen it":       {"", time.Time{}},
		"its pod does not exist yet":   {pipelinev1.TaskRunReasonStarted.String(), time.Time{}},
		"it runs":                      {pipelinev1.TaskRunReasonRunning.String(), time.Time{}},
		"a node or a volume is absent": {"Pending", created},
		"no node has enough":           {"ExceededNodeResources", created},
		"an image is absent":           {"PullImageFailed", created},
		"a quota forbids the pod":      {"ExceededResourceQuota", created},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &pipelinev1.TaskRun{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "greeter-1", CreationTimestamp: metav1.NewTime(created),
				Labels: map[string]string{serverless.FunctionNameLabelKey: "greeter", serverless.FunctionUIDLabelKey: "uid"},
			}}
			if row.reason != "" {
				tr.Status.SetCondition(&apis.Condition{Type: apis.ConditionSucceeded, Status: corev1.ConditionUnknown, Reason: row.reason})
			}
			want := queue.Build{
				Name:     types.NamespacedName{Namespace: "team", Name: "greeter-1"},
				Function: types.NamespacedName{Namespace: "team", Name: "greeter"},
				UID:      "uid", Pending: row.want,
			}
			if diff := cmp.Diff(want, QueuedBuild(tr)); diff != "" {
				t.Errorf("QueuedBuild() (-want, +got):\n%s", diff)
			}
		})
	}
}
