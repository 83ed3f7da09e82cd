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
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
)

// digest returns the SHA-256 of a list of strings, in hexadecimal. Each is prefixed with
// its length, so no two lists have the same digest.
func digest(values ...string) string {
	sum := sha256.New()
	for _, value := range values {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(value))))
		sum.Write([]byte(value))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func flatten(files map[string]string) []string {
	list := make([]string, 0, 2*len(files))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		list = append(list, name, files[name])
	}
	return list
}
