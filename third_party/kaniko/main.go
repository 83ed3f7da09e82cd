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
// what the Dockerfile runs could read. The layers do not tell when they were made.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/chainguard-dev/kaniko/pkg/config"
	"github.com/chainguard-dev/kaniko/pkg/constants"
	"github.com/chainguard-dev/kaniko/pkg/executor"
	"github.com/chainguard-dev/kaniko/pkg/logging"
	"github.com/chainguard-dev/kaniko/pkg/util"
	"github.com/containerd/platforms"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// youth is how old the container may be when Kaniko starts: what was made for it,
// such as the places of mounts, is as new as what the Dockerfile makes.
const youth = time.Minute

func main() {
	var insecure []string
	base := flag.String("base", "", "the image that the Dockerfile begins with; left out, it begins with what it likes, and all layers are kept")
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
	// So do the certificates of registries, unless they were read before.
	if _, err := x509.SystemCertPool(); err != nil {
		return fmt.Errorf("failed to read certificates: %w", err)
	}
	if err := check(dockerfile); err != nil {
		return err
	}
	var resolved *baseImage
	if base != "" {
		var err error
		if resolved, err = resolve(base, insecure); err != nil {
			return err
		}
		pinned := filepath.Join(constants.DefaultKanikoPath, "Dockerfile")
		if err := pinFile(dockerfile, pinned, resolved); err != nil {
			return err
		}
		dockerfile = pinned
	}
	began := time.Now()
	image, err := executor.DoBuild(options(context, dockerfile, insecure))
	if err != nil {
		return err
	}
	// Some times are told in whole seconds.
	return keep(image, resolved, layers, began.Add(-youth).Truncate(time.Second))
}

// check refuses what Kaniko would pass over: of a heredoc it runs, and copies,
// nothing.
func check(dockerfile string) error {
	file, err := os.Open(dockerfile)
	if err != nil {
		return fmt.Errorf("failed to read Dockerfile: %w", err)
	}
	defer file.Close()
	parsed, err := parser.Parse(file)
	if err != nil {
		return fmt.Errorf("failed to parse Dockerfile: %w", err)
	}
	for _, instruction := range parsed.AST.Children {
		if len(instruction.Heredocs) > 0 {
			return fmt.Errorf("line %d of the Dockerfile has a heredoc, <<%s, which Kaniko does not know: have its lines in a file to COPY, or joined by && and \\",
				instruction.StartLine, instruction.Heredocs[0].Name)
		}
	}
	return nil
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

// baseImage is the image that the Dockerfile begins with.
type baseImage struct {
	// name is what the Dockerfile calls it, and pinned is its name by digest.
	name, pinned string

	// digest is its digest: of an index, where it is one.
	digest v1.Hash

	// layers are the digests of its layers.
	layers []v1.Hash
}

// resolve finds out which image a name, with or without a digest, is of.
func resolve(image string, insecure []string) (*baseImage, error) {
	ref, err := name.ParseReference(image)
	if err == nil && slices.Contains(insecure, ref.Context().RegistryStr()) {
		ref, err = name.ParseReference(image, name.Insecure)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to parse the name of the base image: %w", err)
	}
	found, err := remote.Get(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return nil, fmt.Errorf("failed to pull base image %s: %w", ref, err)
	}
	base, err := found.Image()
	if err != nil {
		return nil, fmt.Errorf("failed to pull base image %s: %w", ref, err)
	}
	manifest, err := base.Manifest()
	if err != nil {
		return nil, fmt.Errorf("failed to pull base image %s: %w", ref, err)
	}
	called, _, _ := strings.Cut(image, "@")
	return &baseImage{
		name:   called,
		pinned: called + "@" + found.Digest.String(),
		digest: found.Digest,
		layers: digestsOf(manifest),
	}, nil
}

// pinFile writes the Dockerfile with the base image by its digest: Kaniko would
// find out for itself which image a tag is of, and that may have changed.
func pinFile(from, to string, base *baseImage) error {
	dockerfile, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("failed to read Dockerfile: %w", err)
	}
	if err := os.WriteFile(to, pin(dockerfile, base), 0o644); err != nil {
		return fmt.Errorf("failed to write Dockerfile: %w", err)
	}
	return nil
}

// pin has the stages that begin with the name of the base image begin with its
// digest. One that comes by the name in another way is found out by keep.
func pin(dockerfile []byte, base *baseImage) []byte {
	from := regexp.MustCompile(`(?mi)^([ \t]*FROM[ \t]+(?:--\S+[ \t]+)*)` + regexp.QuoteMeta(base.name) + `([ \t\r]|$)`)
	return from.ReplaceAll(dockerfile, []byte("${1}"+base.pinned+"${2}"))
}

