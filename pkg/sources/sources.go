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

// Package sources unpacks untrusted source code. Package fetch downloads it.
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

// Limits bound a source. Errors name the exceeded limit by its key in config-build.
type Limits struct {
	// Download is the maximum size of the download, in bytes.
	Download int64

	// Size is the maximum size of all files together, in bytes.
	Size int64

	// Files is the maximum number of files, folders and links.
	Files int64

	// Ratio is the maximum ratio of Size to that of the archive. It applies only above
	// ratioFloor.
	Ratio int64
}

// The keys of the limits in config-build.
const (
	MaxDownloadSizeKey  = "max-download-size"
	MaxUnpackedSizeKey  = "max-unpacked-size"
	MaxUnpackedFilesKey = "max-unpacked-files"
	MaxUnpackedRatioKey = "max-unpacked-ratio"
)

// RefusedError is an error that the Function's author must correct.
type RefusedError struct{ err error }

// Refuse returns a RefusedError with that text.
func Refuse(format string, args ...any) error {
	return &RefusedError{fmt.Errorf(format, args...)}
}

// Error implements error.
func (r *RefusedError) Error() string { return r.err.Error() }

// Unwrap returns the wrapped error.
func (r *RefusedError) Unwrap() error { return r.err }

// UnreachableError is a temporary error.
type UnreachableError struct{ err error }

// Unreachable returns an UnreachableError with that text.
func Unreachable(format string, args ...any) error {
	return &UnreachableError{fmt.Errorf(format, args...)}
}

// Error implements error.
func (o *UnreachableError) Error() string { return o.err.Error() }

// Unwrap returns the wrapped error.
func (o *UnreachableError) Unwrap() error { return o.err }

var commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// IsCommit reports whether a revision is the hash of a commit.
func IsCommit(revision string) bool { return commitHash.MatchString(revision) }

// ExitCode returns the exit code for the error.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[*RefusedError](err); ok {
		return ExitRefused
	}
	if _, ok := errors.AsType[*UnreachableError](err); ok {
		return ExitUnreachable
	}
	return 1
}
