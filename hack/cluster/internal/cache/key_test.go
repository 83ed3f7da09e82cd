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
	"os"
	"path/filepath"
	"testing"
)

func key(t *testing.T, inputs ...Input) string {
	t.Helper()
	k, err := Key(inputs...)
	if err != nil {
		t.Fatalf("Key() = %v", err)
	}
	return k
}

func TestKeyOfTexts(t *testing.T) {
	if len(key(t)) != keyLength {
		t.Errorf("key %q has not %d characters", key(t), keyLength)
	}
	if key(t, Text("a", "bc")) != key(t, Text("a"), Text("bc")) {
		t.Error("keys differ for the same texts")
	}
	if key(t, Text("a", "bc")) == key(t, Text("ab", "c")) {
		t.Error("keys are the same for texts that are split elsewhere")
	}
}

func TestKeyOfDir(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "main.go"), "package main")
	write(t, filepath.Join(dir, "sub", "data"), "1")
	before := key(t, Dir(dir))

	changes := []struct {
		name   string
		change func() error
		undo   func() error
		same   bool
	}{{
		name:   "content",
		change: func() error { return os.WriteFile(filepath.Join(dir, "sub", "data"), []byte("2"), 0o644) },
		undo:   func() error { return os.WriteFile(filepath.Join(dir, "sub", "data"), []byte("1"), 0o644) },
	}, {
		name:   "name",
		change: func() error { return os.Rename(filepath.Join(dir, "main.go"), filepath.Join(dir, "other.go")) },
		undo:   func() error { return os.Rename(filepath.Join(dir, "other.go"), filepath.Join(dir, "main.go")) },
	}, {
		name:   "mode",
		change: func() error { return os.Chmod(filepath.Join(dir, "main.go"), 0o755) },
		undo:   func() error { return os.Chmod(filepath.Join(dir, "main.go"), 0o644) },
	}, {
		name:   "link",
		change: func() error { return os.Symlink("main.go", filepath.Join(dir, "link")) },
		undo:   func() error { return os.Remove(filepath.Join(dir, "link")) },
	}, {
		name:   "test",
		change: func() error { return os.WriteFile(filepath.Join(dir, "main_test.go"), nil, 0o644) },
		undo:   func() error { return os.Remove(filepath.Join(dir, "main_test.go")) },
		same:   true,
	}}
	for _, c := range changes {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if got := key(t, Dir(dir)) == before; got != c.same {
			t.Errorf("%s changed: key is the same = %t, want %t", c.name, got, c.same)
		}
		if err := c.undo(); err != nil {
			t.Fatal(err)
		}
		if key(t, Dir(dir)) != before {
			t.Errorf("%s changed back: key is not what it was", c.name)
		}
	}
}

func TestKeyOfMissingFile(t *testing.T) {
	if _, err := Key(File(filepath.Join(t.TempDir(), "missing"))); err == nil {
		t.Error("Key() of a missing file has no error")
	}
}
