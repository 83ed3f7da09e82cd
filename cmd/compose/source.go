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
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// source is an image in a registry to build upon. Its layers stay there until the
// image made of it is pushed, which may fail at either end: it remembers whether
// it was this one.
type source struct {
	v1.Image

	// what it is to the build, and where.
	what string
	ref  name.Reference

	// digest is that of ref: of an index, where it is one.
	digest v1.Hash

	mu  sync.Mutex
	err error
}

// pull returns the image, for what it is to the build.
func pull(what string, ref name.Reference, options []remote.Option) (*source, error) {
	say("Building upon", what, ref)
	s := &source{what: what, ref: ref}
	found, err := remote.Get(ref, options...)
	if err != nil {
		return nil, s.failed(err)
	}
	image, err := found.Image()
	if err != nil {
		return nil, s.failed(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, s.failed(err)
	}
	if config.Architecture != "" && config.Architecture != runtime.GOARCH {
		return nil, s.failed(fmt.Errorf("it is of architecture %s, and the build runs on %s", config.Architecture, runtime.GOARCH))
	}
	s.Image, s.digest = image, found.Digest
	return s, nil
}

// push pushes an image made of the source.
func (s *source) push(what string, to name.Reference, image v1.Image, options []remote.Option) error {
	say("Pushing", what, to)
	err := remote.Write(to, image, options...)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.failed(s.err)
	}
	return fmt.Errorf("failed to push %s %s: %w", what, to, err)
}

func (s *source) failed(err error) error {
	return fmt.Errorf("failed to pull %s %s: %w", s.what, s.ref, err)
}

// remember keeps an error of reading the source.
func (s *source) remember(err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = err
	}
	return err
}

// LayerByDigest implements v1.Image. The layers can be mounted, still, from the
// repository that they are in.
func (s *source) LayerByDigest(digest v1.Hash) (v1.Layer, error) {
	layer, err := s.Image.LayerByDigest(digest)
	return s.watch(layer), err
}

// Layers implements v1.Image.
func (s *source) Layers() ([]v1.Layer, error) {
	layers, err := s.Image.Layers()
	for i := range layers {
		layers[i] = s.watch(layers[i])
	}
	return layers, err
}

func (s *source) watch(layer v1.Layer) v1.Layer {
	mountable, ok := layer.(*remote.MountableLayer)
	if !ok {
		return layer
	}
	return &remote.MountableLayer{Layer: &sourceLayer{Layer: mountable.Layer, source: s}, Reference: mountable.Reference}
}

// sourceLayer is a layer of a source.
type sourceLayer struct {
	v1.Layer

	source *source
}

// Compressed implements v1.Layer.
func (l *sourceLayer) Compressed() (io.ReadCloser, error) {
	content, err := l.Layer.Compressed()
	if err != nil {
		return nil, l.source.remember(err)
	}
	return &sourceReader{ReadCloser: content, source: l.source}, nil
}

type sourceReader struct {
	io.ReadCloser

	source *source
}

// Read implements io.Reader.
func (r *sourceReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	return n, r.source.remember(err)
}
