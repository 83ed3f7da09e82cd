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

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/apis/config"
	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/pack"
)

const (
	// tagPrefix is the prefix of the tags of packed folders. Registries may delete
	// artifacts without a tag.
	tagPrefix = "source-"

	// titleAnnotation is the file name of a layer for clients that pull it as a file.
	titleAnnotation = "org.opencontainers.image.title"
	archiveName     = "source.tar.gz"
)

const pushTo = "--push-to=REGISTRY/REPOSITORY"

// change returns a function that sets the source of a Function to the code that the
// flags name. It pushes a folder only if push is true.
func (c *cli) change(ctx context.Context, clients *Clients, source *sourceFlags, push bool) func(*v1alpha1.Function) error {
	return func(fn *v1alpha1.Function) error {
		if source.dir == "" {
			return source.applyFile(fn)
		}
		return c.applyFolder(ctx, clients, source, fn, push)
	}
}

func (c *cli) applyFolder(ctx context.Context, clients *Clients, source *sourceFlags, fn *v1alpha1.Function, push bool) error {
	runtime := cmp.Or(source.runtime, fn.Spec.Runtime)
	if err := checkFolder(source.dir, runtime); err != nil {
		return err
	}
	repository, err := clients.repository(ctx, fn, source.pushTo)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "kubectl-fn-")
	if err != nil {
		return fmt.Errorf("failed to create file: %w", err)
	}
	defer os.Remove(file.Name())
	count, err := pack.Folder(file, source.dir, needed(runtime)...)
	if err := errors.Join(err, file.Close()); err != nil {
		return try(err, "a .dockerignore in folder %s that excludes those files", source.dir)
	}
	artifact, layer, err := artifactOf(file.Name())
	if err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOut, "Packed %d files of folder %s: %d KiB.\n", count, source.dir, (layer.Size+1<<10-1)>>10)
	digest, err := artifact.Digest()
	if err != nil {
		return fmt.Errorf("failed to create artifact: %w", err)
	}
	if push {
		outside := clients.outside(ctx, repository)
		fmt.Fprintf(c.ErrOut, "Pushing it to %s.\n", outside)
		if err := pushArtifact(ctx, outside.Tag(tagPrefix+layer.Digest.Hex[:16]), artifact); err != nil {
			return err
		}
	}
	archive := &v1alpha1.ArchiveSource{URL: sources.OCIScheme + repository.Digest(digest.String()).Name(), SHA256: layer.Digest.Hex}
	if before := sourceRepository(fn); before != nil && before.RegistryStr() == repository.RegistryStr() {
		archive.SecretName = fn.Spec.Archive.SecretName
	}
	fn.Spec.Runtime, fn.Spec.Archive = runtime, archive
	// A Function has exactly one source.
	fn.Spec.Source, fn.Spec.Deps, fn.Spec.Git = "", "", nil
	return nil
}

// needed returns the files of a folder that are packed even if .dockerignore names them.
// A runtime whose name does not begin with a language may build a Dockerfile.
func needed(runtime string) []string {
	if language, err := languageOf(runtime); err == nil && !language.IsOwnDockerfile() {
		return nil
	}
	return []string{runtimes.DockerfileName}
}

// checkFolder checks that the folder has the source file of the runtime. It accepts
// runtimes that only the cluster knows.
func checkFolder(dir, runtime string) error {
	const advice = "--dir=FOLDER, or start with: kubectl fn init DIR --runtime=nodejs24"
	if runtime == "" {
		language, err := languageIn(dir)
		switch {
		case err != nil && hasDockerfile(dir):
			return try(fmt.Errorf("no runtime was given for folder %s, which has a Dockerfile", dir), "--runtime=dockerfile")
		case err != nil:
			return try(err, advice)
		case !isNode(language.SourceFile):
			return try(fmt.Errorf("no runtime was given for folder %s", dir), "kubectl fn describe-runtime, and then --runtime=NAME")
		}
		return nil
	}
	language, err := languageOf(runtime)
	if err != nil {
		return nil //nolint:nilerr // The build checks the other runtimes.
	}
	if _, err := os.Stat(filepath.Join(dir, language.SourceFile)); err != nil && sourceIn(dir, language) == "" {
		return try(fmt.Errorf("runtime %s needs %s in folder %s: %w", runtime, strings.Join(language.SourceFiles(), " or "), dir, err), advice)
	}
	return nil
}

