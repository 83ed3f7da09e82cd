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
	// CustomLanguage is the language of runtimes that an administrator brings: of
	// those Kiln knows nothing but what their entry says.
	CustomLanguage = "custom"

	// DefaultSourceFile is the name of the source of a function of CustomLanguage
	// unless the runtime says otherwise.
	DefaultSourceFile = "handler"

	// MaxFilesBytes is the greatest size of all files of a Custom together.
	MaxFilesBytes = 16 << 10

	// saidLines is how much is quoted of what a command said that failed.
	saidLines = 10
)

// Custom is a runtime that an administrator brings. Its Dockerfile makes the
// whole image: one that listens on PORT, answers HealthPath, and on SIGTERM ends
// when it has answered.
type Custom struct {
	// SourceFile is the name of the function's source in the build context.
	SourceFile string

	// DependencyFile is the name of the file there that lists the dependencies. It
	// is "" where functions have none.
	DependencyFile string

	// Files are beside them, by name: such as what serves the function.
	Files map[string]string
}

// fileName is what is taken for the name of a file of the build context: a key
// of a ConfigMap that a Dockerfile's COPY takes as it is.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)

// Validate says what is wrong with the names of the files, and their size.
func (c Custom) Validate() error {
	taken := map[string]string{DockerfileName: "the Dockerfile", LayoutName: "Kiln"}
	take := func(name, by string) error {
		if !fileName.MatchString(name) {
			return fmt.Errorf("%s: %q is not the name of a file: use letters, digits, '.', '-' and '_', no folder, and begin with a letter or digit", by, name)
		}
		if other, ok := taken[name]; ok {
			return fmt.Errorf("%s: the name %q is that of %s", by, name, other)
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
		return fmt.Errorf("files: they are %d bytes, more than the limit of %d; put what is larger into the base image", size, MaxFilesBytes)
	}
	return nil
}

// Runtime returns what builds functions so. They need a Dockerfile.
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

// readAnything implements Runtime.readDependencies for what only the Dockerfile
// understands.
func readAnything(text string) (string, bool, error) {
	return text, strings.TrimSpace(text) != "", nil
}

// running is how the builder announces a command, and exited how it says that the
// command has failed.
var (
	running = regexp.MustCompile(`^INFO\[\d+\] Running: `)
	exited  = regexp.MustCompile(`exit status \d+$`)
)

// explainAnything implements Runtime.explainBuildFailure where any package
// manager, or a compiler, may have failed: it quotes the last that was said.
func explainAnything(log string) string {
	if words := cmp.Or(explainNPM(log), explainPip(log)); words != "" {
		return words
	}
	lines := strings.Split(strings.TrimSpace(log), "\n")
	last := len(lines) - 1
	if !exited.MatchString(strings.TrimSpace(lines[last])) {
		return ""
	}
	said := lines[:last]
	for i := last - 1; i >= 0; i-- {
		if running.MatchString(said[i]) {
			said = said[i+1:]
			break
		}
	}
	return strings.TrimSpace(strings.Join(said[max(0, len(said)-saidLines):], "\n"))
}
