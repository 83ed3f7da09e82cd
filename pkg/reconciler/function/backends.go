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
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/builds"
	"github.com/kiln-dev/kiln/pkg/builds/queue"
	"github.com/kiln-dev/kiln/pkg/children"
)

// Builder builds images with objects of one kind.
type Builder interface {
	// Name returns the builder's value of the key builder in config-build.
	Name() config.Builder

	// Kind returns the kind of the objects.
	Kind() string

	// Reasons returns the reasons of the condition BuildReady that name the kind.
	Reasons() builds.Reasons

	// List returns the Function's builds from the cache.
	List(fn *v1alpha1.Function) ([]builds.Run, error)

	// Running returns all builds of the cluster that have not ended, past the cache.
	Running(ctx context.Context) ([]queue.Build, error)

	// Get returns one build, past the cache. The error is the API server's own.
	Get(ctx context.Context, namespace, name string) (builds.Run, error)

	// Start creates the object, or returns the build of the object that has its name. If
	// the origin is children.Created, the error is the API server's own.
	Start(ctx context.Context, fn *v1alpha1.Function, spec builds.Spec) (builds.Run, children.Origin, error)

	// Restore restores metadata that somebody has removed from the object, which builds the
	// image of the tag.
	Restore(ctx context.Context, fn *v1alpha1.Function, tag string, run builds.Run) (builds.Run, error)

	// Delete deletes the object, also while its build runs.
	Delete(ctx context.Context, run builds.Run) error

	// Progress reports how far a build is that has not ended.
	Progress(run builds.Run) (builds.Progress, error)

	// Failure collects why a build failed. Its error comes from reading the log.
	Failure(ctx context.Context, run builds.Run) (builds.Failure, error)

	// InstallLog returns the end of the log of the installation of dependencies, or "".
	InstallLog(ctx context.Context, run builds.Run) (string, error)
}

// Builders are all builders, in the order in which config.AutoBuilder prefers them. They
// share the names of their objects: no two builds of a namespace have the same name.
type Builders []Builder

// Absent returns the builder as one whose API the cluster does not have. It has no builds.
func Absent(b Builder) Builder { return absent{b} }

type absent struct{ Builder }

func (absent) List(*v1alpha1.Function) ([]builds.Run, error) { return nil, nil }

func (absent) Running(context.Context) ([]queue.Build, error) { return nil, nil }

func (a absent) Get(_ context.Context, _, name string) (builds.Run, error) {
	return builds.Run{}, apierrs.NewNotFound(schema.GroupResource{Resource: a.Kind()}, name)
}

// choose returns the builder of new builds. It returns false if the cluster does not have
// the API of that builder.
func (bs Builders) choose(name config.Builder) (Builder, bool) {
	i := slices.IndexFunc(bs, func(b Builder) bool {
		return name == b.Name() || name == config.AutoBuilder && isPresent(b)
	})
	if i < 0 || !isPresent(bs[i]) {
		return nil, false
	}
	return bs[i], true
}

func isPresent(b Builder) bool {
	_, is := b.(absent)
	return !is
}

// of returns the builder whose objects have the kind. Builds without an object have none,
// and get the first builder.
func (bs Builders) of(ref *v1alpha1.BuildReference) Builder {
	if i := slices.IndexFunc(bs, func(b Builder) bool { return ref != nil && b.Kind() == ref.Kind }); i >= 0 {
		return bs[i]
	}
	return bs[0]
}

// List returns the Function's builds with any builder, from the caches.
func (bs Builders) List(fn *v1alpha1.Function) ([]builds.Run, error) {
	var all []builds.Run
	for _, b := range bs {
		runs, err := b.List(fn)
		if err != nil {
			return nil, err
		}
		all = append(all, runs...)
	}
	return all, nil
}

// Running returns all builds of the cluster that have not ended, past the caches.
func (bs Builders) Running(ctx context.Context) ([]queue.Build, error) {
	var all []queue.Build
	for _, b := range bs {
		running, err := b.Running(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, running...)
	}
	return all, nil
}

// Get returns the build of that name with any builder, past the caches. The error is the
// API server's own.
func (bs Builders) Get(ctx context.Context, namespace, name string) (run builds.Run, err error) {
	for _, b := range bs {
		if run, err = b.Get(ctx, namespace, name); !apierrs.IsNotFound(err) {
			return run, err
		}
	}
	return run, err
}

// chosen returns the builder of new builds. If the cluster does not have its API, it
// returns false, and a condition says what to do.
func (r *Reconciler) chosen(ctx context.Context, fn *v1alpha1.Function) (Builder, bool) {
	name := config.FromContextOrDefaults(ctx).Build.Builder
	builder, ok := r.builders.choose(name)
	if !ok {
		fn.Status.MarkBuildFailed(v1alpha1.ReasonBuilderUnavailable,
			"The ConfigMap config-build sets builder to %q, and this cluster does not have its API. Install it, or set another builder.", name)
	}
	return builder, ok
}