func digestsOf(manifest *v1.Manifest) []v1.Hash {
	digests := make([]v1.Hash, 0, len(manifest.Layers))
	for _, layer := range manifest.Layers {
		digests = append(digests, layer.Digest)
	}
	return digests
}

// keep writes the layers that an image has beyond its base image, its
// configuration, and which base image that is. What was written since then has no
// time. Where no base image was said, the layers are all that the image has.
func keep(image v1.Image, base *baseImage, folder string, since time.Time) error {
	layers, err := image.Layers()
	if err != nil {
		return fmt.Errorf("failed to read layers: %w", err)
	}
	if base != nil {
		manifest, err := image.Manifest()
		if err != nil {
			return fmt.Errorf("failed to read layers: %w", err)
		}
		digests, known := digestsOf(manifest), base.layers
		if len(digests) < len(known) || !slices.Equal(digests[:len(known)], known) {
			return errors.New("the Dockerfile does not build upon the base image: its last FROM must be {{.BaseImage}}")
		}
		layers = layers[len(known):]
		if err := writeJSON(filepath.Join(folder, "base.json"), base.digest); err != nil {
			return err
		}
	}
	for i, layer := range layers {
		if err := writeLayer(layer, filepath.Join(folder, fmt.Sprintf("%04d.tar.gz", i)), since); err != nil {
			return err
		}
	}
	configuration, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("failed to read configuration: %w", err)
	}
	return writeJSON(filepath.Join(folder, "config.json"), configuration)
}

func writeJSON(file string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("failed to encode %s: %w", filepath.Base(file), err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return fmt.Errorf("failed to write %s: %w", filepath.Base(file), err)
	}
	return nil
}

// isPulled says whether a layer is that of an image in a registry. It stays as it is
// there: nodes may have it already.
func isPulled(layer v1.Layer) bool {
	if _, ok := layer.(*remote.MountableLayer); !ok {
		return false
	}
	mediaType, err := layer.MediaType()
	return err == nil && (mediaType == types.DockerLayer || mediaType == types.OCILayer)
}

// writeLayer writes a layer, compressed.
func writeLayer(layer v1.Layer, file string, since time.Time) (err error) {
	open, asIs := layer.Uncompressed, isPulled(layer)
	if asIs {
		open = layer.Compressed
	}
	content, err := open()
	if err != nil {
		return fmt.Errorf("failed to read layer: %w", err)
	}
	defer content.Close()
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("failed to write layer: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if asIs {
		if _, err := io.Copy(out, pulled{content}); err != nil {
			return fmt.Errorf("failed to write layer: %w", err)
		}
		return nil
	}
	// As Kaniko compresses: what counts is how soon the function runs.
	compressed, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("failed to write layer: %w", err)
	}
	if err := copyLayer(compressed, content, since); err != nil {
		return fmt.Errorf("failed to write layer: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return fmt.Errorf("failed to write layer: %w", err)
	}
	return nil
}

// pulled reads a layer of a base image from its registry, and says so of what fails
// there: the registry's fault is not the Dockerfile's.
type pulled struct{ from io.Reader }

// Read implements io.Reader.
func (p pulled) Read(into []byte) (int, error) {
	n, err := p.from.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("failed to pull base image: %w", err)
	}
	return n, err
}

// copyLayer copies an archive, so that to do the same twice makes the same: what
// was written since then is of the time 1970-01-01, and nothing tells when it was
// read. What an archive has dated, as packages are, keeps its date.
func copyLayer(to io.Writer, from io.Reader, since time.Time) error {
	in, out := tar.NewReader(from), tar.NewWriter(to)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return err
		}
		if !header.ModTime.Before(since) {
			header.ModTime = time.Unix(0, 0)
		}
		content := io.Reader(in)
		if strings.HasSuffix(header.Name, ".pyc") {
			if content, err = undated(in, since); err != nil {
				return err
			}
		}
		header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(out, content); err != nil {
			return err
		}
	}
}

// undated returns what Python has compiled. That begins with a magic number, flags,
// and, where there are none, the time of its source, of four bytes each. Python
// compiles anew, at each start, what does not have its source's.
func undated(compiled io.Reader, since time.Time) (io.Reader, error) {
	head := make([]byte, 12)
	n, err := io.ReadFull(compiled, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	flags, written := binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[8:])
	if flags == 0 && int64(written) >= since.Unix() {
		clear(head[8:])
	}
	return io.MultiReader(bytes.NewReader(head[:n]), compiled), nil
}
