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

package builds

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
)

// bufferBytes bounds how much of a string is copied at a time. Whole copies of sources
// and wrappers would be a third of the memory that reconciles allocate.
const bufferBytes = 1 << 10

// SourceHash returns the hash of an inline source for the label source-hash of its image:
// sha256: and 64 hexadecimal digits.
func SourceHash(source string) string {
	sum := sha256.New()
	buffered := newWriter(sum)
	_, _ = buffered.WriteString(source)
	_ = buffered.Flush()
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// ContextDigest returns a digest of a build context: the names and the contents of files.
func ContextDigest(files map[string]string) string {
	return digest(flatten(files)...)
}

// digest returns the SHA-256 of a list of strings, in hexadecimal. Each is prefixed with
// its length, so no two lists have the same digest.
func digest(values ...string) string {
	sum := sha256.New()
	buffered := newWriter(sum)
	for _, value := range values {
		_, _ = buffered.Write(binary.BigEndian.AppendUint64(buffered.AvailableBuffer(), uint64(len(value))))
		_, _ = buffered.WriteString(value)
	}
	_ = buffered.Flush()
	return hex.EncodeToString(sum.Sum(nil))
}

// newWriter returns a buffer in front of a hash. Its writes never fail.
func newWriter(sum hash.Hash) *bufio.Writer { return bufio.NewWriterSize(sum, bufferBytes) }

// flatten returns the names and contents of files as one list, sorted by name.
func flatten(files map[string]string) []string {
	list := make([]string, 0, 2*len(files))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		list = append(list, name, files[name])
	}
	return list
}
