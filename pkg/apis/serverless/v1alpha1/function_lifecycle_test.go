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

package v1alpha1

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	apistest "knative.dev/pkg/apis/testing"
)

func TestPhaseFollowsConditions(t *testing.T) {
	all := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown, corev1.ConditionFalse}
	for _, configuration := range all {
		for _, build := range all {
			for _, running := range all {
				statuses := [...]corev1.ConditionStatus{configuration, build, running}
				got := phaseOf(condition(configuration), condition(build), condition(running))
				if want := wantPhase(statuses); got != want {
					t.Errorf("phaseOf(%v) = %s, want %s", statuses, got, want)
				}
			}
		}
	}
}

// wantPhase states the documented rule a second way: a False anywhere fails,
// else the first condition that is not True names the phase.
func wantPhase(statuses [3]corev1.ConditionStatus) FunctionPhase {
	for _, status := range statuses {
		if status == corev1.ConditionFalse {
			return FunctionFailed
		}
	}
	names := [...]FunctionPhase{FunctionInitializing, FunctionBuilding, FunctionDeploying}
	for i, status := range statuses {
		if status != corev1.ConditionTrue {
			return names[i]
		}
	}
	return FunctionRunning
}

func condition(status corev1.ConditionStatus) *apis.Condition {
	return &apis.Condition{Status: status}
}

func TestPhaseOfAbsentConditions(t *testing.T) {
	fs := &FunctionStatus{}
	fs.UpdatePhase()
	if fs.Phase != FunctionInitializing {
		t.Errorf("phase of an empty status = %q, want %q", fs.Phase, FunctionInitializing)
	}
}

func TestTheWayToReady(t *testing.T) {
	fs := &FunctionStatus{}
	fs.InitializeConditions()
	steps := []struct {
		name                           string
		do                             func()
		configuration, build, run, all corev1.ConditionStatus
		phase                          FunctionPhase
	}{{
		name: "nothing happened", do: func() {},
		configuration: corev1.ConditionUnknown, build: corev1.ConditionUnknown, run: corev1.ConditionUnknown, all: corev1.ConditionUnknown,
		phase: FunctionInitializing,
	}, {
		name:          "configured",
		do:            func() { fs.MarkConfigurationReady(ReasonConfigMapCreated, "") },
		configuration: corev1.ConditionTrue, build: corev1.ConditionUnknown, run: corev1.ConditionUnknown, all: corev1.ConditionUnknown,
		phase: FunctionBuilding,
	}, {
		name:          "build fails",
		do:            func() { fs.MarkBuildFailed(ReasonTaskRunFailed, "no %s", "luck") },
		configuration: corev1.ConditionTrue, build: corev1.ConditionFalse, run: corev1.ConditionUnknown, all: corev1.ConditionFalse,
		phase: FunctionFailed,
	}, {
		name:          "build runs again",
		do:            func() { fs.MarkBuildUnknown(ReasonTaskRunRunning, "") },
		configuration: corev1.ConditionTrue, build: corev1.ConditionUnknown, run: corev1.ConditionUnknown, all: corev1.ConditionUnknown,
		phase: FunctionBuilding,
	}, {
		name:          "built",
		do:            func() { fs.MarkBuildReady(ReasonTaskRunSucceeded, "") },
		configuration: corev1.ConditionTrue, build: corev1.ConditionTrue, run: corev1.ConditionUnknown, all: corev1.ConditionUnknown,
		phase: FunctionDeploying,
	}, {
		name:          "service fails",
		do:            func() { fs.MarkRunningFailed(ReasonServiceFailed, "") },
		configuration: corev1.ConditionTrue, build: corev1.ConditionTrue, run: corev1.ConditionFalse, all: corev1.ConditionFalse,
		phase: FunctionFailed,
	}, {
		name:          "service waits",
		do:            func() { fs.MarkRunningUnknown(ReasonServiceWaiting, "") },
		configuration: corev1.ConditionTrue, build: corev1.ConditionTrue, run: corev1.ConditionUnknown, all: corev1.ConditionUnknown,
		phase: FunctionDeploying,
	}, {
		name:          "service serves",
		do:            func() { fs.MarkRunning() },
		configuration: corev1.ConditionTrue, build: corev1.ConditionTrue, run: corev1.ConditionTrue, all: corev1.ConditionTrue,
		phase: FunctionRunning,
	}, {
		name:          "a new generation keeps nothing",
		do:            func() { fs.ResetConditions() },
		configuration: corev1.ConditionUnknown, build: corev1.ConditionUnknown, run: corev1.ConditionUnknown, all: corev1.ConditionUnknown,
		phase: FunctionInitializing,
	}, {
		name:          "and may be wrong",
		do:            func() { fs.MarkConfigurationFailed(ReasonInvalidSpec, "") },
		configuration: corev1.ConditionFalse, build: corev1.ConditionUnknown, run: corev1.ConditionUnknown, all: corev1.ConditionFalse,
		phase: FunctionFailed,
	}}
	for _, step := range steps {
		step.do()
		fs.UpdatePhase()
		got := map[string]string{"phase": string(fs.Phase), "count": ""}
		want := map[string]string{"phase": string(step.phase), "count": ""}
		for conditionType, status := range map[apis.ConditionType]corev1.ConditionStatus{
			FunctionConditionConfigurationReady: step.configuration,
			FunctionConditionBuildReady:         step.build,
			FunctionConditionRunning:            step.run,
			FunctionConditionReady:              step.all,
		} {
			got[string(conditionType)] = string(fs.GetCondition(conditionType).Status)
			want[string(conditionType)] = string(status)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want, +got):\n%s", step.name, diff)
		}
		if len(fs.Conditions) != 4 {
			t.Errorf("%s: %d conditions, want one of each of the 4 types", step.name, len(fs.Conditions))
		}
	}
}

