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

package compose

import (
	"bytes"
	"context"
	"fmt"
	"io"
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

// packageListTimeout bounds each read and push of a package list. Builds go on
// without one.
const packageListTimeout = 10 * time.Second

type pusher struct {
	log      io.Writer
	base     *baseImage
	identity baseIdentity
	options  []remote.Option

	// packages are those in the layers above the base image; nil if unknown.
	packages []sbom.Package
}

// push pushes an image and its package list. It returns the digest of the list. Some
// registries reject such a list: this is logged, and the build goes on.
func (p *pusher) push(ctx context.Context, what string, to name.Reference, image v1.Image) (packages string, err error) {
	if err := p.base.push(p.log, what, to, image, p.options); err != nil {
		return "", err
	}
	if p.packages == nil {
		return "", nil
	}
	if packages, err = p.pushPackages(ctx, to.Context(), image); err != nil {
		fmt.Fprintln(p.log, "The packages in it are not listed:", err)
		return "", nil
	}
	return packages, nil
}

// packagesOfBase returns the packages in the list of the dependencies image. They are nil
// if there is no such list. The list is named by its digest, because everyone who can push
// to the repository can add another list.
func (p *pusher) packagesOfBase(ctx context.Context, list string) []sbom.Package {
	if list == "" {
		fmt.Fprintln(p.log, "The packages in it are not known.")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, packageListTimeout)
	defer cancel()
	found, err := readPackages(p.base.ref.Context().Digest(list), append(p.options, remote.WithContext(ctx)))
	if err != nil {
		fmt.Fprintln(p.log, "The packages in it are not known:", err)
	}
	return found
}

// pushPackages pushes the package list of an image, as an artifact that refers to
// the image. It returns the digest of the artifact.
func (p *pusher) pushPackages(ctx context.Context, repository name.Repository, image v1.Image) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, packageListTimeout)
	defer cancel()
	subject, err := partial.Descriptor(image)
	if err != nil {
		return "", fmt.Errorf("failed to describe image: %w", err)
	}
	document, err := sbom.Encode(sbom.Image{Repository: repository.Name(), Digest: subject.Digest.String()},
		sbom.Image{Repository: p.identity.repository, Digest: p.identity.digest}, p.packages)
	if err != nil {
		return "", err
	}
	// Registries read the artifact's type from the media type of its configuration.
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), sbom.MediaType)
	if artifact, err = mutate.AppendLayers(artifact, static.NewLayer(document, sbom.MediaType)); err != nil {
		return "", fmt.Errorf("failed to make artifact: %w", err)
	}
	referrer, ok := mutate.Subject(artifact, *subject).(v1.Image)
	if !ok {
		return "", fmt.Errorf("failed to make artifact of %s", subject.Digest)
	}
	digest, err := referrer.Digest()
	if err != nil {
		return "", fmt.Errorf("failed to compute digest of artifact: %w", err)
	}
	if err := remote.Write(repository.Digest(digest.String()), referrer, append(p.options, remote.WithContext(ctx))...); err != nil {
		return "", fmt.Errorf("failed to push artifact: %w", err)
	}
	return digest.String(), nil
}

func readPackages(artifact name.Digest, options []remote.Option) ([]sbom.Package, error) {
	image, err := remote.Image(artifact, options...)
	if err != nil {
		return nil, fmt.Errorf("failed to get artifact: %w", err)
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, fmt.Errorf("failed to get artifact: %w", err)
	}
	if len(layers) != 1 {
		return nil, fmt.Errorf("the artifact has %d layers and must have one", len(layers))
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
