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

// Command compose is the last step of a build: it puts a function's files, and
// the layers that an earlier step has made, upon the base image and pushes the
// result. With the argument fetch it is the first, where the source is not in the
// Function. It executes nothing of the function's.
package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kiln-dev/kiln/pkg/apis/serverless"
	"github.com/kiln-dev/kiln/pkg/compose"
	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sbom"
	"github.com/kiln-dev/kiln/pkg/sources"
)

// fetchCommand is the argument that has compose fetch a source.
const fetchCommand = "fetch"

// maxJSON is more than a layout, or the configuration of an image, has.
const maxJSON = 1 << 20

// baseDigestFile is the file, in the folder of the layers, with the digest of the
// image that they were made upon, in JSON.
const baseDigestFile = "base.json"

// order says what to compose, and from what.
type order struct {
	base, dependencies    string
	destination, keep     string
	insecure              []string
	contextFolder, layers string
	layout, config        string
	sourceFile            string
	labels                map[string]string
	urlFile, digestFile   string
	baseFile              string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == fetchCommand {
		if err := fetchSource(ctx, os.Args[2:]); err != nil {
			say(err)
			os.Exit(sources.ExitCode(err))
		}
		return
	}
	o := order{labels: map[string]string{}}
	flag.StringVar(&o.base, "base", "", "the image to build upon; left out, the layers are all there is")
	flag.StringVar(&o.dependencies, "dependencies", "", "an image that an earlier build has kept: that of the base image with the layers")
	flag.StringVar(&o.destination, "destination", "", "where to push the image")
	flag.StringVar(&o.keep, "keep", "", "where to push the base image with the layers, for the next build to build upon")
	flag.Func("insecure-registry", "a host that speaks plain HTTP; may be given more than once", func(host string) error {
		o.insecure = append(o.insecure, host)
		return nil
	})
	flag.StringVar(&o.contextFolder, "context", "", "the folder with the files of the function")
	flag.StringVar(&o.layers, "layers", "", "a folder with layers, *.tar.gz, to put below the files, in the order of their names")
	flag.StringVar(&o.layout, "layout", "", "a file that tells, in JSON, where the files are in the image and how it starts")
	flag.StringVar(&o.config, "config", "", "in place of a layout, a file with the configuration of the image as the layers were made with it")
	flag.Func("label", "a label of the image, name=value; may be given more than once", func(label string) error {
		name, value, _ := strings.Cut(label, "=")
		o.labels[name] = value
		return nil
	})
	flag.StringVar(&o.sourceFile, "source", "", "a file that tells, in JSON, which source was fetched")
	flag.StringVar(&o.urlFile, "image-url-file", "", "where to write the name of the image")
	flag.StringVar(&o.digestFile, "image-digest-file", "", "where to write the digest of the image")
	flag.StringVar(&o.baseFile, "base-image-file", "", "where to write, in JSON, the name and the digest of the base image")
	flag.Parse()
	if err := o.carryOut(ctx, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		say(err)
		os.Exit(1)
	}
}

// say prints a line of the log. All goes one way: of two, the one that tells why the
// step has failed need not come last, where it is looked for.
func say(words ...any) {
	fmt.Fprintln(os.Stderr, words...)
}

// carryOut composes the image and pushes it.
func (o *order) carryOut(ctx context.Context, options ...remote.Option) error {
	options = append(options, remote.WithContext(ctx),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	destination, err := o.reference(o.destination)
	if err != nil {
		return err
	}
	base, err := o.source(options)
	if err != nil {
		return err
	}
	origin, err := o.origin(base)
	if err != nil {
		return err
	}
	mediaType, err := compose.LayerMediaType(base)
	if err != nil {
		return err
	}
	layers, packages, err := o.readLayers(mediaType)
	if err != nil {
		return err
	}
	if o.dependencies != "" {
		packages = base.packages(ctx, options)
	}
	made := &product{source: base, origin: origin, packages: packages}
	image, err := compose.Append(base, layers...)
	if err != nil {
		return err
	}
	if o.keep != "" {
		kept, err := o.reference(o.keep)
		if err != nil {
			return err
		}
		if err := made.push(ctx, "dependencies image", kept, image, options); err != nil {
			return err
		}
	}
	if image, err = o.finish(image); err != nil {
		return err
	}
	maps.Copy(o.labels, origin.labels())
	if o.sourceFile != "" {
		if o.labels[serverless.SourceHashLabelKey], err = sourceLabel(o.sourceFile); err != nil {
			return err
		}
	}
	if image, err = compose.Describe(image, o.labels); err != nil {
		return err
	}
	if err := made.push(ctx, "image", destination, image, options); err != nil {
		return err
	}
	return o.report(destination, image, origin)
}

// report tells what was pushed.
func (o *order) report(destination name.Reference, image v1.Image, origin origin) error {
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("failed to tell the digest of the image: %w", err)
	}
	say("Pushed", destination.Context().Digest(digest.String()))
	results := errors.Join(writeResult(o.urlFile, destination.String()), writeResult(o.digestFile, digest.String()))
	if o.base == "" {
		return results
	}
	input, err := json.Marshal(map[string]string{"uri": "oci://" + origin.repository, "digest": origin.digest})
	if err != nil {
		return fmt.Errorf("failed to encode the base image: %w", err)
	}
	return errors.Join(results, writeResult(o.baseFile, string(input)))
}

