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

// Package dev runs the code of a folder in a private pod of a Function, and replaces it at
// each save. Nothing of the Function changes.
package dev

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/cli/advice"
	"github.com/kiln-dev/kiln/pkg/cli/saves"
	"github.com/kiln-dev/kiln/pkg/cli/tunnel"
	kilnclient "github.com/kiln-dev/kiln/pkg/client/clientset/versioned"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	// quiet is the time without changes after which files are sent. A file that is caught
	// half-written is sent again.
	quiet = 30 * time.Millisecond

	// minLife is the life of a pod after which another one may replace it.
	minLife = 10 * time.Second

	reconnectPeriod = time.Second
)

// Session is a run of kubectl fn dev.
type Session struct {
	// Kube and Kiln talk to the cluster.
	Kube kubernetes.Interface
	Kiln kilnclient.Interface
	// Forward forwards ports to a pod.
	Forward func(ctx context.Context, namespace, pod string, ports ...int) (*tunnel.Tunnel, error)
	// Built waits until a Function is built, and prints the progress.
	Built func(ctx context.Context, fn *v1alpha1.Function) (*v1alpha1.Function, error)

	// Dependencies returns the dependencies of the folder, as spec.deps has them.
	Dependencies func() (string, error)

	// Function is the Function whose code is replaced.
	Function *v1alpha1.Function
	// Language is the language of the Function.
	Language runtimes.Runtime
	// PullSecrets are the Secrets with which nodes pull the Function's image.
	PullSecrets []string
	// Dir is the folder with the code.
	Dir string
	// Port is the port on this machine. 0 means a free one.
	Port int
	// Out gets the log of the function, and ErrOut all other messages.
	Out, ErrOut io.Writer

	proxy *proxy
	url   string
	image string
	// deps are the dependencies that image was built with, if not by the Function.
	deps *string
	// pod is the newest pod, and old the one that answers until the newest does.
	pod, old *pod
	// saved is when the files were saved that are being sent.
	saved time.Time
	saves chan time.Time
	// greeted reports whether the URL was printed.
	greeted bool
}

// Supports reports whether there is a launcher for the language.
func Supports(language runtimes.Runtime) bool {
	_, ok := launchers[language.Language]
	return ok
}

