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

// The executor runs a Dockerfile with Kaniko and keeps the layers that it made,
// for another program to push: it needs no credentials of a registry, which
// what the Dockerfile runs could read.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/chainguard-dev/kaniko/pkg/config"
	"github.com/chainguard-dev/kaniko/pkg/constants"
	"github.com/chainguard-dev/kaniko/pkg/executor"
	"github.com/chainguard-dev/kaniko/pkg/logging"
	"github.com/chainguard-dev/kaniko/pkg/util"
	"github.com/containerd/platforms"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	var insecure []string
	base := flag.String("base", "", "the image that the Dockerfile begins with")
	context := flag.String("context", "", "the folder that the Dockerfile copies from")
	dockerfile := flag.String("dockerfile", "", "the Dockerfile")
	layers := flag.String("layers", "", "the folder that the layers are written to")
	flag.Func("insecure-registry", "a host that speaks plain HTTP; may be given more than once", func(host string) error {
		insecure = append(insecure, host)
		return nil
	})
	flag.Parse()
	if err := run(*base, *context, *dockerfile, *layers, insecure); err != nil {
		fmt.Fprintln(os.Stderr, "error building image:", err)
		os.Exit(1)
	}
}

// run builds the image and keeps what it has beyond the base image.
func run(base, context, dockerfile, layers string, insecure []string) error {
	if err := logging.Configure(logging.DefaultLevel, logging.FormatColor, logging.DefaultLogTimestamp); err != nil {
		return fmt.Errorf("failed to set up the log: %w", err)
	}
	// Between the stages of a Dockerfile all folders go but this.
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("failed to change to the root folder: %w", err)
	}
	known, err := layersOf(base, insecure)
	if err != nil {
		return err
	}
	image, err := executor.DoBuild(options(context, dockerfile, insecure))
	if err != nil {
		return err
	}
	return keep(image, known, layers)
}

// options are those of Kaniko's own command line, as far as they matter.
func options(context, dockerfile string, insecure []string) *config.KanikoOptions {
	opts := &config.KanikoOptions{
		SrcContext:       context,
		DockerfilePath:   dockerfile,
		KanikoDir:        constants.DefaultKanikoPath,
		CustomPlatform:   platforms.Format(platforms.Normalize(platforms.DefaultSpec())),
		SnapshotMode:     constants.SnapshotModeRedo,
		Compression:      config.GZip,
		CompressionLevel: -1,
		SingleSnapshot:   true,
		RunV2:            true,
		NoPush:           true,
		IgnoreVarRun:     true,
	}
	for _, host := range insecure {
		// It cannot fail.
		_ = opts.InsecureRegistries.Set(host)
	}
	// What runs here must not become part of the image.
	for _, path := range []string{"/var/run", filepath.Dir(os.Args[0])} {
		util.AddToDefaultIgnoreList(util.IgnoreListEntry{Path: path})
	}
	return opts
}

// layersOf returns the digests of an image's layers.
func layersOf(image string, insecure []string) ([]v1.Hash, error) {
	var names []name.Option
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("failed to parse the name of the base image: %w", err)
	}
	for _, host := range insecure {
		if ref.Context().RegistryStr() == host {
			names = append(names, name.Insecure)
		}
	}
	if ref, err = name.ParseReference(image, names...); err != nil {
		return nil, fmt.Errorf("failed to parse the name of the base image: %w", err)
	}
	base, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return nil, fmt.Errorf("failed to pull base image %s: %w", ref, err)
	}
	manifest, err := base.Manifest()
	if err != nil {
		return nil, fmt.Errorf("failed to pull base image %s: %w", ref, err)
	}
	digests := make([]v1.Hash, 0, len(manifest.Layers))
	for _, layer := range manifest.Layers {
		digests = append(digests, layer.Digest)
	}
	return digests, nil
}

// keep writes the layers that an image has beyond the known ones, and its
// configuration.
func keep(image v1.Image, known []v1.Hash, folder string) error {
	layers, err := image.Layers()
	if err != nil {
		return fmt.Errorf("failed to read layers: %w", err)
	}
	if len(layers) < len(known) {
		return errors.New("the Dockerfile does not build upon the base image: its last FROM must be {{.BaseImage}}")
	}
	for i, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return fmt.Errorf("failed to read layer: %w", err)
		}
		if i < len(known) {
			if digest != known[i] {
				return errors.New("the Dockerfile does not build upon the base image: its last FROM must be {{.BaseImage}}")
			}
			continue
		}
		if err := writeLayer(layer, filepath.Join(folder, fmt.Sprintf("%04d.tar.gz", i))); err != nil {
			return err
		}
	}
	configuration, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("failed to read configuration: %w", err)
	}
	data, err := json.Marshal(configuration)
	if err != nil {
		return fmt.Errorf("failed to encode configuration: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "config.json"), data, 0o644); err != nil {
		return fmt.Errorf("failed to write configuration: %w", err)
	}
	return nil
}

func writeLayer(layer v1.Layer, file string) (err error) {
	content, err := layer.Compressed()
	if err != nil {
		return fmt.Errorf("failed to read layer: %w", err)
	}
	defer content.Close()
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("failed to write layer: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, content); err != nil {
		return fmt.Errorf("failed to write layer: %w", err)
	}
	return nil
}
