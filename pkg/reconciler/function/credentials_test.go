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
	"errors"
	"testing"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgotesting "k8s.io/client-go/testing"
	"knative.dev/pkg/kmap"
	rtesting "knative.dev/pkg/reconciler/testing"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/tekton"
	"github.com/kiln-dev/kiln/pkg/reconciler/credentials"
	"github.com/kiln-dev/kiln/pkg/serve/knative"
)

// registrySecret is the Secret of the namespace, in a version.
func registrySecret(version string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "registry", ResourceVersion: version}}
}

// withCredentials is the data of a row whose namespace has a Secret, or whose
// Secret fails with an error.
func withCredentials(what any) map[string]any {
	return map[string]any{
		secretKey: what,
		configKey: testConfig(func(cfg *config.Config) { cfg.Registry.Credentials = "registry" }),
	}
}

func TestReconcileCredentials(t *testing.T) {
	run := func(reason string, attempt int32, version string) *pipelinev1.TaskRun {
		want, _ := makePlan(config.ToContext(t.Context(), testConfig()), function())
		want.request.CredentialsVersion = version
		return tekton.MakeTaskRun(function(), testConfig(), builds.Spec{
			Request: want.request, Reason: reason, Attempt: attempt,
			BaseImage: want.lookup.Base, Files: want.files, InstallFiles: want.installFiles, Credentials: registrySecret(version),
		})
	}
	withSecret := run(builds.ReasonFirstBuild, 1, "7")
	refusedRun := run(builds.ReasonFirstBuild, 1, "7")
	taskRunFailed("Failed", "step push")(refusedRun)
	refused := function(observed(configured, buildFailed(refusedRun,
		v1alpha1.BuildFailure{Reason: v1alpha1.ReasonRegistryUnauthorized, Message: "401"})))
	refusedRunHeld := refusedRun.DeepCopy()
	taskRunDeleting(refusedRunHeld)
	second := run(builds.ReasonCredentialsChanged, 2, "8")
	planned := function(observed(configured, buildPlanned(builds.ReasonCredentialsChanged, refusedRun), func(fn *v1alpha1.Function) { fn.Status.Build.Attempts = 1 }))
	refusedBare := taskRun(function(), builds.ReasonFirstBuild, taskRunFailed("Failed", "step push"))
	bare := function(observed(configured, buildFailed(refusedBare,
		v1alpha1.BuildFailure{Reason: v1alpha1.ReasonRegistryUnauthorized, Message: "401"})))
	plannedAfterBare := function(observed(configured, buildPlanned(builds.ReasonCredentialsChanged, refusedBare), func(fn *v1alpha1.Function) { fn.Status.Build.Attempts = 1 }))
	pulls := service(running1, serviceReady, func(svc *servingv1.Service) {
		svc.Annotations = kmap.Union(svc.Annotations, knative.MakeService(running1, running1.Status.Image, "registry").Annotations)
		svc.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	})
	running := running1.DeepCopy()
	running.Status.TemplateHash = knative.Remember(pulls)
	pending := run(builds.ReasonFirstBuild, 1, "7")
	succeededCondition(corev1.ConditionUnknown, "Pending", "pod status")(pending)
	homeless := run(builds.ReasonFirstBuild, 1, "7")
	succeededCondition(corev1.ConditionUnknown, "Pending", `pod status "PodScheduled":"False"; message: "0/1 nodes are available: 1 node(s) had untolerated taint(s)."`)(homeless)
	wantsNode := "TaskRun " + homeless.Name + ` waits for a node: pod status "PodScheduled":"False"; message: "0/1 nodes are available: 1 node(s) had untolerated taint(s)."`
	waiting := "TaskRun " + pending.Name + ` waits for its pod to start: FailedMount: MountVolume.SetUp failed for volume "secret-0" : secret "late" not found`
	starting := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: pending.Status.PodName, UID: "starting", Labels: pending.Labels,
	}}
	earlier := starting.DeepCopy()
	earlier.UID = "earlier"
	quota := apierrs.NewForbidden(corev1.Resource("secrets"), "registry", errors.New("exceeded quota"))
	const refusal = "The registry credentials cannot be copied to Secret registry of the namespace: secrets \"registry\" is forbidden: exceeded quota"

	rtesting.TableTest{{
		Name:          "the first build has the credentials",
		Key:           key,
		Objects:       []runtime.Object{function(), configMap(function())},
		OtherTestData: withCredentials(registrySecret("7")),
		WantCreates:   []runtime.Object{withSecret},
		WantStatusUpdates: statusUpdate(function(observed(
			configured, buildCreated(withSecret)))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Normal TaskRunCreated TaskRun " + withSecret.Name + " is about to run.",
		},
	}, {
		Name:          "changed credentials neither build nor deploy",
		Key:           key,
		Objects:       []runtime.Object{running, configMap(running), tr1, pulls},
		OtherTestData: withCredentials(registrySecret("8")),
	}, {
		Name:          "no build starts without the credentials that it should have",
		Key:           key,
		Objects:       []runtime.Object{function(), configMap(function())},
		OtherTestData: withCredentials(quota),
		WantErr:       true,
		WantStatusUpdates: statusUpdate(function(observed(configured, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkBuildFailed(v1alpha1.ReasonCredentialsFailed, "%s", refusal)
		})))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Warning CredentialsFailed " + refusal,
		},
	}, {
		Name:          "a running Function keeps running",
		Key:           key,
		Objects:       []runtime.Object{running, configMap(running), tr1, pulls},
		OtherTestData: withCredentials(quota),
		WantErr:       true,
	}, {
		Name:          "a build whose images are on their way is about to run",
		Key:           key,
		Objects:       []runtime.Object{function(observed(configured, buildCreated(pending))), configMap(function()), pending, starting},
		OtherTestData: withCredentials(registrySecret("7")),
	}, {
		Name:          "and so is one whose pod does not get a Secret at first",
		Key:           key,
		Objects:       []runtime.Object{function(observed(configured, buildCreated(pending))), configMap(function()), pending, starting, mountFailed(starting, 1)},
		OtherTestData: withCredentials(registrySecret("7")),
	}, {
		Name:          "and one whose pod was not the one that did not get a Secret",
		Key:           key,
		Objects:       []runtime.Object{function(observed(configured, buildCreated(pending))), configMap(function()), pending, starting, mountFailed(earlier, 9)},
		OtherTestData: withCredentials(registrySecret("7")),
	}, {
		Name:          "and one that has no pod yet",
		Key:           key,
		Objects:       []runtime.Object{function(observed(configured, buildCreated(pending))), configMap(function()), pending},
		OtherTestData: withCredentials(registrySecret("7")),
	}, {
		Name:          "a build whose pod waits for a Secret names the Secret",
		Key:           key,
		Objects:       []runtime.Object{function(observed(configured, buildCreated(withSecret))), configMap(function()), pending, starting, mountFailed(starting, 2)},
		OtherTestData: withCredentials(registrySecret("7")),
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(pending), marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "%s", waiting)
		})))),
		WantEvents: []string{"Normal TaskRunRunning " + waiting},
	}, {
		Name:          "a build that fits no node says why",
		Key:           key,
		Objects:       []runtime.Object{function(observed(configured, buildCreated(withSecret))), configMap(function()), homeless},
		OtherTestData: withCredentials(registrySecret("7")),
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(homeless), marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkBuildUnknown(v1alpha1.ReasonTaskRunRunning, "%s", wantsNode)
		})))),
		WantEvents: []string{"Normal TaskRunRunning " + wantsNode},
	}, {
		Name:          "a build that the registry has refused waits for other credentials",
		Key:           key,
		Objects:       []runtime.Object{refused, configMap(refused), refusedRun},
		OtherTestData: withCredentials(registrySecret("7")),
	}, {
		Name:              "one that had none is retried with the first that there are",
		Key:               key,
		Objects:           []runtime.Object{bare, configMap(bare), refusedBare},
		OtherTestData:     withCredentials(registrySecret("8")),
		WantDeletes:       []clientgotesting.DeleteActionImpl{deletion("taskruns", refusedBare)},
		WantStatusUpdates: statusUpdate(plannedAfterBare),
		WantEvents:        []string{"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + refusedBare.Name + "."},
	}, {
		Name:              "and is retried with them, when the refused one is gone",
		Key:               key,
		Objects:           []runtime.Object{refused, configMap(refused), refusedRun},
		OtherTestData:     withCredentials(registrySecret("8")),
		WantDeletes:       []clientgotesting.DeleteActionImpl{deletion("taskruns", refusedRun)},
		WantStatusUpdates: statusUpdate(planned),
		WantEvents:        []string{"Normal TaskRunsDeleted The build starts when earlier ones are gone: " + refusedRun.Name + "."},
	}, {
		Name:          "which may take its time",
		Key:           key,
		Objects:       []runtime.Object{planned, configMap(planned), refusedRunHeld},
		OtherTestData: withCredentials(registrySecret("8")),
	}, {
		Name:              "and is retried with them when the refused one is gone already",
		Key:               key,
		Objects:           []runtime.Object{refused, configMap(refused)},
		OtherTestData:     withCredentials(registrySecret("8")),
		WantCreates:       []runtime.Object{second},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(second)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + second.Name + " is about to run."},
	}, {
		Name:          "but not with the same, then, either",
		Key:           key,
		Objects:       []runtime.Object{refused, configMap(refused)},
		OtherTestData: withCredentials(registrySecret("7")),
	}, {
		Name:              "as another attempt",
		Key:               key,
		Objects:           []runtime.Object{planned, configMap(planned)},
		OtherTestData:     withCredentials(registrySecret("8")),
		WantCreates:       []runtime.Object{second},
		WantStatusUpdates: statusUpdate(function(observed(configured, buildCreated(second)))),
		WantEvents:        []string{"Normal TaskRunCreated TaskRun " + second.Name + " is about to run."},
	}}.Test(t, factory())
}