// Run serves the code of the folder until ctx ends.
func (s *Session) Run(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)))
	if err != nil {
		return advice.Try(fmt.Errorf("failed to listen: %w", err), "--port=0, which takes a free port")
	}
	watcher, err := saves.Watch(s.Dir, quiet)
	if err != nil {
		listener.Close()
		return err
	}
	defer watcher.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.saves = make(chan time.Time, 1)
	go func() {
		for watcher.Await(ctx, nil); ctx.Err() == nil; watcher.Await(ctx, nil) {
			select {
			case s.saves <- time.Now().Add(-quiet):
			default:
			}
		}
	}()
	s.proxy, s.url, s.image = newProxy(), "http://"+listener.Addr().String(), s.Function.Status.Image
	server := &http.Server{Handler: s.proxy, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // It returns when it is closed.
	defer server.Close()
	s.removeLost(ctx)
	defer func() {
		s.remove(ctx, s.old)
		s.remove(ctx, s.pod)
	}()
	for ctx.Err() == nil {
		if err := s.turn(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// turn brings the folder to the pod, and returns after the next event.
func (s *Session) turn(ctx context.Context) error {
	files, err := scan(s.Dir)
	if err != nil {
		s.report("Folder %s cannot be sent: %v", s.Dir, err)
		return s.await(ctx, nil)
	}
	if s.pod == nil {
		if s.pod, err = s.open(ctx, s.image); err != nil && s.old != nil {
			// A quota may have no room for two pods.
			s.report("The previous pod makes room: %v", err)
			s.remove(ctx, s.old)
			s.old = nil
			return nil
		}
		if err != nil {
			return err
		}
	}
	written, deleted := compare(s.pod.sent, files)
	changed := slices.Concat(written, deleted)
	if len(changed) == 0 && (s.pod.started || s.pod.starting != nil) {
		return s.await(ctx, s.pod.starting)
	}
	if s.decideDependencies(changed) {
		s.pod.checked = false
	}
	if !s.pod.checked {
		s.pod.checked = true
		if s.rebuild(ctx) {
			return nil
		}
	}
	if len(s.pod.sent) == 0 {
		changed = nil
	}
	s.pod.cancelStart()
	if err := s.pod.sync(ctx, s.Dir, files); err != nil {
		s.report("The files could not be sent: %v", err)
		return s.await(ctx, nil)
	}
	s.start(ctx, changed)
	return s.await(ctx, s.pod.starting)
}

// start starts the files that the pod has. What s.pod.starting sends reports the outcome.
func (s *Session) start(ctx context.Context, changed []string) {
	starting, cancel := context.WithCancel(ctx)
	done := make(chan func(), 1)
	s.pod.starting, s.pod.stopStart = done, cancel
	go func(p *pod) {
		o, err := p.launcher.start(starting)
		done <- func() {
			p.cancelStart()
			s.finish(ctx, o, err, changed)
		}
	}(s.pod)
}

// await waits for the next save, or for the end of the pod. Until then, it runs what done
// sends.
func (s *Session) await(ctx context.Context, done <-chan func()) error {
	var lost <-chan struct{}
	if s.pod != nil {
		lost = s.pod.tunnel.Ended
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s.saved = <-s.saves:
			return nil
		case <-lost:
			return s.recover(ctx)
		case finish := <-done:
			finish()
		}
	}
}

// finish reports what became of the files that were sent, and gives the new code the
// requests.
func (s *Session) finish(ctx context.Context, o outcome, err error, changed []string) {
	if err != nil {
		if ctx.Err() == nil {
			s.report("The code could not be started: %v", err)
		}
		return
	}
	s.pod.started = true
	switch {
	case o.Started:
		s.proxy.use(s.pod.tunnel.Addresses[1])
		s.remove(ctx, s.old)
		s.old = nil
		if !s.greeted {
			s.greeted = true
			s.report("The code of folder %s answers at %s. Only this machine can call it there.", s.Dir, s.url)
			s.report("It is replaced when a file changes. Press ctrl-C to end it. Function %s stays as it is.", s.Function.Name)
			return
		}
		s.report("%s: the new code answers after %.2f s.", describe(changed), time.Since(s.saved).Seconds())
	case o.Serving || s.old != nil:
		s.report("%s: the code does not start, as the log shows. The previous code still answers.", describe(changed))
	default:
		s.report("The code does not start, as the log shows. It starts again when a file changes.")
	}
}

func describe(changed []string) string {
	switch len(changed) {
	case 0:
		return "All files were sent"
	case 1:
		return changed[0] + " has changed"
	}
	return fmt.Sprintf("%d files have changed", len(changed))
}

// rebuild replaces the image if the folder has other dependencies. It reports whether it
// did. The pod then answers until another one does.
func (s *Session) rebuild(ctx context.Context) bool {
	text, differ, err := s.checkDependencies(ctx, s.pod)
	switch {
	case err != nil:
		s.report("The dependencies cannot be compared with those of the image: %v", err)
		return false
	case !differ:
		return false
	}
	s.report("%s has other dependencies than the image. An image with them is built, which takes longer than other changes.", s.Language.DependencyFile)
	image, err := s.build(ctx, text)
	if err != nil {
		if ctx.Err() == nil {
			s.report("The code runs without the new dependencies, because their image was not built. %v", err)
		}
		return false
	}
	s.image, s.deps = image, &text
	if s.old == nil && s.proxy.answers() {
		s.old = s.pod
	} else {
		s.remove(ctx, s.pod)
	}
	s.pod = nil
	return true
}

// recover connects to the pod again, or lets another one replace it.
func (s *Session) recover(ctx context.Context) error {
	p, reported, end := s.pod, false, ""
	p.tunnel.Close()
	if p.starting != nil {
		p.cancelStart()
	}
	for end == "" {
		found, err := s.pods().Get(ctx, p.name, metav1.GetOptions{})
		switch {
		case apierrs.IsNotFound(err):
			end = "it was deleted"
			continue
		case err == nil && hasEnded(found):
			end = endOf(found)
			continue
		case err == nil:
			err = s.connect(ctx, p)
		}
		if err == nil {
			if s.old == nil && s.proxy.answers() {
				s.proxy.use(p.tunnel.Addresses[1])
			}
			return nil
		}
		if !reported && ctx.Err() == nil {
			reported = true
			s.report("The connection to pod %s is lost: %v. It is tried again.", p.name, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconnectPeriod):
		}
	}
	if time.Since(p.since) < minLife {
		return advice.Try(fmt.Errorf("pod %s has ended: %s", p.name, end), "kubectl fn status %s", s.Function.Name)
	}
	s.report("Pod %s has ended: %s. Another one replaces it.", p.name, end)
	s.remove(ctx, p)
	s.pod = nil
	return nil
}

func (s *Session) report(format string, args ...any) {
	fmt.Fprintf(s.ErrOut, format+"\n", args...)
}
