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
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// starters has a folder with a starter function for each language.
//
//go:embed starters
var starters embed.FS

// starterOf returns the files of the starter function of a language. An unknown
// language has none.
func starterOf(language string) (fs.FS, []fs.DirEntry) {
	files, err := fs.Sub(starters, path.Join("starters", language))
	must(err)
	entries, err := fs.ReadDir(files, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	must(err)
	return files, entries
}

func (c *cli) initCommand() *cobra.Command {
	var runtime string
	command := &cobra.Command{
		Use:     "init DIR",
		Short:   "Write a starter function into a folder",
		Long:    "Write a starter function into a folder. The command never overwrites a file.",
		Example: "  kubectl fn init greeter --runtime=nodejs24",
	}
	command.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return try(fmt.Errorf("expected one folder, got %d", len(args)), "kubectl fn init greeter --runtime=nodejs24")
		}
		return nil
	}
	command.Flags().StringVar(&runtime, "runtime", "nodejs24", "The runtime.")
	must(command.RegisterFlagCompletionFunc("runtime", c.completeRuntimes))
	command.RunE = func(_ *cobra.Command, args []string) error {
		language, err := languageOf(runtime)
		if err != nil {
			return err
		}
		dir := args[0]
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("failed to create folder: %w", err)
		}
		var written []string
		files, entries := starterOf(language.Language)
		for _, entry := range entries {
			text, err := fs.ReadFile(files, entry.Name())
			must(err)
			path := filepath.Join(dir, entry.Name())
			if err := writeNew(path, text); err != nil {
				return err
			}
			written = append(written, path)
		}
		fmt.Fprintf(c.Out, "wrote %s\n", strings.Join(written, " and "))
		if language.IsOwnDockerfile() {
			fmt.Fprintf(c.ErrOut, "Next: cd %s, and kubectl fn deploy NAME --runtime=%s --dir=.\n", dir, runtime)
			return nil
		}
		fmt.Fprintf(c.ErrOut, "Next: cd %s, kubectl fn run, and kubectl fn deploy NAME --runtime=%s\n", dir, runtime)
		return nil
	}
	return command
}

func writeNew(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return try(fmt.Errorf("%s already exists", path), "another folder")
	case err != nil:
		return fmt.Errorf("failed to write %s: %w", path, err)
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("failed to write %s: %w", path, err)
	}
	return nil
}
