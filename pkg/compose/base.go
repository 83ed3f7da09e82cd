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
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// baseDigestFile is the file in the folder of layers that names their base image
// by its digest, in JSON.
const baseDigestFile = "base.json"

// baseImage is an image in a registry that a build adds layers to. Its layers are
// downloaded during the upload. It keeps download errors, so push can report which of the
// two failed.
type baseImage struct {
	v1.Image

	role string
	ref  name.Reference

	// digest is what ref resolves to: the digest of an index, if it is one.
	digest v1.Hash

	mu      sync.Mutex
	readErr error
}

func pull(log io.Writer, role string, ref name.Reference, options []remote.Option) (*baseImage, error) {
	fmt.Fprintln(log, "Building on", role, ref)
	base := &baseImage{role: role, ref: ref}
	found, err := remote.Get(ref, options...)
	if err != nil {
		return nil, base.failed(err)
	}
	image, err := found.Image()
	if err != nil {
		return nil, base.failed(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, base.failed(err)
	}
	if config.Architecture != "" && config.Architecture != runtime.GOARCH {
		return nil, base.failed(fmt.Errorf("it is of architecture %s, and the build runs on %s", config.Architecture, runtime.GOARCH))
	}
	base.Image, base.digest = image, found.Digest
	return base, nil
}

func (b *baseImage) push(log io.Writer, what string, to name.Reference, image v1.Image, options []remote.Option) error {
	fmt.Fprintln(log, "Pushing", what, to)
	err := remote.Write(to, image, options...)
	if err == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.readErr != nil {
		return b.failed(b.readErr)
	}
	return fmt.Errorf("failed to push %s %s: %w", what, to, err)
}

func (b *baseImage) failed(err error) error {
	return fmt.Errorf("failed to pull %s %s: %w", b.role, b.ref, err)
}

func (b *baseImage) remember(err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.readErr = err
	}
	return err
}

// LayerByDigest implements v1.Image.
func (b *baseImage) LayerByDigest(digest v1.Hash) (v1.Layer, error) {
	layer, err := b.Image.LayerByDigest(digest)
	return b.watch(layer), err
}

// Layers implements v1.Image.
func (b *baseImage) Layers() ([]v1.Layer, error) {
	layers, err := b.Image.Layers()
	for i := range layers {
		layers[i] = b.watch(layers[i])
	}
	return layers, err
}

// watch returns the layer with its read errors kept. The result stays mountable:
// registries then copy it between repositories without an upload.
func (b *baseImage) watch(layer v1.Layer) v1.Layer {
	mountable, ok := layer.(*remote.MountableLayer)
	if !ok {
		return layer
	}
	return &remote.MountableLayer{Layer: &baseLayer{Layer: mountable.Layer, base: b}, Reference: mountable.Reference}
}

type baseLayer struct {
	v1.Layer

	base *baseImage
}

// Compressed implements v1.Layer.
func (l *baseLayer) Compressed() (io.ReadCloser, error) {
	content, err := l.Layer.Compressed()
	if err != nil {
		return nil, l.base.remember(err)
	}
	return &baseReader{ReadCloser: content, base: l.base}, nil
}

type baseReader struct {
	io.ReadCloser

	base *baseImage
}

// Read implements io.Reader.
func (r *baseReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	return n, r.base.remember(err)
}

func (s *PushStep) pullBase(options []remote.Option) (*baseImage, error) {
	if s.Base == "" {
		image, err := scratch(runtime.GOARCH)
		return &baseImage{Image: image}, err
	}
	if s.Dependencies != "" {
		ref, err := s.reference(s.Dependencies)
		if err != nil {
			return nil, err
		}
		return pull(s.Log, "dependencies image", ref, options)
	}
	ref, err := s.reference(s.Base)
	if err != nil {
		return nil, err
	}
	base, err := pull(s.Log, "base image", ref, options)
	if err != nil {
		return nil, err
	}
	if _, byTag := ref.(name.Tag); byTag && s.Layers != "" {
		return base, s.checkBaseOfLayers(base)
	}
	return base, nil
}

// checkBaseOfLayers returns an error unless the layers were made on that base image. The
// tag may have moved meanwhile. The untrusted sidecar reports its base image, so it must
// not choose the one that is used.
func (s *PushStep) checkBaseOfLayers(base *baseImage) error {
	digest := v1.Hash{}
	if err := readJSON(filepath.Join(s.Layers, baseDigestFile), &digest); err != nil {
		return err
	}
	if digest != base.digest {
		return base.failed(fmt.Errorf("it moved during the build: the dependencies were installed on %s", digest))
	}
	return nil
}

// baseIdentity names a base image. It is empty if the base image is unknown.
type baseIdentity struct {
	// name is its full name, and repository the same without tag or digest.
	name, repository string

	// digest is its digest: that of an index, if it is one.
	digest string
}

// identify returns the identity of the base image. A step that reuses dependencies
// has not pulled the base image: its Base names the digest.
func (s *PushStep) identify(pulled *baseImage) (baseIdentity, error) {
	if s.Base == "" {
		return baseIdentity{}, nil
	}
	tagged, digest, pinned := strings.Cut(s.Base, "@")
	if !pinned && s.Dependencies == "" {
		digest = pulled.digest.String()
	}
	ref, err := s.reference(tagged)
	if err != nil {
		return baseIdentity{}, err
	}
	identity := baseIdentity{name: ref.Name(), repository: ref.Context().Name(), digest: digest}
	if pinned && !strings.HasSuffix(tagged, ":"+ref.Identifier()) {
		// The reference defaults to the tag latest, which Base does not have.
		identity.name = identity.repository + "@" + digest
	}
	return identity, nil
}

func (i baseIdentity) labels() map[string]string {
	if i.name == "" {
		return nil
	}
	return map[string]string{
		"org.opencontainers.image.base.name":   i.name,
		"org.opencontainers.image.base.digest": i.digest,
	}
}
