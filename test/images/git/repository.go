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

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kiln-dev/kiln/pkg/sources/sourcestest"
)

// repositoryName is the name of the repository, by HTTP and by SSH.
const repositoryName = "code"

// repository is the repository that is served.
type repository struct {
	// above is its parent folder.
	above string
}

// newRepository creates a repository with a function of each language in the folder
// functions. The branch main has version 1, and next has version 2.
func newRepository(ctx context.Context, above string) (*repository, error) {
	r := &repository{above: above}
	if _, err := run(exec.CommandContext(ctx, "git", "init", "--quiet", "--bare", "--initial-branch=main", r.folder())); err != nil {
		return nil, err
	}
	for version, branch := range map[string]string{"1": "main", "2": "next"} {
		if err := r.commit(ctx, version, branch); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *repository) folder() string { return filepath.Join(r.above, repositoryName) }

// git runs git in the repository, with the folder files as work tree.
func (r *repository) git(ctx context.Context, files string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", append([]string{"--git-dir=" + r.folder(), "--work-tree=" + files}, args...)...)
	command.Env = append(os.Environ(), "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
	return run(command)
}

// commit creates a branch with one commit, the functions of that version.
func (r *repository) commit(ctx context.Context, version, branch string) error {
	files, err := os.MkdirTemp("", "files")
	if err != nil {
		return fmt.Errorf("failed to create folder: %w", err)
	}
	defer os.RemoveAll(files)
	for _, language := range []string{"nodejs", "python", "locked"} {
		if err := write(filepath.Join(files, "functions", language), sourcestest.Function(language, version)); err != nil {
			return err
		}
	}
	if _, err := r.git(ctx, files, "add", "--all"); err != nil {
		return err
	}
	tree, err := r.git(ctx, files, "write-tree")
	if err != nil {
		return err
	}
	commit, err := r.git(ctx, files, "commit-tree", "-m", "version "+version, tree)
	if err != nil {
		return err
	}
	_, err = r.git(ctx, files, "update-ref", "refs/heads/"+branch, commit)
	return err
}

// move moves a branch to the commit of another, as a forced push does.
func (r *repository) move(ctx context.Context, branch, to string) error {
	_, err := r.git(ctx, r.above, "update-ref", "refs/heads/"+branch, "refs/heads/"+to)
	return err
}

func write(folder string, entries []sourcestest.Entry) error {
	for _, entry := range entries {
		file := filepath.Join(folder, entry.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("failed to create folder: %w", err)
		}
		var err error
		if entry.Link == "" {
			err = os.WriteFile(file, []byte(entry.Content), 0o644)
		} else {
			err = os.Symlink(entry.Link, file)
		}
		if err != nil {
			return fmt.Errorf("failed to write file: %w", err)
		}
	}
	return nil
}
