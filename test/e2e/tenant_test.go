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
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// prying is a function that tells what it has of the API server.
const prying = `const fs = require('fs');
module.exports = { main: async () => {
  const seen = { token: fs.existsSync('/var/run/secrets/kubernetes.io/serviceaccount/token'), status: 0 };
  const url = 'https://' + process.env.KUBERNETES_SERVICE_HOST + '/api/v1/namespaces/kiln-system/secrets';
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
  try { seen.status = (await fetch(url)).status; } catch (error) { seen.status = -1; }
  return seen;
} };
`

// TestTenant wants that who may edit Functions in one namespace, and nothing else,
// has one that runs, and gets neither at what is in other namespaces nor at what
// Kiln has, also not through the Function.
func TestTenant(t *testing.T) {
	t.Parallel()
	e, other := newEnv(t), newEnv(t)
	theirs := other.create(function(answering("secret")))
	tenant := e.newTenant("kiln-e2e-tenant")

	functions := tenant.Kiln.ServerlessV1alpha1().Functions(e.namespace)
	fn, err := functions.Create(e.ctx, function(prying), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fn = e.until(fn, test.Ready)
	answer, err := relay.CallFunction(e.ctx, request(fn, "{}"))
	if err != nil {
		t.Fatal(err)
	}
	var seen struct {
		Token  bool
		Status int
	}
	unmarshal(t, answer.Body, &seen)
	if seen.Token || seen.Status == http.StatusOK {
		t.Errorf("the function has seen %+v of the API server", seen)
	}

	other.until(theirs, test.Ready)
	for what, try := range map[string]func() error{
		"read the Function of another": func() error {
			_, err := tenant.Kiln.ServerlessV1alpha1().Functions(other.namespace).Get(e.ctx, theirs.Name, metav1.GetOptions{})
			return err
		},
		"list the Functions of all": func() error {
			_, err := tenant.Kiln.ServerlessV1alpha1().Functions(metav1.NamespaceAll).List(e.ctx, metav1.ListOptions{})
			return err
		},
		"read the sources of another": func() error {
			_, err := tenant.Kube.CoreV1().ConfigMaps(other.namespace).List(e.ctx, metav1.ListOptions{})
			return err
		},
		"read Secrets": func() error {
			_, err := tenant.Kube.CoreV1().Secrets(e.namespace).List(e.ctx, metav1.ListOptions{})
			return err
		},
		"read Kiln's Secrets": func() error {
			_, err := tenant.Kube.CoreV1().Secrets(test.SystemNamespace).List(e.ctx, metav1.ListOptions{})
			return err
		},
		"configure Kiln": func() error {
			_, err := tenant.Kube.CoreV1().ConfigMaps(test.SystemNamespace).Get(e.ctx, config.BuildConfigName, metav1.GetOptions{})
			return err
		},
		"run a build of their own": func() error {
			_, err := tenant.Pipeline.TektonV1().TaskRuns(e.namespace).List(e.ctx, metav1.ListOptions{})
			return err
		},
		"write a status": func() error {
			_, err := functions.UpdateStatus(e.ctx, fn, metav1.UpdateOptions{})
			return err
		},
	} {
		if err := try(); !apierrs.IsForbidden(err) {
			t.Errorf("they may %s: %v", what, err)
		}
	}
}

// newTenant returns clients of a user who may edit Functions in the test's
// namespace, and nothing else.
func (e *env) newTenant(user string) *test.Clients {
	e.Helper()
	roles := clients.Kube.RbacV1()
	meta := metav1.ObjectMeta{Name: "functions"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{serverless.GroupName}, Resources: []string{"functions"}, Verbs: []string{"*"},
	}}}
	if _, err := roles.Roles(e.namespace).Create(e.ctx, role, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := roles.RoleBindings(e.namespace).Create(e.ctx, binding, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	tenant, err := clients.As(user)
	if err != nil {
		e.Fatal(err)
	}
	return tenant
}

// wantCredentialsDenied wants that no Function gets the registry's credentials.
func (e *env) wantCredentialsDenied(secret string) {
	e.Helper()
	fn := function(answering("never"))
	fn.Name = "curious"
	fn.Spec.SecretMounts = []v1alpha1.SecretMount{{SecretName: secret, MountPath: "/credentials"}}
	fn.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}}
	_, err := e.tryCreate(fn)
	if err == nil {
		e.Fatal("a Function that mounts the registry's credentials is accepted")
	}
	wantWords(e.T, err.Error(), "spec.secretMounts[0].secretName", "spec.envFrom[0].secretRef.name", secret, "credentials of the image registry")
}
