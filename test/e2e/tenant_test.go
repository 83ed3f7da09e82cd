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
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	serverlessv1alpha1 "github.com/kiln-dev/kiln/pkg/client/clientset/versioned/typed/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

// prying is the source of a function that reports whether it has a token for the API
// server. It also reports whether it may read the ConfigMaps of its own namespace, of
// another one, and of Kiln's.
const prying = `const fs = require('fs');
process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
const file = '/var/run/secrets/kubernetes.io/serviceaccount/token';
const meanings = { 200: 'may', 401: 'may not', 403: 'may not' };
module.exports = { main: async () => {
  const token = fs.existsSync(file);
  const headers = token ? { authorization: 'Bearer ' + fs.readFileSync(file, 'utf8') } : {};
  const told = [token ? 'a token' : 'no token'];
  for (const namespace of [process.env.FUNC_NAMESPACE, process.env.OTHER, 'kiln-system']) {
    const url = 'https://' + process.env.KUBERNETES_SERVICE_HOST + '/api/v1/namespaces/' + namespace + '/configmaps';
    const { status } = await fetch(url, { headers });
    told.push(meanings[status] || status);
  }
  return told.join(', ');
} };
`

// TestTenant checks that a user who may only edit the Functions of one namespace can run
// one. Neither the user nor the Function can access other namespaces or Kiln's objects.
func TestTenant(t *testing.T) {
	t.Parallel()
	e, other := newEnv(t), newEnv(t)
	theirs := other.create(function(answering("secret")))
	other.createSecret("theirs")
	other.createReader("theirs")
	e.createReader("ours")
	tenant := e.newTenant("kiln-e2e-tenant")

	functions := tenant.Kiln.ServerlessV1alpha1().Functions(e.namespace)
	fn := function(prying)
	setEnv("OTHER", other.namespace)(fn)
	fn, err := functions.Create(e.ctx, fn, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	fn = e.until(fn, test.Ready)
	e.wantAnswer(fn, "{}", "no token, may not, may not, may not")

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
			e.Errorf("the tenant may %s: %v", what, err)
		}
	}
	e.wantOwnOnly(functions, fn)
}

// wantOwnOnly checks that a function gets a ServiceAccount of its own namespace with its
// permissions. ServiceAccounts and Secrets of other namespaces are not found.
func (e *env) wantOwnOnly(functions serverlessv1alpha1.FunctionInterface, fn *v1alpha1.Function) {
	e.Helper()
	change := func(account string, mounts ...v1alpha1.SecretMount) *v1alpha1.Function {
		return edit(e, functions, fn.Name, func(fn *v1alpha1.Function) {
			fn.Spec.ServiceAccountName, fn.Spec.SecretMounts = account, mounts
		})
	}
	e.wantAnswerSoon(e.until(change("ours"), test.Ready), "a token, may, may not, may not")
	e.untilTold(change("theirs"), v1alpha1.FunctionConditionRunning, `serviceaccount "theirs" not found`)
	e.untilTold(change("ours", v1alpha1.SecretMount{SecretName: "theirs", MountPath: "/theirs"}),
		v1alpha1.FunctionConditionRunning, `secret "theirs" not found`)
	for name, change := range map[string]func(*v1alpha1.FunctionSpec){
		"git": func(fs *v1alpha1.FunctionSpec) {
			fs.Git = &v1alpha1.GitSource{URL: "https://git.example.com/code", Revision: "main", SecretName: "theirs"}
		},
		"archive": func(fs *v1alpha1.FunctionSpec) {
			fs.Archive = &v1alpha1.ArchiveSource{URL: "https://example.com/code.zip", SecretName: "theirs"}
		},
		"packages": func(fs *v1alpha1.FunctionSpec) {
			fs.Source, fs.Deps = answering("never"), `{"dependencies": {"ms": "2.1.3"}}`
			fs.Build = &v1alpha1.BuildSpec{SecretName: "theirs"}
		},
	} {
		fn := function("")
		fn.Name = name
		change(&fn.Spec)
		fn, err := functions.Create(e.ctx, fn, metav1.CreateOptions{})
		if err != nil {
			e.Fatal(err)
		}
		e.untilTold(fn, v1alpha1.FunctionConditionBuildReady, `secret "theirs" not found`)
	}
}

// untilTold waits until a condition that is not True has these words.
func (e *env) untilTold(fn *v1alpha1.Function, kind apis.ConditionType, words string) *v1alpha1.Function {
	e.Helper()
	return e.until(fn, func(fn *v1alpha1.Function) error {
		condition := fn.Status.GetCondition(kind)
		if !condition.IsTrue() && strings.Contains(condition.GetMessage(), words) {
			return nil
		}
		return fmt.Errorf("%s is %v, want %q in its message", kind, condition, words)
	})
}

// newTenant returns clients of a user who may only edit Functions in the test's namespace.
func (e *env) newTenant(user string) *test.Clients {
	e.Helper()
	e.allow(rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}, rbacv1.PolicyRule{
		APIGroups: []string{serverless.GroupName}, Resources: []string{"functions"}, Verbs: []string{"*"},
	})
	tenant, err := clients.As(user)
	if err != nil {
		e.Fatal(err)
	}
	// The API server's authorizer sees new roles a moment later.
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: e.namespace, Group: serverless.GroupName, Resource: "functions", Verb: "create",
		},
	}}
	if err := wait.PollUntilContextTimeout(e.ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		told, err := tenant.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && told.Status.Allowed, err
	}); err != nil {
		e.Fatalf("%s may not create Functions: %v", user, err)
	}
	return tenant
}

// createReader creates a ServiceAccount that may read the ConfigMaps of the test's
// namespace.
func (e *env) createReader(name string) {
	e.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := clients.Kube.CoreV1().ServiceAccounts(e.namespace).Create(e.ctx, account, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.allow(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: e.namespace, Name: name}, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"},
	})
}

// allow binds a rule to a subject in the test's namespace.
func (e *env) allow(who rbacv1.Subject, what rbacv1.PolicyRule) {
	e.Helper()
	meta := metav1.ObjectMeta{Name: who.Name}
	roles := clients.Kube.RbacV1()
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{what}}
	if _, err := roles.Roles(e.namespace).Create(e.ctx, role, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{who},
	}
	if _, err := roles.RoleBindings(e.namespace).Create(e.ctx, binding, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

// wantCredentialsDenied checks that the webhook denies a Function that uses the registry
// credentials.
func (e *env) wantCredentialsDenied(secret string) {
	e.Helper()
	fn := function(answering("never"))
	fn.Name = "curious"
	fn.Spec.SecretMounts = []v1alpha1.SecretMount{{SecretName: secret, MountPath: "/credentials"}}
	fn.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}}
	_, err := e.tryCreate(fn)
	if err == nil {
		e.Fatal("a Function that uses the registry's credentials was admitted")
	}
	wantWords(e.T, err.Error(), "spec.secretMounts[0].secretName", "spec.envFrom[0].secretRef.name", secret, "credentials of the image registry")
}
