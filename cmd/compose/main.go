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

// Command compose is the last step of a build: it adds a function's files, and the
// layers of an earlier step, to the base image and pushes the result. With the
// argument fetch it is the first step, and fetches a source that is not in the
// Function. It runs no code of the function.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kiln-dev/kiln/pkg/compose"
	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/fetch"
)

const fetchCommand = "fetch"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == fetchCommand {
		if err := fetchSource(ctx, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(sources.ExitCode(err))
		}
		return
	}
	err := parsePush(os.Args[1:]).Run(ctx, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	if errors.Is(err, compose.ErrNotInstalled) {
		os.Exit(sources.ExitNotInstalled)
	}
	os.Exit(1)
}

func fetchSource(ctx context.Context, args []string) error {
	step, err := parseFetch(args)
	if err != nil {
		return err
	}
	return step.Run(ctx)
}

// parsePush returns the step that composes and pushes the image, or exits. The log
// goes where the error goes: it must be the last line of a failed step.
func parsePush(args []string) *compose.PushStep {
	s := &compose.PushStep{Labels: map[string]string{}, Log: os.Stderr}
	flags := flag.NewFlagSet("compose", flag.ExitOnError)
	flags.StringVar(&s.Base, "base", "", "the base image; if empty, the image has only the layers")
	flags.StringVar(&s.Dependencies, "dependencies", "", "an image that an earlier build kept: the base image with the layers")
	flags.StringVar(&s.Packages, "packages", "", "the digest of the list of the packages in the dependencies")
	flags.StringVar(&s.Destination, "destination", "", "the name of the image to push")
	flags.StringVar(&s.Keep, "keep", "", "where to push the base image with the layers, for later builds")
	flags.Func("insecure-registry", "a host to access by plain HTTP; may be repeated", func(host string) error {
		s.InsecureRegistries = append(s.InsecureRegistries, host)
		return nil
	})
	flags.StringVar(&s.ContextFolder, "context", "", "the folder with the files of the function")
	flags.StringVar(&s.Layers, "layers", "", "a folder in which a sidecar writes layers, *.tar.gz, to add before the files, in the order of their names")
	flags.StringVar(&s.Layout, "layout", "", "a JSON file with the paths of the files in the image and its start command")
	flags.StringVar(&s.Config, "config", "", "instead of a layout, a JSON file with the image configuration of the layers")
	flags.Func("label", "a label of the image, name=value; may be repeated", func(label string) error {
		name, value, _ := strings.Cut(label, "=")
		s.Labels[name] = value
		return nil
	})
	flags.StringVar(&s.SourceFile, "source", "", "a JSON file that names the source that was fetched")
	flags.StringVar(&s.ImageURLFile, "image-url-file", "", "the file for the name of the image")
	flags.StringVar(&s.ImageDigestFile, "image-digest-file", "", "the file for the digest of the image")
	flags.StringVar(&s.BaseImageFile, "base-image-file", "", "the file for name and digest of the base image, in JSON")
	flags.StringVar(&s.KeptFile, "kept-file", "", "the file for tag and digest of what was kept, and the digest of the list of its packages, in JSON")
	flags.StringVar(&s.ResultsFile, "results-file", "", "the file for all results but the name of the image, in one JSON object")
	_ = flags.Parse(args) // It exits if it fails.
	return s
}

func parseFetch(args []string) (*compose.FetchStep, error) {
	s := &compose.FetchStep{Log: os.Stderr}
	flags := flag.NewFlagSet(fetchCommand, flag.ContinueOnError)
	flags.StringVar(&s.Archive.URL, "archive", "", "the URL of an archive, .zip or .tar.gz: http, https, oci or s3")
	flags.StringVar(&s.Archive.SHA256, "sha256", "", "the expected sha256 of the archive; if empty, it is not checked")
	flags.StringVar(&s.Git.URL, "git", "", "the URL of a Git repository, instead of an archive")
	flags.StringVar(&s.Git.Revision, "revision", "", "its branch, tag or commit; if empty, its default branch")
	flags.StringVar(&s.Git.Folder, "folder", "", "the folder of the repository; if empty, all of it")
	flags.StringVar(&s.Archive.S3.Endpoint, "s3-endpoint", "", "the URL of the object store; if empty, Amazon's")
	flags.StringVar(&s.Archive.S3.Region, "s3-region", "", "the region of the bucket")
	flags.BoolFunc("s3-path-style", "whether the path names the bucket, and not the host", func(text string) error {
		inPath, err := strconv.ParseBool(text)
		s.Archive.S3.PathStyle = &inPath
		return err
	})
	var credentials, registryCredentials string
	flags.StringVar(&credentials, "credentials", "", "the folder with the credentials of the source")
	flags.StringVar(&registryCredentials, "registry-credentials", "", "the folder with credentials of registries, config.json, where the others do not apply")
	flags.Func("insecure-registry", "a host to access by plain HTTP; may be repeated", func(host string) error {
		s.Archive.Insecure = append(s.Archive.Insecure, host)
		return nil
	})
	flags.Int64Var(&s.Limits.Download, sources.MaxDownloadSizeKey, 0, "the most bytes to download")
	flags.Int64Var(&s.Limits.Size, sources.MaxUnpackedSizeKey, 0, "the most bytes of all files together")
	flags.Int64Var(&s.Limits.Files, sources.MaxUnpackedFilesKey, 0, "the most files and folders")
	flags.Int64Var(&s.Limits.Ratio, sources.MaxUnpackedRatioKey, 0, "the greatest ratio of the size of the files to that of the archive")
	flags.StringVar(&s.Files, "files", "", "the folder with the files that the runtime adds to the context")
	flags.StringVar(&s.Work, "work", "", "an empty folder; its folder context becomes the build context")
	flags.StringVar(&s.Tree, "tree", "", "the folder of the context for the source; if empty, the context itself")
	flags.StringVar(&s.Base, "base", "", "the base image, with a tree")
	flags.StringVar(&s.Language, "language", "", "the language of the runtime")
	flags.Func("source-file", "a file of which the source must have one; may be repeated", func(name string) error {
		s.SourceFiles = append(s.SourceFiles, name)
		return nil
	})
	flags.StringVar(&s.DependencyFile, "dependency-file", "", "the file of the source with its dependencies, which the context must have")
	flags.StringVar(&s.OriginFile, "origin-file", "", "the file for URL and digest of the source, in JSON")
	err := flags.Parse(args)
	s.Archive.Credentials, s.Git.Credentials = fetch.Credentials(credentials), fetch.Credentials(credentials)
	s.Archive.RegistryCredentials = fetch.Credentials(registryCredentials)
	return s, err
}
