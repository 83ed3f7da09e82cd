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

package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// keyLength is the length of a key: 96 bits are plenty for a cache, and the
// paths stay readable.
const keyLength = 24

// Input is something an entry is made from.
type Input func(h hash.Hash) error

// Key returns the key of an entry that is made from the inputs, in their order.
func Key(inputs ...Input) (string, error) {
	h := sha256.New()
	for _, input := range inputs {
		if err := input(h); err != nil {
			return "", fmt.Errorf("failed to hash inputs: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:keyLength], nil
}

// Text is an input that consists of strings: versions, flags, other keys.
func Text(texts ...string) Input {
	return func(h hash.Hash) error {
		for _, t := range texts {
			// The length keeps "a", "bc" and "ab", "c" apart.
			fmt.Fprintf(h, "text %d %s\n", len(t), t)
		}
		return nil
	}
}

// File is an input that is the content of a file.
func File(path string) Input {
	return func(h hash.Hash) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			return err
		}
		fmt.Fprintf(h, "file %x\n", sum.Sum(nil))
		return nil
	}
}

// Dir is an input that consists of all files in a directory: their names, their
// content and whether they can be executed. Tests and notes are left out,
// because nothing is made from them.
func Dir(root string) Input {
	return func(h hash.Hash) error {
		return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || ignored(d.Name()) {
				return err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			return hashEntry(h, path, filepath.ToSlash(rel), d)
		})
	}
}

func ignored(name string) bool {
	return strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".md")
}

func hashEntry(h hash.Hash, path, rel string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "entry %q %t %t\n", rel, d.Type()&fs.ModeSymlink != 0, info.Mode()&0o111 != 0)
	if d.Type()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return Text(target)(h)
	}
	return File(path)(h)
}
