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

// Package runtimes knows what is put into functions' images: for each
// language the wrapper that serves a function over HTTP and the Dockerfile
// that joins it with the function's source and dependencies.
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
	// Port is the port functions listen on unless PORT says otherwise.
	Port = 8080

	// HealthPath answers GET and HEAD with 200 as soon as the function is
	// loaded, and never reaches the function's own code.
	HealthPath = "/healthz"

	// EnvFunctionName names the environment variable that tells a function its name.
	EnvFunctionName = "FUNC_NAME"

	// EnvFunctionNamespace names the environment variable that tells a function its namespace.
	EnvFunctionNamespace = "FUNC_NAMESPACE"

	// EnvFunctionRuntime names the environment variable that tells a function its runtime.
	EnvFunctionRuntime = "FUNC_RUNTIME"

	// EnvFunctionTimeout names the environment variable that tells a function how
	// long it may take to answer, in seconds.
	EnvFunctionTimeout = "FUNC_TIMEOUT"

	// EnvFunctionMemoryLimit names the environment variable that tells a function
	// the memory it may use, as a quantity such as 128Mi. Unset, there is no limit.
	EnvFunctionMemoryLimit = "FUNC_MEMORY_LIMIT"

	// EnvBodyLimit names the environment variable that limits request bodies,
	// in MiB. It is the user's to set; a larger body is answered with 413.
	EnvBodyLimit = "REQ_MB_LIMIT"

	// DockerfileName is the name of the file of a build context that says what to
	// run. A context without one needs nothing run.
	DockerfileName = "Dockerfile"

	// LayoutName is the name of the file of a build context that says, as the JSON
	// of a Layout, what is put upon the image that the Dockerfile makes, or upon
	// the base image. A context without one wants what its Dockerfile makes.
	LayoutName = "layout.json"

	// PackagesPath is the folder, while dependencies are installed, with the
	// credentials of package registries: files such as .npmrc and pip.conf. It need not exist.
	PackagesPath = "/kiln-packages"

	// EnvFilePath is the file, while dependencies are installed, with the
	// environment of the package manager; see EnvFile. It need not exist.
	EnvFilePath = "/kiln-env/env"

	// FunctionFolder is the folder of an image with the function's source and
	// its dependencies.
	FunctionFolder = "/function"

	// SourceFolder is the folder of a build context with a source that was fetched.
	SourceFolder = "source"

	// WrapperFolder is the folder of an image with the wrapper.
	WrapperFolder = "/kiln"

	// MaxDockerfileBytes is the greatest size of a Dockerfile template that
	// replaces a language's own: it shares a ConfigMap with the function's source.
	MaxDockerfileBytes = 8 << 10
)

// Layout is what a function's image has beyond its base, and beyond what a
// Dockerfile has run: files, and how it starts.
type Layout struct {
	// Files tells where the files of the build context are in the image: an
	// absolute path for each name.
	Files map[string]string `json:"files"`

	// Folders tells where folders of the build context are in the image, with all
	// that is in them, below the files: an absolute path for each name.
	Folders map[string]string `json:"folders,omitempty"`

	// Env is added to the environment of the base image, and wins over it.
	Env map[string]string `json:"env"`

	// User is the user and group that the image runs as, by number so that
	// Kubernetes can see it is not root.
	User string `json:"user"`

	// WorkingDir is the folder that the image starts in.
	WorkingDir string `json:"workingDir"`

	// Entrypoint is the command that starts the image.
	Entrypoint []string `json:"entrypoint"`
}

//go:embed nodejs/Dockerfile nodejs/server.cjs python/Dockerfile python/server.py
var content embed.FS

