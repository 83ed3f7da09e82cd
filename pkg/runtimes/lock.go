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

package runtimes

import (
	"errors"
	"strings"
)

// dependencies are a dependency file, read for the package manager.
type dependencies struct {
	// text is the normalized text of the dependency file, and lock that of the lock file
	// beside it, or "".
	text, lock string

	// install reports whether packages must be installed.
	install bool

	// locked reports whether text or lock fixes all versions.
	locked bool
}

var errTwoDocuments = errors.New("must be one JSON object: a lock file is a file of its own")

// ReadDependencies normalizes the text of the dependency file of a fetched source for the
// package manager. locked reports whether the text fixes all versions.
func (r Runtime) ReadDependencies(text string) (normal string, locked bool, err error) {
	parsed, err := r.parse(text)
	if err == nil && parsed.lock != "" {
		err = r.inDependencies(errTwoDocuments)
	}
	return parsed.text, parsed.locked, err
}

// SplitDependencies normalizes the deps of a Function, and returns the dependency file and
// the lock file that follows it, or "".
func (r Runtime) SplitDependencies(deps string) (file, lock string, err error) {
	parsed, err := r.parse(deps)
	return parsed.text, parsed.lock, err
}

// JoinDependencies returns the deps of a Function with that dependency file and lock file.
func JoinDependencies(file, lock string) string {
	return strings.TrimRight(file, "\n") + "\n" + lock
}

// FindLock returns the name of the lock file beside a dependency file with that text, or
// "". has reports whether a file is there. It returns an error if all lock files there are
// those of other package managers.
func (r Runtime) FindLock(text string, has func(name string) bool) (string, error) {
	if r.findLock == nil {
		return "", nil
	}
	parsed, err := r.parse(text)
	if err != nil || !parsed.install {
		return "", nil //nolint:nilerr // ReadDependencies returns this error.
	}
	return r.findLock(has)
}

// LockedDockerfile returns the Dockerfile that installs exactly the versions of a lock
// file.
func (r Runtime) LockedDockerfile(baseImage string) (string, error) {
	return renderDockerfile(r.DockerfileTemplate(), newDockerfileData(baseImage, true, true))
}
