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

package baseimages

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/hack/cluster/internal/progress"
)

// stored is an image that the registry holds.
type stored struct {
	// ref is its reference by digest.
	ref string
	// key identifies its inputs.
	key string
	// digest is where it is pulled from.
	digest name.Digest
}

// ensure makes and tags the image of the key unless the registry holds it. The registry
// is the only cache, so nothing can disagree with it.
func (b *builder) ensure(ctx context.Context, repo, key, tag string, build func() (v1.Image, error)) (stored, error) {
	keyed, err := name.NewTag(repo+":"+key, name.Insecure)
	if err != nil {
		return stored{}, fmt.Errorf("failed to name image: %w", err)
	}
	desc, err := remote.Get(keyed, options(ctx)...)
	if notFound(err) {
		desc, err = push(ctx, keyed, build)
	} else if err == nil {
		progress.Note(ctx, "cached")
	}
	if err != nil {
		return stored{}, fmt.Errorf("failed to ensure image %s: %w", repo, err)
	}
	if err := remote.Tag(keyed.Context().Tag(tag), desc, options(ctx)...); err != nil {
		return stored{}, fmt.Errorf("failed to tag image %s:%s: %w", repo, tag, err)
	}
	digest := keyed.Context().Digest(desc.Digest.String())
	return stored{ref: digest.Name(), key: key, digest: digest}, nil
}

func push(ctx context.Context, tag name.Tag, build func() (v1.Image, error)) (*remote.Descriptor, error) {
	img, err := build()
	if err != nil {
		return nil, err
	}
	progress.Note(ctx, "") // What it was built from may have been cached.
	if err := remote.Write(tag, img, options(ctx)...); err != nil {
		return nil, fmt.Errorf("failed to push image: %w", err)
	}
	return remote.Get(tag, options(ctx)...)
}

// pull returns an image of the registry, to build on.
func (s stored) pull(ctx context.Context) (v1.Image, error) {
	img, err := remote.Image(s.digest, options(ctx)...)
	if err != nil {
		return nil, fmt.Errorf("failed to pull image %s: %w", s.ref, err)
	}
	return img, nil
}

// options are the options of each request. Other registries than the cluster's may need
// the user's credentials.
func options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

func notFound(err error) bool {
	var te *transport.Error
	return errors.As(err, &te) && te.StatusCode == http.StatusNotFound
}

// emptyImage returns an OCI image without layers.
func emptyImage() v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
}
