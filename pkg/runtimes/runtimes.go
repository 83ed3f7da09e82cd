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

// Package runtimes has the files that go into images of functions. For each language
// there are a wrapper, which serves HTTP, and a Dockerfile, which installs dependencies.
package runtimes

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

const (
	// Port is the default port of functions. The variable PORT overrides it.
	Port = 8080

	// HealthPath is the path of the health check. The wrapper answers once the function
	// is loaded, and does not call it.
	HealthPath = "/healthz"

	// EnvFunctionName is the variable with the name of the function.
	EnvFunctionName = "FUNC_NAME"

	// EnvFunctionNamespace is the variable with the namespace of the function.
	EnvFunctionNamespace = "FUNC_NAMESPACE"

	// EnvFunctionRuntime is the variable with the runtime of the function.
	EnvFunctionRuntime = "FUNC_RUNTIME"

	// EnvFunctionTimeout is the variable with the timeout of a request, in seconds.
	EnvFunctionTimeout = "FUNC_TIMEOUT"

	// EnvFunctionMemoryLimit is the variable with the memory limit, such as 128Mi, if any.
	EnvFunctionMemoryLimit = "FUNC_MEMORY_LIMIT"

	// EnvBodyLimit is the variable with the size limit of request bodies, in MiB.
	EnvBodyLimit = "REQ_MB_LIMIT"

	// DockerfileName is the Dockerfile in a build context. It is absent if the build has
	// no commands to run.
	DockerfileName = "Dockerfile"

	// LayoutName is the file in a build context with a Layout in JSON. It is absent if
	// the Dockerfile makes the whole image.
	LayoutName = "layout.json"

	// PackagesPath is the folder with credentials of package registries, such as .npmrc,
	// during the installation. It may be absent.
	PackagesPath = "/kiln-packages"

	// EnvFilePath is the file with the environment of the package manager, as EnvFile
	// writes it. It may be absent.
	EnvFilePath = "/kiln-env/env"

	// FunctionFolder is the folder in images for the source and the dependencies.
	FunctionFolder = "/function"

	// SourceFolder is the folder in build contexts for a fetched source.
	SourceFolder = "source"

	// WrapperFolder is the folder in images for the wrapper.
	WrapperFolder = "/kiln"

	// ModulesFolder is where Node.js looks for modules last.
	ModulesFolder = "/node_modules"

	// MaxDockerfileBytes bounds a Dockerfile template, which shares a ConfigMap with the
	// source.
	MaxDockerfileBytes = 8 << 10
)

// Layout describes the files that a build adds to an image, and how the image starts.
type Layout struct {
	// Files maps names of files in the build context to absolute paths in the image.
	Files map[string]string `json:"files"`

	// Folders maps names of folders in the build context to absolute paths in the
	// image. Files replace files in them.
	Folders map[string]string `json:"folders,omitempty"`

	// Env overrides the environment of the base image.
	Env map[string]string `json:"env"`

	// User is the numeric user and group. Kubernetes can verify that it is not root.
	User string `json:"user"`

	// WorkingDir is the working directory of the image.
	WorkingDir string `json:"workingDir"`

	// Entrypoint is the command that starts the image.
	Entrypoint []string `json:"entrypoint"`
}

//go:embed nodejs/Dockerfile nodejs/server.cjs nodejs/compat.cjs nodejs/sdk.cjs python/Dockerfile python/server.py python/compat.py
var content embed.FS

// Runtime describes how Kiln builds functions of one language.
type Runtime struct {
	// Language is the name of the language.
	Language string

	// SourceFile is the name of the source file.
	SourceFile string

	// TypedFile is the name that a fetched source file in TypeScript may have instead,
	// or empty.
	TypedFile string

	// DependencyFile is the name of the dependency file, or empty.
	DependencyFile string

	// LockFile is the name of a lock file beside the dependency file in a build context. It
	// is empty if the package manager has no such file.
	LockFile string

	// wrapper has the files of the wrapper by name, and files those of a Custom.
	wrapper, files map[string]string

	layout Layout

	readDependencies func(text string) (dependencies, error)

	// findLock returns the lock file at the top of a source, or "". It returns an error if
	// only other package managers read the lock files there.
	findLock func(has func(name string) bool) (string, error)

	explainBuildFailure func(log string) string
}

