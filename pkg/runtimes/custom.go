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

package runtimes

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const (
	// CustomLanguage is the language of runtimes that an administrator defines.
	CustomLanguage = "custom"

	// DefaultSourceFile is the default name of the source file in CustomLanguage.
	DefaultSourceFile = "handler"

	// MaxFilesBytes is the largest total size of the files of a Custom, in bytes.
	MaxFilesBytes = 16 << 10

	quotedLines = 10
)

// Custom is a runtime that an administrator defines. Its Dockerfile makes the whole
// image. The image must listen on PORT and answer HealthPath. On SIGTERM it must
// finish its requests and exit.
type Custom struct {
	// SourceFile is the name of the source file. The default is DefaultSourceFile.
	SourceFile string

	// DependencyFile is the name of the dependency file, or empty.
	DependencyFile string

	// Files are more files of the build context by name, such as an HTTP server.
	Files map[string]string
}

// fileName matches the allowed names of files in a build context: keys of a ConfigMap
// that COPY in a Dockerfile takes without quotes.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)

// Validate returns an error if a file name is invalid or used twice, or if the files
// are larger than MaxFilesBytes.
func (c Custom) Validate() error {
	taken := map[string]string{DockerfileName: "the Dockerfile", LayoutName: "Kiln"}
	take := func(name, by string) error {
		if !fileName.MatchString(name) {
			return fmt.Errorf("%s: %q is not the name of a file: use letters, digits, '.', '-' and '_', no folder, and begin with a letter or digit", by, name)
		}
		if other, ok := taken[name]; ok {
			return fmt.Errorf("%s: the name %q is already used by %s", by, name, other)
		}
		taken[name] = by
		return nil
	}
	if err := take(cmp.Or(c.SourceFile, DefaultSourceFile), "sourceFile"); err != nil {
		return err
	}
	if c.DependencyFile != "" {
		if err := take(c.DependencyFile, "dependencyFile"); err != nil {
			return err
		}
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if err := take(name, "files"); err != nil {
			return err
		}
		size += len(c.Files[name])
	}
	if size > MaxFilesBytes {
		return fmt.Errorf("files: their size is %d bytes and the limit is %d: put larger files into the base image", size, MaxFilesBytes)
	}
	return nil
}

// Runtime returns the runtime of these files. Its functions need a Dockerfile.
func (c Custom) Runtime() Runtime {
	return Runtime{
		Language:            CustomLanguage,
		SourceFile:          cmp.Or(c.SourceFile, DefaultSourceFile),
		DependencyFile:      c.DependencyFile,
		files:               c.Files,
		readDependencies:    readAnything,
		explainBuildFailure: explainAnything,
	}
}

func readAnything(text string) (dependencies, error) {
	return dependencies{text: text, install: !isBlank(text)}, nil
}

// running matches the log line before a command, and exited the one after a failed one.
var (
	running = regexp.MustCompile(`^INFO\[\d+\] Running: `)
	exited  = regexp.MustCompile(`exit status \d+$`)
)

func explainAnything(log string) string {
	if words := cmp.Or(explainNPM(log), explainPip(log)); words != "" {
		return words
	}
	lines := strings.Split(strings.TrimSpace(log), "\n")
	last := len(lines) - 1
	if !exited.MatchString(strings.TrimSpace(lines[last])) {
		return ""
	}
	output := lines[:last]
	for i := last - 1; i >= 0; i-- {
		if running.MatchString(output[i]) {
			output = output[i+1:]
			break
		}
	}
	return strings.TrimSpace(strings.Join(output[max(0, len(output)-quotedLines):], "\n"))
}
