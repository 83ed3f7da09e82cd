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

package compose

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
)

const maxDependencies = 1 << 20

// makeContext moves the source from top into the build context and adds the files
// of the runtime.
func (s *FetchStep) makeContext(work *os.Root, top string) error {
	source := filepath.Join(contextName, s.Tree)
	if s.Tree != "" {
		if err := work.Mkdir(contextName, 0o755); err != nil {
			return fmt.Errorf("failed to create folder: %w", err)
		}
	}
	if err := work.Rename(top, source); err != nil {
		return fmt.Errorf("failed to move source: %w", err)
	}
	tree, err := work.OpenRoot(source)
	if err != nil {
		return fmt.Errorf("failed to open source: %w", err)
	}
	defer tree.Close()
	if err := sources.CheckLinks(tree); err != nil {
		return err
	}
	folder, err := work.OpenRoot(contextName)
	if err != nil {
		return fmt.Errorf("failed to open build context: %w", err)
	}
	defer folder.Close()
	if err := s.addDependencies(tree, folder); err != nil {
		return err
	}
	return s.addFiles(folder)
}

// addDependencies writes the dependency file to the context, in the same form as
// that of a Function with its own source.
func (s *FetchStep) addDependencies(tree, folder *os.Root) error {
	if s.DependencyFile == "" {
		return nil
	}
	text, err := readSmall(tree, s.DependencyFile)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = "", nil
	}
	if err != nil {
		return err
	}
	runtime, known := runtimes.For(s.Language)
	if !known {
		if text != "" {
			return nil // The source is in the context, and so is this file.
		}
		return put(folder, s.DependencyFile, nil)
	}
	text, err = runtime.ReadDependencies(text)
	if err != nil {
		return sources.Refuse("its %w", err)
	}
	return put(folder, s.DependencyFile, []byte(text))
}

func readSmall(tree *os.Root, name string) (string, error) {
	file, err := tree.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxDependencies+1))
	if err != nil {
		return "", sources.Refuse("its %s is not a file", name)
	}
	if len(text) > maxDependencies {
		return "", sources.Refuse("its %s is more than %s", name, sources.InWords(maxDependencies))
	}
	return string(text), nil
}

func (s *FetchStep) addFiles(folder *os.Root) error {
	entries, err := os.ReadDir(s.Files)
	if err != nil {
		return fmt.Errorf("failed to list the runtime's files: %w", err)
	}
	for _, entry := range entries {
		// Kubernetes mounts a ConfigMap with such names beside its keys.
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(s.Files, entry.Name()))
		if err != nil {
			return fmt.Errorf("failed to read the runtime's file: %w", err)
		}
		if err := put(folder, entry.Name(), content); err != nil {
			return err
		}
	}
	return nil
}

func put(folder *os.Root, name string, content []byte) error {
	if err := folder.RemoveAll(name); err != nil {
		return fmt.Errorf("failed to replace %s: %w", name, err)
	}
	if err := folder.WriteFile(name, content, 0o644); err != nil {
		return fmt.Errorf("failed to write %s: %w", name, err)
	}
	return nil
}
