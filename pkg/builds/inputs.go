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

package builds

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kiln-dev/kiln/pkg/digest"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	// tagLength keeps 128 bits of the hash, which leaves a tag that is also a
	// valid value of a label.
	tagLength = 32

	// digestLength is enough to tell two versions of one input apart.
	digestLength = 12
)

// Inputs is all that decides what is in a Function's image, and where it is.
type Inputs struct {
	// Repository is where the image is pushed to: an image that another
	// registry holds cannot be run from this one.
	Repository string

	// Runtime is the name of the Function's runtime.
	Runtime string

	// BaseImage is the image that the Function's image is built upon.
	BaseImage string

	// Dockerfile is the administrator's own template of the Dockerfile, if any.
	Dockerfile string

	// SourceFile and DependencyFile tell which of Files are the author's.
	SourceFile, DependencyFile string

	// Files is the build context, by file name.
	Files map[string]string

	// Fetched tells which source the build fetches, and adds to Files; "" if it
	// fetches none.
	Fetched string
}

// Tag returns the tag of the image: a hash of the inputs.
func (in Inputs) Tag() string {
	values := slices.Concat([]string{in.Repository, in.Runtime, in.BaseImage, in.Dockerfile}, digest.List(in.Files))
	if in.Fetched != "" {
		values = append(values, in.Fetched)
	}
	return digest.Of(values...)[:tagLength]
}

// InstallFiles returns the files that a build may read while it runs something.
// Where what it installs is put apart, for other builds to build upon, these are
// no more than what that is known by.
func (in Inputs) InstallFiles() map[string]string {
	files := maps.Clone(in.Files)
	if _, apart := in.Files[runtimes.LayoutName]; apart {
		maps.DeleteFunc(files, func(name, _ string) bool {
			return name != runtimes.DockerfileName && name != in.DependencyFile
		})
	}
	return files
}

// Dependencies returns a hash of all that decides what is installed upon the base
// image, with the environment in which that is done, for other builds to build
// upon. It is "" where nothing is installed, or not apart from all else. It tells
// the base image by its name only, which may come to mean another one. Where the
// dependencies are fetched, nobody knows them before.
func (in Inputs) Dependencies(environment ...string) string {
	dockerfile, installs := in.Files[runtimes.DockerfileName]
	if _, apart := in.Files[runtimes.LayoutName]; !installs || !apart || in.Fetched != "" {
		return ""
	}
	values := append([]string{in.Repository, in.BaseImage, dockerfile, in.Files[in.DependencyFile]}, environment...)
	return digest.Of(values...)[:tagLength]
}

// Fingerprint returns a digest of each input by itself, so that a later build
// can tell which of them has changed.
func (in Inputs) Fingerprint() string {
	runtime := maps.Clone(in.Files)
	delete(runtime, in.SourceFile)
	delete(runtime, in.DependencyFile)
	// It is rendered from what is hashed below, and from the dependencies.
	delete(runtime, runtimes.DockerfileName)

	parts := []string{
		"source=" + short(cmp.Or(in.Fetched, in.Files[in.SourceFile])),
		"deps=" + short(in.Files[in.DependencyFile]),
		"runtime=" + short(append([]string{in.Runtime, in.BaseImage, in.Dockerfile}, digest.List(runtime)...)...),
		"registry=" + short(in.Repository),
	}
	return strings.Join(parts, ",")
}

// changeReasons maps the parts of a fingerprint to the reason of a build.
var changeReasons = map[string]string{
	"source":   ReasonSourceChanged,
	"deps":     ReasonDepsChanged,
	"runtime":  ReasonRuntimeChanged,
	"registry": ReasonRegistryChanged,
}

// changeReason tells what has changed from one fingerprint to another, where
// that is one thing and is known.
func changeReason(from, to string) string {
	old := map[string]string{}
	for part := range strings.SplitSeq(from, ",") {
		key, value, _ := strings.Cut(part, "=")
		old[key] = value
	}
	changed := ""
	for part := range strings.SplitSeq(to, ",") {
		key, value, _ := strings.Cut(part, "=")
		if was, known := old[key]; known && was == value {
			continue
		}
		if changed != "" {
			return ReasonInputsChanged
		}
		changed = key
	}
	if reason, ok := changeReasons[changed]; ok && from != "" {
		return reason
	}
	return ReasonInputsChanged
}

// short returns a digest of one part of a fingerprint.
func short(values ...string) string {
	return digest.Of(values...)[:digestLength]
}
