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

	corev1 "k8s.io/api/core/v1"
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

// Server serves the image of a Function. It reports in the status of the Function.
type Server interface {
	// Apply serves the Function's image as its spec says.
	Apply(ctx context.Context, fn *v1alpha1.Function) error

	// Hold keeps the last deployed image serving while no newer image is available.
	Hold(ctx context.Context, fn *v1alpha1.Function) error
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
