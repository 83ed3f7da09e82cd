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

// Command kaniko runs a Dockerfile with Kaniko and writes the new layers to a folder.
// Another program pushes them: commands of the Dockerfile could read the credentials
// of a registry here. The layers do not contain the time of the build.
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

// maxContainerAge is the maximum age of the container when this program starts. Files that were made
// for the container, such as mount points, count as new.
const maxContainerAge = time.Minute

func main() {
	var insecure []string
	base := flag.String("base", "", "the base image, which the last FROM of the Dockerfile must name; if empty, any FROM is valid and all layers are kept")
	context := flag.String("context", "", "the build context")
	dockerfile := flag.String("dockerfile", "", "the Dockerfile")
	layers := flag.String("layers", "", "the folder to write the layers to")
	awaited := flag.String("wait-for", "", "a file to wait for before the build; if empty, the build starts at once")
	flag.Func("insecure-registry", "a host to access by plain HTTP; may be repeated", func(host string) error {
		insecure = append(insecure, host)
		return nil
	})
	flag.Parse()
	since := time.Now().Add(-maxContainerAge)
	first, err := lock(*layers)
	if err == nil && !first {
		// A restarted container must not run the Dockerfile twice.
		awaitSignal()
		return
	}
	if err == nil {
		err = awaitFile(*awaited)
	}
	if err == nil {
		err = run(*base, *context, *dockerfile, *layers, insecure, since)
	}
	if err == nil {
		err = markDone(*layers)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error building image:", err)
		os.Exit(1)
	}
}

// run builds the image and keeps its layers above the base image. Files that changed
// since then lose their time.
func run(base, context, dockerfile, layers string, insecure []string, since time.Time) error {
	if err := logging.Configure(logging.DefaultLevel, logging.FormatColor, logging.DefaultLogTimestamp); err != nil {
		return fmt.Errorf("failed to configure log: %w", err)
	}
	// Kaniko deletes all other folders between the stages of a Dockerfile.
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("failed to change to the root folder: %w", err)
	}
	// It also deletes the certificates, which must be in memory by then.
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
	image, err := executor.DoBuild(options(context, dockerfile, insecure))
	if err != nil {
		return err
	}
	// Some times have whole seconds only.
	return keep(image, resolved, layers, since.Truncate(time.Second))
}

// check returns an error for heredocs, which Kaniko ignores without an error.
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
			return fmt.Errorf("line %d of the Dockerfile has a heredoc, <<%s, which Kaniko does not support: COPY a file with its lines, or join them with && and \\",
				instruction.StartLine, instruction.Heredocs[0].Name)
		}
	}
	return nil
}

// options returns the options that Kaniko's own command would set.
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
		_ = opts.InsecureRegistries.Set(host)
	}
	// The files of this container must not get into the image.
	for _, path := range []string{"/var/run", filepath.Dir(os.Args[0])} {
		util.AddToDefaultIgnoreList(util.IgnoreListEntry{Path: path})
	}
	return opts
}

// baseImage is the base image of the Dockerfile.
type baseImage struct {
	// name is its name in the Dockerfile, and pinned the name with the digest.
	name, pinned string

	// digest is its digest: that of an index, if it is one.
	digest v1.Hash

	// layers are the digests of its layers.
	layers []v1.Hash
}

// resolve returns the image of a name, with or without a digest.
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

// pinFile writes the Dockerfile with the base image by its digest. Kaniko would resolve
// the tag again, and the tag may have moved.
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

// pin adds the digest to each FROM with the name of the base image. It misses names
// that are built of variables. keep checks the result.
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

// keep writes the layers of an image above its base image, its configuration, and the
// digest of the base image. Files that changed since then lose their time. If base is
// nil, it writes all layers and no digest.
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
			return errors.New("the Dockerfile does not build on the base image: its last FROM must be {{.BaseImage}}")
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

// isPulled reports whether a layer is from a registry. Its bytes must not change: nodes
// may have it already.
func isPulled(layer v1.Layer) bool {
	if _, ok := layer.(*remote.MountableLayer); !ok {
		return false
	}
	mediaType, err := layer.MediaType()
	return err == nil && (mediaType == types.DockerLayer || mediaType == types.OCILayer)
}

// writeLayer writes a layer as a compressed archive.
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
	// Speed matters more than size, as in Kaniko.
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

// pulled reads a layer of a base image. Its errors name the registry as the cause, and
// not the Dockerfile.
type pulled struct{ from io.Reader }

// Read implements io.Reader.
func (p pulled) Read(into []byte) (int, error) {
	n, err := p.from.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("failed to pull base image: %w", err)
	}
	return n, err
}

// copyLayer copies an archive, so that equal builds make equal bytes. Files that changed
// since then get the time 1970-01-01. Older times, such as those in packages, stay.
// Access times are dropped.
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

// undated returns a .pyc file without the time of its source, if the source changed
// since then. The file begins with a magic number, flags and, if these are 0, that time,
// four bytes each. Python compiles again at each start if the time is not the source's.
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
