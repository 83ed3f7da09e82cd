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

package sources_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/sourcestest"
)

// shipped are the limits of config-build as it is shipped.
var shipped = sources.Limits{Download: 100 << 20, Size: 500 << 20, Files: 20000, Ratio: 100}

// unpack unpacks an archive as a build does, and returns the folder.
func unpack(t *testing.T, archive []byte, limits sources.Limits) (string, error) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "a", "b")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := sources.Unpack(bytes.NewReader(archive), int64(len(archive)), root, limits); err != nil {
		return folder, err
	}
	if _, err := sources.Top(root, "handler.js"); err != nil {
		return folder, err
	}
	return folder, sources.CheckLinks(root)
}

// contents describes the files below a folder: the content of files, with ! where they
// can be executed, / for folders, and -> for links.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == folder {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		switch entry.Type() {
		case fs.ModeDir:
			found[name] = "/"
			return nil
		case fs.ModeSymlink:
			target, err := os.Readlink(file)
			found[name] = "-> " + target
			return err
		}
		content, err := os.ReadFile(file)
		if info, err := entry.Info(); err == nil && info.Mode()&0o111 != 0 {
			name += "!"
		}
		found[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestUnpack(t *testing.T) {
	entries := []sourcestest.Entry{
		sourcestest.File("./handler.js", "code"),
		{Name: "lib/"},
		sourcestest.File("lib/größer 大.js", "more"),
		{Name: "bin/run", Content: "#!", Mode: 0o111},
		{Name: "lib/up", Link: "../bin/./run"},
		{Name: "here", Link: "."},
		sourcestest.File("..almost", "fine"),
	}
	want := map[string]string{
		"handler.js": "code", "lib": "/", "lib/größer 大.js": "more", "bin": "/", "bin/run!": "#!", "lib/up": "-> ../bin/./run", "here": "-> .",
		"..almost": "fine",
	}
	for name, archive := range map[string][]byte{"zip": sourcestest.Zip(entries...), "tar.gz": sourcestest.TarGz(entries...)} {
		folder, err := unpack(t, archive, shipped)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, contents(t, folder)); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", name, diff)
		}
	}
	folder, err := unpack(t, sourcestest.TarGz(append(entries, sourcestest.Entry{Name: "same", Hard: "./handler.js"})...), shipped)
	if got := contents(t, folder)["same"]; err != nil || got != "code" {
		t.Errorf("a second name of a file: %q, %v", got, err)
	}
}

// TestUnpackHostile checks that each is refused in its own words, soon, and that
// nothing is written but below the folder.
func TestUnpackHostile(t *testing.T) {
	limits := shipped
	limits.Files = 1000
	for name, hostile := range sourcestest.HostileArchives(int(limits.Files)) {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			folder, err := unpack(t, hostile.Archive, limits)
			if err == nil || !strings.Contains(err.Error(), hostile.Want) {
				t.Errorf("Unpack() = %v, want %q", err, hostile.Want)
			}
			if sources.ExitCode(err) != sources.ExitRefused {
				t.Errorf("the exit code is %d, want %d", sources.ExitCode(err), sources.ExitRefused)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			above := contents(t, filepath.Dir(filepath.Dir(folder)))
			for file := range above {
				if file != "a" && file != "a/b" && !strings.HasPrefix(file, "a/b/") {
					t.Errorf("%s was written", file)
				}
			}
		})
	}
	if _, err := os.Lstat("/tmp/escaped"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("/tmp/escaped was written: %v", err)
	}
}

func TestUnpackLimits(t *testing.T) {
	kilobyte := strings.Repeat("x", 1<<10)
	entries := []sourcestest.Entry{sourcestest.File("handler.js", kilobyte), sourcestest.File("a/b", kilobyte)}
	for name, tc := range map[string]struct {
		limits sources.Limits
		want   string
	}{
		"exactly":   {sources.Limits{Size: 2 << 10, Files: 3, Ratio: 1}, ""},
		"size":      {sources.Limits{Size: 2<<10 - 1, Files: 3, Ratio: 1}, "its files are more than 2047 bytes together (max-unpacked-size in config-build)"},
		"half size": {sources.Limits{Size: 1 << 10, Files: 3, Ratio: 1}, "its files are more than 1Ki together"},
		"count":     {sources.Limits{Size: 1 << 20, Files: 2, Ratio: 1}, "it has more than 2 files and folders"},
	} {
		for kind, archive := range map[string][]byte{"zip": sourcestest.Zip(entries...), "tar.gz": sourcestest.TarGz(entries...)} {
			if _, err := unpack(t, archive, tc.limits); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s, %s: Unpack() = %v, want %q", name, kind, err, tc.want)
			}
		}
	}
	linked := append(entries, sourcestest.Entry{Name: "again", Hard: "a/b"})
	if _, err := unpack(t, sourcestest.TarGz(linked...), sources.Limits{Size: 2 << 10, Files: 4, Ratio: 1}); err == nil {
		t.Error("a file with two names counts once")
	}
}

