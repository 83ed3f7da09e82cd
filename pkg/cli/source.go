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

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kiln-dev/kiln/pkg/apis/serverless/v1alpha1"
	"github.com/kiln-dev/kiln/pkg/runtimes"
)

type sourceFlags struct {
	runtime, file, deps string

	// dir is a folder with the source, and pushTo the repository to push it to.
	dir, pushTo string
}

func (s *sourceFlags) add(c *cli, command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&s.runtime, "runtime", "", "The runtime, such as nodejs24. Without it, a new Function gets the default runtime of the cluster.")
	flags.StringVar(&s.file, "file", "", "The source file. The default is handler.js or handler.py in the current folder.")
	flags.StringVar(&s.deps, "deps", "", "The dependency file. The default is package.json or requirements.txt beside the source, if it exists. A lock file of npm beside package.json is added to it.")
	flags.StringVar(&s.dir, "dir", "", "A folder with the source, the dependency file and other files. It is packed and pushed to a registry, without the files that its .dockerignore, or else its .gitignore, names.")
	flags.StringVar(&s.pushTo, "push-to", "", "The repository to push the folder to, such as registry.example.com/team/greeter. The default is the repository of the Function's source, or else that of its images.")
	must(command.MarkFlagDirname("dir"))
	must(command.RegisterFlagCompletionFunc("runtime", c.completeRuntimes))
}

func (s *sourceFlags) check() error {
	switch {
	case s.dir != "" && (s.file != "" || s.deps != ""):
		return try(errors.New("--dir cannot be combined with --file or --deps"), "--dir, or --file and --deps")
	case s.dir == "" && s.pushTo != "":
		return try(errors.New("--push-to needs --dir"), "--dir=. --push-to=%s", s.pushTo)
	}
	return nil
}

func (s *sourceFlags) applyFile(fn *v1alpha1.Function) error {
	runtime := cmp.Or(s.runtime, fn.Spec.Runtime)
	if language, err := languageOf(runtime); err == nil && language.IsOwnDockerfile() {
		return try(fmt.Errorf("runtime %s needs a folder with a Dockerfile", runtime), "--dir=.")
	}
	file := s.file
	if file == "" {
		language, err := languageIn(".")
		if err != nil {
			return try(err, "--file=FILE, or start with: kubectl fn init DIR --runtime=nodejs24")
		}
		file = sourceIn(".", language)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return try(fmt.Errorf("failed to read source: %w", err), "--file=FILE, or start with: kubectl fn init DIR --runtime=nodejs24")
	}
	if runtime == "" && !isNode(file) {
		return try(fmt.Errorf("no runtime was given for %s", file), "kubectl fn describe-runtime, and then --runtime=NAME")
	}
	deps, err := s.readDeps(file)
	if err != nil {
		return err
	}
	fn.Spec.Source, fn.Spec.Deps = string(source), deps
	// A Function has exactly one source.
	fn.Spec.Git, fn.Spec.Archive = nil, nil
	if s.runtime != "" {
		fn.Spec.Runtime = s.runtime
	}
	return nil
}

// readDeps returns the text of the dependency file, and of the lock file beside it.
func (s *sourceFlags) readDeps(file string) (string, error) {
	all := languages()
	i := slices.IndexFunc(all, func(language runtimes.Runtime) bool { return isOf(language, file) })
	if s.deps == "" {
		if i < 0 {
			return "", nil
		}
		return readFolderDeps(all[i], filepath.Dir(file))
	}
	deps, err := os.ReadFile(s.deps)
	switch {
	case err != nil:
		return "", try(fmt.Errorf("failed to read dependencies: %w", err), "--deps=FILE")
	case i < 0 || filepath.Base(s.deps) != all[i].DependencyFile:
		return string(deps), nil
	}
	return withLock(all[i], filepath.Dir(s.deps), string(deps))
}

// readFolderDeps returns the text of the dependency file in the folder, or "", and of the
// lock file beside it.
func readFolderDeps(language runtimes.Runtime, dir string) (string, error) {
	deps, err := os.ReadFile(filepath.Join(dir, language.DependencyFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("failed to read dependencies: %w", err)
	}
	return withLock(language, dir, string(deps))
}

func withLock(language runtimes.Runtime, dir, deps string) (string, error) {
	name, err := language.FindLock(deps, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
	if err != nil {
		return "", fmt.Errorf("failed to read dependencies in folder %s: %w", dir, err)
	}
	if name == "" {
		return deps, nil
	}
	lock, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "", fmt.Errorf("failed to read lock file: %w", err)
	}
	return runtimes.JoinDependencies(deps, string(lock)), nil
}

func languages() (all []runtimes.Runtime) {
	for _, name := range runtimes.Languages() {
		if language, ok := runtimes.For(name); ok {
			all = append(all, language)
		}
	}
	return all
}

func hasDockerfile(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, runtimes.DockerfileName))
	return err == nil
}

func languageIn(dir string) (runtimes.Runtime, error) {
	var found []runtimes.Runtime
	var files []string
	for _, language := range languages() {
		files = append(files, language.SourceFiles()...)
		if sourceIn(dir, language) != "" {
			found = append(found, language)
		}
	}
	if len(found) != 1 {
		return runtimes.Runtime{}, fmt.Errorf("folder %s must have exactly one of %s, but has %d", dir, strings.Join(files, ", "), len(found))
	}
	return found[0], nil
}

// sourceIn returns the name of the source file of the language in the folder, or "".
func sourceIn(dir string, language runtimes.Runtime) string {
	for _, name := range language.SourceFiles() {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return name
		}
	}
	return ""
}

// isOf reports whether a file has an extension of the language.
func isOf(language runtimes.Runtime, file string) bool {
	return slices.ContainsFunc(language.SourceFiles(), func(name string) bool { return filepath.Ext(name) == filepath.Ext(file) })
}

// isNode reports whether a file is for the default runtime.
func isNode(file string) bool {
	language, _ := runtimes.For("nodejs")
	return isOf(language, file)
}

// languageOf returns the language at the start of a runtime's name, such as nodejs
// for nodejs24.
func languageOf(runtime string) (runtimes.Runtime, error) {
	all := append(languages(), runtimes.OwnDockerfile())
	i := slices.IndexFunc(all, func(language runtimes.Runtime) bool { return strings.HasPrefix(runtime, language.Language) })
	if i < 0 {
		return runtimes.Runtime{}, try(fmt.Errorf("there is no starter for runtime %q", runtime), "--runtime=nodejs24 or --runtime=python313")
	}
	return all[i], nil
}
