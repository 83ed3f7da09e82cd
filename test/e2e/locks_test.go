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
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/sources/sourcestest"
	"github.com/kiln-dev/kiln/test"
)

const (
	// anyMS allows the version of the lock file and newer ones.
	anyMS = `{"dependencies": {"ms": "^2.1.0"}}`
	// newMS allows none of the lock file's versions.
	newMS = `{"dependencies": {"ms": "2.1.3"}}`
	// tellMS answers with the installed version.
	tellMS = "module.exports = { main: () => require('ms/package.json').version };\n"
)

// TestLockFile checks that a build installs the versions of a lock file after package.json,
// not the newest. An edit of the source keeps them, and one of the lock file installs others.
func TestLockFile(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	fn := function(tellMS)
	fn.Spec.Deps = anyMS + "\n" + sourcestest.Locked("2.1.2", sourcestest.MS212)
	fn = e.until(e.create(fn), test.Ready)
	e.wantAnswer(fn, "{}", "2.1.2")

	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Source = strings.ReplaceAll(tellMS, ".version", ".version + ' again'")
	})
	fn = e.until(fn, test.Ready)
	e.wantAnswerSoon(fn, "2.1.2 again")
	if images := fn.Status.DependencyImages; len(images) != 1 {
		e.Errorf("status.dependencyImages is %+v, want one that both builds use", images)
	}

	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Deps = anyMS + "\n" + sourcestest.Locked("2.1.3", sourcestest.MS213)
	})
	fn = e.until(fn, test.Ready)
	e.wantAnswerSoon(fn, "2.1.3 again")
	if fn.Status.Build.Reason != builds.ReasonDepsChanged {
		e.Errorf("the reason of the build is %s, want %s", fn.Status.Build.Reason, builds.ReasonDepsChanged)
	}

	// A lock file that does not match names what is missing.
	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Deps = newMS + "\n" + sourcestest.Locked("2.1.2", sourcestest.MS212)
	})
	fn, condition := e.untilCondition(fn, buildFailed())
	wantWords(t, condition.Message, "package.json and package-lock.json", "in sync", "lock file's ms@2.1.2 does not satisfy ms@2.1.3")
	if strings.Contains(condition.Message, "Usage:") {
		e.Errorf("the message has npm's help: %s", condition.Message)
	}
	e.wantAnswer(fn, "{}", "2.1.3 again")
	e.wantBuilds(4)

	// The hash in a lock file counts.
	fn = e.edit(fn, func(fn *v1alpha1.Function) {
		fn.Spec.Deps = anyMS + "\n" + sourcestest.Locked("2.1.2", sourcestest.MS213)
	})
	_, condition = e.untilCondition(fn, buildFailed())
	wantWords(t, condition.Message, "EINTEGRITY")
}

// TestLockFileOfSources checks the lock files of archives and repositories.
func TestLockFileOfSources(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	server := e.startSources()
	gitServer, _ := e.startGit()
	fromArchive := archived("nodejs24", v1alpha1.ArchiveSource{URL: server + "/good/locked-1.tar.gz"})
	fromArchive.Name = "archive"
	fromGit := function("")
	fromGit.Name = "git"
	fromGit.Spec.Runtime = "nodejs24"
	fromGit.Spec.Git = &v1alpha1.GitSource{URL: gitServer + "/code", Revision: "main", ContextDir: "functions/locked"}
	for _, fn := range []*v1alpha1.Function{e.create(fromArchive), e.create(fromGit)} {
		fn = e.until(fn, test.Ready)
		e.wantAnswer(fn, "{}", "1 2.1.2")
	}
}

