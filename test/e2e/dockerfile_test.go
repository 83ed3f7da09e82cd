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
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
)

const dockerfileRuntime = "dockerfile"

// baseOfNode returns a Debian image that builds of the cluster can pull.
func (e *env) baseOfNode() string {
	e.Helper()
	known := knownRuntimes(e.T)
	if _, ok := known[dockerfileRuntime]; !ok {
		e.Fatalf("config-runtimes has no runtime %s, but %s", dockerfileRuntime, known.Names())
	}
	return known["nodejs24"].BaseImage
}

// startOf writes the example with a Dockerfile, on an available base image, into a new
// folder.
func (t *terminal) startOf(base string) {
	t.Helper()
	t.dir = t.TempDir()
	if err := os.CopyFS(t.dir, os.DirFS("../../pkg/cli/starters/dockerfile")); err != nil {
		t.Fatal(err)
	}
	const shipped = "FROM debian:bookworm-slim\n"
	text, err := os.ReadFile(filepath.Join(t.dir, "Dockerfile"))
	if err != nil || !strings.Contains(string(text), shipped) {
		t.Fatalf("the example is not %q: %s, %v", shipped, text, err)
	}
	t.write("Dockerfile", strings.ReplaceAll(string(text), shipped, "FROM "+base+"\n"))
}

// TestDockerfile builds functions from their own Dockerfiles, in a language without a
// wrapper. It checks that the status of each unusable one says what to correct.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	base := e.baseOfNode()
	bad := e.createBadDockerfiles(base)

	term := newTerminal(e)
	term.startOf(base)
	term.run([]string{"fn created", "runs at"}, "deploy", "fn", "--runtime="+dockerfileRuntime, "--dir=.", "--timeout=5m")
	fn := e.until(&v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "fn"}}, test.Ready)
	e.wantAnswer(fn, "Ada", "hello Ada")
	bad.want()

	// Docker can read a Dockerfile that its own commands cannot copy.
	term.write(".dockerignore", "Dockerfile\n")
	term.write("Dockerfile", "FROM "+base+` AS build
WORKDIR /src
COPY . .
RUN test ! -e Dockerfile && sed -i s/hello/goodbye/ server.pl
FROM `+base+`
COPY --from=build /src/server.pl /srv/
USER 1000:1000
ENTRYPOINT ["perl", "/srv/server.pl"]
`)
	prober := e.probe(fn, "hello {}")
	term.run([]string{"fn updated", "runs at"}, "deploy", "fn", "--dir=.", "--timeout=5m")
	e.untilAnswer(prober, "goodbye {}")
	e.wantAnswers(prober, "hello {}", "goodbye {}")

	inline := function("FROM scratch\n")
	inline.Spec.Runtime = dockerfileRuntime
	_, err := e.tryCreate(inline)
	if err == nil {
		e.Fatal("a Dockerfile without its files was admitted")
	}
	wantWords(t, err.Error(), "spec.git or spec.archive", "kubectl fn deploy --dir")
}

// badDockerfiles are Functions that cannot be built or do not run.
type badDockerfiles struct {
	*env
	failing, root, absent, silent, missing *v1alpha1.Function
}

// createBadDockerfiles creates them all, so that their builds run in parallel.
func (e *env) createBadDockerfiles(base string) *badDockerfiles {
	e.Helper()
	term := newTerminal(e)
	create := func(called, dockerfile string) *v1alpha1.Function {
		term.dir = e.TempDir()
		term.write("Dockerfile", dockerfile)
		term.run([]string{called + " created"}, "create", called, "--runtime="+dockerfileRuntime, "--dir=.")
		return &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: called}}
	}
	named, err := name.ParseReference(base)
	if err != nil {
		e.Fatal(err)
	}
	missing := archived(dockerfileRuntime, v1alpha1.ArchiveSource{URL: e.startSources() + "/good/python-1.zip"})
	missing.Name = "missing"
	return &badDockerfiles{
		env:     e,
		failing: create("failing", "FROM "+base+"\nRUN echo there is no such compiler >&2; exit 3\nUSER 1000\nCMD [\"true\"]\n"),
		root:    create("root", "FROM "+base+"\nRUN true\nCMD [\"true\"]\n"),
		absent:  create("absent", "FROM "+named.Context().Tag("no-such-tag").Name()+"\nUSER 1000\nCMD [\"true\"]\n"),
		silent:  create("silent", "FROM "+base+"\nUSER 1000\nCMD [\"perl\", \"-e\", \"$SIG{TERM} = sub { exit }; sleep 600\"]\n"),
		missing: e.create(missing),
	}
}

// refused checks that the build fails with that reason and these words.
func (b *badDockerfiles) refused(fn *v1alpha1.Function, reason string, words ...string) {
	b.Helper()
	_, condition := b.untilCondition(fn, apis.Condition{Type: v1alpha1.FunctionConditionBuildReady, Status: corev1.ConditionFalse, Reason: reason})
	wantWords(b.T, condition.Message, words...)
}

// want checks that the status of each Function reports its error.
func (b *badDockerfiles) want() {
	b.Helper()
	b.refused(b.missing, v1alpha1.ReasonSourceUpdateFailed, `it must have the file Dockerfile at its top, which has: "handler.py"`)
	b.refused(b.failing, builder.reasons.Failed, "there is no such compiler")
	b.refused(b.root, builder.reasons.Failed, "the image runs as root", "USER 1000:1000")
	b.refused(b.absent, v1alpha1.ReasonImagePullFailed, "Correct its FROM", "no-such-tag")
	b.until(b.silent, func(fn *v1alpha1.Function) error {
		running := fn.Status.GetCondition(v1alpha1.FunctionConditionRunning)
		if words := running.GetMessage(); !strings.Contains(words, "does not listen on port 8080") || !strings.Contains(words, "$PORT") {
			return fmt.Errorf("the message does not report that nothing listens: %q", words)
		}
		if running.IsTrue() {
			return errors.New("Running is True for an image that does not listen")
		}
		return nil
	})
}