func TestWaitingForBuildNamesWhatServes(t *testing.T) {
	fs := &FunctionStatus{}
	fs.InitializeConditions()
	fs.MarkBuildUnknown(ReasonTaskRunCreated, "")
	if got := fs.GetCondition(FunctionConditionRunning).Message; strings.Contains(got, "serves") {
		t.Errorf("message with no revision = %q", got)
	}
	fs.LatestReadyRevisionName = "greeter-00007"
	fs.MarkBuildFailed(ReasonTaskRunFailed, "")
	apistest.CheckConditionFailed(fs, FunctionConditionBuildReady, t)
	apistest.CheckConditionOngoing(fs, FunctionConditionRunning, t)
	if got := fs.GetCondition(FunctionConditionRunning).Message; !strings.Contains(got, "greeter-00007 serves") {
		t.Errorf("message = %q, want it to name the revision that serves", got)
	}
}

func TestReadyAndFailedCountForTheCurrentGenerationOnly(t *testing.T) {
	ready := func(fs *FunctionStatus) {
		fs.MarkConfigurationReady(ReasonConfigMapCreated, "")
		fs.MarkBuildReady(ReasonTaskRunSucceeded, "")
		fs.MarkRunning()
	}
	failed := func(fs *FunctionStatus) { fs.MarkConfigurationFailed(ReasonInvalidSpec, "") }
	for _, tc := range []struct {
		name                  string
		mark                  func(*FunctionStatus)
		observed              int64
		wantReady, wantFailed bool
	}{
		{"ready", ready, 2, true, false},
		{"ready in an earlier generation", ready, 1, false, false},
		{"failed", failed, 2, false, true},
		{"failed in an earlier generation", failed, 1, false, false},
		{"neither", func(*FunctionStatus) {}, 2, false, false},
	} {
		fn := &Function{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		fn.Status.InitializeConditions()
		fn.Status.ObservedGeneration = tc.observed
		tc.mark(&fn.Status)
		if got := fn.IsReady(); got != tc.wantReady {
			t.Errorf("%s: IsReady() = %v", tc.name, got)
		}
		if got := fn.IsFailed(); got != tc.wantFailed {
			t.Errorf("%s: IsFailed() = %v", tc.name, got)
		}
	}
}

func TestReadyTellsOfTheStepThatIsNotDone(t *testing.T) {
	fs := &FunctionStatus{}
	fs.InitializeConditions()
	steps := []struct {
		do   func()
		want string
	}{
		{func() { fs.MarkConfigurationUnknown(ReasonWaitingForDeletion, "") }, ReasonWaitingForDeletion},
		{func() { fs.MarkConfigurationFailed(ReasonInvalidSpec, "") }, ReasonInvalidSpec},
		{func() { fs.ResetConditions() }, ""},
		{func() {
			fs.MarkConfigurationReady(ReasonConfigMapCreated, "")
			fs.MarkBuildUnknown(ReasonTaskRunRunning, "")
		}, ReasonTaskRunRunning},
		{func() { fs.MarkBuildFailed(ReasonBuildTimeout, "") }, ReasonBuildTimeout},
		{func() {
			fs.MarkBuildReady(ReasonTaskRunSucceeded, "")
			fs.MarkRunningUnknown(ReasonServiceWaiting, "")
		}, ReasonServiceWaiting},
		{func() { fs.MarkRunningFailed(ReasonServiceFailed, "") }, ReasonServiceFailed},
	}
	for i, step := range steps {
		step.do()
		if got := fs.GetCondition(FunctionConditionReady).GetReason(); got != step.want {
			t.Errorf("reason of Ready after step %d = %q, want %q", i, got, step.want)
		}
	}
}

func TestMarkRunning(t *testing.T) {
	share := func(revision string, percent int64) TrafficStatus {
		return TrafficStatus{RevisionName: revision, Percent: &percent}
	}
	tests := map[string]struct {
		traffic []TrafficStatus
		want    string
	}{
		"not told":         {nil, "Revision fn-00003 serves."},
		"one":              {[]TrafficStatus{share("fn-00001", 100)}, "Revision fn-00001 serves."},
		"one, twice":       {[]TrafficStatus{share("fn-00001", 60), share("fn-00001", 40)}, "Revision fn-00001 serves."},
		"one, others none": {[]TrafficStatus{share("fn-00001", 100), share("fn-00003", 0), {RevisionName: "fn-00002"}}, "Revision fn-00001 serves."},
		"two":              {[]TrafficStatus{share("fn-00001", 60), share("fn-00003", 40)}, "Revisions fn-00001 (60%), fn-00003 (40%) serve."},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fs := &FunctionStatus{LatestReadyRevisionName: "fn-00003", Traffic: tc.traffic}
			fs.MarkRunning()
			if got := fs.GetCondition(FunctionConditionRunning).Message; got != tc.want {
				t.Errorf("message = %q, want %q", got, tc.want)
			}
		})
	}
}