// Runtime is what Kiln knows of one language.
type Runtime struct {
	// Language is the name the runtime is found by.
	Language string

	// SourceFile is the name of the function's source in its image.
	SourceFile string

	// DependencyFile is the name of the file that lists the dependencies. It is ""
	// where functions have none.
	DependencyFile string

	// wrapper holds the files that serve the function, by name.
	wrapper map[string]string

	// files are the administrator's own, by name.
	files map[string]string

	// layout puts the wrapper and the function into the image.
	layout Layout

	// readDependencies normalises the dependency file's text and tells
	// whether there is anything to install.
	readDependencies func(text string) (normal string, install bool, err error)

	// explainBuildFailure picks the package manager's own words from a log.
	explainBuildFailure func(log string) string
}

var languages = map[string]Runtime{
	"nodejs": {
		Language:            "nodejs",
		SourceFile:          "handler.js",
		DependencyFile:      "package.json",
		wrapper:             map[string]string{"server.cjs": read("nodejs/server.cjs")},
		layout:              nodeLayout,
		readDependencies:    readPackageJSON,
		explainBuildFailure: explainNPM,
	},
	"python": {
		Language:            "python",
		SourceFile:          "handler.py",
		DependencyFile:      "requirements.txt",
		wrapper:             map[string]string{"server.py": withoutComments(read("python/server.py"))},
		layout:              pythonLayout,
		readDependencies:    readRequirements,
		explainBuildFailure: explainPip,
	},
}

// For returns the runtime of a language.
func For(language string) (Runtime, bool) {
	r, ok := languages[language]
	return r, ok
}

// Languages returns the languages that have a runtime, sorted.
func Languages() []string {
	return slices.Sorted(maps.Keys(languages))
}

// Function is what makes one function's image differ from another's.
type Function struct {
	// BaseImage is the image the function's image is built on.
	BaseImage string

	// Source is the text of the function's source file. It gets into the image
	// byte for byte.
	Source string

	// Dependencies is the text of the function's dependency file; blank for none.
	Dependencies string

	// Dockerfile replaces the runtime's own Dockerfile template unless blank.
	Dockerfile string

	// Fetched says that the source and the dependency file are not known yet: the
	// build adds them to the context. Source and Dependencies are blank then.
	Fetched bool
}

// BuildContext returns the files an image is built from, by name. It is flat,
// fits a ConfigMap's data and is all that a build reads: the same context from
// the same base image makes the same function. It has a Dockerfile where there
// is something to run, and a Layout unless the Dockerfile is the administrator's
// own. Of DockerfileLanguage it is empty: all of it is fetched. An error is never
// transient: it tells what is wrong with the dependency file or the Dockerfile
// template.
func (r Runtime) BuildContext(fn Function) (map[string]string, error) {
	if r.IsOwnDockerfile() {
		return r.ownBuildContext(fn)
	}
	dependencies, install, err := r.dependencies(fn.Dependencies)
	if err != nil {
		return nil, err
	}
	files := maps.Clone(r.files)
	if files == nil {
		files = map[string]string{}
	}
	layout := r.layout
	if fn.Fetched {
		install, layout = true, layout.fetched(r.SourceFile, r.DependencyFile)
	} else {
		files[r.SourceFile] = fn.Source
		if r.DependencyFile != "" {
			files[r.DependencyFile] = dependencies
		}
	}
	text, own := fn.Dockerfile, strings.TrimSpace(fn.Dockerfile) != ""
	if !own {
		if r.Language == CustomLanguage {
			return nil, errors.New("the runtime lacks a dockerfile in config-runtimes, which its language, " + CustomLanguage + ", needs")
		}
		text = r.DockerfileTemplate()
		files[LayoutName] = layout.encode()
	}
	if own || install {
		if files[DockerfileName], err = renderDockerfile(text, newDockerfileData(fn.BaseImage, install)); err != nil {
			return nil, err
		}
	}
	maps.Copy(files, r.wrapper)
	return files, nil
}

// docstring is one of a Python program's functions or classes, on lines of its own.
var docstring = regexp.MustCompile(`(?m)^( +)"""(?s:.*?)"""$`)

