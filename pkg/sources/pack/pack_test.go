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

package pack_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-dev/kiln/pkg/sources"
	"github.com/kiln-dev/kiln/pkg/sources/pack"
)

// files writes files below a folder. A name that ends in / is a folder, one that
// ends in ! can be executed, and what begins with -> is a link.
func files(t *testing.T, dir string, contents map[string]string) {
	t.Helper()
	for name, text := range contents {
		path := filepath.Join(dir, strings.TrimSuffix(name, "!"))
		folder, mode := filepath.Dir(path), fs.FileMode(0o600)
		if strings.HasSuffix(name, "/") {
			folder = path
		}
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "!") {
			mode = 0o700
		}
		err := error(nil)
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, path)
		} else if folder != path {
			err = os.WriteFile(path, []byte(text), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func folder(t *testing.T, dir string) (archive []byte, files int) {
	t.Helper()
	packed := &bytes.Buffer{}
	files, err := pack.Folder(packed, dir)
	if err != nil {
		t.Fatal(err)
	}
	return packed.Bytes(), files
}

// unpack returns what a build finds in an archive.
func unpack(t *testing.T, archive []byte) (names []string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	limits := sources.Limits{Size: 1 << 20, Files: 100, Ratio: 100}
	if err := sources.Unpack(bytes.NewReader(archive), int64(len(archive)), root, limits); err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch info, _ := entry.Info(); {
		case name == ".":
		case entry.IsDir():
			names = append(names, name+"/")
		case info.Mode()&0o111 != 0 && info.Mode().IsRegular():
			names = append(names, name+"!")
		default:
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestFolder(t *testing.T) {
	code := map[string]string{
		"handler.js": "code", "lib/a.js": "a", "lib/b.log": "b", "bin/run!": "#!", "bin/same": "-> run",
		"node_modules/ms/index.js": "ms", "node_modules/ms/README.md": "ms", ".git/config": "git", "lib/.git": "a submodule",
	}
	for name, tc := range map[string]struct {
		ignore map[string]string
		want   []string
	}{
		"all": {
			nil,
			[]string{"bin/", "bin/run!", "bin/same", "handler.js", "lib/", "lib/a.js", "lib/b.log", "node_modules/", "node_modules/ms/", "node_modules/ms/README.md", "node_modules/ms/index.js"},
		},
		"without what Git ignores": {
			map[string]string{".gitignore": "# dependencies\r\n/node_modules/\r\n*.log\n", "lib/.gitignore": "!b.log\na.js\n"},
			[]string{".gitignore", "bin/", "bin/run!", "bin/same", "handler.js", "lib/", "lib/.gitignore", "lib/b.log"},
		},
		"without what Docker ignores": {
			map[string]string{".gitignore": "lib\n", ".dockerignore": "node_modules\n!node_modules/ms/index.js\n**/*.log\n.*ignore\n"},
			[]string{"bin/", "bin/run!", "bin/same", "handler.js", "lib/", "lib/a.js", "node_modules/ms/index.js"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files(t, dir, code)
			files(t, dir, tc.ignore)
			archive, count := folder(t, dir)
			got := unpack(t, archive)
			// A folder is packed only for its content.
			got = slices.DeleteFunc(got, func(name string) bool {
				return strings.HasPrefix(name, "node_modules/") && strings.HasSuffix(name, "/") && !slices.Contains(tc.want, name)
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("packed (-want, +got):\n%s", diff)
			}
			wantCount := len(slices.DeleteFunc(slices.Clone(tc.want), func(name string) bool { return strings.HasSuffix(name, "/") }))
			if count != wantCount {
				t.Errorf("%d files were packed, want %d", count, wantCount)
			}
		})
	}
}

// TestFolderNeeded checks that needed files are packed although they are ignored, as
// Docker reads an ignored Dockerfile.
func TestFolderNeeded(t *testing.T) {
	for _, ignore := range []string{".dockerignore", ".gitignore"} {
		dir := t.TempDir()
		files(t, dir, map[string]string{"Dockerfile": "FROM x", "lib/Dockerfile": "FROM y", "a": "", ignore: "Dockerfile\n**/Dockerfile\n.*ignore\n"})
		archive := &bytes.Buffer{}
		if _, err := pack.Folder(archive, dir, "Dockerfile", "absent"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"Dockerfile", "a", "lib/"}, unpack(t, archive.Bytes())); diff != "" {
			t.Errorf("%s: packed (-want, +got):\n%s", ignore, diff)
		}
	}
}

// TestFolderOfRepository checks that patterns of parent folders apply.
func TestFolderOfRepository(t *testing.T) {
	top := t.TempDir()
	files(t, top, map[string]string{
		".gitignore": "secret\n/lib\n", ".git/HEAD": "", "functions/.gitignore": "/greeter/tmp\n",
		"functions/greeter/handler.js": "", "functions/greeter/secret": "", "functions/greeter/tmp/x": "", "functions/greeter/lib/x": "",
	})
	archive, _ := folder(t, filepath.Join(top, "functions", "greeter"))
	if diff := cmp.Diff([]string{"handler.js", "lib/", "lib/x"}, unpack(t, archive)); diff != "" {
		t.Errorf("packed (-want, +got):\n%s", diff)
	}
}

// TestFolderTwice checks that equal content gives equal bytes.
func TestFolderTwice(t *testing.T) {
	contents := map[string]string{"handler.js": "code", "lib/a.js": "a", "bin/run!": "#!", "bin/same": "-> run"}
	first, second := t.TempDir(), t.TempDir()
	files(t, first, contents)
	files(t, second, contents)
	for path, mode := range map[string]fs.FileMode{"handler.js": 0o444, "bin/run": 0o711, "lib": 0o755} {
		if err := os.Chmod(filepath.Join(second, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(second, "handler.js"), time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	a, _ := folder(t, first)
	b, _ := folder(t, second)
	if !bytes.Equal(a, b) {
		t.Error("the same content is packed in two ways")
	}
	files(t, second, map[string]string{"lib/b.js": ""})
	if b, _ = folder(t, second); bytes.Equal(a, b) {
		t.Error("other content is packed in the same way")
	}
}

func TestFolderErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		contents map[string]string
		want     string
	}{
		"nothing":           {map[string]string{}, "there is nothing to pack"},
		"all is ignored":    {map[string]string{".gitignore": "*\n", "handler.js": ""}, "there is nothing to pack"},
		"a link out":        {map[string]string{"out": "-> ../x"}, `link "out" in it leads out of it, to "../x"`},
		"a bad pattern":     {map[string]string{".dockerignore": "[\n"}, "failed to read .dockerignore"},
		"patterns nowhere":  {map[string]string{".dockerignore/": ""}, "failed to read .dockerignore"},
		"patterns in lists": {map[string]string{"a/.gitignore/": ""}, "failed to read .gitignore"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files(t, dir, tc.contents)
			if _, err := pack.Folder(&bytes.Buffer{}, dir); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Folder() = %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := pack.Folder(&bytes.Buffer{}, filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("a folder that is not there is packed")
	}
	link := t.TempDir()
	files(t, link, map[string]string{"out": "-> /etc/passwd", ".gitignore": "out\n"})
	if _, err := pack.Folder(&bytes.Buffer{}, link); err != nil {
		t.Errorf("a link that is ignored: %v", err)
	}
}
