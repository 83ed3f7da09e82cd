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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
)

const (
	// spoolName and unpackedName are temporary names in the working folder.
	// contextName and originName are the results in it.
	spoolName    = "archive"
	unpackedName = "unpacked"
	contextName  = "context"
	originName   = "source.json"
)

// FetchStep is the first step of a build whose source is not in the Function. It
// makes the build context: the source, and the files that the runtime adds.
type FetchStep struct {
	// Archive is the source, unless Git has a URL.
	Archive fetch.Archive

	// Git is the source if it has a URL.
	Git fetch.Git

	// Limits bound the size of the source.
	Limits sources.Limits

	// Files is a folder with the files that the runtime adds to the context.
	Files string

	// Work is an empty folder. Its folder context becomes the build context. Its file
	// source.json names what was fetched; it appears when the context is complete.
	Work string

	// Tree is the folder of the build context for the source. If it is empty, the
	// source is in the context itself.
	Tree string

	// Base is the base image of the Dockerfile that installs from a lock file. It is unused
	// without a Tree: the administrator's Dockerfile then reads the lock file itself.
	Base string

	// Language is the language of the runtime.
	Language string

	// SourceFiles are the files of which the source must have one.
	SourceFiles []string

	// DependencyFile is the file of the source that the context must have. It is
	// empty if the runtime has none.
	DependencyFile string

	// OriginFile receives a result: URL and digest of the source, in JSON. An empty
	// name skips it.
	OriginFile string

	// Log receives one line for each action.
	Log io.Writer
}

type fetched struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
}

// Run fetches the source and makes the build context. sources.ExitCode gives the
// exit code for an error.
func (s *FetchStep) Run(ctx context.Context) error {
	work, err := os.OpenRoot(s.Work)
	if err != nil {
		return fmt.Errorf("failed to open working folder: %w", err)
	}
	defer work.Close()
	name, get := "archive "+fetch.Name(s.Archive.URL), s.unpack
	if s.Git.URL != "" {
		name, get = "repository "+fetch.GitName(s.Git.URL), s.clone
	}
	fmt.Fprintln(s.Log, "Fetching", name)
	found, top, err := get(ctx, work)
	if err != nil {
		return fmt.Errorf("the %s cannot be used: %w", name, err)
	}
	if err := s.makeContext(work, top); err != nil {
		return fmt.Errorf("the %s cannot be used: %w", name, err)
	}
	fmt.Fprintln(s.Log, "Fetched", found.Digest)
	text, err := s.report(found)
	if err != nil {
		return err
	}
	// The install sidecar starts when this file appears.
	return put(work, originName, text)
}

func (s *FetchStep) unpack(ctx context.Context, work *os.Root) (found fetched, top string, err error) {
	spool, err := work.OpenFile(spoolName, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return found, "", fmt.Errorf("failed to create file: %w", err)
	}
	defer spool.Close()
	// An open file without a name vanishes when it is closed.
	if err := work.Remove(spoolName); err != nil {
		return found, "", fmt.Errorf("failed to remove file: %w", err)
	}
	archive, err := s.Archive.Fetch(ctx, spool, s.Limits)
	if err != nil {
		return found, "", err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return found, "", fmt.Errorf("failed to read archive: %w", err)
	}
	unpacked, err := createFolder(work, unpackedName)
	if err != nil {
		return found, "", err
	}
	defer unpacked.Close()
	if err := sources.Unpack(spool, archive.Size, unpacked, s.Limits); err != nil {
		return found, "", err
	}
	if top, err = sources.Top(unpacked, s.SourceFiles...); err != nil {
		return found, "", err
	}
	return fetched{URI: fetch.Name(s.Archive.URL), Digest: "sha256:" + archive.SHA256}, filepath.Join(unpackedName, top), nil
}

func createFolder(in *os.Root, name string) (*os.Root, error) {
	if err := in.Mkdir(name, 0o755); err != nil {
		return nil, fmt.Errorf("failed to create folder: %w", err)
	}
	folder, err := in.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("failed to open folder: %w", err)
	}
	return folder, nil
}

// clone fetches the files of the revision, without the history. top is the folder
// of the source.
func (s *FetchStep) clone(ctx context.Context, work *os.Root) (found fetched, top string, err error) {
	files, err := createFolder(work, unpackedName)
	if err != nil {
		return found, "", err
	}
	defer files.Close()
	if err := work.Mkdir(spoolName, 0o700); err != nil {
		return found, "", fmt.Errorf("failed to create folder: %w", err)
	}
	tree := sources.NewTree(files, s.Limits)
	defer tree.Close()
	commit, err := s.Git.Fetch(ctx, filepath.Join(s.Work, spoolName), tree, s.Limits)
	if commit != "" {
		// Git polling must know this commit even if the build fails.
		found = fetched{URI: "git+" + fetch.GitName(s.Git.URL), Digest: "sha1:" + commit}
		_, unreported := s.report(found)
		err = errors.Join(err, unreported)
	}
	if err == nil {
		err = work.RemoveAll(spoolName)
	}
	if err != nil {
		return found, "", err
	}
	if err = sources.Has(files, s.SourceFiles...); err != nil && s.Git.Folder != "" {
		err = fmt.Errorf("its folder %s is not a function: %w", s.Git.Folder, err)
	}
	return found, unpackedName, err
}

func (s *FetchStep) report(found fetched) ([]byte, error) {
	text, err := json.Marshal(found)
	if err != nil {
		return nil, fmt.Errorf("failed to encode source: %w", err)
	}
	return text, writeResult(s.OriginFile, string(text))
}

// readSourceHash returns the digest of the source from a file that FetchStep wrote:
// sha256:… of an archive or sha1:… of a commit.
func readSourceHash(file string) (string, error) {
	found := fetched{}
	if err := readJSON(file, &found); err != nil {
		return "", err
	}
	algorithm, _, ok := strings.Cut(found.Digest, ":")
	if !ok || !slices.Contains([]string{"sha256", "sha1"}, algorithm) {
		return "", fmt.Errorf("failed to read %s: %q is not a digest", filepath.Base(file), found.Digest)
	}
	return found.Digest, nil
}