// TestUnpackMemory checks that no archive takes much memory, neither with its content nor
// with its number of files.
func TestUnpackMemory(t *testing.T) {
	// Each of a zip's files is in a directory of its own at the end, which is read
	// before it is known how many there are.
	limits := shipped
	limits.Files = 1000
	var entries []sourcestest.Entry
	for i := range 50000 {
		entries = append(entries, sourcestest.File(strings.Repeat("d", 200)+string(rune('a'+i%26)), ""))
	}
	for name, archive := range map[string][]byte{
		"directory": sourcestest.Zip(entries...),
		"file":      sourcestest.TarGz(sourcestest.Entry{Name: "zeros", Zeros: 64 << 20}),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := unpack(t, archive, limits); err == nil {
			t.Errorf("%s: it was unpacked", name)
		}
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 8 {
			t.Errorf("%s: it took %d MiB of memory", name, took)
		}
	}
}

func TestTop(t *testing.T) {
	for name, tc := range map[string]struct {
		files []string
		want  string
		fails bool
	}{
		"at the top":            {files: []string{"handler.js", "lib/a.js"}, want: "."},
		"in the only folder":    {files: []string{"repo-main/handler.js", "repo-main/lib/a.js"}, want: "repo-main"},
		"in one of two folders": {files: []string{"a/handler.js", "b/x"}, fails: true},
		"too deep":              {files: []string{"a/b/handler.js"}, fails: true},
		"a folder":              {files: []string{"handler.js/x"}, fails: true},
		"another name":          {files: []string{"handler.ts", "x"}, want: "."},
		"another name below":    {files: []string{"a/handler.ts"}, want: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for _, file := range tc.files {
				if err := os.MkdirAll(filepath.Join(folder, filepath.Dir(file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(folder, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			root, err := os.OpenRoot(folder)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if got, err := sources.Top(root, "handler.js", "handler.ts"); (err != nil) != tc.fails || err == nil && got != tc.want {
				t.Errorf("Top() = %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

// TestDiskFull checks that an archive is not blamed for the disk.
func TestDiskFull(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root.Close()
	archive := sourcestest.Zip(sourcestest.File("handler.js", "x"))
	err = sources.Unpack(bytes.NewReader(archive), int64(len(archive)), root, shipped)
	if code := sources.ExitCode(err); err == nil || code != 1 {
		t.Errorf("Unpack() = %v, exit code %d, want 1", err, code)
	}
}

// FuzzUnpack checks that nothing an archive says gets out of the folder.
func FuzzUnpack(f *testing.F) {
	for _, hostile := range sourcestest.HostileArchives(100) {
		if len(hostile.Archive) < 4<<10 {
			f.Add(hostile.Archive)
		}
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		folder, err := unpack(t, archive, sources.Limits{Size: 1 << 20, Files: 100, Ratio: 100})
		if code := sources.ExitCode(err); err != nil && code != sources.ExitRefused {
			t.Errorf("Unpack() = %v, exit code %d", err, code)
		}
		for name, content := range contents(t, filepath.Dir(filepath.Dir(folder))) {
			inside, isInside := strings.CutPrefix(name, "a/b/")
			if name != "a" && name != "a/b" && !isInside {
				t.Errorf("%s was written", name)
			}
			if _, isLink := strings.CutPrefix(content, "-> "); !isLink || err != nil {
				continue
			}
			resolved, err := filepath.EvalSymlinks(filepath.Join(folder, inside))
			if err == nil && resolved != folder && !strings.HasPrefix(resolved, folder+"/") {
				t.Errorf("%s leads to %s", name, resolved)
			}
		}
	})
}
