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
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-dev/kiln/pkg/runtimes"
	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
)

const (
	// spoolName and unpackedName are what the working folder has while the source is
	// made of it; contextName and originName are what is left in it.
	spoolName    = "archive"
	unpackedName = "unpacked"
	contextName  = "context"
	originName   = "source.json"

	// maxDependencies is the most that a dependency file may have.
	maxDependencies = 1 << 20
)

// fetchOrder says which source to fetch, and what to make of it.
type fetchOrder struct {
	archive fetch.Archive
	git     fetch.Git
	limits  sources.Limits

	// files is the folder with what the runtime adds, and work an empty one.
	files, work string
	// tree is the folder of the build context that the source becomes; "" is the
	// context itself.
	tree string

	// language, sourceFile and dependencyFile are the runtime's.
	language, sourceFile, dependencyFile string

	// credentials is the folder with those of the source, and registryCredentials one
	// with those of the registry that images are in.
	credentials, registryCredentials string

	// originFile is where to tell what was fetched.
	originFile string
}

// fetched is what was fetched, in the words of what Tekton Chains attests.
type fetched struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
}

// parseFetch returns what the command line says.
func parseFetch(args []string) (*fetchOrder, error) {
	o := &fetchOrder{}
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	flags.StringVar(&o.archive.URL, "archive", "", "the URL of an archive, .zip or .tar.gz: http, https, oci or s3")
	flags.StringVar(&o.archive.SHA256, "sha256", "", "what the sha256 of the archive must be; any if left out")
	flags.StringVar(&o.git.URL, "git", "", "the URL of a Git repository, instead of an archive")
	flags.StringVar(&o.git.Revision, "revision", "", "its branch, tag or commit; left out, the branch that it is on")
	flags.StringVar(&o.git.Folder, "folder", "", "the folder of it; left out, all of it")
	flags.StringVar(&o.archive.S3.Endpoint, "s3-endpoint", "", "the URL of the store that the bucket is in; left out, Amazon's")
	flags.StringVar(&o.archive.S3.Region, "s3-region", "", "the region of the bucket")
	flags.BoolFunc("s3-path-style", "whether the bucket is named in the path, and not in the host", func(text string) error {
		inPath, err := strconv.ParseBool(text)
		o.archive.S3.PathStyle = &inPath
		return err
	})
	flags.StringVar(&o.credentials, "credentials", "", "the folder with the credentials")
	flags.StringVar(&o.registryCredentials, "registry-credentials", "", "the folder with those of registries, in config.json, where the others are for none")
	flags.Func("insecure-registry", "a host that speaks plain HTTP; may be given more than once", func(host string) error {
		o.archive.Insecure = append(o.archive.Insecure, host)
		return nil
	})
	flags.Int64Var(&o.limits.Download, sources.MaxDownloadSizeKey, 0, "the most bytes to download")
	flags.Int64Var(&o.limits.Size, sources.MaxUnpackedSizeKey, 0, "the most bytes of all files together")
	flags.Int64Var(&o.limits.Files, sources.MaxUnpackedFilesKey, 0, "the most files and folders")
	flags.Int64Var(&o.limits.Ratio, sources.MaxUnpackedRatioKey, 0, "the most times that the files are larger than the archive")
	flags.StringVar(&o.files, "files", "", "the folder with the files that the runtime adds to the context")
	flags.StringVar(&o.work, "work", "", "an empty folder, in which the folder "+contextName+" becomes the build context")
	flags.StringVar(&o.tree, "tree", "", "the folder of the context that the source is put into; left out, the context itself")
	flags.StringVar(&o.language, "language", "", "the language of the runtime")
	flags.StringVar(&o.sourceFile, "source-file", "", "the file that the source must have")
	flags.StringVar(&o.dependencyFile, "dependency-file", "", "the file of the source with its dependencies, which the context is to have")
	flags.StringVar(&o.originFile, "origin-file", "", "where to write, in JSON, the URL and the digest of what was fetched")
	err := flags.Parse(args)
	o.archive.Credentials, o.git.Credentials = fetch.Credentials(o.credentials), fetch.Credentials(o.credentials)
	o.archive.RegistryCredentials = fetch.Credentials(o.registryCredentials)
	return o, err
}

// fetchSource is the first step of a build whose source is not in the Function: it
// makes the build context of it. It executes nothing of the source.
func fetchSource(ctx context.Context, args []string) error {
	o, err := parseFetch(args)
	if err != nil {
		return err
	}
	return o.carryOut(ctx)
}

func (o *fetchOrder) carryOut(ctx context.Context) error {
	work, err := os.OpenRoot(o.work)
	if err != nil {
		return fmt.Errorf("failed to open working folder: %w", err)
	}
	defer work.Close()
	name, get := "archive "+fetch.Name(o.archive.URL), o.unpack
	if o.git.URL != "" {
		name, get = "repository "+fetch.GitName(o.git.URL), o.clone
	}
	say("Fetching", name)
	found, top, err := get(ctx, work)
	if err != nil {
		return fmt.Errorf("the %s cannot be used: %w", name, err)
	}
	if err := o.makeContext(work, top); err != nil {
		return fmt.Errorf("the %s cannot be used: %w", name, err)
	}
	say("Fetched", found.Digest)
	return o.report(work, found)
}

