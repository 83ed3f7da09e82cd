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
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

// Digests describes the author's files of a Function without their text.
type Digests struct {
	// Source is the digest of the source file.
	Source string

	// Dependencies describes the dependency file, as each language reads it.
	Dependencies map[string]Dependencies
}

// Dependencies describes a dependency file.
type Dependencies struct {
	// Digest is the digest of the normalized text.
	Digest string

	// Lock is the digest of the lock file that follows the text, or "".
	Lock string

	// Locked reports whether all versions are fixed.
	Locked bool

	// Install reports whether packages must be installed.
	Install bool

	// Problem says what is wrong with the text, or is "".
	Problem string
}

var readers = func() map[string]func(string) (dependencies, error) {
	all := map[string]func(string) (dependencies, error){CustomLanguage: readAnything}
	for language, runtime := range languages {
		all[language] = runtime.readDependencies
	}
	return all
}()

// noDependencies describes a blank dependency file. Most Functions share it.
var noDependencies = describe("")

// DigestsOf returns the digests of the author's files. A language that an administrator
// configures later needs no other ones.
func DigestsOf(source, dependencies string) *Digests {
	digests := &Digests{Source: Digest(source), Dependencies: noDependencies}
	if dependencies != "" {
		digests.Dependencies = describe(dependencies)
	}
	return digests
}

func describe(text string) map[string]Dependencies {
	described := make(map[string]Dependencies, len(readers))
	for language, read := range readers {
		parsed, err := read(text)
		if err != nil {
			described[language] = Dependencies{Problem: shorten(err.Error())}
			continue
		}
		of := Dependencies{Digest: Digest(parsed.text), Install: parsed.install, Locked: parsed.locked}
		if parsed.lock != "" {
			of.Lock = Digest(parsed.lock)
		}
		described[language] = of
	}
	return described
}

const maxProblemBytes = 256

// shorten returns the beginning of the text, and keeps nothing else of it in memory.
func shorten(text string) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), maxProblemBytes)]), "")
}

// DeepCopy returns d, because nothing changes digests.
func (d *Digests) DeepCopy() *Digests { return d }

// ContextDigests returns the digest of each file that BuildContext returns. It needs only
// the digests of the author's files: it ignores fn.Source and fn.Dependencies.
func (r Runtime) ContextDigests(fn Function, author *Digests) (map[string]string, error) {
	read := author.Dependencies[r.Language]
	switch {
	case r.DependencyFile == "":
		if err := r.checkNone(!author.Dependencies[CustomLanguage].Install); err != nil {
			return nil, err
		}
		read = Dependencies{}
	case read.Problem != "":
		return nil, r.inDependencies(errors.New(read.Problem))
	}
	files, err := r.context(fn, "", dependencies{install: read.Install, locked: read.Locked})
	if err != nil {
		return nil, err
	}
	digests := make(map[string]string, len(files))
	for name, text := range files {
		digests[name] = Digest(text)
	}
	if !fn.Fetched {
		digests[r.SourceFile] = author.Source
		if r.DependencyFile != "" {
			digests[r.DependencyFile] = read.Digest
		}
		if read.Lock != "" {
			digests[r.LockFile] = read.Lock
		}
	}
	return digests, nil
}

// bufferBytes bounds how much of a text is copied at a time.
const bufferBytes = 1 << 10

// Digest returns the digest of a file: sha256: and 64 hexadecimal digits.
func Digest(text string) string {
	sum := sha256.New()
	buffered := bufio.NewWriterSize(sum, bufferBytes)
	_, _ = buffered.WriteString(text)
	_ = buffered.Flush()
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}