// TestReconcileReservedSecret checks that a Function cannot use a Secret with registry
// credentials, whatever was accepted before.
func TestReconcileReservedSecret(t *testing.T) {
	naming := func(secret string) functionOption {
		return func(fn *v1alpha1.Function) {
			fn.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Optional: new(true),
			}}}
		}
	}
	refusal := func(secret string) string {
		return "no Function may use Secret " + secret + ", which has the credentials of the image registry: use another: spec.envFrom[0].secretRef.name"
	}
	accepted := func(secret string) *v1alpha1.Function {
		fn := running1.DeepCopy()
		naming(secret)(fn)
		return fn
	}
	refused := func(secret string) *v1alpha1.Function {
		fn := accepted(secret)
		fn.Status.AcceptedGeneration = 0
		fn.Status.MarkConfigurationFailed(v1alpha1.ReasonInvalidSpec, "%s", refusal(secret))
		fn.Status.UpdatePhase()
		return fn
	}
	const reserved, former = config.DefaultCredentials, "former-credentials"
	withheld := &credentials.ReferencedError{Secret: reserved, By: corev1.ObjectReference{Kind: "Revision", Name: "greeter-00001"}}
	noCopy := map[string]any{secretKey: withheld}
	envEdited := edited(withEnv("A", "1"))

	rtesting.TableTest{{
		Name:              "a Function accepted earlier is refused, and its revision keeps running",
		Key:               key,
		Objects:           []runtime.Object{accepted(reserved), configMap(running1), tr1, svc1},
		WantStatusUpdates: statusUpdate(refused(reserved)),
		WantEvents:        []string{"Warning InvalidSpec " + refusal(reserved)},
	}, {
		Name:    "steady state",
		Key:     key,
		Objects: []runtime.Object{refused(reserved), configMap(running1), tr1, svc1},
	}, {
		Name:              "so is one with the Secret of an earlier configuration",
		Key:               key,
		Objects:           []runtime.Object{accepted(former), configMap(running1), tr1, svc1},
		WantStatusUpdates: statusUpdate(refused(former)),
		WantEvents:        []string{"Warning InvalidSpec " + refusal(former)},
	}, {
		Name:              "no Service with the reference is written",
		Key:               key,
		Objects:           []runtime.Object{accepted(reserved), configMap(running1), tr1},
		WantStatusUpdates: statusUpdate(refused(reserved)),
		WantEvents:        []string{"Warning InvalidSpec " + refusal(reserved)},
	}, {
		Name:          "no build starts in a namespace that must not have the credentials",
		Key:           key,
		Objects:       []runtime.Object{function(), configMap(function())},
		OtherTestData: noCopy,
		WantErr:       true, // It is requeued.
		WantStatusUpdates: statusUpdate(function(observed(configured, marked(func(fs *v1alpha1.FunctionStatus) {
			fs.MarkBuildFailed(v1alpha1.ReasonCredentialsFailed, "%v", withheld)
		})))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds the build context.",
			"Warning CredentialsFailed " + withheld.Error(),
		},
	}, {
		Name:          "a running Function stays as it is there",
		Key:           key,
		Objects:       []runtime.Object{running1, configMap(running1), tr1, svc1},
		OtherTestData: noCopy,
	}, {
		Name:              "and a new revision can replace the one with the reference",
		Key:               key,
		Objects:           []runtime.Object{envEdited, configMap(running1), tr1, svc1},
		OtherTestData:     noCopy,
		WantUpdates:       update(merged(envEdited, svc1)),
		WantStatusUpdates: statusUpdate(edited(withEnv("A", "1"), observed(configured, built(tr1, digestA), serviceUpdated))),
		WantEvents:        []string{"Normal ServiceUpdated Service greeter was updated."},
	}}.Test(t, factory())
}
