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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// PushStep is the last step of a build. It pushes an image of a base image, the layers of
// an earlier step and the function's files, in this order.
type PushStep struct {
	// Base is the base image. If it is empty, the image has only the layers.
	Base string

	// Dependencies is the image that an earlier build pushed to its Keep. It
	// replaces Base, which must name its digest, and Layers.
	Dependencies string

	// Packages is the digest of the list of the packages in Dependencies. If it is empty,
	// the image gets no list.
	Packages string

	// Destination is the name of the image to push.
	Destination string

	// Keep is where the base image with the layers is pushed for later builds. If
	// it is empty, nothing is kept.
	Keep string

	// InsecureRegistries are the hosts that are accessed by plain HTTP.
	InsecureRegistries []string

	// ContextFolder has the files of the build context.
	ContextFolder string

	// Layers is a folder with layers, *.tar.gz, in the order of their names. A sidecar
	// writes it, and runs untrusted code. The step waits for its end.
	Layers string

	// Layout is a file with a runtimes.Layout in JSON. If it is empty, Config is
	// used.
	Layout string

	// Config is a file with the image configuration of the layers. It is untrusted.
	Config string

	// SourceFile is the file that FetchStep wrote about the source. If it is empty,
	// the image has no label with the hash of the source.
	SourceFile string

	// Labels are added to the image.
	Labels map[string]string

	// ImageURLFile, ImageDigestFile and BaseImageFile receive the results. BaseImageFile
	// is in JSON. An empty name skips the result.
	ImageURLFile, ImageDigestFile, BaseImageFile string

	// KeptFile receives the result about the image that was pushed to Keep: its tag, its
	// digest, and the digest of the list of its packages, in JSON.
	KeptFile string

	// ResultsFile receives all results but the name of the image in one JSON object. If it is
	// empty, it is skipped.
	ResultsFile string

	// Log receives one line for each action.
	Log io.Writer
}

// results are the results of the step, by the names that Tekton's builds give them. The
// kubelet cuts a termination message of more than 4 KiB, so they are few.
type results struct {
	ImageDigest  string            `json:"IMAGE_DIGEST"`
	BaseImage    map[string]string `json:"BASE_IMAGE_ARTIFACT_INPUTS,omitempty"`
	Dependencies map[string]string `json:"DEPENDENCIES,omitempty"`
}

// Run composes and pushes the image. The options say how to access registries.
func (s *PushStep) Run(ctx context.Context, options ...remote.Option) error {
	options = append(options, remote.WithContext(ctx),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	destination, err := s.reference(s.Destination)
	if err != nil {
		return err
	}
	if s.Layers != "" {
		if err := s.awaitLayers(ctx); err != nil {
			return err
		}
	}
	base, err := s.pullBase(options)
	if err != nil {
		return err
	}
	identity, err := s.identify(base)
	if err != nil {
		return err
	}
	pusher := &pusher{log: s.Log, base: base, identity: identity, options: options}
	image, kept, err := s.addLayers(ctx, pusher)
	if err != nil {
		return err
	}
	if image, err = s.finish(image); err != nil {
		return err
	}
	if image, err = s.label(image, identity); err != nil {
		return err
	}
	if _, err := pusher.push(ctx, "image", destination, image); err != nil {
		return err
	}
	return s.report(destination, image, identity, kept)
}

// addLayers returns the base image with the layers. It gives the pusher their
// packages, and pushes the image if Keep is set. kept describes that image.
func (s *PushStep) addLayers(ctx context.Context, pusher *pusher) (image v1.Image, kept map[string]string, err error) {
	mediaType, err := layerMediaType(pusher.base)
	if err != nil {
		return nil, nil, err
	}
	layers, packages, err := s.readLayers(mediaType)
	if err != nil {
		return nil, nil, err
	}
	if s.Dependencies != "" {
		packages = pusher.packagesOfBase(ctx, s.Packages)
	}
	pusher.packages = packages
	if image, err = appendLayers(pusher.base, layers...); err != nil || s.Keep == "" {
		return image, nil, err
	}
	to, err := s.reference(s.Keep)
	if err != nil {
		return nil, nil, err
	}
	listed, err := pusher.push(ctx, "dependencies image", to, image)
	if err != nil {
		return nil, nil, err
	}
	kept, err = s.reportKept(to, image, listed)
	return image, kept, err
}

// reportKept writes the result about the image that later builds can reuse. They trust
// this result, and no tag: others may be able to push to the repository.
func (s *PushStep) reportKept(kept name.Reference, image v1.Image, packages string) (map[string]string, error) {
	digest, err := image.Digest()
	if err != nil {
		return nil, fmt.Errorf("failed to compute digest of dependencies image: %w", err)
	}
	result := map[string]string{"tag": kept.Identifier(), "digest": digest.String(), "packages": packages}
	return result, writeJSON(s.KeptFile, result)
}

func (s *PushStep) finish(image v1.Image) (v1.Image, error) {
	if s.Layout == "" {
		made := &v1.ConfigFile{}
		if err := readJSON(s.Config, made); err != nil {
			return nil, err
		}
		if err := checkStart(made.Config); err != nil {
			return nil, err
		}
		return configure(image, made.Config)
	}
	layout := runtimes.Layout{}
	if err := readJSON(s.Layout, &layout); err != nil {
		return nil, err
	}
	return addFiles(image, s.ContextFolder, layout)
}

func (s *PushStep) label(image v1.Image, identity baseIdentity) (v1.Image, error) {
	labels := maps.Clone(s.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, identity.labels())
	if s.SourceFile != "" {
		hash, err := readSourceHash(s.SourceFile)
		if err != nil {
			return nil, err
		}
		labels[serverless.SourceHashLabelKey] = hash
	}
	return describe(image, labels)
}

func (s *PushStep) report(destination name.Reference, image v1.Image, base baseIdentity, kept map[string]string) error {
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("failed to compute digest of image: %w", err)
	}
	fmt.Fprintln(s.Log, "Pushed", destination.Context().Digest(digest.String()))
	all := results{ImageDigest: digest.String(), Dependencies: kept}
	err = errors.Join(writeResult(s.ImageURLFile, destination.String()), writeResult(s.ImageDigestFile, all.ImageDigest))
	if s.Base != "" {
		all.BaseImage = map[string]string{"uri": "oci://" + base.repository, "digest": base.digest}
		err = errors.Join(err, writeJSON(s.BaseImageFile, all.BaseImage))
	}
	return errors.Join(err, writeJSON(s.ResultsFile, all))
}

func (s *PushStep) reference(image string) (name.Reference, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("failed to parse the name of an image: %w", err)
	}
	if slices.Contains(s.InsecureRegistries, ref.Context().RegistryStr()) {
		return name.ParseReference(image, name.Insecure)
	}
	return ref, nil
}

// writeJSON writes a result of the step in JSON, unless the file has no name.
func writeJSON(file string, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("failed to encode result: %w", err)
	}
	return writeResult(file, string(text))
}

func writeResult(file, result string) error {
	if file == "" {
		return nil
	}
	if err := os.WriteFile(file, []byte(result), 0o644); err != nil {
		return fmt.Errorf("failed to write result: %w", err)
	}
	return nil
}