// withoutComments drops the lines of a Python program that are nothing but a comment,
// and empties its docstrings: they would take of what a ConfigMap can hold beside the
// largest source.
func withoutComments(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			kept.WriteString(line)
		}
	}
	return docstring.ReplaceAllString(kept.String(), `$1""`)
}

// fetched returns the layout of a function whose source is a folder.
func (l Layout) fetched(sourceFile, dependencyFile string) Layout {
	l.Files = maps.Clone(l.Files)
	delete(l.Files, sourceFile)
	delete(l.Files, dependencyFile)
	l.Folders = map[string]string{SourceFolder: FunctionFolder}
	return l
}

// ReadDependencies returns the text of a dependency file as the package manager
// takes it, or says what is wrong with it.
func (r Runtime) ReadDependencies(text string) (string, error) {
	normal, _, err := r.dependencies(text)
	return normal, err
}

// CheckDependencies says what is wrong with the text of a dependency file.
func (r Runtime) CheckDependencies(text string) error {
	_, _, err := r.dependencies(text)
	return err
}

// dependencies normalises the text of a dependency file and tells whether there
// is anything to install.
func (r Runtime) dependencies(text string) (normal string, install bool, err error) {
	if r.DependencyFile == "" {
		switch {
		case strings.TrimSpace(text) == "":
			return "", false, nil
		case r.IsOwnDockerfile():
			return "", false, errors.New("the runtime takes no dependencies: the Dockerfile installs them")
		default:
			return "", false, errors.New("the runtime takes no dependencies: its entry in config-runtimes has no dependencyFile")
		}
	}
	if normal, install, err = r.readDependencies(text); err != nil {
		return "", false, fmt.Errorf("%s %w", r.DependencyFile, err)
	}
	return normal, install, nil
}

// DockerfileTemplate returns the template of the Dockerfile that installs
// dependencies, in the syntax of text/template. It may use {{.BaseImage}},
// {{.HasDependencies}}, {{.EnvFile}}, which is EnvFilePath, and {{.Packages}},
// which is PackagesPath.
func (r Runtime) DockerfileTemplate() string {
	return read(r.Language + "/" + DockerfileName)
}

// variableName is what a shell takes for the name of a variable.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// IsVariableName says whether a shell can have a variable of that name, as it
// must be of the environment of builds.
func IsVariableName(name string) bool {
	return variableName.MatchString(name)
}

// EnvFile returns the file that EnvFilePath names: commands for a POSIX shell
// that export the variables. Nothing in a value means anything to the shell. What
// the shell cannot have is left out: variables of other names, and the byte 0.
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

// ExplainBuildFailure returns what the language's package manager says in the
// log of a failed build, in its own words, or "" when it says nothing.
func (r Runtime) ExplainBuildFailure(log string) string {
	return r.explainBuildFailure(log)
}

// ValidateDockerfile returns an error unless text is a usable template of a Dockerfile.
func ValidateDockerfile(text string) error {
	if len(text) > MaxDockerfileBytes {
		return fmt.Errorf("the Dockerfile template is %d bytes, more than the limit of %d", len(text), MaxDockerfileBytes)
	}
	_, err := renderDockerfile(text, newDockerfileData("image", true))
	return err
}

type dockerfileData struct {
	BaseImage         string
	HasDependencies   bool
	EnvFile, Packages string
}

func newDockerfileData(baseImage string, install bool) dockerfileData {
	return dockerfileData{BaseImage: baseImage, HasDependencies: install, EnvFile: EnvFilePath, Packages: PackagesPath}
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

// encode returns the layout as JSON. Strings always have one.
func (l Layout) encode() string {
	data, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return string(data) + "\n"
}

// read returns an embedded file. One that is missing is a mistake in this
// package, which its tests find.
func read(file string) string {
	data, err := content.ReadFile(file)
	if err != nil {
		panic(err)
	}
	return string(data)
}
