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
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// startGit starts a Git server in the test's namespace. It returns its HTTP URL and its SSH
// host.
func (e *env) startGit() (server, host string) {
	e.Helper()
	if gitImage == "" {
		e.Skip("-git-image is not set: make test-e2e makes the image of a Git server on Linux only")
	}
	server = e.startServer("git", gitImage, 8080)
	address, err := url.Parse(server)
	if err != nil {
		e.Fatal(err)
	}
	return server, address.Hostname()
}

// newSSHKey returns a private key and its public key.
func (e *env) newSSHKey() (private, public string) {
	e.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		e.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		e.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		e.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
}

// createSSHKeys creates three Secrets. The Git server accepts ssh and rejects wrong-key.
// wrong-host has the host key of another server.
func (e *env) createSSHKeys(server, host string) {
	e.Helper()
	key, public := e.newSSHKey()
	stranger, another := e.newSSHKey()
	e.post(server+"/authorize", public)
	answer, err := relay.Call(e.ctx, api.Request{Method: http.MethodGet, URL: server + "/hostkey"})
	if err != nil || answer.Status != http.StatusOK {
		e.Fatalf("failed to get the key of the server: %+v, %v", answer, err)
	}
	known := host + " " + answer.Body
	e.createSecretOf("ssh", map[string]string{"ssh-privatekey": key, "known_hosts": known})
	e.createSecretOf("wrong-key", map[string]string{"ssh-privatekey": stranger, "known_hosts": known})
	e.createSecretOf("wrong-host", map[string]string{"ssh-privatekey": key, "known_hosts": host + " " + another})
}

// TestGit builds a function from a repository by branch, then by commit, then by branch
// again.
func TestGit(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	server, _ := e.startGit()
	fn := function("")
	fn.Spec.Git = &v1alpha1.GitSource{URL: server + "/code", Revision: "main", ContextDir: "functions/nodejs"}
	fn = e.until(e.create(fn), test.Ready)
	e.wantAnswer(fn, "{}", "1 7200000")
	first := *fn.Status.Source

	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Git.Revision = "next" }), test.Ready)
	e.wantAnswerSoon(fn, "2 7200000")
	e.wantBuilds(2)
	if fn.Status.Source.Commit == first.Commit {
		e.Errorf("both have commit %s", first.Commit)
	}
	fn = e.until(e.edit(fn, func(fn *v1alpha1.Function) { fn.Spec.Git.Revision = first.Commit }), test.Ready)
	e.wantAnswerSoon(fn, "1 7200000")
	if diff := cmp.Diff(&first, fn.Status.Source); diff != "" {
		e.Errorf("status.source (-want, +got):\n%s", diff)
	}
}

// TestGitRefused checks that the status reports why a Git source cannot be used, and that
// Kiln does not retry it.
func TestGitRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	server, host := e.startGit()
	e.createSSHKeys(server, host)
	e.setToken(server, "t0ken")
	e.createSecretOf("wrong-token", map[string]string{"token": "another"})
	bySSH := "ssh://git@" + host + "/srv/git/code"
	created := map[*v1alpha1.Function]string{}
	for name, tc := range map[string]struct {
		git   v1alpha1.GitSource
		words string
	}{
		"no-branch":   {v1alpha1.GitSource{URL: server + "/code", Revision: "nowhere"}, `it has no branch or tag "nowhere"`},
		"no-folder":   {v1alpha1.GitSource{URL: server + "/code", Revision: "main", ContextDir: "nowhere"}, "it has no folder nowhere in commit"},
		"no-token":    {v1alpha1.GitSource{URL: server + "/private/code", Revision: "main"}, "its server requires credentials: name a Secret with them in secretName"},
		"wrong-token": {v1alpha1.GitSource{URL: server + "/private/code", Revision: "main", SecretName: "wrong-token"}, "its server refuses the credentials"},
		"no-key":      {v1alpha1.GitSource{URL: bySSH, Revision: "main"}, "SSH needs a Secret with ssh-privatekey and known_hosts"},
		"wrong-key":   {v1alpha1.GitSource{URL: bySSH, Revision: "main", SecretName: "wrong-key"}, "its server refuses the key"},
		"wrong-host":  {v1alpha1.GitSource{URL: bySSH, Revision: "main", SecretName: "wrong-host"}, "its server is not the one that known_hosts of the Secret with its credentials has"},
		"no-code":     {v1alpha1.GitSource{URL: bySSH + "/nowhere", Revision: "main", SecretName: "ssh"}, "its server has no such repository"},
	} {
		fn := function("")
		fn.Name, fn.Spec.Git = name, &tc.git
		created[e.create(fn)] = tc.words
	}
	for fn, words := range created {
		e.untilRefused(fn, words)
	}
	e.wantBuilds(len(created))
}

