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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgotesting "k8s.io/client-go/testing"
	"knative.dev/pkg/apis"
	rtesting "knative.dev/pkg/reconciler/testing"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	ktesting "github.com/kiln-dev/kiln/pkg/reconciler/testing"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// TestReconcileTraffic is about the revisions that requests are sent to.
func TestReconcileTraffic(t *testing.T) {
	old := v1alpha1.TrafficTarget{RevisionName: "greeter-00001", Percent: new(int64(100)), Tag: "old"}
	typo := v1alpha1.TrafficTarget{RevisionName: "greeter-00009", Percent: new(int64(100))}
	rev1 := revisionOf(svc1, "greeter-00001")
	others := revisionOf(svc1, "greeter-00009")
	others.Labels["serving.knative.dev/serviceUID"] = "of a Service before, or of another"
	leaving := revisionOf(svc1, "greeter-00009")
	leaving.DeletionTimestamp, leaving.Finalizers = &noon, []string{"x"}
	revisions := map[string]any{ktesting.Unlisted: []runtime.Object{rev1, others}}

	rolledBack := func(fn *v1alpha1.Function) *v1alpha1.Function { withTraffic(old)(fn); return fn }
	split := service(rolledBack(running1.DeepCopy()), serviceReady, func(svc *servingv1.Service) {
		svc.Status.LatestCreatedRevisionName, svc.Status.LatestReadyRevisionName = "greeter-00002", "greeter-00002"
		svc.Status.Traffic = []servingv1.TrafficTarget{
			{RevisionName: "greeter-00001", LatestRevision: new(false), Percent: new(int64(90)), Tag: "old", URL: &apis.URL{Scheme: "http", Host: "old-greeter.default.svc.cluster.local"}},
			{RevisionName: "greeter-00002", LatestRevision: new(true), Percent: new(int64(10))},
		}
	})
	splitting := rolledBack(running1.DeepCopy())
	knative.PropagateStatus(splitting, split)
	splitting.Status.MarkRunning()
	missing := "spec.traffic names revisions that the Function does not have: greeter-00009; it has greeter-00001. " +
		"Name one of these, or set latestRevision: true. The previous traffic stays in effect."
	hostile := rev1.DeepCopy()
	hostile.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: config.DefaultCredentials}, Optional: new(true),
	}}}
	reserved := "spec.traffic names revision greeter-00001, which uses Secret kiln-registry-credentials. It has the credentials of the image registry, " +
		"and no Function may use it. Name another revision. The previous traffic stays in effect."
	none := "spec.traffic names revisions that the Function does not have: greeter-00009; it has none yet, and gets none until spec.traffic is corrected. " +
		"Remove spec.traffic, or set latestRevision: true."
	isMissing := func(message string) functionOption {
		return marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkRunningFailed(v1alpha1.ReasonRevisionMissing, "%s", message)
		})
	}
	gone := service(rolledBack(running1.DeepCopy()), serviceReady, routeFailed("RevisionMissing", `Revision "greeter-00001" referenced in traffic not found.`))
	drifted := service(running1, serviceReady, func(svc *servingv1.Service) {
		svc.Spec.Template.Spec.Containers[0].Image = "evil"
		delete(svc.Labels, "networking.knative.dev/visibility")
	})
	failedRun := taskRun(edited(withSource(sourceB)), builds.ReasonSourceChanged, taskRunFailed("StepFailed", "no"))
	buildHasFailed := buildFailed(failedRun, v1alpha1.BuildFailure{Reason: v1alpha1.ReasonTaskRunFailed, Message: "no"})
	failed := edited(withSource(sourceB), observed(reconfigured, stillServing, buildHasFailed))

	rtesting.TableTest{{
		Name:              "traffic goes back to an earlier revision: neither a build nor a revision",
		Key:               key,
		Objects:           []runtime.Object{edited(withTraffic(old)), configMap(running1), tr1, svc1},
		OtherTestData:     revisions,
		WantUpdates:       update(merged(rolledBack(running1.DeepCopy()), svc1)),
		WantStatusUpdates: statusUpdate(edited(withTraffic(old), observed(configured, built(tr1, digestA), serviceUpdated))),
		WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
	}, {
		Name:              "traffic is split: the status has the shares and the URL of the tag",
		Key:               key,
		Objects:           []runtime.Object{rolledBack(running1.DeepCopy()), configMap(running1), tr1, split},
		WantStatusUpdates: statusUpdate(splitting),
		WantEvents:        []string{"Normal ServiceReady Revisions greeter-00001 (90%), greeter-00002 (10%) serve."},
	}, {
		Name:    "traffic is split still: nothing to write, nothing to look up",
		Key:     key,
		Objects: []runtime.Object{splitting, configMap(running1), tr1, split},
	}, {
		Name:              "traffic names a missing revision: nothing of the edit is applied",
		Key:               key,
		Objects:           []runtime.Object{edited(withTraffic(typo), withEnv("A", "1")), configMap(running1), tr1, svc1},
		OtherTestData:     revisions,
		WantStatusUpdates: statusUpdate(edited(withTraffic(typo), withEnv("A", "1"), observed(configured, built(tr1, digestA), stillServing, isMissing(missing)))),
		WantEvents:        []string{"Warning RevisionMissing " + missing},
	}, {
		Name:              "traffic names a revision that uses the registry credentials",
		Key:               key,
		Objects:           []runtime.Object{edited(withTraffic(old)), configMap(running1), tr1, svc1},
		OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{hostile}},
		WantStatusUpdates: statusUpdate(edited(withTraffic(old), observed(configured, built(tr1, digestA), stillServing, isMissing(reserved)))),
		WantEvents:        []string{"Warning RevisionMissing " + reserved},
	}, {
		Name:          "traffic still names a missing revision: nothing to write",
		Key:           key,
		Objects:       []runtime.Object{edited(withTraffic(typo), observed(configured, built(tr1, digestA), stillServing, isMissing(missing))), configMap(running1), tr1, svc1},
		OtherTestData: revisions,
	}, {
		Name:          "traffic names a missing revision: the Service is restored",
		Key:           key,
		Objects:       []runtime.Object{edited(withTraffic(typo), observed(configured, built(tr1, digestA), stillServing, isMissing(missing))), configMap(running1), tr1, drifted},
		OtherTestData: revisions,
		WantUpdates:   update(svc1),
	}, {
		Name:              "traffic names a revision that is being deleted",
		Key:               key,
		Objects:           []runtime.Object{edited(withTraffic(typo)), configMap(running1), tr1, svc1},
		OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{rev1, leaving}},
		WantStatusUpdates: statusUpdate(edited(withTraffic(typo), observed(configured, built(tr1, digestA), stillServing, isMissing(missing)))),
		WantEvents:        []string{"Warning RevisionMissing " + missing},
	}, {
		Name:              "a new Function names a revision: there is no Service until that is corrected, and revisions of an earlier Function do not count",
		Key:               key,
		Objects:           []runtime.Object{function(withTraffic(typo), observed(configured, built(tr1, digestA))), configMap(running1), tr1},
		OtherTestData:     map[string]any{ktesting.Unlisted: []runtime.Object{others}},
		WantStatusUpdates: statusUpdate(function(withTraffic(typo), observed(configured, built(tr1, digestA), isMissing(none)))),
		WantEvents:        []string{"Warning RevisionMissing " + none},
	}, {
		Name:    "a revision that requests were sent to is gone: Serving says so",
		Key:     key,
		Objects: []runtime.Object{splitting, configMap(running1), tr1, gone},
		WantStatusUpdates: statusUpdate(func() *v1alpha1.Function {
			fn := splitting.DeepCopy()
			knative.PropagateStatus(fn, gone)
			fn.Status.MarkRunningFailed(v1alpha1.ReasonRevisionMissing, `Revision "greeter-00001" referenced in traffic not found. The previous traffic stays in effect.`)
			fn.Status.UpdatePhase()
			return fn
		}()),
		WantEvents: []string{`Warning RevisionMissing Revision "greeter-00001" referenced in traffic not found. The previous traffic stays in effect.`},
	}, {
		Name:          "traffic goes back to an earlier revision after the build has failed",
		Key:           key,
		Objects:       []runtime.Object{rolledBack(failed.DeepCopy()), configMap(failed), failedRun, svc1},
		OtherTestData: revisions,
		WantUpdates:   update(merged(rolledBack(running1.DeepCopy()), svc1)),
	}, {
		Name:              "traffic names a missing revision after the build has failed",
		Key:               key,
		Objects:           []runtime.Object{edited(withSource(sourceB), withTraffic(typo), observed(reconfigured, stillServing, buildHasFailed)), configMap(failed), failedRun, svc1},
		OtherTestData:     revisions,
		WantStatusUpdates: statusUpdate(edited(withSource(sourceB), withTraffic(typo), observed(reconfigured, stillServing, buildHasFailed, isMissing(missing)))),
		WantEvents:        []string{"Warning RevisionMissing " + missing},
	}, {
		Name:          "traffic names a missing revision while the build fails still: nothing to write",
		Key:           key,
		Objects:       []runtime.Object{edited(withSource(sourceB), withTraffic(typo), observed(reconfigured, stillServing, buildHasFailed, isMissing(missing))), configMap(failed), failedRun, svc1},
		OtherTestData: revisions,
	}, {
		Name:              "the revisions cannot be read",
		Key:               key,
		Objects:           []runtime.Object{edited(withTraffic(old)), configMap(running1), tr1, svc1},
		WithReactors:      []clientgotesting.ReactionFunc{rtesting.InduceFailure("list", "revisions")},
		WantErr:           true,
		WantStatusUpdates: statusUpdate(edited(withTraffic(old), observed(configured, built(tr1, digestA), stillServing))),
	}, {
		Name:         "the revisions cannot be read while the next image is built",
		Key:          key,
		Objects:      []runtime.Object{rolledBack(failed.DeepCopy()), configMap(failed), failedRun, svc1},
		WithReactors: []clientgotesting.ReactionFunc{rtesting.InduceFailure("list", "revisions")},
		WantErr:      true,
	}}.Test(t, factory())
}
