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
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/test"
	"github.com/kiln-dev/kiln/test/images/relay/api"
)

// devCode is the same function in each language.
type devCode struct {
	runtime, file string
	// answers returns a function that answers with the text and the variable GREETING.
	answers func(text string) string
	broken  string
	// deps is a dependency file, and depending a function that answers ok with its package.
	depsFile, deps, depending string
}

var devCodes = map[string]devCode{
	"nodejs": {
		runtime: "nodejs24", file: "handler.js", broken: "SyntaxError",
		answers: func(text string) string {
			return "module.exports = { main: () => { console.log('called " + text + "'); return `" + text + " ${process.env.GREETING}`; } };\n"
		},
		depsFile: "package.json", deps: `{"dependencies": {"ms": "2.1.3"}}`,
		depending: "const ms = require('ms');\nmodule.exports = { main: () => (ms('1s') === 1000 ? 'ok' : 'wrong') };\n",
	},
	"python": {
		runtime: "python313", file: "handler.py", broken: "SyntaxError",
		answers: func(text string) string {
			return "import os\n\ndef main(event, context):\n    print('called " + text + "')\n    return '" + text + " ' + os.environ['GREETING']\n"
		},
	},
}

// devSession is kubectl fn dev in a terminal.
type devSession struct {
	*terminal
	words, log <-chan string
	url        string
	interrupt  func()
}

// lines sends the lines of a stream until it ends.
func lines(from io.Reader) <-chan string {
	all := make(chan string, 1000)
	go func() {
		defer close(all)
		for scanner := bufio.NewScanner(from); scanner.Scan(); {
			all <- scanner.Text()
		}
	}()
	return all
}

// next returns the next line that has the text.
func (d *devSession) next(from <-chan string, text string) string {
	d.Helper()
	var before []string
	for {
		select {
		case <-d.ctx.Done():
			d.Fatalf("no line has %q:\n%s", text, strings.Join(before, "\n"))
		case line, ok := <-from:
			if strings.Contains(line, text) {
				return line
			}
			if before = append(before, line); !ok {
				d.Fatalf("kubectl fn dev ended, and no line has %q:\n%s", text, strings.Join(before, "\n"))
			}
		}
	}
}

// startDev starts kubectl fn dev, and waits until the code of the folder answers.
func (t *terminal) startDev(fn *v1alpha1.Function) *devSession {
	t.Helper()
	ctx, cancel := context.WithCancel(t.ctx)
	t.Cleanup(cancel)
	command := t.command(ctx, "fn", "dev", fn.Name, "--port=0", "--namespace="+t.namespace)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = time.Minute
	out, errOut := t.pipe(command.StdoutPipe), t.pipe(command.StderrPipe)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	d := &devSession{terminal: t, words: lines(errOut), log: lines(out)}
	d.interrupt = func() {
		t.Helper()
		cancel()
		// This is the exit code of shells after ctrl-C.
		if err := command.Wait(); command.ProcessState.ExitCode() != 130 {
			t.Errorf("kubectl fn dev ended with %v, want exit code 130", err)
		}
	}
	d.url = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(d.next(d.words, "answers at http://127.0.0.1:"))
	return d
}

func (t *terminal) pipe(open func() (io.ReadCloser, error)) io.Reader {
	t.Helper()
	reader, err := open()
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

func (d *devSession) wantAnswer(want string) {
	d.Helper()
	answer, err := http.Get(d.url)
	if err != nil {
		d.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != want {
		d.Errorf("the private URL answers %s %q, %v; want %q", answer.Status, body, err, want)
	}
}

// save saves a file and waits for the words.
func (d *devSession) save(file, text, words string) {
	d.Helper()
	d.write(file, text)
	d.next(d.words, words)
}

// pods returns the private pods of the Function.
func (d *devSession) pods(fn *v1alpha1.Function) []corev1.Pod {
	d.Helper()
	list, err := clients.Kube.CoreV1().Pods(d.namespace).List(d.ctx, metav1.ListOptions{LabelSelector: serverless.DevLabelKey + "=" + fn.Name})
	if err != nil {
		d.Fatal(err)
	}
	return list.Items
}

// wantPrivate checks that other pods cannot connect to the private pod, and that no one
// sends it requests.
func (d *devSession) wantPrivate(fn *v1alpha1.Function) {
	d.Helper()
	pods := slices.DeleteFunc(d.pods(fn), func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	if len(pods) != 1 {
		d.Fatalf("there are %d private pods, want 1", len(pods))
	}
	for _, port := range []string{"8080", "7070"} {
		answer, err := relay.Call(d.ctx, api.Request{Method: http.MethodGet, URL: "http://" + pods[0].Status.PodIP + ":" + port})
		if err != nil {
			d.Fatal(err)
		}
		if answer.Error == "" {
			d.Errorf("another pod gets %d %s from port %s", answer.Status, answer.Body, port)
		}
	}
}

// TestDev edits code in the cluster while the Function serves its own.
func TestDev(t *testing.T) {
	t.Parallel()
	for language, code := range devCodes {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			fn := function(code.answers("deployed"))
			fn.Spec.Runtime = code.runtime
			fn.Spec.MinReplicas = new(int32(1))
			fn.Spec.Env = []corev1.EnvVar{{Name: "GREETING", Value: "hello"}}
			fn = e.until(e.create(fn), test.Ready)
			term := newTerminal(e)
			term.write(code.file, code.answers("one"))

			d := term.startDev(fn)
			d.wantAnswer("one hello")
			d.next(d.log, "called one")
			d.wantPrivate(fn)
			d.save(code.file, code.answers("two"), "the new code answers")
			d.wantAnswer("two hello")
			d.save(code.file, "broken (\n", "The previous code still answers.")
			d.next(d.log, code.broken)
			d.wantAnswer("two hello")
			d.save(code.file, code.answers("three"), "the new code answers")
			d.wantAnswer("three hello")
			e.wantAnswer(fn, "{}", "deployed hello")

			if code.deps != "" {
				term.write(code.file, code.depending)
				d.save(code.depsFile, code.deps, "has other dependencies than the image")
				d.wantAnswer("three hello")
				d.next(d.words, "the new code answers")
				d.wantAnswer("ok")
				d.wantPrivate(fn)
			}
			d.interrupt()
			e.wantUnchanged(fn, d)
			e.wantAnswer(fn, "{}", "deployed hello")
		})
	}
}

// wantUnchanged checks that kubectl fn dev has left nothing, and the Function as it was.
func (e *env) wantUnchanged(fn *v1alpha1.Function, d *devSession) {
	e.Helper()
	err := wait.PollUntilContextCancel(e.ctx, time.Second, true, func(context.Context) (bool, error) { return len(d.pods(fn)) == 0, nil })
	if err != nil {
		e.Fatalf("private pods are left: %v", err)
	}
	functions, err := clients.Kiln.ServerlessV1alpha1().Functions(e.namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil || len(functions.Items) != 1 {
		e.Fatalf("there are %d Functions, %v; want only %s", len(functions.Items), err, fn.Name)
	}
	after := functions.Items[0]
	if diff := cmp.Diff(fn.Spec, after.Spec); diff != "" || after.Generation != fn.Generation {
		e.Errorf("the Function has changed (-before +after):\n%s", diff)
	}
	if after.Status.Image != fn.Status.Image || after.Status.LatestCreatedRevisionName != fn.Status.LatestCreatedRevisionName {
		e.Errorf("the Function has image %s and revision %s, want %s and %s",
			after.Status.Image, after.Status.LatestCreatedRevisionName, fn.Status.Image, fn.Status.LatestCreatedRevisionName)
	}
}