// letKilnRead allows Kiln's controller to read a Secret of the test's namespace.
func (e *env) letKilnRead(secret string) {
	e.Helper()
	meta := metav1.ObjectMeta{Name: "kiln-follows"}
	if _, err := clients.Kube.RbacV1().Roles(e.namespace).Create(e.ctx, &rbacv1.Role{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secret}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	if _, err := clients.Kube.RbacV1().RoleBindings(e.namespace).Create(e.ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: test.SystemNamespace, Name: "controller"}},
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

// TestFollow checks that a push starts exactly one build, also for a repository with
// credentials that Kiln may read. New credentials start no build. The test sets the polling
// interval of the cluster; no other parallel test changes config-build or moves a branch.
func TestFollow(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	configure(e, config.BuildConfigName, func(data map[string]string) { data["follow-interval"] = config.LeastFollowInterval.String() })
	server, _ := e.startGit()
	e.setToken(server, "first-t0ken")
	e.createSecretOf("git", map[string]string{"token": "first-t0ken"})
	of := func(name, path, secret string) *v1alpha1.Function {
		fn := function("")
		fn.Name = name
		fn.Spec.Git = &v1alpha1.GitSource{URL: server + path, Revision: "main", ContextDir: "functions/nodejs", SecretName: secret}
		return e.create(fn)
	}
	public, private := of("public", "/code", ""), of("private", "/private/code", "git")
	public, private = e.until(public, test.Ready), e.until(private, test.Ready)
	e.wantAnswer(public, "{}", "1 7200000")
	e.wantAnswer(private, "{}", "1 7200000")

	_, condition := e.untilCondition(private, apis.Condition{
		Type: v1alpha1.FunctionConditionSourceFollowed, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonSourceNotFollowed,
	})
	wantWords(t, condition.Message, "Kiln may not read Secret git")
	// The server now rejects the token of the build, so only the new token can resolve the
	// branch.
	e.setToken(server, "second-t0ken")
	edit(e, clients.Kube.CoreV1().Secrets(e.namespace), "git", func(secret *corev1.Secret) { secret.Data = map[string][]byte{"token": []byte("second-t0ken")} })
	e.letKilnRead("git")
	// The Git server is in the cluster. No Function may make the controller connect to it.
	_, condition = e.untilCondition(public, apis.Condition{
		Type: v1alpha1.FunctionConditionSourceFollowed, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonSourceNotFollowed,
	})
	wantWords(t, condition.Message, "is an internal address: an administrator can allow it with follow-allowed-addresses")
	edit(e, clients.Kube.CoreV1().ConfigMaps(test.SystemNamespace), config.BuildConfigName, func(cm *corev1.ConfigMap) {
		cm.Data["follow-allowed-addresses"] = "0.0.0.0/0,::/0"
	})
	first := private.Status.Source.Commit
	for _, fn := range []*v1alpha1.Function{public, private} {
		_, condition := e.untilCondition(fn, apis.Condition{
			Type: v1alpha1.FunctionConditionSourceFollowed, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonSourceUpdated,
		})
		wantWords(t, condition.Message, first)
	}
	e.wantBuilds(2)

	e.post(server+"/move/main?to=next", "")
	rebuilt := func(fn *v1alpha1.Function) error {
		if fn.Status.Build.Reason != builds.ReasonCommitChanged || fn.Status.Source.Commit == first {
			return fmt.Errorf("%s has commit %s and build reason %s", fn.Name, fn.Status.Source.Commit, fn.Status.Build.Reason)
		}
		return test.Ready(fn)
	}
	for _, fn := range []*v1alpha1.Function{public, private} {
		fn = e.until(fn, rebuilt)
		e.wantAnswerSoon(fn, "2 7200000")
		if fn.Status.Build.Commit != fn.Status.Source.Commit {
			e.Errorf("%s: the build of commit %s fetched %s", fn.Name, fn.Status.Build.Commit, fn.Status.Source.Commit)
		}
	}
	e.wantBuilds(4)
}