var languages = map[string]Runtime{
	"nodejs": {
		Language:       "nodejs",
		SourceFile:     "handler.js",
		TypedFile:      "handler.ts",
		DependencyFile: "package.json",
		LockFile:       "package-lock.json",
		wrapper: map[string]string{
			"compat.cjs": read("nodejs/compat.cjs"),
			"sdk.cjs":    read("nodejs/sdk.cjs"),
			"server.cjs": read("nodejs/server.cjs"),
		},
		layout:              nodeLayout,
		readDependencies:    readPackageJSON,
		findLock:            findNPMLock,
		explainBuildFailure: explainNPM,
	},
	"python": {
		Language:       "python",
		SourceFile:     "handler.py",
		DependencyFile: "requirements.txt",
		wrapper: map[string]string{
			"compat.py": withoutComments(read("python/compat.py")),
			"server.py": withoutComments(read("python/server.py")),
		},
		layout:              pythonLayout,
		readDependencies:    readRequirements,
		findLock:            findPythonLock,
		explainBuildFailure: explainPip,
	},
}

// SourceFiles returns the names that a fetched source file may have.
func (r Runtime) SourceFiles() []string {
	if r.TypedFile == "" {
		return []string{r.SourceFile}
	}
	return []string{r.SourceFile, r.TypedFile}
}

// For returns the runtime of a language.
func For(language string) (Runtime, bool) {
	r, ok := languages[language]
	return r, ok
}

// Languages returns the languages that For knows, sorted.
func Languages() []string {
	return slices.Sorted(maps.Keys(languages))
}

// Function has the parts of an image that differ between functions.
type Function struct {
	// BaseImage is the name of the base image.
	BaseImage string

	// Source is the text of the source file.
	Source string

	// Dependencies is the text of the dependency file, or blank. For npm, a lock file may
	// follow it.
	Dependencies string

	// Dockerfile replaces the Dockerfile template of the language unless blank.
	Dockerfile string

	// Fetched reports whether the build adds a fetched source to the context. Source and
	// Dependencies are blank then.
	Fetched bool
}

// BuildContext returns the files of the build context by name. They have no folders and
// fit into a ConfigMap. Equal contexts on the same base image make equal images. For
// DockerfileLanguage the context is empty.
func (r Runtime) BuildContext(fn Function) (map[string]string, error) {
	dependencies, err := r.parse(fn.Dependencies)
	if err != nil {
		return nil, err
	}
	return r.context(fn, fn.Source, dependencies)
}

// context returns the files of the build context. It copies the texts of source and
// dependencies, which may be blank, and reads neither.
func (r Runtime) context(fn Function, source string, dependencies dependencies) (map[string]string, error) {
	if r.IsOwnDockerfile() {
		return fn.ownContext()
	}
	files := maps.Clone(r.files)
	if files == nil {
		files = map[string]string{}
	}
	layout, install := r.layout, dependencies.install
	if fn.Fetched {
		install, layout = true, layout.fetched(r.SourceFile, r.DependencyFile)
	} else {
		files[r.SourceFile] = source
		if r.DependencyFile != "" {
			files[r.DependencyFile] = dependencies.text
		}
		if dependencies.lock != "" {
			files[r.LockFile] = dependencies.lock
		}
	}
	text, own := fn.Dockerfile, strings.TrimSpace(fn.Dockerfile) != ""
	if !own {
		if r.Language == CustomLanguage {
			return nil, errors.New("the runtime has no dockerfile in config-runtimes, and its language, " + CustomLanguage + ", needs one")
		}
		text = r.DockerfileTemplate()
		files[LayoutName] = layout.encode()
	}
	if own || install {
		var err error
		if files[DockerfileName], err = renderDockerfile(text, newDockerfileData(fn.BaseImage, install, dependencies.locked)); err != nil {
			return nil, err
		}
	}
	maps.Copy(files, r.wrapper)
	return files, nil
}

var docstring = regexp.MustCompile(`(?m)^( +)"""(?s:.*?)"""$`)

