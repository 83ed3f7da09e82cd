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
	"knative.dev/pkg/kmap"
	rtesting "knative.dev/pkg/reconciler/testing"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/reconciler/function/resources"
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
	withSecret := func(tr *pipelinev1.TaskRun) *pipelinev1.TaskRun {
		want, _ := makePlan(config.ToContext(t.Context(), testConfig()), function())
		return resources.MakeTaskRun(function(), testConfig(), resources.Build{
			Request: want.request, Reason: builds.ReasonFirstBuild, Attempt: 1, BaseImage: want.baseImage, Files: want.files, Credentials: registrySecret("7"),
		})
	}(firstRun)
	pulls := service(running1, serviceReady, func(svc *servingv1.Service) {
		svc.Annotations = kmap.Union(svc.Annotations, resources.MakeService(running1, running1.Status.Image, "registry").Annotations)
		svc.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	})
	running := running1.DeepCopy()
	running.Status.TemplateHash = resources.Remember(pulls)
	quota := apierrs.NewForbidden(corev1.Resource("secrets"), "registry", errors.New("exceeded quota"))
	const refused = "The credentials in Secret registry cannot be brought to the namespace: secrets \"registry\" is forbidden: exceeded quota"

	rtesting.TableTest{{
		Name:          "the first build has the credentials",
		Key:           key,
		Objects:       []runtime.Object{function(), configMap(function())},
		OtherTestData: withCredentials(registrySecret("7")),
		WantCreates:   []runtime.Object{withSecret},
		WantStatusUpdates: statusUpdate(function(observed(
			configured, buildCreated(withSecret)))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds what the build needs.",
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
			fs.MarkBuildFailed(v1alpha1.ReasonCredentialsFailed, "%s", refused)
		})))),
		WantEvents: []string{
			"Normal ConfigMapCreated ConfigMap " + configMap(function()).Name + " holds what the build needs.",
			"Warning CredentialsFailed " + refused,
			"Warning InternalError " + quota.Error(),
		},
	}, {
		Name:          "a Function that runs goes on to",
		Key:           key,
		Objects:       []runtime.Object{running, configMap(running), tr1, pulls},
		OtherTestData: withCredentials(quota),
		WantErr:       true,
		WantEvents:    []string{"Warning InternalError " + quota.Error()},
	}}.Test(t, factory())
}
