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

package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/kiln-dev/kiln/pkg/runtimes"
)

// RuntimesConfigName is the name of the ConfigMap with the runtimes.
const RuntimesConfigName = "config-runtimes"

// Runtimes are the runtimes that Functions can name.
type Runtimes map[string]Runtime

// Runtime configures the builds of functions of one language and version.
type Runtime struct {
	// BaseImage is the base image of functions' images. It is "" if the language is
	// dockerfile, where each Function's Dockerfile names one.
	BaseImage string `json:"baseImage,omitempty"`

	// Language selects the wrapper, the name of the dependency file and the Dockerfile.
	// runtimes.CustomLanguage takes all that from the fields below, and
	// runtimes.DockerfileLanguage from each function.
	Language string `json:"language"`

	// Dockerfile replaces the Dockerfile template of the language.
	Dockerfile string `json:"dockerfile,omitempty"`

	// SourceFile is the file name of spec.source, if the language is custom.
	SourceFile string `json:"sourceFile,omitempty"`

	// DependencyFile is the file name of spec.deps, if the language is custom. Without it,
	// Functions have no deps.
	DependencyFile string `json:"dependencyFile,omitempty"`

	// Files are more files that the Dockerfile can copy, by name, if the language is custom.
	Files map[string]string `json:"files,omitempty"`

	// Deprecated runtimes still build and run, with a warning.
	Deprecated bool `json:"deprecated,omitempty"`
}

// Find returns how Kiln builds functions of the runtime. It returns false for an unknown
// language.
func (r Runtime) Find() (runtimes.Runtime, bool) {
	switch r.Language {
	case runtimes.CustomLanguage:
		return r.custom().Runtime(), true
	case runtimes.DockerfileLanguage:
		return runtimes.OwnDockerfile(), true
	default:
		return runtimes.For(r.Language)
	}
}

func (r Runtime) custom() runtimes.Custom {
	return runtimes.Custom{SourceFile: r.SourceFile, DependencyFile: r.DependencyFile, Files: r.Files}
}

// Warnings lists the runtimes that this version of Kiln does not support.
func (r Runtimes) Warnings() (warnings []string) {
	for _, name := range r.Names() {
		if language := r[name].Language; !isKnown(language) {
			warnings = append(warnings, fmt.Sprintf("%s: this version of Kiln does not know the language %q of runtime %q and builds no Function of it; it knows %s",
				RuntimesConfigName, language, name, KnownLanguages()))
		}
	}
	return warnings
}

// Names returns the names of the runtimes in order.
func (r Runtimes) Names() []string {
	return slices.Sorted(maps.Keys(r))
}

// NewRuntimesFromMap parses the data of config-runtimes. Each key is the name of a runtime,
// unless it begins with an underscore, and its value is YAML.
func NewRuntimesFromMap(data map[string]string) (Runtimes, error) {
	known := make(Runtimes, len(data))
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if strings.HasPrefix(key, "_") {
			continue
		}
		runtime, err := parseRuntime(key, data[key])
		if err != nil {
			return nil, inConfigMap(RuntimesConfigName, fmt.Errorf("failed to parse %q: %w", key, err))
		}
		known[key] = runtime
	}
	return known, nil
}

// NewRuntimesFromConfigMap parses the ConfigMap config-runtimes.
func NewRuntimesFromConfigMap(configMap *corev1.ConfigMap) (Runtimes, error) {
	return NewRuntimesFromMap(configMap.Data)
}

func parseRuntime(key, value string) (Runtime, error) {
	var r Runtime
	if err := checkRuntimeName(key); err != nil {
		return r, err
	}
	// The entry may be for a newer version of Kiln. It must not invalidate the others.
	var entry map[string]any
	if err := yaml.UnmarshalStrict([]byte(value), &entry); err != nil {
		return r, err
	}
	if language, ok := entry["language"].(string); ok && language != "" && !isKnown(language) {
		return Runtime{Language: language}, nil
	}
	if err := yaml.UnmarshalStrict([]byte(value), &r); err != nil {
		return r, err
	}
	if r.Language == runtimes.DockerfileLanguage {
		return r, r.checkBare()
	}
	image, err := parseImage(r.BaseImage)
	if err != nil {
		return r, fmt.Errorf("baseImage: %w", err)
	}
	r.BaseImage = image
	if err := r.checkLanguage(); err != nil {
		return r, err
	}
	if err := runtimes.ValidateDockerfile(r.Dockerfile); err != nil {
		return r, fmt.Errorf("dockerfile: %w", err)
	}
	return r, nil
}

func isKnown(language string) bool {
	_, known := Runtime{Language: language}.Find()
	return known
}

// KnownLanguages lists the supported languages, for error messages.
func KnownLanguages() string {
	return strings.Join(append(runtimes.Languages(), runtimes.CustomLanguage, runtimes.DockerfileLanguage), ", ")
}

// checkBare rejects fields that the Dockerfiles of functions replace, because they would
// have no effect.
func (r Runtime) checkBare() error {
	if r.BaseImage != "" || r.Dockerfile != "" || r.SourceFile != "" || r.DependencyFile != "" || len(r.Files) > 0 {
		return fmt.Errorf("baseImage, dockerfile, sourceFile, dependencyFile and files are not allowed for language %s: each Function has its own Dockerfile",
			runtimes.DockerfileLanguage)
	}
	return nil
}

// checkLanguage returns an error if the entry lacks a field that its language needs, or has
// one that its language ignores.
func (r Runtime) checkLanguage() error {
	if r.Language == runtimes.CustomLanguage {
		if strings.TrimSpace(r.Dockerfile) == "" {
			return fmt.Errorf("dockerfile: it is required for language %s", runtimes.CustomLanguage)
		}
		return r.custom().Validate()
	}
	if r.Language == "" {
		return fmt.Errorf("language: it is required: one of %s", KnownLanguages())
	}
	if r.SourceFile != "" || r.DependencyFile != "" || len(r.Files) > 0 {
		return fmt.Errorf("sourceFile, dependencyFile and files are only allowed for language %s, not for %s",
			runtimes.CustomLanguage, r.Language)
	}
	return nil
}

// checkRuntimeName returns an error for an invalid name, because the name becomes the value
// of labels.
func checkRuntimeName(name string) error {
	if name == "" {
		return errors.New("the name of a runtime is required")
	}
	problems := append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...)
	if len(problems) > 0 {
		return fmt.Errorf("%q is not the name of a runtime: %s", name, strings.Join(problems, "; "))
	}
	return nil
}