// withoutComments drops the comments and docstrings of a Python program. A ConfigMap
// must hold it and the largest source.
func withoutComments(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			kept.WriteString(line)
		}
	}
	return docstring.ReplaceAllString(kept.String(), `$1""`)
}

// fetched returns the layout for a source that is a folder.
func (l Layout) fetched(sourceFile, dependencyFile string) Layout {
	l.Files = maps.Clone(l.Files)
	delete(l.Files, sourceFile)
	delete(l.Files, dependencyFile)
	l.Folders = map[string]string{SourceFolder: FunctionFolder}
	return l
}

// CheckDependencies returns an error if the text of a dependency file is invalid.
func (r Runtime) CheckDependencies(text string) error {
	_, err := r.parse(text)
	return err
}

func (r Runtime) parse(text string) (dependencies, error) {
	if r.DependencyFile == "" {
		return dependencies{}, r.checkNone(isBlank(text))
	}
	parsed, err := r.readDependencies(text)
	if err != nil {
		return dependencies{}, r.inDependencies(err)
	}
	return parsed, nil
}

// checkNone returns an error if a runtime without a dependency file got dependencies.
func (r Runtime) checkNone(blank bool) error {
	switch {
	case blank:
		return nil
	case r.IsOwnDockerfile():
		return errors.New("the runtime takes no dependencies: the Dockerfile installs them")
	default:
		return errors.New("the runtime takes no dependencies: its entry in config-runtimes has no dependencyFile")
	}
}

func (r Runtime) inDependencies(err error) error { return fmt.Errorf("%s %w", r.DependencyFile, err) }

func isBlank(text string) bool { return strings.TrimSpace(text) == "" }

// DockerfileTemplate returns the Dockerfile that installs dependencies, in the format of
// text/template. dockerfileData has its fields.
func (r Runtime) DockerfileTemplate() string {
	return read(r.Language + "/" + DockerfileName)
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// IsVariableName reports whether a shell can have a variable of that name.
func IsVariableName(name string) bool {
	return variableName.MatchString(name)
}

// EnvFile returns the content of EnvFilePath: commands for a POSIX shell that export the
// variables. It drops variables with invalid names, and bytes 0 in values.
func EnvFile(env map[string]string) string {
	var file strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !IsVariableName(name) {
			continue
		}
		value := strings.ReplaceAll(env[name], "\x00", "")
		fmt.Fprintf(&file, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	return file.String()
}

// ExplainBuildFailure returns the package manager's error in a build log, if any.
func (r Runtime) ExplainBuildFailure(log string) string {
	return r.explainBuildFailure(log)
}

// ValidateDockerfile returns an error if text is not a valid Dockerfile template or is
// larger than MaxDockerfileBytes.
func ValidateDockerfile(text string) error {
	if len(text) > MaxDockerfileBytes {
		return fmt.Errorf("the Dockerfile template has %d bytes and the limit is %d", len(text), MaxDockerfileBytes)
	}
	_, err := renderDockerfile(text, newDockerfileData("image", true, false))
	return err
}

type dockerfileData struct {
	BaseImage       string
	HasDependencies bool
	Locked          bool   // dependencies.locked
	EnvFile         string // EnvFilePath
	Packages        string // PackagesPath
}

func newDockerfileData(baseImage string, install, locked bool) dockerfileData {
	return dockerfileData{BaseImage: baseImage, HasDependencies: install, Locked: locked, EnvFile: EnvFilePath, Packages: PackagesPath}
}

func renderDockerfile(text string, data dockerfileData) (string, error) {
	t, err := template.New(DockerfileName).Parse(text)
	if err != nil {
		return "", fmt.Errorf("failed to parse Dockerfile template: %w", err)
	}
	var out strings.Builder
	if err := t.Execute(&out, data); err != nil {
		return "", fmt.Errorf("failed to render Dockerfile template: %w", err)
	}
	return out.String(), nil
}

func (l Layout) encode() string {
	data, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return string(data) + "\n"
}

func read(file string) string {
	data, err := content.ReadFile(file)
	if err != nil {
		panic(err)
	}
	return string(data)
}
