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

// Package sources unpacks code that somebody else has packed, and trusts nothing
// of it. It talks to nobody: package fetch gets what is unpacked here.
package sources

import (
	"errors"
	"fmt"
	"regexp"
)

// OCIScheme begins the URL of an artifact in a registry.
const OCIScheme = "oci://"

// The exit codes of the steps classify their failures. They are those of sysexits.h.
const (
	// ExitRefused means that the author must correct the source: it is missing, differs
	// from its description, or exceeds a limit.
	ExitRefused = 65
	// ExitNotInstalled is the exit code of the push step if the sidecar that installs
	// dependencies has failed. The log of the sidecar says why.
	ExitNotInstalled = 69
	// ExitUnreachable means that the network or the server of the source failed. A retry
	// may succeed.
	ExitUnreachable = 75
)

// Limits are how much a source may be. Whoever exceeds one is told its name, which
// is that of a key of config-build.
type Limits struct {
	// Download is the most bytes that are downloaded.
	Download int64

	// Size is the most bytes that all files have together, unpacked.
	Size int64

	// Files is the most files, folders and links there may be.
	Files int64

	// Ratio is the most times that what is unpacked may be larger than the archive.
	// It does not count below what nobody is harmed by.
	Ratio int64
}

// The keys of config-build that the limits are of.
const (
	MaxDownloadSizeKey  = "max-download-size"
	MaxUnpackedSizeKey  = "max-unpacked-size"
	MaxUnpackedFilesKey = "max-unpacked-files"
	MaxUnpackedRatioKey = "max-unpacked-ratio"
)

// Refusal is an error that only the Function's author can do something about.
type Refusal struct{ err error }

// Refuse returns an error in these words, which only the Function's author can do
// something about.
func Refuse(format string, args ...any) error {
	return &Refusal{fmt.Errorf(format, args...)}
}

// Error implements error.
func (r *Refusal) Error() string { return r.err.Error() }

// Unwrap returns the error that is refused.
func (r *Refusal) Unwrap() error { return r.err }

// Outage is an error that may be gone later.
type Outage struct{ err error }

// Unreachable returns an error in these words, which may be gone later.
func Unreachable(format string, args ...any) error {
	return &Outage{fmt.Errorf(format, args...)}
}

// Error implements error.
func (o *Outage) Error() string { return o.err.Error() }

// Unwrap returns what has failed.
func (o *Outage) Unwrap() error { return o.err }

var commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// IsCommit reports whether a revision of a repository is the hash of a commit.
func IsCommit(revision string) bool { return commitHash.MatchString(revision) }

// ExitCode returns the exit code for the error.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[*Refusal](err); ok {
		return ExitRefused
	}
	if _, ok := errors.AsType[*Outage](err); ok {
		return ExitUnreachable
	}
	return 1
}
