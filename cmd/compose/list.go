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

package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/pkg/sbom"
)

// listPatience is how long a build waits for the list of an image's packages to be
// read, or pushed, which it does without if need be.
const listPatience = 10 * time.Second

// product is what a build makes images of.
type product struct {
	source *source
	origin origin

	// packages are those in the layers upon the base image; nil if that is not known.
	packages []sbom.Package
}

// push pushes an image, and the list of its packages, if that can be had: nobody
// shall go without a function for want of it.
func (p *product) push(ctx context.Context, what string, to name.Reference, image v1.Image, options []remote.Option) error {
	if err := p.source.push(what, to, image, options); err != nil {
		return err
	}
	if p.packages == nil {
		return nil
	}
	if err := list(ctx, to.Context(), image, p.origin, p.packages, options); err != nil {
		say("The packages in it are not listed:", err)
	}
	return nil
}

// packages returns the packages that were listed when the source was pushed; nil
// if that is not known.
func (s *source) packages(ctx context.Context, options []remote.Option) []sbom.Package {
	found, err := listed(ctx, s.ref.Context().Digest(s.digest.String()), options)
	if err != nil {
		say("The packages in it are not known:", err)
	}
	return found
}

// list pushes the list of the packages in an image, which refers to the image.
func list(ctx context.Context, repository name.Repository, image v1.Image, base origin, packages []sbom.Package, options []remote.Option) error {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	subject, err := partial.Descriptor(image)
	if err != nil {
		return fmt.Errorf("failed to describe image: %w", err)
	}
	document, err := sbom.Encode(sbom.Image{Repository: repository.Name(), Digest: subject.Digest.String()},
		sbom.Image{Repository: base.repository, Digest: base.digest}, packages)
	if err != nil {
		return err
	}
	// Registries take the media type of the configuration for the artifact's.
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), sbom.MediaType)
	if artifact, err = mutate.AppendLayers(artifact, static.NewLayer(document, sbom.MediaType)); err != nil {
		return fmt.Errorf("failed to make artifact: %w", err)
	}
	referrer, ok := mutate.Subject(artifact, *subject).(v1.Image)
	if !ok {
		return fmt.Errorf("failed to make artifact of %s", subject.Digest)
	}
	digest, err := referrer.Digest()
	if err != nil {
		return fmt.Errorf("failed to tell the digest of the artifact: %w", err)
	}
	if err := remote.Write(repository.Digest(digest.String()), referrer, append(options, remote.WithContext(ctx))...); err != nil {
		return fmt.Errorf("failed to push artifact: %w", err)
	}
	return nil
}

// listed returns the packages in an image, as they are listed.
func listed(ctx context.Context, image name.Digest, options []remote.Option) ([]sbom.Package, error) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	options = append(options, remote.WithContext(ctx))
	referrers, err := remote.Referrers(image, append(options, remote.WithFilter("artifactType", sbom.MediaType))...)
	if err != nil {
		return nil, fmt.Errorf("failed to find artifact: %w", err)
	}
	index, err := referrers.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("failed to find artifact: %w", err)
	}
	for _, found := range index.Manifests {
		if found.ArtifactType == sbom.MediaType {
			return read(image.Context().Digest(found.Digest.String()), options)
		}
	}
	return nil, fmt.Errorf("%s has none", image)
}

// read returns the packages that an artifact tells of.
func read(artifact name.Digest, options []remote.Option) ([]sbom.Package, error) {
	image, err := remote.Image(artifact, options...)
	if err != nil {
		return nil, fmt.Errorf("failed to get artifact: %w", err)
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, fmt.Errorf("failed to get artifact: %w", err)
	}
	if len(layers) != 1 {
		return nil, fmt.Errorf("the artifact has %d parts, not one", len(layers))
	}
	content, err := layers[0].Compressed()
	if err != nil {
		return nil, fmt.Errorf("failed to read artifact: %w", err)
	}
	defer content.Close()
	document := &bytes.Buffer{}
	if _, err := document.ReadFrom(content); err != nil {
		return nil, fmt.Errorf("failed to read artifact: %w", err)
	}
	return sbom.Decode(document)
}
