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

	"github.com/kiln-dev/kiln/pkg/runtimes"
)

const (
	// tagLength keeps 128 bits of the digest. The tag is then also a valid label value.
	tagLength = 32

	partLength = 12
)

// Inputs are what an image is built from, and its place.
type Inputs struct {
	// Repository is the repository of the image. Clusters cannot run an image from
	// another registry, so it is an input.
	Repository string

	// Runtime is the name of the Function's runtime.
	Runtime string

	// BaseImage is the base image of the runtime.
	BaseImage string

	// Dockerfile is the administrator's template of the Dockerfile, or "".
	Dockerfile string

	// SourceFile, DependencyFile and LockFile are the names of the author's Files.
	SourceFile, DependencyFile, LockFile string

	// Files has the digest of each file of the build context, by file name.
	Files map[string]string

	// Fetched identifies the source that the build fetches and adds to Files, or is "".
	Fetched string
}

// Tag returns the tag of the image: a digest of the inputs.
func (in Inputs) Tag() string {
	values := slices.Concat([]string{in.Repository, in.Runtime, in.BaseImage, in.Dockerfile}, flatten(in.Files))
	if in.Fetched != "" {
		values = append(values, in.Fetched)
	}
	return digest(values...)[:tagLength]
}

// InstallFiles returns those Files that the install step may read. If its dependencies are
// cached, these are only the files that their tag depends on.
func (in Inputs) InstallFiles() map[string]string {
	files := maps.Clone(in.Files)
	if in.hasLayout() {
		maps.DeleteFunc(files, func(name, _ string) bool {
			return name != runtimes.DockerfileName && name != in.DependencyFile && name != in.LockFile
		})
	}
	return files
}

// Dependencies returns the key of the dependencies image: a digest of the environment and
// the inputs of the install step, and of the administrator's key unless that is "". It is
// "" if the build installs nothing, fetches its dependencies or cannot cache them.
func (in Inputs) Dependencies(cacheKey string, environment ...string) string {
	dockerfile, installs := in.Files[runtimes.DockerfileName]
	if !installs || !in.hasLayout() || in.Fetched != "" {
		return ""
	}
	values := append([]string{in.Repository, in.BaseImage, dockerfile, in.dependencyFiles()}, environment...)
	key := digest(values...)
	if cacheKey != "" {
		key = digest(key, cacheKey)
	}
	return key[:tagLength]
}

// dependencyFiles returns a digest of the files that list the dependencies.
func (in Inputs) dependencyFiles() string {
	manifest := in.Files[in.DependencyFile]
	if lock, ok := in.Files[in.LockFile]; ok {
		return digest(manifest, lock)
	}
	return manifest
}

// hasLayout reports whether dependencies have a layer of their own, which can be cached.
func (in Inputs) hasLayout() bool {
	_, ok := in.Files[runtimes.LayoutName]
	return ok
}

// Fingerprint returns a digest of each kind of input. Comparing two fingerprints shows
// which kind changed.
func (in Inputs) Fingerprint() string {
	runtime := maps.Clone(in.Files)
	delete(runtime, in.SourceFile)
	delete(runtime, in.DependencyFile)
	delete(runtime, in.LockFile)
	// The Dockerfile is rendered from inputs that are hashed below.
	delete(runtime, runtimes.DockerfileName)

	parts := []string{
		"source=" + part(cmp.Or(in.Fetched, in.Files[in.SourceFile])),
		"deps=" + part(in.dependencyFiles()),
		"runtime=" + part(append([]string{in.Runtime, in.BaseImage, in.Dockerfile}, flatten(runtime)...)...),
		"registry=" + part(in.Repository),
	}
	return strings.Join(parts, ",")
}

func part(values ...string) string {
	return digest(values...)[:partLength]
}

// changeReasons maps the keys of a fingerprint to reasons.
var changeReasons = map[string]string{
	"source":   ReasonSourceChanged,
	"deps":     ReasonDepsChanged,
	"runtime":  ReasonRuntimeChanged,
	"registry": ReasonRegistryChanged,
}

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