// TestKubectlFnLockFile deploys a file and a folder with a lock file. Those of other package
// managers are rejected.
func TestKubectlFnLockFile(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	term := newTerminal(e)
	term.write("handler.js", tellMS)
	term.write("package.json", anyMS)
	term.write("package-lock.json", sourcestest.Locked("2.1.2", sourcestest.MS212))
	term.run([]string{"fn created", "runs at"}, "deploy", "fn", "--runtime=nodejs24", "--timeout=5m")
	term.run([]string{"2.1.2"}, "invoke", "fn")

	// npm prefers this name.
	term.write("npm-shrinkwrap.json", sourcestest.Locked("2.1.3", sourcestest.MS213))
	term.run([]string{"fn updated", "runs at"}, "deploy", "fn", "--dir=.", "--timeout=5m")
	term.run([]string{"2.1.3"}, "invoke", "fn")

	other := newTerminal(e)
	other.write("handler.js", tellMS)
	other.write("package.json", anyMS)
	other.write("yarn.lock", "# yarn lockfile v1\n")
	const refused = "yarn.lock is not a lock file of npm"
	other.fail([]string{refused}, "deploy", "fn", "--timeout=5m")
	other.fail([]string{refused}, "deploy", "fn", "--dir=.", "--timeout=5m")
}

// TestLockFilePackageRegistry checks that a lock file with the addresses of another registry
// installs from the private one, with its token, and that hashes count.
func TestLockFilePackageRegistry(t *testing.T) {
	const token, packagesSecret = "npm-token-81c2fe", "npm"
	e := newEnv(t)
	r := e.startRegistries()
	r.want("password", "any")
	r.createSource("any")
	r.want("token", token)
	npmrc := fmt.Sprintf("replace-registry-host=always\nregistry=http://%[1]s:%[2]d/\n//%[1]s:%[2]d/:_authToken=%[3]s\n", r.address, packagesPort, token)
	pipConf := fmt.Sprintf("[global]\nindex-url = http://any:%[3]s@%[1]s:%[2]d/simple\ntrusted-host = %[1]s\n", r.address, packagesPort, token)
	if _, err := clients.Kube.CoreV1().Secrets(e.namespace).Create(e.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: packagesSecret},
		StringData: map[string]string{".npmrc": npmrc, "pip.conf": pipConf},
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	hashes := r.hashes()

	node := function("module.exports = { main: () => require('kiln-private').marker };\n")
	node.Spec.Deps = `{"dependencies": {"kiln-private": "^1.0.0"}}
{"lockfileVersion": 3, "requires": true, "packages": {"": {"dependencies": {"kiln-private": "^1.0.0"}},
"node_modules/kiln-private": {"version": "1.0.0", "resolved": "https://registry.example.com/kiln-private.tgz", "hasInstallScript": true, "integrity": "` + hashes["npm"] + `"}}}`
	node.Spec.Build = &v1alpha1.BuildSpec{SecretName: packagesSecret}
	python := function("import kiln_private\ndef main(event, context): return kiln_private.MARKER\n")
	python.Name, python.Spec.Runtime = "python", "python313"
	python.Spec.Deps = "kiln-private==1.0.0 \\\n    --hash=" + hashes["pip"] + "\n"
	python.Spec.Build = &v1alpha1.BuildSpec{SecretName: packagesSecret}
	node, python = e.create(node), e.create(python)
	e.wantAnswer(e.until(node, test.Ready), "{}", "kiln-private-marker")
	python = e.until(python, test.Ready)
	e.wantAnswer(python, "{}", "kiln-private-wheel")

	python = e.edit(python, func(fn *v1alpha1.Function) {
		fn.Spec.Deps = "kiln-private==1.0.0 --hash=sha256:" + strings.Repeat("0", 64) + "\n"
	})
	python, condition := e.untilCondition(python, buildFailed())
	wantWords(t, condition.Message, "DO NOT MATCH THE HASHES", "kiln-private==1.0.0", strings.Repeat("0", 64))
	e.wantAnswer(python, "{}", "kiln-private-wheel")
}

// hashes returns the hashes of the package, as the lock files of npm and pip have them.
func (r *registries) hashes() (of map[string]string) {
	r.Helper()
	answer := r.control("/hashes", "")
	if answer.Status != http.StatusOK {
		r.Fatalf("failed to get the hashes of the packages: %+v", answer)
	}
	if err := json.Unmarshal([]byte(answer.Body), &of); err != nil {
		r.Fatal(err)
	}
	return of
}
