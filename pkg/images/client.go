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

// Package images looks up and tags images of functions in the registry. It works in the
// background, because a registry may be slow or not answer at all.
package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
)

// baseLength keeps 128 bits of the digest of the base image in a tag.
const baseLength = 32

// Repository is where the images of one Function are, as its builds push them.
type Repository struct {
	// Name is the host[:port] of the registry, and the path of the repository.
	Name string

	// Insecure reports whether the registry may use plain HTTP.
	Insecure bool

	// Credentials is the name of the Secret with registry credentials, or "". Namespace is
	// the namespace of the Function and of the Secret.
	Credentials, Namespace string
}

// Lookup looks up an image in the repository, and the images that its build needs. Its
// images are those that the Function's status records: everyone who can push to the
// repository can move a tag.
type Lookup struct {
	Repository

	// Image is the recorded image, or its zero value for none.
	Image v1alpha1.BuiltImage

	// Base is the name of the base image, or "" if only the build knows it. BaseInsecure
	// reports whether its registry may use plain HTTP.
	Base         string
	BaseInsecure bool

	// Dependencies is a hash of the inputs of the installed dependencies, or "" if there
	// are none.
	Dependencies string

	// Installed is the newest recorded image with these dependencies, or its zero value
	// for none.
	Installed v1alpha1.DependencyImage
}

// DependenciesTag returns the tag of the image with the dependencies on the base image of
// that digest. It is "" if there are no dependencies, or if the digest is unknown.
func (l *Lookup) DependenciesTag(base string) string {
	_, hash, known := strings.Cut(base, ":")
	if l.Dependencies == "" || !known {
		return ""
	}
	return dependenciesPrefix(l.Dependencies) + hash[:min(len(hash), baseLength)]
}

// dependenciesPrefix returns the part of the tag of dependencies that does not depend on
// the digest of the base image.
func dependenciesPrefix(dependencies string) string {
	return "deps-" + dependencies + "-"
}

// Found is what registries hold, by digest.
type Found struct {
	// Image is "" if the repository does not hold the image.
	Image string

	// Base is the digest of the base image, which may be that of an index. It is "" if the
	// registry did not answer, or if the repository holds the image.
	Base string

	// Dependencies is the digest of the dependencies for this base image. It is "" if the
	// repository does not hold them, or holds the image.
	Dependencies string
}

// Tagging adds a tag to an image.
type Tagging struct {
	Repository

	// Digest is the digest of the image: sha256: and 64 digits.
	Digest string

	// Tag is the tag to add. If another image has it, it moves.
	Tag string
}

// Keychains returns the credentials in the Secret of that name, with which builds in the
// namespace push. Missing credentials are not an error.
type Keychains func(ctx context.Context, secretName, namespace string) (authn.Keychain, error)

// Client talks to registries.
type Client struct {
	keychains Keychains
}

// NewClient returns a Client that uses these credentials.
func NewClient(keychains Keychains) *Client {
	return &Client{keychains: keychains}
}

// Find returns the recorded images that the registries still hold. With an error, the
// result is incomplete. Find ignores an image that was built on an older version of the
// base image.
func (c *Client) Find(ctx context.Context, want Lookup) (found Found, err error) {
	repository, options, err := c.open(ctx, want.Repository)
	if err != nil {
		return Found{}, err
	}
	base := resolve(want, options)
	image, err := held(repository, want.Image.Digest, options)
	resolved := <-base
	builtOn := want.Image.BaseDigest
	if image != "" && (builtOn == "" || resolved.digest == "" || builtOn == resolved.digest) {
		return Found{Image: image}, nil
	}
	if found.Base = resolved.digest; err != nil || resolved.err != nil {
		return found, errors.Join(err, resolved.err)
	}
	if tag := want.DependenciesTag(found.Base); tag != "" && tag == want.Installed.Tag {
		found.Dependencies, err = held(repository, want.Installed.Digest, options)
	}
	return found, err
}

func held(repository name.Repository, digest string, options []remote.Option) (string, error) {
	if digest == "" {
		return "", nil
	}
	return find(repository.Digest(digest), options)
}

type resolved struct {
	digest string
	err    error
}

func resolve(want Lookup, options []remote.Option) <-chan resolved {
	answer := make(chan resolved, 1)
	if want.Base == "" {
		answer <- resolved{}
		return answer
	}
	var insecure []name.Option
	if want.BaseInsecure {
		insecure = append(insecure, name.Insecure)
	}
	ref, err := name.ParseReference(want.Base, insecure...)
	if err != nil {
		answer <- resolved{err: fmt.Errorf("failed to parse the name of the base image: %w", err)}
		return answer
	}
	if digest, ok := ref.(name.Digest); ok {
		answer <- resolved{digest: digest.DigestStr()}
		return answer
	}
	go func() {
		digest, err := find(ref, options)
		answer <- resolved{digest, err}
	}()
	return answer
}

func find(image name.Reference, options []remote.Option) (string, error) {
	if found, err := remote.Head(image, options...); err == nil {
		return found.Digest.String(), nil
	} else if isNotFound(err) {
		return "", nil
	}
	// Some registries answer HEAD incorrectly, and no answer to HEAD has an error text.
	found, err := get(image, options)
	if found == nil || err != nil {
		return "", err
	}
	return found.Digest.String(), nil
}

func get(image name.Reference, options []remote.Option) (*remote.Descriptor, error) {
	found, err := remote.Get(image, options...)
	switch {
	case isNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("failed to look up image %s: %w", image, err)
	}
	return found, nil
}

// Tag gives the image its tag.
func (c *Client) Tag(ctx context.Context, want Tagging) error {
	repository, options, err := c.open(ctx, want.Repository)
	if err != nil {
		return err
	}
	image, err := remote.Get(repository.Digest(want.Digest), options...)
	if err != nil {
		return fmt.Errorf("failed to get image %s: %w", repository.Digest(want.Digest), err)
	}
	if err := remote.Tag(repository.Tag(want.Tag), image, options...); err != nil {
		return fmt.Errorf("failed to tag image %s: %w", repository.Tag(want.Tag), err)
	}
	return nil
}

func (c *Client) open(ctx context.Context, r Repository) (name.Repository, []remote.Option, error) {
	var options []name.Option
	if r.Insecure {
		options = append(options, name.Insecure)
	}
	repository, err := name.NewRepository(r.Name, options...)
	if err != nil {
		return name.Repository{}, nil, fmt.Errorf("failed to parse repository: %w", err)
	}
	keychain, err := c.keychains(ctx, r.Credentials, r.Namespace)
	if err != nil {
		return name.Repository{}, nil, fmt.Errorf("failed to get credentials for namespace %s: %w", r.Namespace, err)
	}
	with := []remote.Option{
		remote.WithContext(ctx),
		remote.WithAuthFromKeychain(keychain),
		// The caller decides whether to retry, and a retry here would outlast the context.
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}),
	}
	puller, err := remote.NewPuller(with...)
	if err != nil {
		return name.Repository{}, nil, fmt.Errorf("failed to read from registries: %w", err)
	}
	// The protocol of a registry is negotiated once, not for each image.
	return repository, append(with, remote.Reuse(puller)), nil
}

func isNotFound(err error) bool {
	refusal, ok := errors.AsType[*transport.Error](err)
	return ok && refusal.StatusCode == http.StatusNotFound
}