// unpack fetches the archive and unpacks it. The top of it is where the source is.
func (o *fetchOrder) unpack(ctx context.Context, work *os.Root) (found fetched, top string, err error) {
	spool, err := work.OpenFile(spoolName, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return found, "", fmt.Errorf("failed to create file: %w", err)
	}
	defer spool.Close()
	// Whatever happens, it is gone when it is closed.
	if err := work.Remove(spoolName); err != nil {
		return found, "", fmt.Errorf("failed to hide file: %w", err)
	}
	archive, err := o.archive.Fetch(ctx, spool, o.limits)
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
	if err := sources.Unpack(spool, archive.Size, unpacked, o.limits); err != nil {
		return found, "", err
	}
	if top, err = sources.Top(unpacked, o.sourceFile); err != nil {
		return found, "", err
	}
	return fetched{URI: fetch.Name(o.archive.URL), Digest: "sha256:" + archive.SHA256}, filepath.Join(unpackedName, top), nil
}

// createFolder creates a folder in another, and opens it.
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

// clone fetches the revision of the repository, and leaves nothing of the rest.
func (o *fetchOrder) clone(ctx context.Context, work *os.Root) (found fetched, top string, err error) {
	files, err := createFolder(work, unpackedName)
	if err != nil {
		return found, "", err
	}
	defer files.Close()
	if err := work.Mkdir(spoolName, 0o700); err != nil {
		return found, "", fmt.Errorf("failed to create folder: %w", err)
	}
	tree := sources.NewTree(files, o.limits)
	defer tree.Close()
	commit, err := o.git.Fetch(ctx, filepath.Join(o.work, spoolName), tree, o.limits)
	if commit != "" {
		// Who follows the branch is to know that it has been at this commit, whatever
		// is wrong with it.
		found = fetched{URI: "git+" + fetch.GitName(o.git.URL), Digest: "sha1:" + commit}
		err = errors.Join(err, o.report(work, found))
	}
	if err == nil {
		err = work.RemoveAll(spoolName)
	}
	if err != nil {
		return found, "", err
	}
	if err = sources.Has(files, o.sourceFile); err != nil && o.git.Folder != "" {
		err = fmt.Errorf("its folder %s is no function: %w", o.git.Folder, err)
	}
	return found, unpackedName, err
}

// makeContext makes the build context of the source, and of what the runtime adds.
func (o *fetchOrder) makeContext(work *os.Root, top string) error {
	source := filepath.Join(contextName, o.tree)
	if o.tree != "" {
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
	if err := o.addDependencies(tree, folder); err != nil {
		return err
	}
	return o.addFiles(folder)
}

// addDependencies puts the dependency file where the Dockerfile expects it, in the
// form that a Function's own has.
func (o *fetchOrder) addDependencies(tree, folder *os.Root) error {
	if o.dependencyFile == "" {
		return nil
	}
	text, err := readSmall(tree, o.dependencyFile)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = "", nil
	}
	if err != nil {
		return err
	}
	runtime, known := runtimes.For(o.language)
	if !known {
		if text != "" {
			return nil // It is where it is to be.
		}
		return put(folder, o.dependencyFile, nil)
	}
	text, err = runtime.ReadDependencies(text)
	if err != nil {
		return sources.Refuse("its %w", err)
	}
	return put(folder, o.dependencyFile, []byte(text))
}

// readSmall reads a file of the source that is no larger than a Function's own.
func readSmall(tree *os.Root, name string) (string, error) {
	file, err := tree.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxDependencies+1))
	if err != nil {
		return "", sources.Refuse("its %s is no file", name)
	}
	if len(text) > maxDependencies {
		return "", sources.Refuse("its %s is more than %s", name, sources.InWords(maxDependencies))
	}
	return string(text), nil
}

// addFiles adds the runtime's files, which win over those of the source.
func (o *fetchOrder) addFiles(folder *os.Root) error {
	entries, err := os.ReadDir(o.files)
	if err != nil {
		return fmt.Errorf("failed to list the runtime's files: %w", err)
	}
	for _, entry := range entries {
		// What begins so is how a ConfigMap is mounted.
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(o.files, entry.Name()))
		if err != nil {
			return fmt.Errorf("failed to read the runtime's file: %w", err)
		}
		if err := put(folder, entry.Name(), content); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file in place of whatever has its name.
func put(folder *os.Root, name string, content []byte) error {
	if err := folder.RemoveAll(name); err != nil {
		return fmt.Errorf("failed to replace %s: %w", name, err)
	}
	if err := folder.WriteFile(name, content, 0o644); err != nil {
		return fmt.Errorf("failed to write %s: %w", name, err)
	}
	return nil
}

// report tells what was fetched: to Tekton, and to the step that pushes.
func (o *fetchOrder) report(work *os.Root, found fetched) error {
	text, err := json.Marshal(found)
	if err != nil {
		return fmt.Errorf("failed to encode what was fetched: %w", err)
	}
	return errors.Join(put(work, originName, text), writeResult(o.originFile, string(text)))
}

// sourceLabel returns the label of the image that tells which source it has.
func sourceLabel(file string) (string, error) {
	found := fetched{}
	if err := readJSON(file, &found); err != nil {
		return "", err
	}
	algorithm, _, ok := strings.Cut(found.Digest, ":")
	if !ok || !slices.Contains([]string{"sha256", "sha1"}, algorithm) {
		return "", fmt.Errorf("failed to read %s: %q is no digest", filepath.Base(file), found.Digest)
	}
	return found.Digest, nil
}
