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

// Package digest hashes lists of strings.
package digest

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
)

// bufferBytes is how much of a string is copied at a time. As bytes in one piece,
// which is what a hash takes, a source and the wrapper of its runtime would be a third
// of the memory that reconciles ask for.
const bufferBytes = 1 << 10

// Of returns the SHA-256 of a list of strings, in hexadecimal. Each is prefixed with its
// length, so that no two lists are hashed from the same bytes.
func Of(values ...string) string {
	hash := sha256.New()
	// Neither fails: a hash takes all that is written.
	buffered := bufio.NewWriterSize(hash, bufferBytes)
	for _, value := range values {
		_, _ = buffered.Write(binary.BigEndian.AppendUint64(buffered.AvailableBuffer(), uint64(len(value))))
		_, _ = buffered.WriteString(value)
	}
	_ = buffered.Flush()
	return hex.EncodeToString(hash.Sum(nil))
}

// List returns what is in a map, such as files by their names, as a list: each key, in
// their order, and its value.
func List(values map[string]string) []string {
	list := make([]string, 0, 2*len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		list = append(list, key, values[key])
	}
	return list
}