// Server serves the images of Functions with objects of one kind. It reports in the status
// of the Function.
type Server interface {
	// Name returns the server's value of the key serving in config-functions.
	Name() config.Server

	// Serves reports whether the cache shows that the server serves the Function.
	Serves(fn *v1alpha1.Function) (bool, error)

	// Apply serves the Function's image as its spec says.
	Apply(ctx context.Context, fn *v1alpha1.Function) error

	// Hold keeps the last deployed image serving while no newer image is available.
	Hold(ctx context.Context, fn *v1alpha1.Function) error
}

// Servers are the servers whose API the cluster has, in the order in which
// config.AutoServer prefers them.
type Servers []Server

// of returns the server of the Function, and whether the cluster has its API. A Function
// that is deployed keeps its server. The choice of another server than Knative's is recorded
// in the status.
func (ss Servers) of(ctx context.Context, fn *v1alpha1.Function) (Server, bool, error) {
	name := config.Server(fn.Status.Serving)
	if name == "" && fn.Status.IsDeployed() {
		name = config.KnativeServer
	}
	for _, s := range ss {
		serves, err := s.Serves(fn)
		if err != nil {
			return nil, false, err
		}
		if serves && !fn.Status.IsDeployed() {
			// A crash has lost the status.
			name = s.Name()
		}
	}
	if name == "" {
		name = config.FromContextOrDefaults(ctx).Functions.Server
	}
	i := slices.IndexFunc(ss, func(s Server) bool { return name == s.Name() || name == config.AutoServer })
	if i < 0 {
		markUnavailable(fn, name)
		return nil, false, nil
	}
	fn.Status.Serving = ""
	if ss[i].Name() != config.KnativeServer {
		fn.Status.Serving = string(ss[i].Name())
	}
	return ss[i], true, nil
}

// choices remembers whether config-functions has had different servers in the life of the
// process. The zero value is ready for use.
type choices struct {
	mu    sync.Mutex
	first config.Server
	mixed bool
}

// see adds the current choice, and reports whether there have been different ones.
func (c *choices) see(name config.Server) (mixed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == "" {
		c.first = name
	}
	c.mixed = c.mixed || name != c.first
	return c.mixed
}

// serverOf returns the server of the Function, as Servers.of. It returns errStale if that
// could create the first object of a Function that has chosen another server meanwhile. While
// all Functions choose the same, it reads nothing.
func (r *Reconciler) serverOf(ctx context.Context, fn *v1alpha1.Function) (Server, bool, error) {
	mixed := r.choices.see(config.FromContextOrDefaults(ctx).Functions.Server)
	server, ok, err := r.servers.of(ctx, fn)
	if err != nil || !ok || !mixed || fn.Status.Serving != "" || fn.Status.IsDeployed() || fn.Status.Image == "" {
		return server, ok, err
	}
	serves, err := server.Serves(fn)
	if err != nil || serves {
		return server, err == nil, err
	}
	// Other choices are in the status before an object exists, and its write detects a stale
	// cache.
	err = r.checkCurrent(ctx, fn)
	return server, err == nil, err
}

// markUnavailable reports that the cluster does not have the API of the Function's server.
func markUnavailable(fn *v1alpha1.Function, name config.Server) {
	if fn.Status.IsDeployed() {
		fn.Status.MarkRunningFailed(v1alpha1.ReasonServingUnavailable,
			"The Function is served by %s, and this cluster no longer has its API. Install it again, or create the Function again.", name)
		return
	}
	fn.Status.MarkRunningFailed(v1alpha1.ReasonServingUnavailable,
		"The ConfigMap %s sets serving to %q, and this cluster does not have its API. Install it, or set another server.", config.FunctionsConfigName, name)
}

// Secrets copies registry credentials to namespaces.
type Secrets interface {
	// Ensure returns the Secret of that name in the namespace, or nil if no credentials are
	// configured. It returns a credentials.ReferencedError if an object in the namespace
	// could read them.
	Ensure(ctx context.Context, name, namespace string) (*corev1.Secret, error)

	// Version identifies the content of a Secret.
	Version(*corev1.Secret) string

	// Names returns the names that copied Secrets may have. Names that were configured
	// earlier are among them.
	Names() []string
}

// Background handles requests of Functions in the background. See background.Worker.
type Background[Request, Answer any] interface {
	Ask(types.NamespacedName, Request)
	Answer(key types.NamespacedName, request Request, await bool) (Answer, bool)
	Acknowledge(types.NamespacedName)
	Forget(types.NamespacedName)
	ForgetAll(isMeant func(types.NamespacedName) bool)
}
