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
	"strings"
	"testing"

	pipelinev1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/kmeta"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/test"
)

// TestControllerIsHeld checks that the controller's account can write only objects of
// Functions and copies of the registry credentials, whatever its roles allow.
func TestControllerIsHeld(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	controller, err := clients.As("system:serviceaccount:" + test.SystemNamespace + ":controller")
	if err != nil {
		e.Fatal(err)
	}
	fn := e.create(function(answering("hi")))
	owned := metav1.ObjectMeta{Name: "policy", OwnerReferences: []metav1.OwnerReference{*kmeta.NewControllerRef(fn)}}
	loose := metav1.ObjectMeta{Name: "policy"}
	copied := metav1.ObjectMeta{Name: "policy", Labels: map[string]string{"app.kubernetes.io/managed-by": "kiln", serverless.CredentialsLabelKey: "copy"}}
	token := *copied.DeepCopy()
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	create := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	createConfigMap := func(meta metav1.ObjectMeta) error {
		_, err := controller.Kube.CoreV1().ConfigMaps(e.namespace).Create(e.ctx, &corev1.ConfigMap{ObjectMeta: meta}, create)
		return err
	}
	createSecret := func(namespace string, meta metav1.ObjectMeta, kind corev1.SecretType, key string) error {
		secret := &corev1.Secret{ObjectMeta: meta, Type: kind, StringData: map[string]string{key: "{}"}}
		_, err := controller.Kube.CoreV1().Secrets(namespace).Create(e.ctx, secret, create)
		return err
	}
	// Each namespace has this ConfigMap.
	const rootCAs = "kube-root-ca.crt"
	const registry, key = corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey
	for what, try := range map[string]func() error{
		"create a ConfigMap of a Function": func() error { return createConfigMap(owned) },
		"create a copy of credentials":     func() error { return createSecret(e.namespace, copied, registry, key) },
	} {
		if err := try(); err != nil {
			e.Errorf("the controller may not %s: %v", what, err)
		}
	}
	for what, try := range map[string]func() error{
		"create a ConfigMap without an owner": func() error { return createConfigMap(loose) },
		"create a TaskRun without an owner": func() error {
			tr := &pipelinev1.TaskRun{ObjectMeta: loose, Spec: pipelinev1.TaskRunSpec{TaskRef: &pipelinev1.TaskRef{Name: "any"}}}
			_, err := controller.Pipeline.TektonV1().TaskRuns(e.namespace).Create(e.ctx, tr, create)
			return err
		},
		"create a Job without an owner": func() error {
			job := &batchv1.Job{ObjectMeta: loose}
			job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "any", Image: "example.com/any"}}}
			_, err := controller.Kube.BatchV1().Jobs(e.namespace).Create(e.ctx, job, create)
			return err
		},
		"create a Service without an owner": func() error {
			svc := &servingv1.Service{ObjectMeta: loose}
			svc.Spec.Template.Spec.Containers = []corev1.Container{{Image: "example.com/any"}}
			_, err := controller.Serving.ServingV1().Services(e.namespace).Create(e.ctx, svc, create)
			return err
		},
		"take over a ConfigMap of the namespace": func() error {
			live, err := clients.Kube.CoreV1().ConfigMaps(e.namespace).Get(e.ctx, rootCAs, metav1.GetOptions{})
			if err != nil {
				return err
			}
			live.OwnerReferences = owned.OwnerReferences
			_, err = controller.Kube.CoreV1().ConfigMaps(e.namespace).Update(e.ctx, live, metav1.UpdateOptions{DryRun: create.DryRun})
			return err
		},
		"delete a ConfigMap of the namespace": func() error {
			return controller.Kube.CoreV1().ConfigMaps(e.namespace).Delete(e.ctx, rootCAs, metav1.DeleteOptions{DryRun: create.DryRun})
		},
		"create a Secret that is no copy":     func() error { return createSecret(e.namespace, loose, registry, key) },
		"create a Secret of another type":     func() error { return createSecret(e.namespace, copied, corev1.SecretTypeOpaque, key) },
		"create a token":                      func() error { return createSecret(e.namespace, token, corev1.SecretTypeServiceAccountToken, key) },
		"create a Secret in Kiln's namespace": func() error { return createSecret(test.SystemNamespace, copied, registry, key) },
	} {
		if err := try(); !apierrs.IsInvalid(err) && !apierrs.IsForbidden(err) || !strings.Contains(err.Error(), "Kiln's controller may") {
			e.Errorf("the controller may %s: %v", what, err)
		}
	}
}
