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

const (
	maxDependencies = 1 << 20
	maxLock         = 16 << 20
)

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
	locked, err := s.addDependencies(tree, folder)
	if err != nil {
		return err
	}
	if err := s.addFiles(folder); err != nil || !locked {
		return err
	}
	return s.lockDockerfile(folder)
}

// addDependencies writes the dependency file to the context, in the same form as
// that of a Function with its own source. locked reports whether the Dockerfile must
// install exactly the versions of a lock file.
func (s *FetchStep) addDependencies(tree, folder *os.Root) (locked bool, err error) {
	if s.DependencyFile == "" {
		return false, nil
	}
	text, err := readSmall(tree, s.DependencyFile, maxDependencies)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = "", nil
	}
	if err != nil {
		return false, err
	}
	runtime, known := runtimes.For(s.Language)
	if !known {
		if text != "" {
			return false, nil // The source is in the context, and so is this file.
		}
		return false, put(folder, s.DependencyFile, nil)
	}
	text, locked, err = runtime.ReadDependencies(text)
	if err != nil {
		return false, sources.Refuse("its %w", err)
	}
	if err := put(folder, s.DependencyFile, []byte(text)); err != nil || s.Tree == "" {
		return false, err
	}
	found, err := s.addLock(runtime, text, tree, folder)
	return locked || found, err
}

// addLock writes the lock file of the source to the context, if there is one.
func (s *FetchStep) addLock(runtime runtimes.Runtime, dependencies string, tree, folder *os.Root) (found bool, err error) {
	name, err := runtime.FindLock(dependencies, func(name string) bool {
		_, err := tree.Lstat(name)
		return err == nil
	})
	if err != nil {
		return false, sources.Refuse("its %w", err)
	}
	if name == "" {
		return false, nil
	}
	if info, err := tree.Stat(name); err != nil || !info.Mode().IsRegular() {
		return false, sources.Refuse("its %s is not a file", name)
	}
	text, err := readSmall(tree, name, maxLock)
	if err != nil {
		return false, err
	}
	return true, put(folder, runtime.LockFile, []byte(text))
}

// lockDockerfile replaces the Dockerfile. Only this step knows of the lock file.
func (s *FetchStep) lockDockerfile(folder *os.Root) error {
	runtime, _ := runtimes.For(s.Language)
	text, err := runtime.LockedDockerfile(s.Base)
	if err != nil {
		return err
	}
	return put(folder, runtimes.DockerfileName, []byte(text))
}

func readSmall(tree *os.Root, name string, most int64) (string, error) {
	file, err := tree.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return "", sources.Refuse("its %s is not a file", name)
	}
	if int64(len(text)) > most {
		return "", sources.Refuse("its %s is more than %s", name, sources.InWords(most))
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
