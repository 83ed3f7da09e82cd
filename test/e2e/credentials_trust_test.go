//go:build e2e

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

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// deleteAfter is the annotation of a copy that has lost its source.
const deleteAfter = "serverless.kiln.dev/delete-after"

// thief answers with the password of the registry, if it has got it.
const thief = "module.exports = { main: () => process.env.PASSWORD || 'no password' };\n"

// fromCredentials reads the password of the registry once the Secret exists.
var fromCredentials = corev1.EnvVar{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
	LocalObjectReference: corev1.LocalObjectReference{Name: credentials},
	Key:                  corev1.DockerConfigJsonKey, Optional: new(true),
}}}

// TestCredentialsReferencedBeforehand places references to the registry credentials while
// there are none, and then configures credentials. The webhook denies the references. A
// revision that has got past it keeps the credentials out of its namespace until it is
// gone, and gets no requests.
func TestCredentialsReferencedBeforehand(t *testing.T) {
	e := newEnv(t)
	bad := function(thief)
	bad.Spec.Env = []corev1.EnvVar{fromCredentials}
	if _, err := e.tryCreate(bad); err == nil || !strings.Contains(err.Error(), "spec.env[0].valueFrom.secretKeyRef.name") {
		t.Fatalf("a Function that names %s was not denied: %v", credentials, err)
	}
	fn := e.until(e.create(function(thief)), test.Ready)

	// Kiln would undo the edit of the Service before Serving has made a revision of it.
	e.restore(func(e *env) {
		scaleController(e, 1)
		controllerPod(e)
	})
	scaleController(e, 0)
	untilControllers(e, 0)
	hostile := e.addRevision(fn, fromCredentials)
	e.wantAnswerSoon(fn, "no password")
	r := e.startRegistries()
	r.want("password", "first")
	r.createSource("first")
	scaleController(e, 1)

	fn = e.until(fn, func(fn *v1alpha1.Function) error {
		condition := fn.Status.GetCondition(v1alpha1.FunctionConditionBuildReady)
		if condition.IsFalse() && condition.Reason == v1alpha1.ReasonCredentialsFailed && strings.Contains(condition.Message, "Revision "+hostile) {
			return nil
		}
		return fmt.Errorf("BuildReady is %v, want Revision %s in its message", condition, hostile)
	})
	fn = e.edit(fn, setTraffic(share(hostile, 100, "")))
	fn, condition := e.untilCondition(fn, apis.Condition{
		Type: v1alpha1.FunctionConditionRunning, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonRevisionMissing,
	})
	wantWords(t, condition.Message, hostile, credentials)
	e.wantAnswerSoon(fn, "no password")
	secrets, err := clients.Kube.CoreV1().Secrets(e.namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	for i := range secrets.Items {
		e.Errorf("Secret %s is in the namespace", secrets.Items[i].Name)
	}

	if err := clients.Serving.ServingV1().Revisions(e.namespace).Delete(e.ctx, hostile, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	fn = e.edit(fn, setTraffic())
	r.untilCopy(e, "first")
	fn = e.until(fn, test.Healed)
	e.wantAnswerSoon(fn, "no password")
}

// addRevision adds a variable to the Function's Service and returns the name of the
// revision that has it, once it is ready.
func (e *env) addRevision(fn *v1alpha1.Function, variable corev1.EnvVar) (name string) {
	e.Helper()
	services := clients.Serving.ServingV1().Services(e.namespace)
	edited := edit(e, services, fn.Name, func(service *servingv1.Service) {
		container := &service.Spec.Template.Spec.Containers[0]
		container.Env = append(container.Env, variable)
	})
	untilObjects(e, services, func(found []*servingv1.Service) error {
		for _, service := range found {
			name = service.Status.LatestReadyRevisionName
			if service.Name == fn.Name && service.Status.ObservedGeneration >= edited.Generation && service.IsReady() &&
				name == service.Status.LatestCreatedRevisionName && name != fn.Status.LatestReadyRevisionName {
				return nil
			}
		}
		return errors.New("the Service has no new revision that is ready")
	})
	return name
}

// TestCredentialsGracePeriod deletes the Secret in Kiln's namespace. The copies stay for a
// while, builds and pods use them, and the end survives a restart of the controller.
func TestCredentialsGracePeriod(t *testing.T) {
	e := newEnv(t)
	r := e.startRegistries()
	r.want("password", "first")
	r.createSource("first")
	fn := e.until(e.create(function(answering("one"))), test.Ready)
	r.untilCopy(e, "first")

	sources, copies := clients.Kube.CoreV1().Secrets(test.SystemNamespace), clients.Kube.CoreV1().Secrets(e.namespace)
	deleteSource := func() {
		if err := sources.Delete(e.ctx, credentials, metav1.DeleteOptions{}); err != nil {
			e.Fatal(err)
		}
	}
	recreateSource := func() {
		if _, err := sources.Create(e.ctx, r.secret("first"), metav1.CreateOptions{}); err != nil {
			e.Fatal(err)
		}
	}
	deleteSource()
	e.untilDeleteAfter(true)
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Source = answering("two") }), test.Ready)
	e.wantAnswerSoon(fn, "two")
	recreateSource()
	e.untilDeleteAfter(false)

	deleteSource()
	e.untilDeleteAfter(true)
	restartController(e)
	edit(e, copies, credentials, func(secret *corev1.Secret) {
		end, err := time.Parse(time.RFC3339, secret.Annotations[deleteAfter])
		if left := time.Until(end); err != nil || left < 50*time.Minute || left > time.Hour {
			e.Errorf("the copy is deleted at %q, want about an hour from now", secret.Annotations[deleteAfter])
		}
		secret.Annotations[deleteAfter] = time.Now().UTC().Format(time.RFC3339)
	})
	untilObjects(e, copies, gone[*corev1.Secret])
	recreateSource()
	r.untilCopy(e, "first")
}

// untilDeleteAfter waits until the copy in the namespace has the annotation, or has it no
// more.
func (e *env) untilDeleteAfter(want bool) {
	e.Helper()
	untilObjects(e, clients.Kube.CoreV1().Secrets(e.namespace), func(found []*corev1.Secret) error {
		for _, secret := range found {
			if secret.Name == credentials && (secret.Annotations[deleteAfter] != "") == want {
				return nil
			}
		}
		return fmt.Errorf("no copy with the annotation %s: %t", deleteAfter, want)
	})
}
