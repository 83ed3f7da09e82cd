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

package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

const (
	dockerIgnoreName = ".dockerignore"
	gitIgnoreName    = ".gitignore"
	gitFolder        = ".git"
)

// ignored decides which files of a folder are left out. It is called for a folder before
// its contents.
type ignored interface {
	// has reports whether the name, relative to the folder and with slashes, is left out.
	has(name string, isFolder bool) (bool, error)

	// mayHave reports whether a folder that is left out may contain packed files.
	mayHave(folder string) bool
}

func ignoredIn(dir string) (ignored, error) {
	text, err := os.ReadFile(filepath.Join(dir, dockerIgnoreName))
	switch {
	case err == nil:
		return newDockerIgnored(text)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("failed to read %s: %w", dockerIgnoreName, err)
	}
	return newGitIgnored(dir)
}

type dockerIgnored struct{ *patternmatcher.PatternMatcher }

func newDockerIgnored(text []byte) (ignored, error) {
	patterns, err := ignorefile.ReadAll(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("failed to read %s: %w", dockerIgnoreName, err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, fmt.Errorf("failed to read %s: %w", dockerIgnoreName, err)
	}
	return dockerIgnored{matcher}, nil
}

func (d dockerIgnored) has(name string, _ bool) (bool, error) {
	if path.Base(name) == gitFolder {
		return true, nil
	}
	matched, err := d.MatchesOrParentMatches(name)
	if err != nil {
		return false, fmt.Errorf("failed to read %s: %w", dockerIgnoreName, err)
	}
	return matched, nil
}

func (d dockerIgnored) mayHave(folder string) bool {
	return path.Base(folder) != gitFolder && d.Exclusions()
}

// gitIgnored leaves out the files of .gitignore: of the folder, its subfolders, and its
// parents in the repository.
type gitIgnored struct {
	top string
	// below is the folder, relative to the top.
	below    []string
	patterns []gitignore.Pattern
}

func newGitIgnored(dir string) (ignored, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("failed to find folder: %w", err)
	}
	g := &gitIgnored{top: topOf(dir)}
	relative, err := filepath.Rel(g.top, dir)
	if err != nil {
		return nil, fmt.Errorf("failed to find folder: %w", err)
	}
	if relative != "." {
		g.below = strings.Split(relative, string(filepath.Separator))
	}
	for i := range len(g.below) + 1 {
		if err := g.read(g.below[:i]); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func topOf(dir string) string {
	for folder := dir; ; folder = filepath.Dir(folder) {
		if _, err := os.Lstat(filepath.Join(folder, gitFolder)); err == nil {
			return folder
		}
		if folder == filepath.Dir(folder) {
			return dir
		}
	}
}

func (g *gitIgnored) read(folder []string) error {
	file := filepath.Join(append(append([]string{g.top}, folder...), gitIgnoreName)...)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to read %s: %w", gitIgnoreName, err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" && !strings.HasPrefix(line, "#") {
			g.patterns = append(g.patterns, gitignore.ParsePattern(line, folder))
		}
	}
	return nil
}

func (g *gitIgnored) has(name string, isFolder bool) (bool, error) {
	if path.Base(name) == gitFolder {
		return true, nil
	}
	parts := append(append([]string{}, g.below...), strings.Split(name, "/")...)
	if gitignore.NewMatcher(g.patterns).Match(parts, isFolder) {
		return true, nil
	}
	if !isFolder {
		return false, nil
	}
	return false, g.read(parts)
}

func (*gitIgnored) mayHave(string) bool { return false }