// repository returns the repository to push a folder to: the given one, else that
// of the Function's source, else that of its images.
func (c *Clients) repository(ctx context.Context, fn *v1alpha1.Function, given string) (name.Repository, error) {
	registry, err := c.registry(ctx)
	if err != nil && !apierrs.IsNotFound(err) && !apierrs.IsForbidden(err) && given == "" {
		return name.Repository{}, fmt.Errorf("failed to get ConfigMap %s: %w", config.RegistryConfigName, err)
	}
	where := strings.TrimPrefix(given, sources.OCIScheme)
	if before := sourceRepository(fn); where == "" && before != nil {
		where = before.Name()
	}
	if where == "" && registry.Configured() {
		where = registry.PushRepository(fn.Namespace, fn.Name)
	}
	if where == "" {
		return name.Repository{}, try(errors.New("the cluster does not specify a repository for the folder"), pushTo)
	}
	repository, err := name.NewRepository(where)
	if err == nil && slices.Contains(registry.Insecure, repository.RegistryStr()) {
		repository, err = name.NewRepository(where, name.Insecure)
	}
	if err != nil {
		return name.Repository{}, try(fmt.Errorf("%q is not a repository: %w", where, err), pushTo+", without a tag")
	}
	return repository, nil
}

func (c *Clients) registry(ctx context.Context) (*config.Registry, error) {
	configMap, err := c.Kube.CoreV1().ConfigMaps(SystemNamespace).Get(ctx, config.RegistryConfigName, metav1.GetOptions{})
	if err != nil {
		return &config.Registry{}, err
	}
	registry, err := config.NewRegistryFromConfigMap(configMap)
	if err != nil {
		return &config.Registry{}, err
	}
	return registry, nil
}

// The ConfigMap in which a local cluster describes its registry, as KEP-1755 defines it.
const (
	hostingNamespace = "kube-public"
	hostingName      = "local-registry-hosting"
	hostingKey       = "localRegistryHosting.v1"
)

// outside returns the repository at the address that this machine reaches, if the
// cluster reaches its registry at another one.
func (c *Clients) outside(ctx context.Context, repository name.Repository) name.Repository {
	// Few clusters have the ConfigMap, and not all users may read it.
	configMap, err := c.Kube.CoreV1().ConfigMaps(hostingNamespace).Get(ctx, hostingName, metav1.GetOptions{})
	if err != nil {
		return repository
	}
	var hosting struct {
		Host                   string `json:"host"`
		HostFromClusterNetwork string `json:"hostFromClusterNetwork"`
	}
	if err := yaml.Unmarshal([]byte(configMap.Data[hostingKey]), &hosting); err != nil || hosting.Host == "" || repository.RegistryStr() != hosting.HostFromClusterNetwork {
		return repository
	}
	outside, err := name.NewRepository(hosting.Host+"/"+repository.RepositoryStr(), name.Insecure)
	if err != nil {
		return repository
	}
	return outside
}

func sourceRepository(fn *v1alpha1.Function) *name.Repository {
	if fn.Spec.Archive == nil || !strings.HasPrefix(fn.Spec.Archive.URL, sources.OCIScheme) {
		return nil
	}
	ref, err := name.ParseReference(strings.TrimPrefix(fn.Spec.Archive.URL, sources.OCIScheme))
	if err != nil {
		return nil
	}
	return new(ref.Context())
}

// artifactOf returns an artifact whose only layer is the archive in a file. It has
// the form of an image, because some registries accept no other artifacts.
func artifactOf(file string) (v1.Image, *v1.Descriptor, error) {
	layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, nil, fmt.Errorf("failed to create artifact: %w", err)
	}
	artifact, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: layer, Annotations: map[string]string{titleAnnotation: archiveName}})
	if err != nil {
		return nil, nil, fmt.Errorf("failed to create artifact: %w", err)
	}
	manifest, err := artifact.Manifest()
	if err != nil {
		return nil, nil, fmt.Errorf("failed to create artifact: %w", err)
	}
	return artifact, &manifest.Layers[0], nil
}

func pushArtifact(ctx context.Context, to name.Tag, artifact v1.Image) error {
	err := remote.Write(to, artifact, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("kubectl-fn"))
	if err == nil {
		return nil
	}
	host := to.RegistryStr()
	if failed, ok := errors.AsType[*transport.Error](err); ok && slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden}, failed.StatusCode) {
		return try(fmt.Errorf("registry %s denied the push to %s: %w", host, to.Context().RepositoryStr(), err), "docker login %s, or another %s", host, pushTo)
	}
	return try(fmt.Errorf("failed to push to %s: %w", to.Context(), err), "%s, in a registry that this machine and the cluster can reach", pushTo)
}
