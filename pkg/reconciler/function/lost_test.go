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
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgotesting "k8s.io/client-go/testing"
	rtesting "knative.dev/pkg/reconciler/testing"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
)

func checking(cfg *config.Config) { cfg.Registry.CheckInterval = time.Minute }

// planned plans a build of the desired image.
func planned(reason string, attempts int32) functionOption {
	return func(fn *v1alpha1.Function) {
		want := request(fn)
		fn.Status.Build = &v1alpha1.BuildStatus{Reason: reason, Generation: fn.Generation, ImageTag: want.Tag, Inputs: want.Fingerprint, Attempts: attempts}
	}
}

func TestReconcileLostImage(t *testing.T) {
	data := func(registry fakeRegistry) map[string]any {
		return map[string]any{configKey: testConfig(checking), registryKey: registry}
	}
	runningFn := func(options ...functionOption) *v1alpha1.Function {
		fn := running1.DeepCopy()
		for _, option := range options {
			option(fn)
		}
		return fn
	}
	lost := marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkBuildUnknown("", "The registry no longer holds image %s. The build is about to start.", repo+"@"+digestA)
	})
	plannedFn := runningFn(planned(builds.ReasonImageLost, builds.MaxAttempts), lost, observed())
	again := attempt(function(), builds.ReasonImageLost, builds.MaxAttempts+1)
	succeeded := attempt(function(), builds.ReasonImageLost, builds.MaxAttempts+1, taskRunSucceeded(digestA))
	rebuilding := runningFn(observed(buildCreated(again), stillServing))
	waiting := runningFn(planned(builds.ReasonImageLost, builds.MaxAttempts), marked(func(fs *v1alpha1.FunctionStatus) {
		fs.MarkBuildUnknown(v1alpha1.ReasonTaskRunsDeleted, "The build starts when earlier ones are gone: %s.", tr1.Name)
	}), observed())

	rtesting.TableTest{{
		Name:          "the registry holds the image: nothing is written",
		Key:           key,
		Objects:       []runtime.Object{running1, configMap(running1), tr1, svc1},
		OtherTestData: data(fakeRegistry{}),
	}, {
		Name:              "the registry has lost the image: a build is planned, and the revision keeps serving",
		Key:               key,
		Objects:           []runtime.Object{running1, configMap(running1), tr1, svc1},
		OtherTestData:     data(fakeRegistry{lost: digestA}),
		WantStatusUpdates: statusUpdate(plannedFn),
	}, {
		Name:              "the build that has made the lost image does not count",
		Key:               key,
		Objects:           []runtime.Object{plannedFn, configMap(running1), tr1, svc1},
		OtherTestData:     data(fakeRegistry{lost: digestA}),
		WantDeletes:       []clientgotesting.DeleteActionImpl{deletion("taskruns", tr1)},
		WantStatusUpdates: statusUpdate(waiting),
		WantEvents:        []string{"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + tr1.Name + "."},
	}, {
		Name:              "the image is built again",
		Key:               key,
		Objects:           []runtime.Object{waiting, configMap(running1), svc1},
		OtherTestData:     data(fakeRegistry{lost: digestA}),
		WantCreates:       []runtime.Object{again},
		WantStatusUpdates: statusUpdate(rebuilding),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + again.Name + " is about to run."},
	}, {
		Name:              "the same digest comes back: no new revision",
		Key:               key,
		Objects:           []runtime.Object{rebuilding, configMap(running1), succeeded, svc1},
		OtherTestData:     data(fakeRegistry{}),
		WantStatusUpdates: statusUpdate(runningFn(built(succeeded, digestA), running, observed())),
		WantEvents: []string{
			"Normal TaskRunSucceeded TaskRun " + again.Name + " built " + repo + "@" + digestA + ".",
			"Normal ServiceReady Revision greeter-00001 serves.",
		},
	}}.Test(t, factory())
}

func TestCheckInterval(t *testing.T) {
	round := func(n int32) *v1alpha1.BuildStatus {
		return &v1alpha1.BuildStatus{Reason: builds.ReasonImageLost, Attempts: n*builds.MaxAttempts + 1}
	}
	for name, tc := range map[string]struct {
		last *v1alpha1.BuildStatus
		want time.Duration
	}{
		"no build":     {nil, time.Hour},
		"another one":  {&v1alpha1.BuildStatus{Reason: builds.ReasonSourceChanged, Attempts: 1}, time.Hour},
		"lost once":    {round(1), 2 * time.Hour},
		"lost thrice":  {round(3), 8 * time.Hour},
		"lost often":   {round(9), 24 * time.Hour},
		"lost forever": {round(1 << 24), 24 * time.Hour},
	} {
		if got := checkInterval(time.Hour, tc.last); got != tc.want {
			t.Errorf("%s: checkInterval() = %s, want %s", name, got, tc.want)
		}
	}
	if got := checkInterval(0, round(1)); got != 0 {
		t.Errorf("checkInterval() without checks = %s", got)
	}
}