// source returns the image to build upon.
func (o *order) source(options []remote.Option) (*source, error) {
	if o.base == "" {
		nothing, err := compose.Nothing(runtime.GOARCH)
		return &source{Image: nothing}, err
	}
	if o.dependencies != "" {
		ref, err := o.reference(o.dependencies)
		if err != nil {
			return nil, err
		}
		return pull("dependencies image", ref, options)
	}
	ref, err := o.reference(o.base)
	if err != nil {
		return nil, err
	}
	if _, byTag := ref.(name.Tag); byTag && o.layers != "" {
		// The tag may have been moved since the layers were made.
		if ref, err = o.baseOfLayers(ref); err != nil {
			return nil, err
		}
	}
	return pull("base image", ref, options)
}

// baseOfLayers returns the base image that the layers were made upon, which the
// step that made them tells. It may lie, and then builds upon another image of
// that repository, which its layers could hide anyway.
func (o *order) baseOfLayers(base name.Reference) (name.Reference, error) {
	digest := v1.Hash{}
	if err := readJSON(filepath.Join(o.layers, baseDigestFile), &digest); err != nil {
		return nil, err
	}
	return base.Context().Digest(digest.String()), nil
}

// readLayers returns the layers that an earlier step has made, and the packages in
// them, which are not nil. That step has run what is not to be trusted, and may
// have left anything in the folder: what is not a file, and a layer, is not read,
// and nothing outside of the folder is.
func (o *order) readLayers(mediaType types.MediaType) ([]v1.Layer, []sbom.Package, error) {
	packages := []sbom.Package{}
	if o.layers == "" {
		return nil, packages, nil
	}
	folder, err := os.OpenRoot(o.layers)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to open layers: %w", err)
	}
	files, err := fs.Glob(folder.FS(), "*.tar.gz")
	if err != nil {
		return nil, nil, fmt.Errorf("failed to list layers: %w", err)
	}
	layers := make([]v1.Layer, 0, len(files))
	for _, file := range files {
		open := func() (io.ReadCloser, error) { return openFile(folder, file) }
		found, err := scan(open)
		if err != nil {
			return nil, nil, fmt.Errorf("failed to read layer %s: %w", file, err)
		}
		packages = append(packages, found...)
		layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(mediaType))
		if err != nil {
			return nil, nil, fmt.Errorf("failed to read layer %s: %w", file, err)
		}
		layers = append(layers, layer)
	}
	return layers, packages, nil
}

// openFile opens a regular file.
func openFile(folder *os.Root, name string) (*os.File, error) {
	info, err := folder.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	return folder.Open(name)
}

// scan returns the packages in a layer, and an error for a file that is no
// compressed archive.
func scan(open func() (io.ReadCloser, error)) ([]sbom.Package, error) {
	file, err := open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	return sbom.Scan(tar.NewReader(content))
}

// finish gives the image the function's files, or the configuration that its
// layers were made with.
func (o *order) finish(image v1.Image) (v1.Image, error) {
	if o.layout == "" {
		made := &v1.ConfigFile{}
		if err := readJSON(o.config, made); err != nil {
			return nil, err
		}
		if err := checkStart(made.Config); err != nil {
			return nil, err
		}
		return compose.Configure(image, made.Config)
	}
	layout := runtimes.Layout{}
	if err := readJSON(o.layout, &layout); err != nil {
		return nil, err
	}
	return compose.AddFiles(image, o.contextFolder, layout)
}

// hidden are the folders that the step which runs a Dockerfile has for itself, some
// by Tekton: of what a command writes there nothing gets into a layer.
var hidden = []string{"/workspace", "/tekton", "/kaniko", "/ko-app"}

func isHidden(folder string) bool {
	return slices.ContainsFunc(hidden, func(h string) bool { return strings.HasPrefix(path.Clean(folder)+"/", h+"/") })
}

// checkStart refuses what Kubernetes would not start as a function, whose pods may
// not run as root: now, it is told while the last image serves.
func checkStart(config v1.Config) error {
	user, _, _ := strings.Cut(config.User, ":")
	const advice = "end the Dockerfile with a user by number, such as USER 1000:1000"
	number, err := strconv.ParseUint(user, 10, 31)
	switch {
	case user == "", user == "root", err == nil && number == 0:
		return errors.New("the image runs as root, which no function may: " + advice)
	case err != nil:
		return fmt.Errorf("the image runs as user %q, of which Kubernetes cannot tell whether it is root: %s", user, advice)
	case len(config.Entrypoint) == 0 && len(config.Cmd) == 0:
		return errors.New("the image does not say what to start: add an ENTRYPOINT to the Dockerfile")
	case isHidden(config.WorkingDir):
		return fmt.Errorf("the image starts in %s, of which builds keep nothing: they have that folder for themselves. Use another one, such as WORKDIR /app", config.WorkingDir)
	default:
		return nil
	}
}

// readJSON reads a file that may be from the step that is not to be trusted.
func readJSON(name string, into any) error {
	folder, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("failed to open folder: %w", err)
	}
	defer folder.Close()
	file, err := openFile(folder, filepath.Base(name))
	if err != nil {
		return fmt.Errorf("failed to read %s: %w", filepath.Base(name), err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxJSON))
	if err != nil {
		return fmt.Errorf("failed to read %s: %w", filepath.Base(name), err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("failed to read %s: %w", filepath.Base(name), err)
	}
	return nil
}

// reference parses the name of an image.
func (o *order) reference(image string) (name.Reference, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("failed to parse the name of an image: %w", err)
	}
	if slices.Contains(o.insecure, ref.Context().RegistryStr()) {
		return name.ParseReference(image, name.Insecure)
	}
	return ref, nil
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
